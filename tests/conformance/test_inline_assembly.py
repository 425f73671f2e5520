"""tl.inline_asm_elementwise in each target's own assembly: packs, types of every width, several results; what is refused, and where."""

from __future__ import annotations

import platform
import re

import pytest
import torch

from tilewright.conformance.harness import (
    ON_CPU,
    ONLY_INTERPRETER,
    TARGET,
    interpret,
    kernel_of,
    poisoned,
    random_array,
    rng_of,
    run,
)
from tilewright.dialects.errors import TypeMismatchError, UnsupportedOnTargetError
from tilewright.runtime.interpreter import InterpreterError

KIND = "cpu" if ON_CPU else "amd" if TARGET.startswith("amd") else "nvidia"
pytestmark = [pytest.mark.skipif(ON_CPU and platform.machine().lower() not in ("x86_64", "amd64"), reason="the texts are for x86"),
              pytest.mark.skipif(ONLY_INTERPRETER, reason="the interpreter runs no assembly")]

# name → target → (assembly, constraints)
TEXTS = {
    "x + 2 y": {"cpu": ("leal ($1,$2,2), $0", "=r,r,r"), "amd": ("v_lshl_add_u32 $0, $2, 1, $1", "=v,v,v"),
                "nvidia": ("add.s32 $0, $1, $2; add.s32 $0, $0, $2;", "=&r,r,r")},
    "flip bit 7 of bytes": {"cpu": ("movl $1, $0\nxorl $$0x80808080, $0", "=r,r"), "amd": ("v_xor_b32 $0, 0x80808080, $1", "=v,v"),
                            "nvidia": ("xor.b32 $0, $1, 0x80808080;", "=r,r")},
    "negate two halves": {"cpu": ("movl $1, $0\nxorl $$0x80008000, $0", "=r,r"), "amd": ("v_xor_b32 $0, 0x80008000, $1", "=v,v"),
                          "nvidia": ("xor.b32 $0, $1, 0x80008000;", "=r,r")},
    "negate a half": {"cpu": ("xorl $$0x8000, $0", "=r,0"), "amd": ("v_xor_b32 $0, 0x8000, $1", "=v,v"),
                      "nvidia": ("xor.b16 $0, $1, 0x8000;", "=h,h")},
    "twice": {"cpu": ("leaq ($1,$1), $0", "=r,r"), "amd": ("v_lshlrev_b64 $0, 1, $1", "=v,v"), "nvidia": ("add.s64 $0, $1, $1;", "=l,l")},
    "two results": {"cpu": ("leal ($2,$2), $0\nmovl $3, $1", "=&r,=r,r,r"), "amd": ("v_lshlrev_b32 $0, 1, $2\nv_mov_b32 $1, $3", "=&v,=v,v,v"),
                    "nvidia": ("add.s32 $0, $2, $2; mov.b32 $1, $3;", "=&r,=r,r,r")},
    "bytes to words": {"cpu": ("movl $4, $0\nandl $$255, $0\nmovl $4, $1\nshrl $$8, $1\nandl $$255, $1\nmovl $4, $2\nshrl $$16, $2\nandl $$255, $2\n"
                               "movl $4, $3\nshrl $$24, $3", "=&r,=&r,=&r,=&r,r"),
                       "amd": ("v_and_b32 $0, 0xff, $4\nv_bfe_u32 $1, $4, 8, 8\nv_bfe_u32 $2, $4, 16, 8\nv_lshrrev_b32 $3, 24, $4", "=&v,=&v,=&v,=&v,v"),
                       "nvidia": ("and.b32 $0, $4, 255; shr.b32 $1, $4, 8; and.b32 $1, $1, 255; shr.b32 $2, $4, 16; and.b32 $2, $2, 255; "
                                  "shr.b32 $3, $4, 24;", "=&r,=&r,=&r,=&r,r")},
}


def _call(name: str, args: str, dtype: str, pack: int) -> str:
    asm, constraints = TEXTS[name][KIND]
    return f"tl.inline_asm_elementwise(asm={asm!r}, constraints={constraints!r}, args=[{args}], dtype={dtype}, is_pure=True, pack={pack})"


def _run(name: str, given: dict, dtype: str, results: dict, pack: int, n: int, warps: int = 1):
    loads = ", ".join(f"tl.load({p} + i)" for p in given)
    stores = "\n    ".join(f"tl.store({o} + i, {'out' if len(results) == 1 else f'out[{k}]'})" for k, o in enumerate(results))
    source = f"@triton.jit\ndef kernel({', '.join([*given, *results])}, N: tl.constexpr):\n    i = tl.arange(0, N)\n    " \
             f"out = {_call(name, loads, dtype, pack)}\n    {stores}\n"
    return run(kernel_of(source), {**given, **{o: poisoned(d, n) for o, d in results.items()}, "N": n}, num_warps=warps)


@pytest.mark.parametrize("n, warps", [(1, 1), (64, 1), (256, 4)])
def test_words_and_packed_bytes(n, warps):
    x, y = (random_array("int32", n, rng_of("asm", k), small=True) for k in "xy")
    assert torch.equal(_run("x + 2 y", {"x": x, "y": y}, "tl.int32", {"o": "int32"}, 1, n, warps)["o"], x + 2 * y)
    b = random_array("uint8", n, rng_of("asm", "b"))
    assert torch.equal(_run("flip bit 7 of bytes", {"b": b}, "tl.uint8", {"o": "uint8"}, 4, n, warps)["o"], b ^ 0x80)
    assert torch.equal(_run("flip bit 7 of bytes", {"b": b}, "tl.uint8", {"o": "uint8"}, 1, n, warps)["o"], b ^ 0x80)
    assert torch.equal(_run("bytes to words", {"b": b}, "tl.int32", {"o": "int32"}, 4, n, warps)["o"], b.to(torch.int32))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_halves_alone_and_in_pairs(dtype):
    kind = {"fp16": "tl.float16", "bf16": "tl.bfloat16"}[dtype]
    h = random_array(dtype, 64, rng_of("asm", dtype))
    for name, pack in (("negate a half", 1), ("negate two halves", 2)):
        assert torch.equal(_run(name, {"h": h}, kind, {"o": dtype}, pack, 64)["o"], -h)


def test_64_bits_and_two_results():
    x = random_array("int64", 64, rng_of("asm", 64), small=True)
    if not TARGET.startswith("amd:gfx12"):  # where it has another name
        assert torch.equal(_run("twice", {"x": x}, "tl.int64", {"o": "int64"}, 1, 64)["o"], 2 * x)
    a, f = x.to(torch.int32), random_array("fp32", 64, rng_of("asm", "f"))
    out = _run("two results", {"a": a, "f": f}, "(tl.int32, tl.float32)", {"o": "int32", "p": "fp32"}, 1, 64)
    assert torch.equal(out["o"], 2 * a) and torch.equal(out["p"], f)


def test_operands_are_broadcast_and_scalars_work():
    source = f"""
        @triton.jit
        def kernel(x, o, s):
            i = tl.arange(0, 16)
            tl.store(o + i, {_call("x + 2 y", "tl.load(x + i), s", "tl.int32", 1)})
            tl.store(o + 16, {_call("x + 2 y", "s, 100", "tl.int32", 1)})
        """
    x = torch.arange(16, dtype=torch.int32)
    out = run(kernel_of(source), {"x": x, "o": poisoned("int32", 17), "s": 7}, num_warps=1)["o"]
    assert out.tolist() == [*(v + 14 for v in range(16)), 207]


def test_the_target_is_known_while_compiling():
    """One kernel for every target: the branches of others are not compiled."""
    table = {k: TEXTS["x + 2 y"][k] for k in ("cpu", "amd", "nvidia")}
    source = f"""
        from tilewright.language.target_info import is_cuda, is_hip

        @triton.jit
        def kernel(x, o):
            i = tl.arange(0, 16)
            v = tl.load(x + i)
            if is_cuda():
                v = tl.inline_asm_elementwise({table['nvidia'][0]!r}, {table['nvidia'][1]!r}, [v, v], dtype=tl.int32, is_pure=True, pack=1)
            elif is_hip():
                v = tl.inline_asm_elementwise({table['amd'][0]!r}, {table['amd'][1]!r}, [v, v], dtype=tl.int32, is_pure=True, pack=1)
            elif tl.target_info.is_cpu():
                v = tl.inline_asm_elementwise({table['cpu'][0]!r}, {table['cpu'][1]!r}, [v, v], dtype=tl.int32, is_pure=True, pack=1)
            else:
                v = 3 * v
            tl.store(o + i, v)
        """
    x = torch.arange(16, dtype=torch.int32)
    args = {"x": x, "o": poisoned("int32", 16)}
    assert torch.equal(run(kernel_of(source), args, num_warps=1)["o"], 3 * x)
    assert torch.equal(interpret(kernel_of(source), args)["o"], 3 * x)


@pytest.mark.parametrize("asm, constraints, error, text", [
    ("frobnicate $0, $1;", None, UnsupportedOnTargetError, "does not take this inline assembly.*(?s:.*)frobnicate"),
    ("", "=y7,y7", UnsupportedOnTargetError, "y7|constraint"),
    (None, "=r,r,r,r", TypeMismatchError, "1 operand registers a call"),
    (None, "r,=r,=r", TypeMismatchError, "1 result registers a call"),
])
def test_what_is_refused_names_the_line(asm, constraints, error, text):
    letter = {"cpu": "r", "amd": "v", "nvidia": "r"}[KIND]
    source = f"""
        @triton.jit
        def kernel(o):
            x = tl.arange(0, 8)
            x = tl.inline_asm_elementwise({asm or 'nop'!r}, {constraints or f'={letter},{letter}'!r}, [x], dtype=tl.int32, is_pure=True, pack=1)
            tl.store(o + tl.arange(0, 8), x)
        """
    with pytest.raises(error) as caught:
        run(kernel_of(source), {"o": poisoned("int32", 8)}, num_warps=1)
    if "do not define check_inline_asm" in str(caught.value):
        raise caught.value  # a target that takes no assembly at all says nothing of this one: refused
    assert re.search(text, str(caught.value)), caught.value
    assert "x = tl.inline_asm_elementwise" in caught.value.source_line


def test_the_interpreter_says_that_it_cannot():
    source = f"@triton.jit\ndef kernel(o):\n    tl.store(o, {_call('x + 2 y', '1, 2', 'tl.int32', 1)})\n"
    with pytest.raises(InterpreterError, match="cannot run target assembly"):
        interpret(kernel_of(source), {"o": poisoned("int32", 1)})


_OWN = {"nvidia": ("cuda", "globaltimer", "smid"), "amd": ("hip", "memrealtime", "memrealtime"), "cpu": ("cuda", "globaltimer", "smid")}


def test_functions_of_one_target():
    """Clocks do not go backwards; on other targets the call is an error of its line, and a branch on the target hides it."""
    alias, clock, other = _OWN[KIND]
    source = f"""
        @triton.jit
        def kernel(o):
            before = tl.extra.{alias}.{clock}()
            other = tl.extra.{alias}.{other}()
            tl.store(o, tl.extra.{alias}.{clock}() - before)
            tl.store(o + 1, other)

        @triton.jit
        def guarded(o):
            if tl.target_info.is_cuda():
                tl.store(o, tl.extra.cuda.num_warps() * 1000 + tl.extra.cuda.num_threads())
                if tl.target_info.cuda_capability_geq(9):
                    tl.extra.cuda.gdc_wait()
                    tl.extra.cuda.gdc_launch_dependents()
            elif tl.target_info.is_hip():
                tl.store(o, tl.extra.hip.memrealtime() * 0 + 2064)
            else:
                tl.store(o, 2064)
        """
    args = {"o": poisoned("int64", 2)}
    if KIND == "cpu":
        with pytest.raises(UnsupportedOnTargetError, match="globaltimer is a function of nvidia alone, and this is compiled for cpu") as caught:
            run(kernel_of(source), args)
        assert caught.value.line > 0
    else:
        out = run(kernel_of(source), args, num_warps=2)["o"]
        assert 0 <= out[0] < 10**10 and out[1] >= 0
    assert run(kernel_of(source, "guarded"), args, num_warps=2)["o"][0] == 2064
    with pytest.raises(UnsupportedOnTargetError, match="compiled for the interpreter"):
        interpret(kernel_of(source), args)
