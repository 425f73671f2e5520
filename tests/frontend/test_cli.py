"""The command line, on targets that make no code; the shipped ones have their own tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap

import fake_target
import pytest

from tilewright import cli
from tilewright.compiler.source import ASTSource
from tilewright.dialects.errors import ArgumentError
from tilewright.targets import registry

KERNELS = """
    import tilewright as triton
    import tilewright.language as tl

    @triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
    @triton.jit
    def add(x, y, n, BLOCK: tl.constexpr, DTYPE: tl.constexpr = tl.float32):
        i = tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < n).to(DTYPE), mask=i < n)
"""


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Only the fake target is known; the code generator and MLIR are not used."""
    target = fake_target.Fake(device_types=("elsewhere",))
    monkeypatch.setattr(registry.metadata, "entry_points", lambda group: [])
    registry.reload()
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEWRIGHT_TARGET", raising=False)
    monkeypatch.setattr(ASTSource, "make_module", fake_target.stand_in_module)
    registry.register(target.plugin)
    (tmp_path / "kernels.py").write_text(textwrap.dedent(KERNELS))
    monkeypatch.chdir(tmp_path)
    yield target
    monkeypatch.undo()
    registry.reload()


def test_demo_rows(fake, capsys):
    assert cli.main(["demo", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["target"] for r in rows] == ["fake:f1", "fake:f2"]
    assert list(rows[0]) == ["target", "kernel", "compiled", "stages", "registers", "spills", "shared_bytes", "ran", "max_error"]
    assert rows[0]["compiled"] is True and rows[0]["ran"] is False and rows[0]["max_error"] is None and rows[0]["shared_bytes"] == 64
    assert rows[0]["stages"]["text"] == len("text of linear_relu for f1")
    assert cli.main(["demo", "--target", "fake:f2"]) == 0
    assert "fake:f2" in capsys.readouterr().out


def test_demo_shows_failures_and_says_so_in_its_status(fake, capsys):
    from tilewright.dialects.errors import OutOfResources

    fake.fail = lambda ctx: OutOfResources(2000, 1024, "shared memory") if ctx.arch == "f2" else None
    assert cli.main(["demo", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert "error" not in rows[0] and rows[1]["compiled"] is False
    assert rows[1]["error"].startswith("OutOfResources: out of resource: shared memory: 2000 needed")
    assert cli.main(["demo"]) == 1
    assert "FAILED: OutOfResources" in capsys.readouterr().out
    assert cli.main(["demo", "--target", "nothing"]) == 1
    assert "no target 'nothing'" in capsys.readouterr().out


def test_targets(fake, capsys):
    registry._known()["bad"] = registry.TargetEntry("bad", "a.b:C", error=ImportError("frobnicate is missing"))
    assert cli.main(["targets"]) == 0
    out = capsys.readouterr().out
    assert "fake (fakebackend): f1, f2" in out and "device 0: Fake One, f1" in out and "bad: BROKEN (a.b:C): ImportError: frobnicate" in out
    assert "selected now: fake:f1" in out
    assert cli.main(["targets", "--json"]) == 0
    listed = {t["name"]: t for t in json.loads(capsys.readouterr().out)}
    assert listed["fake"]["devices"] == [{"index": 0, "name": "Fake One", "arch": "f1"}] and "error" in listed["bad"]


def test_compile(fake, capsys, tmp_path):
    base = ["compile", "kernels.py:add", "--target", "fake:f2", "--signature", "*fp32:16,*fp32:16,i32,256"]
    assert cli.main(base) == 0
    assert capsys.readouterr().out == "text of add for f2\n"
    assert cli.main([*base, "--emit", "ttir", "--num-warps", "8", "--option", "speed=fast"]) == 0
    assert "func.func" in capsys.readouterr().out and fake.contexts[-1].options == fake_target.Options(num_warps=8, speed="fast")
    assert cli.main([*base, "-o", "out.bin"]) == 0
    assert (tmp_path / "out.bin").read_bytes() == b"text of add for f2\x00\xff"
    assert cli.main([*base, "--emit", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ttir", "text", "bin"]
    assert cli.main([*base, "--emit", "metadata"]) == 0
    assert json.loads(capsys.readouterr().out)["num_warps"] == 4


HOST = {
    "expressions": [["arg", 0], ["arg", 2], ["const", 2147483647], ["const", 1], ["program_id", 0], ["const", 64], ["mul", 4, 5], ["const", 2],
                    ["mul", 1, 7], ["add", 0, 8], ["loop", 4, 1, 3]],
    "descriptors": [{"name": "load of x", "base": 9, "dtype": "fp32", "itemsize": 4, "shape": [2, 1], "strides": [8, 3], "box": [64, 32],
                     "swizzle": 128, "padding": "zero"}],
    "guards": [{"kind": "aligned", "expr": 0, "to": 16, "why": "copies begin there"},
               {"kind": "range", "expr": 6, "min": 0, "max": 99, "why": "rows"}, {"kind": "multiple", "expr": 10, "of": 7, "why": "pairs"},
               {"kind": "no_alias", "descriptor": 0, "arg": 1, "why": "y is stored to"}],
    "choices": [{"line": 8, "what": "tl.load of argument 0", "chosen": "bulk copy", "why": "affine"}, {"line": 0, "what": "loop", "chosen": "plain", "why": ""}]}


def test_compile_explains(fake, capsys, monkeypatch):
    base = ["compile", "kernels.py:add", "--target", "fake:f2", "--signature", "*fp32:16,*fp32:16,i32,256", "--explain"]
    assert cli.main(base) == 0
    assert capsys.readouterr().out == "add for fake:f2\nlaunch: 4 warps a program, 64 bytes of shared memory\nchoices: none recorded\n"

    def told(ctx):
        ctx.metadata.update(host=HOST, total_warps=8, persistent={"ctas_per_sm": 2})

    fake.fail = told
    assert cli.main([*base, "--num-warps", "2", "--emit", "text"]) == 0
    out, err = capsys.readouterr()
    assert out == "text of add for f2\n"
    assert err.splitlines() == [
        "add for fake:f2",
        "launch: 2 warps a program, 8 launched, 64 bytes of shared memory; persistent, 2 blocks a multiprocessor",
        "choices:",
        "    line 8: tl.load of x: bulk copy (affine)",
        "    loop: plain",
        "descriptors made at launch:",
        "    load of x: fp32 [unbounded, n] at x + n * 2, strides [n * 2, 1]; box [64, 32], swizzle 128, padding zero",
        "checked at launch (else the version without is launched):",
        "    x is a multiple of 16 (copies begin there)",
        "    0 <= program_id(0) * 64 <= 99 (rows)",
        "    range(program_id(0), n, 1) is a multiple of 2 (pairs)",
        "    y does not overlap load of x (y is stored to)"]


@pytest.mark.parametrize("arguments, text", [
    (["kernels.py:nothing", "--signature", "i32"], "no kernel 'nothing'; it has add"),
    (["nowhere.py:add", "--signature", "i32"], "no file 'nowhere.py'"),
    (["kernels.py", "--signature", "i32"], "FILE.py:NAME"),
    (["kernels.py:add"], "--signature is needed: one entry for each of x, y, n, BLOCK, DTYPE"),
    (["kernels.py:add", "--signature", "*fp32,*fp32,i32"], "no type or constexpr value is given for BLOCK"),
    (["kernels.py:add", "--signature", "*fp32,*fp32,i32,2,fp32,7"], "more entries"),
    (["kernels.py:add", "--signature", "*fp31,*fp32,i32,2"], r"x: '\*fp31' is neither a type"),
    (["kernels.py:add", "--signature", "tensordesc<fp32[16,65]>,*fp32,i32,2"], r"x: .*65"),
    (["kernels.py:add", "--signature", "tensordesc<fp31[16,64]>,*fp32,i32,2"], "x: .*'fp31' is unknown"),
    (["kernels.py:add", "--signature", "tensordesc<fp32>,*fp32,i32,2"], r"x: .*descriptors are written tensordesc<fp16\[128,64\]>"),
    (["kernels.py:add", "--signature", "*fp32:8,*fp32,i32,2"], ":16"),
    (["kernels.py:add", "--signature", "*fp32,*fp32,i32,2", "--emit", "sass"], "no stage 'sass' .* there are ttir, text, bin"),
    (["kernels.py:add", "--signature", "*fp32,*fp32,i32,2", "--option", "colour=red"], "'colour' is neither a parameter"),
    (["kernels.py:add", "--signature", "*fp32,*fp32,i32,2", "--target", "fake:f9"], "no arch 'f9'; it has f1, f2"),
])
def test_compile_mistakes(fake, capsys, arguments, text):
    assert cli.main(["compile", *arguments]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ") and re.search(text, err), err


def test_signatures(fake):
    kernel = cli.load_kernel("kernels.py:add")
    signature, constants, attrs = cli.parse_signature(kernel, "*fp32:16, *bf16, i32:1, BLOCK=(1, 2), DTYPE=fp16")
    import tilewright.language as tl

    assert signature == {"x": "*fp32", "y": "*bf16"} and attrs == {(0,): [["tt.divisibility", 16]]}
    assert constants == {"n": 1, "BLOCK": (1, 2), "DTYPE": tl.float16}
    assert cli.parse_signature(kernel, "n=i64:16,x=*i8,y=*u8,BLOCK='a,b'")[1] == {"BLOCK": "a,b"}
    with pytest.raises(ArgumentError, match="twice"):
        cli.parse_signature(kernel, "*fp32,x=*fp32")


def tilewright(*args: str, env: dict | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "tilewright.cli", *args], capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})


def test_run_gives_a_script_its_triton(tmp_path):
    (tmp_path / "beside.py").write_text("WORD = 'beside'\n")
    (tmp_path / "script.py").write_text(textwrap.dedent("""
        import sys
        import triton
        import triton.language as tl
        from triton.runtime import driver
        from beside import WORD

        @triton.jit
        def kernel(x, BLOCK: tl.constexpr):
            tl.store(x, BLOCK)

        if __name__ == "__main__":
            print(triton.__name__, WORD, sys.argv[1:], kernel.arg_names)
            sys.exit(3)
    """))
    result = tilewright("run", str(tmp_path / "script.py"), "--flag", "7")
    assert result.returncode == 3, result.stderr
    assert result.stdout == "tilewright beside ['--flag', '7'] ['x', 'BLOCK']\n"
    absent = tilewright("run", str(tmp_path / "absent.py"))
    assert absent.returncode == 1 and absent.stderr.startswith("error: there is no file") and "Traceback" not in absent.stderr


def test_the_package_is_a_command():
    result = subprocess.run([sys.executable, "-m", "tilewright", "--version"], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.startswith("tilewright ")


def test_opt_says_that_a_file_is_no_text(tmp_path):
    (tmp_path / "k.mlir").write_bytes(b"\xff\xfe")
    result = tilewright("opt", str(tmp_path / "k.mlir"), "--passes", "dce_cse")
    assert result.returncode == 1 and "no UTF-8 text" in result.stderr and "Traceback" not in result.stderr


def test_opt_parses_and_prints(tmp_path):
    (tmp_path / "k.mlir").write_text("func.func @k(%a: i32) -> i32 { %b = arith.addi %a, %a : i32  return %b : i32 }")
    result = tilewright("opt", str(tmp_path / "k.mlir"), "--passes", "")
    assert result.returncode == 0 and "arith.addi" in result.stdout, result.stderr
    assert tilewright("opt", str(tmp_path / "k.mlir"), "--passes", "frobnicate").returncode == 1


def test_version_and_usage():
    assert tilewright("--version").stdout.startswith("tilewright 0.")
    assert tilewright("frobnicate").returncode == 2


def test_demo_of_shipped_targets(tmp_path):
    """The main job: what the README's first command does, for the targets that the issue names."""
    wanted = ["cpu", "nvidia:sm_80", "nvidia:sm_90a", "amd:gfx942", "amd:gfx1100"]
    result = tilewright("demo", "--json", *(w for t in wanted for w in ("--target", t)),
                        env={"TILEWRIGHT_CACHE_DIR": str(tmp_path), "TILEWRIGHT_TARGET": ""})
    assert result.returncode == 0, result.stdout + result.stderr
    rows = {row["target"]: row for row in json.loads(result.stdout)}
    assert list(rows) == wanted and all(row["compiled"] for row in rows.values())
    assert rows["cpu"]["ran"] is True and 0 <= rows["cpu"]["max_error"] < 1e-2
    for target, stage in (("nvidia:sm_80", "ptx"), ("nvidia:sm_90a", "ptx"), ("amd:gfx942", "amdgcn"), ("amd:gfx1100", "amdgcn")):
        assert rows[target]["stages"][stage] > 1000 and rows[target]["spills"] == 0
