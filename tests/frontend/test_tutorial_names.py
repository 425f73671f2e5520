"""Every import, name and host function that Triton's tutorials 01 to 11 use, under their names: in one process that says ``import triton``."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

IMPORTS = """
    import triton
    import triton.language as tl
    import triton.profiler as proton
    import triton.tools.experimental_descriptor
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as cuda_libdevice
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
    from triton.language.extra.hip import libdevice as hip_libdevice
    from triton.profiler import viewer as proton_viewer
    from triton.runtime import driver
    from triton.tools.mxfp import MXFP4Tensor, MXScaleTensor
    from triton.tools.tensor_descriptor import TensorDescriptor
    import triton.profiler.viewer
"""
REFUSED = {"import triton.tools.experimental_descriptor": "removed in Triton 3.4"}
NAMES = """
    triton.jit triton.autotune triton.heuristics triton.Config triton.cdiv triton.next_power_of_2 triton.set_allocator triton.constexpr_function
    triton.testing.perf_report triton.testing.Benchmark triton.testing.do_bench triton.testing.do_bench_cudagraph triton.testing.assert_close
    triton.runtime.driver.active.get_active_torch_device triton.runtime.driver.active.get_current_target triton.runtime.driver.active.utils.get_device_properties
    triton.runtime.driver.active.get_current_stream triton.runtime.driver.active.get_current_device triton.runtime.driver.active.get_device_interface
    triton.runtime.driver.active.get_benchmarker triton.knobs.runtime triton.knobs.compilation triton.knobs.autotuning.print triton.knobs.nvidia triton.knobs.amd triton.compile
    triton.compiler.ASTSource triton.compiler.CompiledKernel triton.OutOfResources triton.MockTensor triton.runtime.JITFunction triton.runtime.OutOfResources
    triton.__version__ proton.start proton.finalize proton.activate proton.deactivate proton.scope proton_viewer.parse
    TensorDescriptor.from_tensor MXFP4Tensor MXScaleTensor
    tl.program_id tl.num_programs tl.arange tl.load tl.store tl.zeros tl.full tl.where tl.max tl.sum tl.exp tl.sqrt tl.rand tl.dot tl.dot_scaled tl.trans tl.maximum tl.minimum tl.abs
    tl.atomic_cas tl.atomic_xchg tl.atomic_add tl.debug_barrier tl.assume tl.multiple_of tl.max_contiguous tl.advance tl.make_block_ptr tl.make_tensor_descriptor tl.tensor_descriptor
    tl.static_assert tl.static_print tl.static_range tl.range tl.constexpr tl.pointer_type tl.cdiv tl.swizzle2d tl.math.exp2 tl.math.log2 tl.exp2 tl.log2 tl.permute tl.reshape tl.split tl.join
    tl.tensor tl.dtype tl.float8e5 tl.float8e4nv tl.float16 tl.bfloat16 tl.float32 tl.int8 tl.int32 tl.int64 tl.uint8 tl.sigmoid tl.softmax tl.extra.cuda.gdc_wait
    tl.extra.cuda.gdc_launch_dependents tl.extra.cuda.libdevice.asin libdevice.asin libdevice.tanh cuda_libdevice.asin hip_libdevice.asin gdc_wait gdc_launch_dependents driver.active
    tl.inline_asm_elementwise tl.associative_scan tl.reduce tl.histogram tl.device_print tl.device_assert
"""
SCRIPT = """
    import tilewright
    tilewright.install_as_triton()
    import torch
    found = []
    for statement in IMPORTS:
        try:
            exec(statement)
        except ImportError as e:
            assert REFUSED.get(statement, "no such refusal") in str(e), (statement, e)
            found.append(statement)
    assert sorted(found) == sorted(REFUSED), found
    missing = []
    for name in NAMES:
        try:
            eval(name)
        except Exception as e:
            missing.append((name, repr(e)))
    assert not missing, missing
"""
RUNS = SCRIPT + """
    DEVICE = triton.runtime.driver.active.get_active_torch_device()
    facts = driver.active.utils.get_device_properties(DEVICE.index or 0)
    assert all(facts[n] > 0 for n in ("multiprocessor_count", "max_num_regs", "max_shared_mem", "warpSize")), facts
    assert isinstance(driver.active.get_current_target().backend, str) and driver.active.get_current_target().arch is not None
    sys.path.insert(0, FOLDER)
    import tutorial_kernels as t

    # 02: a kernel compiled ahead, its resources, and its launch
    x, y = torch.rand(8, 64), torch.zeros(8, 64)
    kernel = t.softmax.warmup(y, x, 64, 64, 8, 60, BLOCK=64, num_stages=4, num_warps=8, grid=(1,))
    kernel._init_handles()
    assert isinstance(kernel.n_regs, int) and isinstance(kernel.metadata.shared, int)
    kernel[(4, 1, 1)](y, x, 64, 64, 8, 60, 64, 4)
    torch.testing.assert_close(y[:, :60], torch.softmax(x[:, :60], 1))

    # 03, 06 and 09: tuned, with hooks, pruned, by tensor descriptors, with facts for profilers
    a, b, c = torch.rand(32, 32), torch.rand(32, 32), torch.zeros(32, 32)
    descriptors = [TensorDescriptor.from_tensor(v, [1, 1]) for v in (a, b, c)]
    t.product[lambda meta: (triton.cdiv(32, meta["BLOCK"]), triton.cdiv(32, meta["BLOCK"]))](*descriptors, 32, WARP_SPECIALIZE=False)
    torch.testing.assert_close(c, a @ b)
    assert t.product.best_config.kwargs["BLOCK"] == 16 and t.hooked and t.pruned
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cpu", dtype=torch.int8))
    t.device_descriptor[(2,)](a, c, 32, 32, BLOCK=16)
    torch.testing.assert_close(c[:16], a[:16])

    # 04, 05, 07, 11
    out = torch.zeros(64)
    t.rest[(3,)](x.view(-1)[:64].contiguous(), out, torch.zeros(2, dtype=torch.int32), 0.5, 123, BLOCK=64, launch_pdl=True, num_ctas=1)
    torch.testing.assert_close(out, 3 * torch.asin(x.view(-1)[:64]))

    # benchmarks
    @triton.testing.perf_report(triton.testing.Benchmark(
        x_names=["size"], x_vals=[16, 32], x_log=True, line_arg="provider", line_vals=["triton", "torch"], line_names=["Triton", "Torch"], styles=[("blue", "-"), ("green", "-")],
        ylabel="GB/s", plot_name="performance", args={"n": 1}))
    def benchmark(size, provider, n):
        ms, low, high = triton.testing.do_bench(lambda: size * n, warmup=1, rep=2, quantiles=[0.5, 0.2, 0.8])
        return 1.0, 0.5, 2.0

    benchmark.run(print_data=True, show_plots=False)
"""
KERNELS = """
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    hooked, pruned = [], []

    @triton.jit
    def softmax(out, x, in_stride, out_stride, rows, columns, BLOCK: tl.constexpr, num_stages: tl.constexpr):
        for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=num_stages):
            i = tl.arange(0, BLOCK)
            v = tl.load(x + row * in_stride + i, mask=i < columns, other=-float("inf"))
            e = tl.exp(v - tl.max(v, axis=0))
            tl.store(out + row * out_stride + i, e / tl.sum(e, axis=0), mask=i < columns)

    def set_blocks(args):
        hooked.append(args["BLOCK"])
        for name in ("a", "b", "c"):
            args[name].block_shape = [args["BLOCK"], args["BLOCK"]]

    def prune(configs, named_args, **kwargs):
        pruned.append(named_args["K"])
        return [c for c in configs if c.kwargs["BLOCK"] <= 16]

    def facts(grid, kernel, args):
        return {"name": kernel.name, "flops": 2 * args["K"]}

    @triton.autotune(configs=[triton.Config({"BLOCK": b}, num_stages=2, num_warps=4, pre_hook=set_blocks) for b in (16, 32)], key=["K", "WARP_SPECIALIZE"],
                     prune_configs_by={"early_config_prune": prune})
    @triton.jit(launch_metadata=facts)
    def product(a, b, c, K, BLOCK: tl.constexpr, WARP_SPECIALIZE: tl.constexpr):
        tl.static_assert(BLOCK >= 16)
        m, n = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for k in tl.range(0, K, BLOCK, warp_specialize=WARP_SPECIALIZE, flatten=False):
            tl.assume(k >= 0)
            acc = tl.dot(a.load([m, k]), b.load([k, n]), acc, input_precision="ieee")
        c.store([m, n], acc)

    @triton.jit
    def device_descriptor(x, y, M, N, BLOCK: tl.constexpr):
        d = x if isinstance(x, tl.tensor_descriptor) else tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BLOCK, BLOCK])
        out = tl.make_tensor_descriptor(y, shape=[M, N], strides=[N, 1], block_shape=[BLOCK, BLOCK])
        out.store([0, tl.program_id(0) * BLOCK], d.load([0, tl.program_id(0) * BLOCK]))

    @triton.jit
    def rest(x, out, lock, p, seed, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.extra.cuda.gdc_wait()
        v = libdevice.asin(tl.load(x + i))
        v = tl.where(tl.rand(seed, i) > -1.0, v, 0.0)
        tl.extra.cuda.gdc_launch_dependents()
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
        total = tl.load(out + i) + v
        tl.store(out + i, total)
        tl.debug_barrier()
        tl.atomic_xchg(lock, 0)
"""


def _list(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is missing")
@pytest.mark.parametrize("script", [SCRIPT, pytest.param(RUNS, marks=pytest.mark.nightly)], ids=["names", "runs"])
def test_what_the_tutorials_use(tmp_path, script):
    (tmp_path / "tutorial_kernels.py").write_text(textwrap.dedent(KERNELS))
    head = f"import sys\nFOLDER, IMPORTS, NAMES, REFUSED = {str(tmp_path)!r}, {_list(IMPORTS)!r}, {NAMES.split()!r}, {REFUSED!r}\n"
    done = subprocess.run([sys.executable, "-c", head + textwrap.dedent(script) + "print('all there')\n"], capture_output=True, text=True, timeout=300, cwd=tmp_path,
                          env={**os.environ, "TILEWRIGHT_TARGET": "cpu", "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode == 0 and "all there" in done.stdout, done.stdout[-2000:] + done.stderr[-3000:]
