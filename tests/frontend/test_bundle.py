"""Bundles: written by the command line, launched on host and simulators, refused where anything does not fit."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright
from tilewright import cli
from tilewright.bundle import write_bundle
from tilewright.dialects.errors import ArgumentError, BundleError
from tilewright.runtime.driver import driver
from tilewright.runtime.errors import LaunchSignatureError
from tilewright.runtime.launch_target import check_devices
from tilewright.targets import registry

KERNEL = """
    import tilewright as triton
    import tilewright.language as tl

    @triton.jit
    def scale(x, y, factor, stride, n, TYPE: tl.constexpr, BLOCK: tl.constexpr = 128):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i * stride, (tl.load(x + i * stride, mask=i < n).to(TYPE) * factor), mask=i < n)
"""
TARGETS = "cpu,amd:gfx942,amd:gfx1100,nvidia:sm_80"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "kernels.py").write_text(textwrap.dedent(KERNEL))
    path = folder / "scale.tw"
    args = ["compile", f"{folder}/kernels.py:scale", "--target", TARGETS, "--bundle", str(path)]
    assert cli.main([*args, "--signature", "*fp32:16,*fp32:16,fp32,i32:1,i32:16,fp32", "--signature", "*fp32,*fp32,fp32,i32,i32,fp32"]) == 0
    return path


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_TARGET", raising=False)
    yield
    driver.reset_active()


def aligned(n: int, off: int = 0) -> np.ndarray:
    raw = np.full(n + 32, np.nan, np.float32)
    start = (-raw.ctypes.data % 64) // 4 + off
    return raw[start:start + n]


def run(bundle, n=320, off=0, **kwargs):
    x, y = aligned(n, off), aligned(n, off)
    x[:] = np.arange(n)
    kernel = bundle[lambda meta: (-(-meta["n"] // 128),)](x, y, 2.5, 1, n, tilewright.language.float32, **kwargs)
    assert (y == 2.5 * x).all()
    return kernel


@pytest.mark.parametrize("target", ["cpu", "amd:gfx942:sim", "amd:gfx1100:sim", "nvidia:sm_80:sim"])
def test_the_code_of_the_selected_target_runs(made, monkeypatch, target):
    monkeypatch.setenv("TILEWRIGHT_TARGET", target)
    bundle = tilewright.load_bundle(made)
    assert bundle.targets == ["cpu:native", *TARGETS.split(",")[1:]] and bundle.name == "scale"
    assert str(run(bundle).selection) == ("cpu:native" if target == "cpu" else target)


def test_the_first_signature_that_fits_is_taken(made):
    bundle = tilewright.load_bundle(made)
    first, second = run(bundle), run(bundle, n=319)  # 319 is no multiple of 16
    assert first.hash != second.hash and run(bundle, off=1).hash == second.hash and run(bundle, BLOCK=128).hash == first.hash
    x, y = aligned(64), aligned(64)
    x[:], = (np.arange(64),)
    bundle[(1,)](x, y, 3, 2, n=32)  # another stride; constants left out
    assert (y[::2] == 3 * x[::2]).all() and np.isnan(y[1::2]).all()


def test_arguments_that_fit_nothing_are_refused(made):
    bundle = tilewright.load_bundle(made)
    x = aligned(64)
    general = tilewright.load_bundle(made)
    del general.specialisations[0]
    with pytest.raises(ArgumentError, match="compiled for 2 signatures, and these arguments fit none: .*it is \\*fp32; found \\*fp64.*found \\*fp64"):
        bundle[(1,)](x.astype(float), x, 1.0, 1, 64)
    for args, kwargs, text in [
            ((x, x, 1.0, 1, 64), {"BLOCK": 64}, "'BLOCK' of scale: the code is for 128; found 64"),
            ((x, x, 1.0, 1, 64, tilewright.language.float16), {}, "'TYPE' of scale: the code is for {'dtype': 'fp32'}"),
            ((x, x, 1.0, 1, 2**31), {}, "'n' of scale: it is i32, from -2147483648 to 2147483647; found 2147483648"),
            ((x, x, 1.0, 1, 6.0), {}, "'n' of scale: it is i32; found float"),
            ((x, 5.0, 1.0, 1, 6), {}, "'y' of scale: it is \\*fp32; found fp32"),
            ((x, None, 1.0, 1, 6), {}, "'y' of scale: it is \\*fp32; found NoneType"),
            ((x, x, x, 1, 6), {}, "'factor' of scale: it is fp32; found ndarray")]:
        with pytest.raises(ArgumentError, match=text):
            general[(1,)](*args, **kwargs)
    for args, kwargs, text in [((x, x, 1.0, 1), {}, "no argument is given for n"), ((x,) * 8, {}, "takes 7 arguments"),
                               ((x, x, 1.0, 1, 6), {"n": 6}, "'n' is given twice"), ((x, x, 1.0, 1, 6), {"num_warps": 4}, "options are compiled in")]:
        with pytest.raises(LaunchSignatureError, match=text):
            general[(1,)](*args, **kwargs)
    special = tilewright.load_bundle(made)
    del special.specialisations[1]
    for args, text in [((aligned(64, 1), x, 1.0, 1, 64), "addresses divisible by 16"), ((x, x, 1.0, 2, 64), "'stride' of scale: the code is for 1; found 2"),
                       ((x, x, 1.0, True, 64), "the code is for 1; found True"), ((x, x, 1.0, 1, 63), "multiples of 16; found 63")]:
        with pytest.raises(ArgumentError, match=text):
            special[(1,)](*args)


def test_a_target_that_is_not_inside_is_named_with_those_that_are(made, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx1201:sim")
    with pytest.raises(BundleError, match="no code for amd:gfx1201; it has code for cpu:native, amd:gfx942, amd:gfx1100, nvidia:sm_80. Compile it with"):
        run(tilewright.load_bundle(made))


def rewritten(made, tmp_path, change):
    """A copy whose files went through ``change(name, bytes) → bytes or None``."""
    path = tmp_path / "changed.tw"
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return path


def test_code_for_another_processor_is_refused(made, tmp_path):
    path = rewritten(made, tmp_path, lambda name, data: data.replace(b'"made_on": "', b'"made_on": "other, ') if name == "index.json" else data)
    with pytest.raises(BundleError, match="was made on another machine \\(other, .*x86-64-v3"):
        run(tilewright.load_bundle(path))


def test_damage_is_found(made, tmp_path):
    (tmp_path / "text").write_text("no zip")
    with pytest.raises(BundleError, match="is no bundle, or damaged"):
        tilewright.load_bundle(tmp_path / "text")
    with pytest.raises(BundleError, match=r"absent.tw: the bundle cannot be read: No such file"):
        tilewright.load_bundle(tmp_path / "absent.tw")
    with pytest.raises(BundleError, match="the bundle cannot be read: Is a directory"):
        tilewright.load_bundle(tmp_path)
    newer = rewritten(made, tmp_path, lambda name, data: data.replace(b'"format": 1', b'"format": 2') if name == "index.json" else data)
    with pytest.raises(BundleError, match="of format 2; this Tilewright reads format 1"):
        tilewright.load_bundle(newer)
    with pytest.raises(BundleError, match="lacks index.json"):
        tilewright.load_bundle(rewritten(made, tmp_path, lambda name, data: None if name == "index.json" else data))
    with pytest.raises(BundleError, match="its index lacks 'kernel'"):
        tilewright.load_bundle(rewritten(made, tmp_path, lambda name, data: data.replace(b'"kernel"', b'"lernel"') if name == "index.json" else data))
    with pytest.raises(BundleError, match="lacks 0/cpu/native/obj"):
        run(tilewright.load_bundle(rewritten(made, tmp_path, lambda name, data: None if name == "0/cpu/native/obj" else data)))
    data = bytearray(made.read_bytes())
    with zipfile.ZipFile(made) as archive:
        info = archive.getinfo("0/cpu/native/obj")
    data[info.header_offset + 30 + len(info.filename) + info.compress_size // 2] ^= 0xFF
    (tmp_path / "flipped.tw").write_bytes(data)
    with pytest.raises(BundleError, match="is damaged: 0/cpu/native/obj"):
        run(tilewright.load_bundle(tmp_path / "flipped.tw"))


def test_no_compiler_is_imported(made):
    code = f"""
        import sys, numpy as np, tilewright
        raw = np.zeros(400, np.float32)
        x = raw[(-raw.ctypes.data % 64) // 4:][:320]
        tilewright.load_bundle({str(made)!r})[(3,)](x, x, 2.0, 1, 320)
        bad = [m for m in sys.modules if "mlir" in m or m.startswith(("tilewright.dialects.lowering", "tilewright.compiler.code_generator"))]
        assert not bad, bad
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_same_input_gives_the_same_file(made, tmp_path):
    args = ["compile", f"{made.parent}/kernels.py:scale", "--target", "amd:gfx942", "--signature", "*fp32,*fp32,fp32,i32,i32,fp32", "--bundle"]
    assert cli.main([*args, str(tmp_path / "a")]) == cli.main([*args, str(tmp_path / "b")]) == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("arguments, text", [
    (["--target", "cpu,amd:gfx942", "--signature", "i32"], "several targets are compiled into one file: --bundle FILE"),
    (["--target", "cpu", "--signature", "i32", "--signature", "i64"], "several signatures"),
    (["--bundle", "x", "--signature", "i32"], "--bundle needs --target"),
    (["--bundle", "x", "--target", "cpu"], "--signature is needed"),
    (["--bundle", "x", "--target", "cpu,cpu:native", "--signature", "i32"], "names an arch twice"),
    (["--bundle", "x", "--target", "cpu", "--emit", "asm", "--signature", "i32"], "leave --emit out"),
])
def test_mistakes(made, capsys, arguments, text):
    assert cli.main(["compile", f"{made.parent}/kernels.py:scale", *arguments]) == 1
    assert text in capsys.readouterr().err


PRODUCT = """
    import tilewright as triton
    import tilewright.language as tl

    @triton.jit
    def product(a, b, c, M, N, K, sa, sb, sc, BLOCK: tl.constexpr, BK: tl.constexpr):
        i, j, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, BK)
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for s in range(0, K, BK):
            x = tl.load(a + i[:, None] * sa + (s + k)[None, :], mask=(i[:, None] < M) & ((s + k)[None, :] < K), other=0.0)
            y = tl.load(b + (s + k)[:, None] * sb + j[None, :], mask=((s + k)[:, None] < K) & (j[None, :] < N), other=0.0)
            acc = tl.dot(x, y, acc)
        tl.store(c + i[:, None] * sc + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))
"""


def test_versions_that_a_launch_may_ask_for_are_inside(tmp_path, monkeypatch):
    """On sm_90a a matmul of bulk copies asks for the version without, where an address is not aligned; gfx942 for the one without buffer
    instructions, where rows reach into each other."""
    (tmp_path / "kernels.py").write_text(textwrap.dedent(PRODUCT))
    path = tmp_path / "product.tw"
    assert cli.main(["compile", f"{tmp_path}/kernels.py:product", "--target", "nvidia:sm_90a,amd:gfx942", "--bundle", str(path),
                     "--signature", "*fp16,*fp16,*fp32:16,i32,i32,i32,i32,i32,i32,64,64"]) == 0
    with zipfile.ZipFile(path) as archive:
        code = json.loads(archive.read("index.json"))["specialisations"][0]["code"]
    for entry in code:
        wanted = entry["metadata"].get("launch_variants") or []
        assert wanted and [v["options"] for v in entry["variants"]] == wanted, entry["target"]
    bundle = tilewright.load_bundle(path)
    kernel = bundle.specialisations[0].kernel(tilewright.targets.registry.parse("nvidia:sm_90a:sim"))
    assert "ptx" in kernel.variant(wanted_of(code[0])).asm and kernel.variant(wanted_of(code[0])).hash != kernel.hash
    with pytest.raises(BundleError, match="speed=9, which the bundle does not hold"):
        kernel.variant({"speed": 9})
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx942:sim")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    for strides in (64, 0):  # rows of a that are one row: their masks cannot be left to the hardware's bounds
        c = np.full((64, 64), np.nan, np.float32)
        bundle[(1,)](a, b, c, 64, 64, 64, strides, 64, 64)
        used = a if strides else np.broadcast_to(a[0], (64, 64))
        assert np.allclose(c, used.astype(np.float32) @ b.astype(np.float32), atol=0.05)


def wanted_of(entry):
    return entry["metadata"]["launch_variants"][0]


def test_a_check_without_an_answer_is_not_bundled(tmp_path):
    kernel = SimpleNamespace(asm={"bin": b""}, given={}, name="k", selection=SimpleNamespace(plugin=SimpleNamespace(name="t", binary_stage="bin"), arch="a"),
                             metadata=SimpleNamespace(_asdict=lambda: {"host": {"guards": [{}]}}),
                             src=SimpleNamespace(name="k", types=list, fn=SimpleNamespace(arg_names=[]), constants={}, attrs={}))
    with pytest.raises(BundleError, match="does not tell .metadata launch_variants. what is launched where a check fails"):
        write_bundle(str(tmp_path / "x"), [[kernel]])


def test_a_place_that_cannot_be_written_is_told_before_anything_is_compiled(tmp_path, capsys):
    for path, text in ((tmp_path / "no" / "x", "there is no folder for"), (tmp_path, "is a folder")):
        assert cli.main(["compile", "nothing.py:k", "--target", "cpu", "--signature", "i32", "--bundle", str(path)]) == 1
        assert text in capsys.readouterr().err


def test_arrays_of_the_host_are_pointed_to_the_simulator():
    with pytest.raises(ArgumentError, match="takes arrays on cuda, hip.* amd:gfx942:sim runs its simulator on arrays of the host"):
        check_devices("k", registry.parse("amd:gfx942"), {"x": ["cpu"]})
