"""Buffer atomics: which atomics become them on which arch, what the instructions and the order around them are, and that what is masked off or outside is
not touched. Values of every kind and type are tests/conformance/test_atomics_everywhere.py's."""

import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.targets.amd.buffers import atomic_instruction

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")


@tilewright.jit
def sum_kernel(p, q, n, BLOCK: tl.constexpr, SEM: tl.constexpr = "acq_rel", SCOPE: tl.constexpr = "gpu"):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(p + i, tl.load(q + i, mask=i < n), mask=i < n, sem=SEM, scope=SCOPE)


@tilewright.jit
def old_kernel(p, q, o, n, m, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(q + i, mask=i < n)
    tl.store(o + i, tl.atomic_max(p + i, x, mask=(i < n) & (x > m)), mask=i < n)


@tilewright.jit
def rows_kernel(p, q, o, M, N, stride, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    at, inside = i[:, None] * stride + j[None, :], (i[:, None] < M) & (j[None, :] < N)
    tl.store(o + at, tl.atomic_add(p + at, tl.load(q + at, mask=inside), mask=inside), mask=inside)


@tilewright.jit
def swap_kernel(p, q, o, c, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, tl.atomic_cas(p + i, tl.load(c + i), tl.load(q + i)))


@tilewright.jit
def scatter_kernel(p, q, at, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(p + tl.load(at + i), tl.load(q + i))


def text_of(fn, element, arch, constexprs, pointers, scalars=(), explain=False, **options):
    signature = {**dict.fromkeys(pointers, "*" + element), **dict.fromkeys(scalars, "i32"), **dict.fromkeys(constexprs, "constexpr")}
    attrs = {(i,): [["tt.divisibility", 16]] for i in range(len(pointers) + len(scalars))}
    made = tilewright.compile(tilewright.compiler.ASTSource(fn=fn, signature=signature, constexprs=constexprs, attrs=attrs),
                              target=GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32), options=options)
    return made.explain() if explain else made.asm["amdgcn"]


def sums(element, arch, **more):
    constexprs = {"BLOCK": 512, **{k: more.pop(k) for k in ("SEM", "SCOPE") if k in more}}
    return text_of(sum_kernel, element, arch, constexprs, ("p", "q"), ("n",), **more)


@pytest.mark.parametrize("arch, element, name", [
    ("gfx942", "fp32", "buffer_atomic_add_f32"), ("gfx950", "bf16", "buffer_atomic_pk_add_bf16"), ("gfx942", "bf16", None), ("gfx950", "fp64", "buffer_atomic_add_f64"), ("gfx90a", "fp64", None),
    ("gfx942", "i32", r"buffer_atomic_add v"), ("gfx1100", "fp32", None), ("gfx1100", "i64", "buffer_atomic_add_u64"), ("gfx1030", "fp32", None),
    ("gfx1201", "fp16", "buffer_atomic_pk_add_f16"), ("gfx1201", "i64", "buffer_atomic_add_u64")])
def test_which_instruction(arch, element, name):
    text = sums(element, arch, SEM="relaxed")
    if name is None:
        assert "buffer_atomic" not in text and re.search("(global|flat)_atomic", text)
        assert f"{arch} has no buffer instruction for atomic fadd of" in sums(element, arch, SEM="relaxed", explain=True)
        return
    assert re.search(name, text) and "global_atomic" not in text and "s_and_saveexec" not in text and "v_cndmask" not in text


def test_table():
    assert {a for a in ARCHS if atomic_instruction(a, "fadd", "f32")} == {"gfx942", "gfx950", "gfx1201"}
    assert not any(atomic_instruction(a, "fadd", t, "sys") for a in ARCHS for t in ("f16", "bf16", "f32", "f64"))
    assert {a for a in ARCHS if atomic_instruction(a, "fadd", "bf16")} == {"gfx950", "gfx1201"}
    assert atomic_instruction("gfx942", "fadd", "f16").elements == 2 and atomic_instruction("gfx942", "xchg", "f16") is None
    assert atomic_instruction("gfx942", "max", "f32") is None and atomic_instruction("gfx1100", "umin", "i64").name == "umin"


def around(text):
    lines = [line.split()[0] + (" " + line.split()[1] if line.split()[0] in ("buffer_wbl2", "buffer_inv") else "") for line in text.splitlines() if re.match(r"\s+[a-z]", line)]
    first = next(i for i, line in enumerate(lines) if line.startswith("buffer_atomic"))
    last = max(i for i, line in enumerate(lines) if line.startswith("buffer_atomic"))
    return lines[:first], lines[last + 1:]


@pytest.mark.parametrize("sem, before, after", [("relaxed", False, False), ("release", True, False), ("acquire", False, True), ("acq_rel", True, True)])
def test_order(sem, before, after):
    """gfx942: writes go to memory and are waited for before; after, the wave waits and drops what caches have."""
    first, rest = around(sums("i32", "gfx942", SEM=sem))
    assert ("buffer_wbl2 sc1" in first) == before
    assert ("buffer_inv sc1" in rest) == after and ("s_waitcnt" in rest) == after


@pytest.mark.parametrize("scope, on_gfx942, on_gfx1201", [("cta", "", "scope:SCOPE_DEV"), ("gpu", "", "scope:SCOPE_DEV"), ("sys", "sc1", "scope:SCOPE_SYS")])
def test_scope(scope, on_gfx942, on_gfx1201):
    for arch, wanted in (("gfx942", on_gfx942), ("gfx1201", on_gfx1201)):
        line = next(line for line in sums("i32", arch, SEM="relaxed", SCOPE=scope).splitlines() if "buffer_atomic" in line)
        assert line.rsplit(" offen", 1)[1].strip() == wanted, line


def test_gathered_addresses_and_the_option_leave_them():
    text = text_of(scatter_kernel, "i32", "gfx942", {"BLOCK": 256}, ("p", "q", "at"))
    assert "global_atomic_add" in text and "buffer_atomic" not in text and "buffer_load" in text
    off = sums("i32", "gfx942", buffer_atomics=False)
    assert "global_atomic_add" in off and "buffer_atomic" not in off and "buffer_load" in off


@pytest.fixture(params=["gfx942", "gfx1201", *(pytest.param(a, marks=pytest.mark.nightly) for a in ("gfx950", "gfx1100"))])
def arch(request, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{request.param}:sim")
    return request.param


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float16, np.uint64])
def test_sums_end_where_the_mask_does(arch, dtype):
    """The array ends at n: the simulator refuses what lies beyond, and what is masked off keeps its value."""
    n, block = 704, 256  # a multiple of 16: halves are added in pairs
    x, p = np.arange(n).astype(dtype), np.full(n, 3, dtype)
    kernel = sum_kernel[(3,)](p, x, n, block, num_warps=2)
    np.testing.assert_array_equal(p, x + dtype(3))
    assert ("buffer_atomic" in kernel.asm["amdgcn"]) == (arch != "gfx1100" or dtype not in (np.float16, np.float32))
    with pytest.raises(tilewright.dialects.errors.TilewrightError, match="past the end of buffer"):
        sum_kernel[(3,)](np.zeros(690, dtype), x, n, block)


def test_old_values_with_a_mask_by_value(arch):
    rng = np.random.default_rng(4)
    n = 90  # of 128, in four waves: some hold copies
    p, q, o = rng.integers(-9, 9, n).astype(np.int32), rng.integers(-9, 9, n).astype(np.int32), np.full(n, 77, np.int32)
    before = p.copy()
    kernel = old_kernel[(1,)](p, q, o, n, -2, 128, num_warps=4)
    np.testing.assert_array_equal(p, np.where(q > -2, np.maximum(before, q), before))
    np.testing.assert_array_equal(o[q > -2], before[q > -2])
    assert "buffer_atomic" in kernel.asm["amdgcn"]


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_rows_and_columns(arch, dtype):
    m, n, stride = 21, 27, 40
    p, q, o = (np.arange(m * stride).reshape(m, stride).astype(dtype) + k for k in range(3))
    before = p.copy()
    kernel = rows_kernel[(3,)](p, q, o, m, n, stride, 8, 32, num_warps=2)
    np.testing.assert_array_equal(p[:, :n], before[:, :n] + q[:, :n])
    np.testing.assert_array_equal(p[:, n:], before[:, n:])
    np.testing.assert_array_equal(o[:, :n], before[:, :n])
    assert ("buffer_atomic" in kernel.asm["amdgcn"]) == (arch != "gfx1100" or dtype == np.int64)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_compare_and_swap(arch, dtype):
    p, q = np.arange(64).astype(dtype), (np.arange(64) + 100).astype(dtype)
    c, o = np.where(np.arange(64) % 3 == 0, p, p + dtype(1)).astype(dtype), np.zeros(64, dtype)
    before = p.copy()
    kernel = swap_kernel[(1,)](p, q, o, c, 64, num_warps=2)
    np.testing.assert_array_equal(p, np.where(np.arange(64) % 3 == 0, q, before))
    np.testing.assert_array_equal(o, before)
    assert "buffer_atomic_cmpswap" in kernel.asm["amdgcn"]


@tilewright.jit
def products_kernel(a, b, o, BM: tl.constexpr):
    i = tl.arange(0, BM)
    at = i[:, None] * BM + i[None, :]
    tl.atomic_add(o + at, tl.dot(tl.load(a + at), tl.load(b + at)).to(tl.float16), sem="relaxed")


def test_halves_of_a_product_are_added_in_pairs():
    """As split-k does: nothing else gives the tile of the sums runs of two."""
    text = text_of(products_kernel, "fp16", "gfx942", {"BM": 64}, ("a", "b", "o"))
    assert "buffer_atomic_pk_add_f16" in text and "cmpswap" not in text
