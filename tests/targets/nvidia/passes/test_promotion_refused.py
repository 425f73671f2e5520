"""One test a condition under which an access must stay as it is: refused when compiling, or by a guard when launching."""

import numpy as np
import pytest
from descriptor_oracle import Compiled, operations
from tt_execution import define

BLOCKS = dict(BM=16, BN=16, BK=16)
INDICES = """
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.arange(0, BN)
    k = tl.arange(0, BK)
"""
A = "a = tl.load(a_ptr + i[:, None] * sa + k[None, :], mask=i[:, None] < M, other=0.0)"
W = "b = tl.load(b_ptr + k[:, None] * sb + j[None, :])"
OUT = "tl.store(c_ptr + i[:, None] * sc + j[None, :], tl.dot(a, b).to(c_ptr.dtype.element_ty), mask=i[:, None] < M)"


def compiled(a=A, b=W, out=OUT, indices=INDICES, dtype=np.float16, more="", m=40, extra=None, blocks=None, **changed):
    source = f"""
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, sa, sb, sc, {more}BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
{indices}
    {a}
    {b}
    {out}
"""
    rng = np.random.default_rng(0)
    args = dict(a_ptr=rng.integers(-3, 4, (64, 64)).astype(dtype), b_ptr=rng.integers(-3, 4, (64, 64)).astype(dtype),
                c_ptr=np.zeros((64, 64), np.float32), M=m, sa=64, sb=64, sc=64) | (extra or {}) | changed
    return Compiled(define(source), args, blocks or BLOCKS)


def first(c):
    """Why a's load was refused, or "tma"."""
    found = [ch for ch in c.choices if ch["what"] in ("tl.load of argument 0", "tl.load of pointers")]
    return found[0]["chosen"] if found[0]["chosen"] == "tma" else found[0]["why"]


def test_the_plain_kernel_is_promoted():
    c = compiled()
    assert c.chosen() == ["tma", "tma"] and c.chosen("tl.store") == ["tma"]
    c.check((3,))


LOAD = "tl.load(a_ptr + {at}, mask={mask}{rest})"


def a_load(at="i[:, None] * sa + k[None, :]", mask="i[:, None] < M", rest=", other=0.0"):
    return "a = " + LOAD.format(at=at, mask=mask, rest=rest)


@pytest.mark.parametrize("what, changes, words", [
    ("other is 1", dict(a=a_load(rest=", other=1.0")), "other is not 0"),
    ("other is -0.0", dict(a=a_load(rest=", other=-0.0")), "other is not 0"),
    ("other is a tile", dict(a=a_load(rest=", other=k[None, :].to(tl.float16)")), "other is not 0"),
    ("volatile", dict(a=a_load(rest=", volatile=True")), "volatile"),
    ("uncached", dict(a=a_load(rest=", cache_modifier='.cv'")), "volatile"),
    ("mask of another form", dict(a=a_load(mask="(i[:, None] < M) | (k[None, :] < 3)")), "the mask is made by arith.ori"),
    ("mask by equality", dict(a=a_load(mask="i[:, None] != M")), "the mask compares by !="),
    ("mask of a sum of coordinates", dict(a=a_load(mask="i[:, None] + k[None, :] < M")), "something else than one coordinate"),
    ("mask of a multiple", dict(a=a_load(mask="i[:, None] * 2 < M")), "something else"),
    ("mask of a scalar", dict(a=a_load(mask="(i[:, None] < M) & (tl.program_id(0) < 2)")), "one for the whole tile"),
    ("two bounds", dict(a=a_load(mask="(i[:, None] < M) & (i[:, None] < sb)")), "two upper bounds"),
    ("two coordinates", dict(a=a_load(mask="(i[:, None] < M) & (j[:, None] < M)")), "different coordinates"),
    ("a bound from memory", dict(a=a_load(mask="i[:, None] < tl.load(n_ptr)"), more="n_ptr, ", extra=dict(n_ptr=np.full(1, 40, np.int32))),
     "a value that the host cannot know"),
    ("a mask from memory", dict(a=a_load(mask="tl.load(n_ptr + i)[:, None] > 0"), more="n_ptr, ", extra=dict(n_ptr=np.ones(64, np.int32))),
     "is not affine"),
    ("a row from memory", dict(a=a_load("(tl.load(n_ptr) + i[:, None]) * sa + k[None, :]", "k[None, :] < M"), more="n_ptr, ",
                               extra=dict(n_ptr=np.zeros(1, np.int32))), "a value that the host cannot know"),
    ("rows from memory", dict(a=a_load("tl.load(n_ptr + i)[:, None] * sa + k[None, :]"), more="n_ptr, ", extra=dict(n_ptr=np.arange(64, dtype=np.int32))),
     "is not affine"),
    ("no unit stride", dict(a=a_load("i[:, None] * sa + k[None, :] * 2")), "no dim has stride 1"),
    ("a stride that is not known to be 1", dict(a=a_load("i[:, None] * sa + k[None, :] * s1"), more="s1, ", extra=dict(s1=2)), "no dim has stride 1"),
    ("two unit strides", dict(a=a_load("i[:, None] + k[None, :]")), "two dims have stride 1"),
    ("a broadcast dim", dict(a=a_load("i[:, None] * 0 + k[None, :]")), "one address"),
    ("a product of coordinates", dict(a=a_load("i[:, None] * k[None, :] + k[None, :]")), "products of coordinates"),
    ("a maximum", dict(a=a_load("tl.maximum(i, M)[:, None] * sa + k[None, :]")), "arith.maxsi of a tile"),
    ("a choice", dict(a=a_load("tl.where((i < M) & (k < 3), i, 0)[:, None] * sa + k[None, :]")), "arith.select is not affine"),
    ("a division", dict(a=a_load("(i // 2)[:, None] * sa + k[None, :]")), "arith.divsi of a tile"),
    ("a stride that changes", dict(a=a_load("i[:, None] * (sa * (1 + tl.program_id(1))) + k[None, :]")), "not the same in every program"),
    ("a row of 8 bytes", dict(dtype=np.int8, blocks=dict(BM=16, BN=16, BK=8)), "rows have 8 bytes"),
    ("an unaligned constant stride", dict(a=a_load("i[:, None] * 20 + k[None, :]")), "a stride is 40 bytes"),
    ("a negative stride", dict(a=a_load("i[:, None] * -64 + k[None, :]")), "a stride is -128 bytes"),
    ("a pointer of another type", dict(a="a = tl.load(a_ptr.to(tl.pointer_type(tl.bfloat16)) + i[:, None] * sa + k[None, :]).to(tl.float16)"),
     "tt.bitcast is not affine"),
    ("a mask that lets nothing through", dict(a=a_load(mask="i[:, None] - tl.program_id(0) * BM < 0")), "lets nothing through"),
    ("coordinates of more than 31 bits", dict(a=a_load("(k.to(tl.int64) + 4294967296)[None, :] + i[:, None] * sa")), "never within 0"),
    ("six dims", dict(a=a_load("i[:, None] * sa + k[None, :] + tl.program_id(1) * s1 + tl.program_id(2) * s2 + tl.num_programs(0) * s3 + tl.num_programs(1) * s4"),
                      more="s1, s2, s3, s4, ", extra=dict(s1=16, s2=32, s3=48, s4=80)), "6 dims"),
    ("a store to the same argument", dict(out=OUT + "\n    tl.store(a_ptr + i, 0.0)"), "also stores to that argument"),
    ("an atomic on the same argument", dict(out=OUT + "\n    tl.atomic_add(a_ptr + i, 1.0)"), "also stores to that argument"),
    ("a store through a loaded pointer", dict(out=OUT + "\n    tl.store(tl.load(n_ptr).to(tl.pointer_type(tl.float32)), 0.0)", more="n_ptr, ",
                                              extra=dict(n_ptr=np.zeros(1, np.int64))), "derived from no argument"),
])
def test_refused_when_compiling(what, changes, words):
    c = compiled(**changes)
    assert first(c) != "tma" and (words is None or words in first(c)), first(c)
    # what is left is untouched
    assert len(operations(c.after, "tt.load")) >= 1 and all(ch["line"] > 0 for ch in c.choices)


@pytest.mark.parametrize("what, a, words", [
    ("an if", """a = tl.zeros((BM, BK), tl.float16)
    acc = tl.zeros((BM, BN), tl.float32)
    if M > 3:
        a = tl.load(a_ptr + i[:, None] * sa + k[None, :])
        acc = tl.dot(a, a)
    a = a + acc.to(tl.float16)""", "stands in an if"),
    ("a while loop", """n = 0
    acc = tl.zeros((BM, BN), tl.float32)
    while n < M:
        a = tl.load(a_ptr + i[:, None] * sa + k[None, :])
        acc = tl.dot(a, a, acc)
        n += 16
    a = acc.to(tl.float16)""", "stands in a while loop"),
    ("amounts that change", """acc = tl.zeros((BM, BN), tl.float32)
    p = a_ptr + i[:, None] * sa + k[None, :]
    for n in range(0, 3):
        a = tl.load(p)
        acc = tl.dot(a, a, acc)
        p += n * sa
    a = acc.to(tl.float16)""", "a loop changes it by amounts that differ"),
    ("two arguments in turns", """acc = tl.zeros((BM, BN), tl.float32)
    p, q = a_ptr, b_ptr
    for n in range(0, 3):
        a = tl.load(p + i[:, None] * sa + k[None, :])
        acc = tl.dot(a, a, acc)
        p, q = q, p
    a = acc.to(tl.float16)""", "a loop changes it"),
])
def test_refused_for_where_it_stands(what, a, words):
    c = compiled(a=a)
    assert words in first(c), c.choices


def test_loads_that_feed_no_dot_are_left_alone():
    c = compiled(out="c = tl.load(c_ptr + i[:, None] * sc + j[None, :])\n    " + OUT.replace("tl.dot(a, b)", "(tl.dot(a, b) + c)"))
    assert c.chosen()[2] == "it feeds no dot" and c.chosen("tl.store") == ["the kernel also loads from that argument"]
    source = """
@triton.jit
def kernel(x_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)
"""
    c = Compiled(define(source), dict(x_ptr=np.ones(40, np.float32), y_ptr=np.zeros(40, np.float32), n=40), dict(B=16))
    assert c.chosen() == ["it feeds no dot"] and c.chosen("tl.store") == [] and "descriptor" not in c.text


@pytest.mark.parametrize("what, changes, words", [
    ("two stores", dict(out=OUT + "\n    " + OUT), "more than one place"),
    ("one place in a loop", dict(out="for n in range(0, M):\n        " + OUT), "again and again"),
    ("a mask", dict(out=OUT.replace("mask=i[:, None] < M", "mask=(i[:, None] < M) & (tl.program_id(0) < 9)")), "one for the whole tile"),
    ("one dim", dict(out="tl.store(c_ptr + i, tl.sum(tl.dot(a, b), 1))"), "fewer than two dims"),
    ("reads through a loaded pointer", dict(out="s = tl.load(tl.load(n_ptr).to(tl.pointer_type(tl.float32)))\n    " + OUT.replace("tl.dot(a, b)", "(tl.dot(a, b) + s)"),
                                            more="n_ptr, ", extra=dict(n_ptr=np.zeros(1, np.int64))), "loads through a pointer"),
])
def test_refused_stores(what, changes, words):
    c = compiled(**changes)
    assert c.chosen()[:2] == ["tma", "tma"] and words in c.chosen("tl.store")[0], c.choices


def reasons(c, grid=(3,), **changed):
    args = [changed.get(n, a) for n, a in zip(c.names, c.args)]
    return " ".join(c.answer(grid, args).reasons)


def test_guards_of_what_the_hardware_does_at_edges():
    """An H200 stored whole units of 16 bytes, over 8 bytes beyond 100 numbers of fp16, and ended with an illegal instruction where copies began within a unit or stores below 0."""
    def said(c):
        return " ".join(c.answer((3,), edges=True).reasons)

    within = "tl.store(c_ptr + i[:, None] * sc + j[None, :], tl.dot(a, b), mask=(i[:, None] < M) & (j[None, :] < n))"
    for n, holds in ((8, True), (12, True), (10, False), (13, False)):
        c = compiled(out=within, more="n, ", extra=dict(n=n))
        assert c.chosen("tl.store") == ["tma"] and ("must end at a multiple of 16 bytes" not in said(c)) == holds
    for s1, holds in ((0, True), (8, True), (3, False), (4, False)):
        c = compiled(a=a_load("s1 + i[:, None] * sa + k[None, :]"), more="s1, ", extra=dict(s1=s1))
        assert first(c) == "tma" and ("must begin at a multiple of 16 bytes" not in said(c)) == holds
    above = "i = M - (tl.program_id(0) + 1) * BM + tl.arange(0, BM)\n    j = tl.arange(0, BN)\n    k = tl.arange(0, BK)"
    for m, holds in ((48, True), (40, False)):
        c = compiled(a=a_load(mask="(i[:, None] < M) & (i[:, None] >= 0)"), indices="    " + above, m=m,
                     out="tl.store(c_ptr + i[:, None] * sc + j[None, :], tl.dot(a, b), mask=(i[:, None] < M) & (i[:, None] >= 0))")
        assert c.chosen("tl.store") == ["tma"] and (not said(c)) == holds, (said(c), c.choices)


def test_guard_of_alignment():
    assert not reasons(compiled())
    # nothing is known of an argument that is no multiple of 16: the launch looks
    odd = np.zeros(5000, np.float16)[1:]
    assert "multiple of 16" in reasons(compiled(a_ptr=odd))
    assert "a stride is 120 bytes" in reasons(compiled(sa=60))
    assert not reasons(compiled(sa=40))
    c = compiled(a=a_load("s1 + i[:, None] * sa + sb * sc + k[None, :]"), more="s1, ", extra=dict(s1=3))
    assert first(c) == "tma" and not reasons(c)  # s1 is a coordinate, sb · sc moves the base
    assert "multiple of 16" in reasons(c, sb=3, sc=40)


def test_guard_of_negative_coordinates():
    c = compiled(a=a_load("(i + s1)[:, None] * sa + k[None, :]", "(i + s1)[:, None] < M"), more="s1, ", extra=dict(s1=2))
    assert first(c) == "tma" and not reasons(c)
    assert "coordinates of dim 0 must lie within 0" in reasons(c, s1=-1)
    c.check((2,))


def test_guard_of_wrapping_coordinates_and_offsets():
    c = compiled()
    assert "coordinates of dim 0" in reasons(c, grid=(2**28,))
    # without its mask, a's rows reach offsets of more than 32 bits
    unmasked = compiled(a=a_load(mask="k[None, :] < M"))
    assert first(unmasked) == "tma" and not reasons(unmasked, grid=(2**20,), sa=64)
    assert "32-bit arithmetic must not wrap" in reasons(unmasked, grid=(2**20,), sa=512)
    # under the mask they cannot
    assert not reasons(c, grid=(2**20,), sa=512)
    assert "32-bit arithmetic must not wrap" in reasons(c, grid=(2**20,), sa=512, M=2**23)
    wide = compiled(a=a_load("i.to(tl.int64)[:, None] * sa + k[None, :]", "k[None, :] < M"))
    assert first(wide) == "tma" and not reasons(wide, grid=(2**20,), sa=512)


def test_guard_of_empty_tensors():
    assert "a dim has 0 elements" in reasons(compiled(), M=0) and "a dim has -5 elements" in reasons(compiled(), M=-5)


REMAINDER = a_load("(i % M)[:, None] * sa + k[None, :]", "k[None, :] < sb")
UNMASKED = OUT.replace(", mask=i[:, None] < M", "")


def test_guard_of_remainders():
    blocks = dict(BM=32, BN=16, BK=16)
    c = compiled(a=REMAINDER, out=UNMASKED, m=64, blocks=blocks)
    assert first(c) == "tma" and not reasons(c, (2,))
    c.check((2,))
    assert "must be multiples of the block" in reasons(c, M=48)
    assert "zero" in reasons(c, M=0)
    odd = compiled(a=REMAINDER, out=UNMASKED, indices=INDICES.replace("* BM", "* 8"), m=48)
    assert "must be multiples of the block" in reasons(odd)


def test_remainder_without_guard_where_the_store_masks_the_rows_off():
    c = compiled(a=REMAINDER, m=40)
    assert first(c) == "tma" and not reasons(c)
    c.check((4,))


@pytest.mark.parametrize("what, changes", [
    ("no mask", dict(out=UNMASKED)),
    ("another bound", dict(out=OUT.replace("< M", "< sb"))),
    ("another row", dict(out=OUT.replace("mask=i", "mask=(i + 1)"))),
    ("two stores", dict(out=OUT + "\n    tl.store(c_ptr + j, tl.sum(tl.dot(a, b), 0))")),
    ("rows that are added up", dict(out=OUT.replace("tl.dot(a, b)", "(tl.dot(a, b) + tl.sum(a, 0)[None, :])"))),
    ("rows that become columns", dict(out=OUT.replace("tl.dot(a, b)", "tl.trans(tl.dot(a, b))"))),
    ("rows that are summed over", dict(out=OUT.replace("tl.dot(a, b)", "tl.dot(b, a)"))),
    ("rows that are addresses", dict(out=OUT.replace("i[:, None] * sc", "(i[:, None] * sc + tl.dot(a, b).to(tl.int32) * tl.program_id(1))"))),
    ("another round's rows", dict(a=None)),
])
def test_remainder_with_guard_where_the_rows_may_be_seen(what, changes):
    if what == "another round's rows":
        changes = dict(a="""acc = tl.zeros((BM, BN), tl.float32)
    for n in range(0, M, BM):
        i = n + tl.arange(0, BM)
        acc = tl.dot(tl.load(a_ptr + (i % M)[:, None] * sa + k[None, :]), tl.load(b_ptr + k[:, None] * sb + j[None, :]), acc)
        tl.store(c_ptr + i[:, None] * sc + j[None, :], acc.to(tl.float32), mask=i[:, None] < M)
    a = tl.zeros((BM, BK), tl.float16)""", w="b = a", out="pass")
        changes["b"] = changes.pop("w")
    c = compiled(**{"a": REMAINDER, **changes}, m=56)
    assert first(c) == "tma" and "must be multiples of the block" in reasons(c), c.choices
    wrapping = compiled(**{"a": REMAINDER, **changes}, m=48)
    assert not reasons(wrapping)
    wrapping.check((3,))


def test_guard_of_negative_rows_under_a_remainder():
    """The remainder of a negative number is negative: rows that come out right only by luck are not relied on."""
    c = compiled(a=a_load("((i + s1) % M + 60)[:, None] * sa + k[None, :]", "k[None, :] < sb"), more="s1, ", extra=dict(s1=0), m=4,
                 out=OUT.replace("i[:, None]", "(i + s1)[:, None]"))
    assert first(c) == "tma" and not reasons(c, (1,))
    assert "within their bounds" in reasons(c, (1,), s1=-30)


@pytest.mark.parametrize("clamp", ["tl.where(i < M, i, 0)", "tl.minimum(i, M - 1)"])
def test_guard_of_clamped_rows_that_may_be_seen(clamp):
    c = compiled(a=a_load(f"({clamp})[:, None] * sa + k[None, :]", "k[None, :] < sb"), out=UNMASKED, m=40)
    assert first(c) == "tma" and not reasons(c, (2,))
    c.check((2,))
    assert "within their bounds" in reasons(c, (3,))


def test_guard_of_overlapping_memory():
    c = compiled()
    assert not reasons(c)
    shared = np.zeros((64, 64), np.float32)
    overlapping = shared.view(np.float16).reshape(64, 128)[:, :64]
    assert reasons(c, a_ptr=overlapping, c_ptr=shared)
    # memory that only pointers read must lie apart from what is stored by copies
    biased = compiled(out="c = tl.load(n_ptr + j)[None, :]\n    " + OUT.replace("tl.dot(a, b)", "(tl.dot(a, b) + c)"), more="n_ptr, ",
                      extra=dict(n_ptr=np.zeros(64, np.float32)))
    assert biased.chosen("tl.store") == ["tma"] and not reasons(biased)
    assert reasons(biased, n_ptr=biased.args[biased.names.index("c_ptr")].reshape(-1)[:64])
