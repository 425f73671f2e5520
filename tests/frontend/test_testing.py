"""tilewright.testing beside do_bench: comparisons, reports with plots, peak figures and the vendors' tools."""

from __future__ import annotations

import os
import sys
import types

import numpy as np
import pytest

import tilewright as triton
from tilewright import testing
from tilewright.dialects.errors import ArgumentError
from tilewright.runtime.driver import driver


def test_assert_close():
    testing.assert_close(np.ones(3), np.ones(3) * 1.001)
    testing.assert_close([1.0, np.nan], [1.0, np.nan])
    testing.assert_close(1.0, 1.005)
    with pytest.raises(AssertionError):
        testing.assert_close(np.ones(3), np.ones(3) * 1.1)
    with pytest.raises(AssertionError):
        testing.assert_close(np.ones(3) * 100, np.ones(3) * 100.5)  # no relative tolerance by default
    testing.assert_close(np.ones(3) * 100, np.ones(3) * 100.5, rtol=lambda dtype: 1e-2 if dtype == np.float64 else 0)
    with pytest.raises(AssertionError, match="of the sum"):
        testing.assert_close(np.float32(1), np.float32(2), err_msg="of the sum")


def test_assert_close_of_torch_tensors():
    torch = pytest.importorskip("torch")
    testing.assert_close(torch.ones(3, dtype=torch.bfloat16, requires_grad=True), torch.ones(3))
    testing.assert_close(torch.ones(3).to(torch.float8_e5m2), np.ones(3))


def test_what_do_bench_takes():
    with pytest.raises(ArgumentError, match="quantiles lie from 0 to 1; found 50"):
        testing.do_bench(lambda: None, quantiles=[50])
    with pytest.raises(ArgumentError, match="return_mode"):
        testing.do_bench_cudagraph(lambda: None, return_mode="middle")
    x = types.SimpleNamespace(grad=1)
    seen = []
    testing.do_bench(lambda: seen.append(x.grad) or setattr(x, "grad", 2), warmup=0.01, rep=0.01, grad_to_none=[x])
    assert seen[0] == 1 and seen[1:6] == [None] * 5  # the first call finds what is there


def report(**kw):
    @testing.perf_report(testing.Benchmark(["N", "M"], [1, (2, 3)], "kind", ["a", "b"], ["A", "B"], "a plot", {"scale": 10}, ylabel="GB/s", **kw))
    def measure(N, M, kind, scale, plus=0.0):
        middle = N * scale + M + (kind == "b") / 3 + plus
        return middle, middle - 1, middle + 1

    return measure


@pytest.fixture
def without_packages(monkeypatch):
    for name in ("matplotlib", "matplotlib.pyplot", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)


def test_perf_report_without_packages(tmp_path, capsys, without_packages):
    with pytest.warns(UserWarning, match="matplotlib is not installed"):
        report().run(print_data=True, save_path=str(tmp_path / "new"), plus=0.5)
    assert (tmp_path / "new" / "a plot.csv").read_text() == \
        "N,M,A (GB/s),B (GB/s)\n1,1,11.500000,11.833333\n2,3,23.500000,23.833333\n"
    page = (tmp_path / "new" / "results.html").read_text()
    assert "<td>23.833333</td>" in page and "<img" not in page
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a plot:" and lines[1].split() == ["N", "M", "A", "(GB/s)", "B", "(GB/s)"] and lines[3].split() == ["2", "3", "23.500000", "23.833333"]
    with pytest.raises(testing.MissingPackageError, match="pip install matplotlib"):
        report().run(show_plots=True)
    with pytest.raises(testing.MissingPackageError, match="pip install pandas"):
        report().run(return_df=True)
    assert report()(1, 2, "a", 10)[0] == 12
    report().run()  # nothing asked for: nothing needed


def test_the_difference_of_two_columns(tmp_path, without_packages):
    @testing.perf_report([testing.Benchmark(["N"], [1, 2], "kind", ["a"], ["A"], "plot", {})])
    def measure(N, kind):
        return N * 2.5

    with pytest.warns(UserWarning):
        measure.run(save_path=str(tmp_path), diff_col=True, save_precision=2)
    assert (tmp_path / "plot.csv").read_text() == "N,A,Diff\n1,2.50,1.50\n2,5.00,3.00\n"


def test_perf_report_draws(tmp_path, monkeypatch):
    """What the library is asked to draw; it need not be installed."""
    calls = []

    class Axes:
        def __getattr__(self, name):
            return lambda *args, **kw: calls.append((name, args, kw))

    plot = types.ModuleType("matplotlib.pyplot")
    plot.figure = lambda: calls.append(("figure", (), {}))
    plot.subplot = Axes
    plot.show = lambda: calls.append(("show", (), {}))
    plot.savefig = lambda path: calls.append(("savefig", (path,), {}))
    package = types.ModuleType("matplotlib")
    package.pyplot = plot
    monkeypatch.setitem(sys.modules, "matplotlib", package)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plot)
    report(x_log=True, styles=[("red", "-"), ("blue", "--")]).run(show_plots=True, save_path=str(tmp_path))
    plots = [c for c in calls if c[0] == "plot"]
    assert plots[1][1] == ([1, 2], [11 + 1 / 3, 23 + 1 / 3]) and plots[1][2] == {"label": "B (GB/s)", "color": "blue", "ls": "--"}
    assert ("fill_between", ([1, 2], [10.0, 22.0], [12.0, 24.0]), {"alpha": 0.15, "color": "red"}) in calls
    assert ("set_xscale", ("log",), {}) in calls and ("set_yscale", ("linear",), {}) in calls and ("set_xlabel", ("N",), {}) in calls
    assert [c[0] for c in calls][-2:] == ["show", "savefig"] and calls[-1][1] == (os.path.join(str(tmp_path), "a plot.png"),)
    assert '<img src="a plot.png"/>' in (tmp_path / "results.html").read_text()


def test_mistakes_in_benchmarks():
    with pytest.raises(ArgumentError, match="line_names"):
        testing.Benchmark(["N"], [1], "kind", ["a", "b"], ["A"], "plot", {})
    bench = testing.Benchmark(["N", "M"], [(1, 2, 3)], "kind", ["a"], ["A"], "plot", {})
    with pytest.raises(ArgumentError, match="plot: 3 values for 2 x_names"):
        testing.perf_report(bench)(lambda **kw: 0).run()


class Device:
    """A driver that tells an H200's figures."""

    def current_device(self):
        return 0

    def get_device_properties(self, device):
        return {"multiprocessor_count": 132, "mem_clock_rate": 3201000, "mem_bus_width": 6144, "arch": 90 if device == 0 else 75}


def test_peaks(monkeypatch):
    from tilewright.targets import registry

    drivers = sys.modules["tilewright.runtime.driver"]

    selection = registry.parse("nvidia:sm_90a")
    monkeypatch.setattr(drivers, "_drivers", dict(drivers._drivers))
    drivers.set_driver(selection, Device())
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a")
    assert testing.get_dram_gbps() == pytest.approx(4916.7, abs=0.1)
    # the white paper's dense figures: 989 TFLOPS of fp16 and 1979 of fp8 at 1830 MHz
    assert testing.get_max_tensorcore_tflops("fp16", 1830e3) == pytest.approx(989, abs=1)
    assert testing.get_max_tensorcore_tflops(triton.language.float8e4nv, 1830e3) == pytest.approx(1979, abs=1)
    assert testing.get_max_tensorcore_tflops("fp32", 1830e3) == pytest.approx(494.7, abs=1)
    assert testing.get_max_simd_tflops(np.dtype("float32"), 1980e3) == pytest.approx(66.9, abs=0.1)
    assert testing.get_max_tensorcore_tflops("fp16", 1590e3, device=1) == pytest.approx(132 * 1024 * 1590e3 * 1e-9)
    with pytest.raises(ArgumentError, match="bf16 at compute capability 7.5 is not known here; known are fp16, i8"):
        testing.get_max_tensorcore_tflops("bf16", 1e6, device=1)
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    with pytest.raises(testing.UnsupportedUtilityError, match="does not tell the memory's clock"):
        testing.get_dram_gbps()
    with pytest.raises(testing.UnsupportedUtilityError, match="'cpu' does not tell max_simd_tflops; nvidia does"):
        testing.get_max_simd_tflops("fp32", 1e6)
    assert driver.active.selection.plugin.name == "cpu"


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """A stand-in for the vendor's tool: answers queries, and notes what it was told."""

    def make(answer, fail=""):
        path = tmp_path / "nvidia-smi"
        path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ -n "{fail}" ] && case "$*" in *{fail}*) echo "no permission" >&2; exit 4;; esac\n'
                        f'case "$*" in *--query*) echo "{answer}";; esac\n')
        path.chmod(0o755)
        return tmp_path / "calls"

    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return make


def test_the_vendors_management_tool(smi, monkeypatch):
    from tilewright.targets.nvidia.utilities import ToolError

    calls = smi("1400, 1215")
    assert testing.nvsmi(["clocks.sm", "clocks.mem"]) == [1400, 1215]
    with testing.set_gpu_clock(1402, 1215) as (tflops, gbps):
        assert tflops == pytest.approx(310.1, abs=0.1) and gbps == pytest.approx(1555.2)
    told = calls.read_text()
    assert "--lock-gpu-clocks=1402,1402" in told and told.index("-rgc") > told.index("--query-gpu=clocks.current.sm")
    with pytest.raises(ToolError, match="1400 and 1215 MHz, not the 1000"):
        with testing.set_gpu_clock(1000, 1215):
            pass
    smi("N/A")
    with pytest.raises(ToolError, match="in numbers: N/A"):
        testing.nvsmi(["clocks.sm"])
    smi("1", fail="lock-gpu")
    with pytest.raises(ToolError, match="nvidia-smi failed: no permission"):
        with testing.set_gpu_clock():
            pass
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolError, match="no nvidia-smi on PATH"):
        testing.nvsmi(["clocks.sm"])


SASS = """
	code for sm_80
		Function : add
	.headerflags	@"EF_CUDA_SM80"
        /*0000*/                   MOV R1, c[0x0][0x28] ;                        /* 0x00000a0000017a02 */
                                                                                 /* 0x000fe40000000f00 */
        /*0010*/              @P0 BRA 0x20 ;                                     /* 0x0000000000007947 */
                                                                                 /* 0x001fea0003800000 */
        /*0020*/                   EXIT ;                                        /* 0x000000000000794d */
                                                                                 /* 0x000fea0003800000 */
"""


def test_disassembly(tmp_path, monkeypatch):
    from tilewright import knobs
    from tilewright.targets.nvidia.utilities import ToolError
    from tilewright.tools.disasm import get_sass

    tool = tmp_path / "cuobjdump"
    tool.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/calls\ncat <<'END'\n{SASS}\nEND\n")
    tool.chmod(0o755)
    with knobs.nvidia.scope():
        knobs.nvidia.cuobjdump = str(tool)
        text = get_sass(b"a cubin", fun="add")
    assert text.splitlines() == ["Function:add", "--:-:-:-:2\tMOV R1, c[0x0][0x28];", "01:-:-:-:5\t@P0 BRA LBB0;", "LBB0:", "--:-:-:-:5\tEXIT;", ""]
    assert "-fun add -sass" in (tmp_path / "calls").read_text()
    monkeypatch.setattr(type(knobs.nvidia).cuobjdump, "default", None)
    monkeypatch.setattr("tilewright.targets.nvidia.utilities.KNOBS", types.SimpleNamespace(cuobjdump=None))
    with pytest.raises(ToolError, match="pip install nvidia-cuda-cuobjdump"):
        get_sass(b"a cubin")
