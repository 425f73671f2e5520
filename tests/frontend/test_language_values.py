"""Values of the language's functions, IR and interpreter alike, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from tt_execution import compile_tt, define, run_both

from tilewright.dialects.errors import TypeMismatchError

RNG = np.random.default_rng(7)
INTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def elementwise(expression: str, *inputs: np.ndarray, out: str, **constexprs) -> np.ndarray:
    """``expression`` of a, b, c loaded from 64-element arrays, stored to an array of ``out``."""
    names = "abc"[:len(inputs)]
    loads = "; ".join(f"{n} = tl.load(p{n} + i)" for n in names)
    kernel = define(f"""
        @triton.jit
        def kernel(r, {', '.join(f'p{n}' for n in names)}):
            i = tl.arange(0, 64)
            {loads}
            tl.store(r + i, {expression})
        """)
    result = np.full(64, 99).astype(out)
    run_both(kernel, result, *(np.ascontiguousarray(x) for x in inputs))
    return result


def ints(dtype: str, low: int | None = None) -> np.ndarray:
    info = np.iinfo(dtype)
    x = RNG.integers(info.min if low is None else low, info.max, 64, dtype=dtype, endpoint=True)
    x[:4] = (info.max, info.min if low is None else low, 1, 5)
    return x


def truncated(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """C's quotient and remainder, by Python's integers."""
    pairs = [(int(x), int(y)) for x, y in zip(a, b)]
    quotients = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    bits = (1 << a.itemsize * 8) - 1

    def wrapped(values: list[int]) -> np.ndarray:
        return np.array([v & bits for v in values], np.uint64).astype(a.dtype.str.replace("i", "u")).view(a.dtype)

    return wrapped(quotients), wrapped([x - q * y for (x, y), q in zip(pairs, quotients)])


@pytest.mark.parametrize("dtype", INTS)
def test_integer_arithmetic(dtype):
    a, b = ints(dtype), ints(dtype)
    with np.errstate(over="ignore"):
        for sign, expected in (("+", a + b), ("-", a - b), ("*", a * b), ("&", a & b), ("|", a | b), ("^", a ^ b)):
            np.testing.assert_array_equal(elementwise(f"a {sign} b", a, b, out=dtype), expected, err_msg=sign)
        np.testing.assert_array_equal(elementwise("-a", a, out=dtype), -a if dtype[0] == "i" else (0 - a).astype(dtype))
    np.testing.assert_array_equal(elementwise("~a", a, out=dtype), ~a)
    b[b == 0] = 3
    b[b == np.array(-1).astype(dtype)] = 7
    quotient, remainder = truncated(a, b)
    np.testing.assert_array_equal(elementwise("a // b", a, b, out=dtype), quotient)
    np.testing.assert_array_equal(elementwise("a % b", a, b, out=dtype), remainder)
    shift = RNG.integers(0, np.dtype(dtype).itemsize * 8, 64).astype(dtype)
    np.testing.assert_array_equal(elementwise("a << b", a, shift, out=dtype), a << shift)
    np.testing.assert_array_equal(elementwise("a >> b", a, shift, out=dtype), a >> shift)


@pytest.mark.parametrize("dtype", (*INTS, "float16", "float32", "float64", "bool"))
def test_comparisons_and_selection(dtype):
    if dtype in INTS:
        a, b = ints(dtype), ints(dtype)
    elif dtype == "bool":
        a, b = RNG.integers(0, 2, (2, 64)).astype(bool)
    else:
        a, b = RNG.standard_normal((2, 64)).astype(dtype)
        a[3], b[7] = np.nan, np.nan
    b[10:20] = a[10:20]
    for sign, expected in (("<", a < b), ("<=", a <= b), (">", a > b), (">=", a >= b), ("==", a == b), ("!=", a != b)):
        np.testing.assert_array_equal(elementwise(f"a {sign} b", a, b, out="bool"), expected, err_msg=sign)
    np.testing.assert_array_equal(elementwise("tl.where(a > b, a, b)", a, b, out=dtype), np.where(a > b, a, b))
    np.testing.assert_array_equal(elementwise("a if tl.max(a.to(tl.float32)) > -1e9 else b", a, b, out=dtype), a)
    if dtype in INTS and np.dtype(dtype).itemsize >= 4:
        np.testing.assert_array_equal(elementwise("tl.maximum(a, b)", a, b, out=dtype), np.maximum(a, b))
        np.testing.assert_array_equal(elementwise("tl.minimum(a, b)", a, b, out=dtype), np.minimum(a, b))
    if dtype.startswith("float"):
        np.testing.assert_array_equal(elementwise("tl.maximum(a, b)", a, b, out=dtype), np.fmax(a, b))
        np.testing.assert_array_equal(elementwise("tl.minimum(a, b)", a, b, out=dtype), np.fmin(a, b))
        keep = "propagate_nan=tl.PropagateNan.ALL"
        np.testing.assert_array_equal(elementwise(f"tl.maximum(a, b, {keep})", a, b, out=dtype), np.maximum(a, b))
        if dtype != "float16":
            np.testing.assert_array_equal(elementwise("tl.clamp(a, -0.5, 0.5)", a, out=dtype), np.where(np.isnan(a), np.array(-0.5, dtype), np.clip(a, -0.5, 0.5)))
            np.testing.assert_array_equal(elementwise(f"tl.clamp(a, -0.5, 0.5, {keep})", a, out=dtype), np.clip(a, -0.5, 0.5))


@pytest.mark.parametrize("src", (*INTS, "float16", "float32", "float64", "bool"))
@pytest.mark.parametrize("dst", (*INTS, "float16", "float32", "float64", "bool"))
def test_casts(src, dst):
    names = {"bool": "int1"}
    if src in INTS:
        a = ints(src)
        if dst == "float16" and a.itemsize > 1:
            a %= a.dtype.type(1000)
    elif src == "bool":
        a = RNG.integers(0, 2, 64).astype(bool)
    else:
        a = np.clip(RNG.standard_normal(64) * 50, -100, 100).astype(src)  # what lies outside the integer's range has no meaning
        a[:3] = (0, 1.5, 100.5)
        if dst.startswith("uint"):
            a = np.abs(a)
    got = elementwise(f"a.to(tl.{names.get(dst, dst)})", a, out=dst)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, a.astype(dst))


def test_arithmetic_of_floats_is_numpys():
    for dtype in ("float32", "float64"):
        a, b, c = RNG.standard_normal((3, 64)).astype(dtype)
        for sign in "+-*/":
            np.testing.assert_array_equal(elementwise(f"a {sign} b", a, b, out=dtype), eval(f"a {sign} b"))
        np.testing.assert_array_equal(elementwise("a % b", a, b, out=dtype), np.fmod(a, b))
        np.testing.assert_array_equal(elementwise("tl.abs(-a)", a, out=dtype), np.abs(a))
        np.testing.assert_array_equal(elementwise("tl.div_rn(a, b)", a, b, out=dtype), a / b)
        for name in ("floor", "ceil"):
            np.testing.assert_array_equal(elementwise(f"tl.{name}(a * 3)", a, out=dtype), getattr(np, name)(a * a.dtype.type(3)))
        for name, x in (("exp", a), ("exp2", a), ("log", np.abs(a)), ("log2", np.abs(a)), ("sin", a), ("cos", a), ("sqrt", np.abs(a))):
            np.testing.assert_allclose(elementwise(f"tl.{name}(a)", x, out=dtype), getattr(np, name)(x.astype(np.float64)), rtol=1e-6)
        np.testing.assert_allclose(elementwise("tl.rsqrt(a)", np.abs(a), out=dtype), 1 / np.sqrt(np.abs(a).astype(np.float64)), rtol=1e-6)
        np.testing.assert_allclose(elementwise("tl.sigmoid(a)", a, out=dtype), 1 / (1 + np.exp(-a.astype(np.float64))), rtol=1e-6)
        np.testing.assert_allclose(elementwise("tl.fma(a, b, c)", a, b, c, out=dtype), a.astype(np.float64) * b + c, rtol=1e-5, atol=1e-7)
    assert np.signbit(elementwise("-a", np.zeros(64, np.float32), out="float32")).all()


def test_sixteen_bit_functions_round_once():
    a = np.abs(RNG.standard_normal(64)).astype(np.float16)
    np.testing.assert_array_equal(elementwise("tl.sqrt(a)", a, out="float16"), np.sqrt(a.astype(np.float32)).astype(np.float16))
    np.testing.assert_array_equal(elementwise("a / (a + 1)", a, out="float32"), a.astype(np.float32) / (a + np.float16(1)).astype(np.float32))


def test_constants_round_as_their_type_does():
    one = np.zeros(64, np.float32)
    assert elementwise("tl.full([64], 0.1, tl.float16) + a.to(tl.float16)", one, out="float16")[0] == np.float16(0.1)
    assert elementwise("tl.full([64], 0.1, tl.float64) + a.to(tl.float64)", one, out="float64")[0] == 0.1
    assert elementwise("tl.cast(0.1, tl.float64) + a.to(tl.float64)", one, out="float64")[0] == np.float64(np.float32(0.1))
    assert elementwise("tl.cast(255, tl.uint8).to(tl.int32) + a.to(tl.int32)", one, out="int32")[0] == 255
    assert elementwise("tl.cast(300, tl.int8).to(tl.int32) + a.to(tl.int32)", one, out="int32")[0] == 44
    assert elementwise("tl.full([64], -1, tl.uint32) // 2", one, out="uint32")[0] == 0x7FFFFFFF
    assert elementwise("tl.full([64], 2 ** 63, tl.uint64) >> 60", one, out="uint64")[0] == 8
    big = RNG.standard_normal(64).astype(np.float32)
    np.testing.assert_array_equal(elementwise("tl.where(a > 0, a, float('-inf'))", big, out="float32"), np.where(big > 0, big, -np.inf))


def tile(body: str, *arrays: np.ndarray, out: np.ndarray, **constexprs) -> np.ndarray:
    """A kernel that sees x (and y), whole row-major tiles of the arrays, and stores r."""
    names = "xyz"[:len(arrays)]

    def offsets(shape):
        parts = []
        for d, n in enumerate(shape):
            index = ", ".join(":" if k == d else "None" for k in range(len(shape)))
            stride = int(np.prod(shape[d + 1:]))
            parts.append(f"tl.arange(0, {n})[{index}] * {stride}" if len(shape) > 1 else f"tl.arange(0, {n})")
        return " + ".join(parts) or "0"

    loads = "".join(f"            {n} = tl.load(p{n} + {offsets(a.shape)})\n" for n, a in zip(names, arrays))
    text = "\n".join("            " + line for line in body.strip().splitlines())
    kernel = define(f"""
        @triton.jit
        def first(a, b, c, d):
            return tl.where(a > c, a, c), b + d

        @triton.jit
        def compose(a1, b1, a2, b2):
            return a1 * a2, b1 * a2 + b2

        @triton.jit
        def kernel(pr, {', '.join(f'p{n}' for n in names)}):
{loads}{text}
            tl.store(pr + {offsets(out.shape)}, r)
        """)
    run_both(kernel, out, *arrays)
    return out


@pytest.mark.parametrize("axis", (0, 1, 2, -1, None))
@pytest.mark.parametrize("keep", (False, True))
def test_reductions(axis, keep):
    x = RNG.integers(-50, 50, (4, 8, 2)).astype(np.int32)
    for name, ref in (("sum", np.sum), ("max", np.max), ("min", np.min)):
        expected = ref(x, axis=axis, keepdims=keep).astype(np.int32)
        got = tile(f"r = tl.{name}(x, axis={axis}, keep_dims={keep})", x, out=np.zeros_like(expected))
        np.testing.assert_array_equal(got, expected, err_msg=name)
    expected = np.asarray(np.bitwise_xor.reduce(x, axis=axis, keepdims=keep), np.int32)
    np.testing.assert_array_equal(tile(f"r = tl.xor_sum(x, axis={axis}, keep_dims={keep})", x, out=np.zeros_like(expected)), expected)
    for name, ref in (("argmax", np.argmax), ("argmin", np.argmin)):
        expected = np.asarray(ref(x, axis=axis, keepdims=keep), np.int32)
        got = tile(f"r = tl.{name}(x, axis={axis}, keep_dims={keep})", x, out=np.zeros_like(expected))
        np.testing.assert_array_equal(got, expected, err_msg=name)


def test_ties_go_to_the_lowest_index_and_values_come_along():
    x = np.array([3, 9, 9, 1, 9, 1, 0, 0], np.float32)
    got = tile("v, i = tl.max(x, 0, return_indices=True)\nw, j = tl.min(x, 0, return_indices=True)\nr = v * 1000 + i * 100 + w * 10 + j",
               x, out=np.zeros((), np.float32).reshape(()))
    assert got == 9 * 1000 + 1 * 100 + 0 + 6


def test_reduce_and_scan_with_any_combiner():
    x, y = RNG.integers(1, 5, (2, 4, 8)).astype(np.int32)
    expected = np.stack([x.max(axis=1), y.sum(axis=1)], axis=1).astype(np.int32)
    np.testing.assert_array_equal(tile("a, b = tl.reduce((x, y), 1, first)\nr = tl.join(a, b)", x, y, out=np.zeros((4, 2), np.int32)), expected)
    for reverse in (False, True):
        a, b = (v[:, ::-1] if reverse else v for v in (x, y))
        wanted = np.zeros_like(b)
        state = np.zeros(4, np.int32)
        with np.errstate(over="ignore"):
            for i in range(8):
                state = state * a[:, i] + b[:, i]
                wanted[:, i] = state
        wanted = wanted[:, ::-1] if reverse else wanted
        got = tile(f"a, b = tl.associative_scan((x, y), 1, compose, reverse={reverse})\nr = b", x, y, out=np.zeros_like(y))
        np.testing.assert_array_equal(got, wanted)
    got = tile("r = tl.reduce(x, 0, tl.maximum) + tl.reduce(y, 0, lambda a, b: a + b)", x, y, out=np.zeros(8, np.int32))
    np.testing.assert_array_equal(got, x.max(axis=0) + y.sum(axis=0))


@pytest.mark.parametrize("axis", (0, 1))
@pytest.mark.parametrize("reverse", (False, True))
def test_cumulative(axis, reverse):
    x = RNG.integers(1, 4, (4, 8)).astype(np.int32)
    flip = (lambda v: np.flip(v, axis)) if reverse else (lambda v: v)
    for name, ref in (("cumsum", np.cumsum), ("cumprod", np.cumprod)):
        expected = flip(ref(flip(x), axis=axis)).astype(np.int32)
        np.testing.assert_array_equal(tile(f"r = tl.{name}(x, {axis}, reverse={reverse})", x, out=np.zeros_like(x)), expected)


def test_shapes():
    x = np.arange(64, dtype=np.int32).reshape(4, 16)
    y = x + 100
    for body, expected in (
        ("r = x.T", x.T), ("r = tl.trans(x, 1, 0)", x.T), ("r = tl.permute(x.reshape(2, 2, 16), (2, 0, 1))", x.reshape(2, 2, 16).transpose(2, 0, 1)),
        ("r = x.reshape([8, 8]).T.reshape(64)", x.reshape(8, 8).T.reshape(64)), ("r = tl.ravel(x)", x.ravel()),
        ("r = tl.expand_dims(x, [0, 2]).reshape(4, 16)", x), ("r = tl.broadcast_to(x[:, None, :], 4, 2, 16)", np.broadcast_to(x[:, None], (4, 2, 16))),
        ("r = tl.sum(x, 1)[:, None] + x", x + x.sum(1)[:, None]), ("r = tl.flip(x, 0) * tl.flip(x)", x[::-1] * x[:, ::-1]),
    ):
        np.testing.assert_array_equal(tile(body, x, out=np.zeros(expected.shape, np.int32)), expected, err_msg=body)
    for body, expected in (
        ("r = tl.join(x, y)", np.stack([x, y], -1)), ("r = tl.interleave(x, y)", np.stack([x, y], -1).reshape(4, 32)),
        ("a, b = tl.split(tl.join(x, y))\nr = b - a", y - x), ("r = tl.cat(x, y, dim=0)", np.concatenate([x, y])),
        ("r = tl.cat(x, y, dim=1)", np.concatenate([x, y], 1)), ("r = tl.cat(tl.ravel(x), tl.ravel(y))", np.concatenate([x.ravel(), y.ravel()])),
        ("a, b = tl.broadcast(x, y[:, None, :])\nr = a * b", np.broadcast_arrays(x, y[:, None])[0] * np.broadcast_arrays(x, y[:, None])[1]),
    ):
        np.testing.assert_array_equal(tile(body, x, y, out=np.zeros(expected.shape, np.int32)), expected, err_msg=body)


def test_dot_and_friends():
    a, b = RNG.standard_normal((2, 16, 32)).astype(np.float32), RNG.standard_normal((2, 32, 16)).astype(np.float32)
    got = tile("r = tl.dot(x, y, input_precision='ieee')", a, b, out=np.zeros((2, 16, 16), np.float32))
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)
    i8, j8 = RNG.integers(-128, 127, (16, 32)).astype(np.int8), RNG.integers(-128, 127, (32, 16)).astype(np.int8)
    got = tile("r = tl.dot(x, y, tl.full([16, 16], 5, tl.int32))", i8, j8, out=np.zeros((16, 16), np.int32))
    np.testing.assert_array_equal(got, i8.astype(np.int32) @ j8.astype(np.int32) + 5)
    with pytest.raises(TypeMismatchError, match="int8 for its integers, not uint8"):  # lowerings read the operands as signed
        tile("r = tl.dot(x, y)", i8.view(np.uint8), j8.view(np.uint8), out=np.zeros((16, 16), np.int32))
    x = RNG.integers(0, 8, 64).astype(np.int32)
    np.testing.assert_array_equal(tile("r = tl.histogram(x, 8)", x, out=np.zeros(8, np.int32)), np.bincount(x, minlength=8))
    np.testing.assert_array_equal(tile("r = tl.histogram(x, 8, mask=x < 3)", x, out=np.zeros(8, np.int32)), np.bincount(x[x < 3], minlength=8))
    v, index = RNG.standard_normal((4, 8)).astype(np.float32), RNG.integers(0, 8, (4, 16)).astype(np.int32)
    np.testing.assert_array_equal(tile("r = tl.gather(x, y, 1)", v, index, out=np.zeros((4, 16), np.float32)), np.take_along_axis(v, index, 1))
    e = np.exp(v.astype(np.float64) - v.max(1, keepdims=True))
    np.testing.assert_allclose(tile("r = tl.softmax(x, 1)", v, out=np.zeros_like(v)), e / e.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("dtype", ("float32", "float16", "int32", "uint8", "int64", "bool"))
@pytest.mark.parametrize("n", (1, 2, 8, 64))
@pytest.mark.parametrize("descending", (False, True))
def test_sort_and_topk(dtype, n, descending):
    x = (RNG.standard_normal((4, n)) * 50).astype(dtype)
    expected = np.sort(x, axis=1)
    expected = expected[:, ::-1] if descending else expected
    np.testing.assert_array_equal(tile(f"r = tl.sort(x, descending={descending})", x, out=np.zeros_like(x)), expected)
    k = max(1, n // 4)
    np.testing.assert_array_equal(tile(f"r = tl.topk(x, {k}, descending={descending})", x, out=np.zeros((4, k), dtype)), expected[:, :k])


def test_atomics():
    kernel = define("""
        @triton.jit
        def kernel(p, q, old):
            i = tl.arange(0, 16)
            tl.store(old + i, tl.atomic_add(p + i % 4, i, mask=i < 10))
            tl.atomic_max(q + i, 0.5)
            tl.atomic_min(q + 16 + i, -0.5)
            tl.atomic_xchg(p + 5, 9)
            tl.atomic_cas(p + 6, 6, 60)
            tl.atomic_cas(p + 7, 6, 60)
            tl.atomic_and(p + 8, 12); tl.atomic_or(p + 9, 3); tl.atomic_xor(p + 10, 15)
            tl.atomic_max(p + 11, 100); tl.atomic_min(p + 12, -3)
        """)
    p, q, old = np.arange(16, dtype=np.int32), RNG.standard_normal(32).astype(np.float32), np.full(16, 7, np.int32)
    start, before = p.copy(), q.copy()
    run_both(kernel, p, q, old)
    sums = start[:4].copy()
    for i in range(10):
        assert old[i] == sums[i % 4]
        sums[i % 4] += i
    assert p.tolist() == [*sums, 4, 9, 60, 7, 8 & 12, 9 | 3, 10 ^ 15, 100, -3, 13, 14, 15] and not old[10:].any()
    np.testing.assert_array_equal(q, np.concatenate([np.maximum(before[:16], np.float32(0.5)), np.minimum(before[16:], np.float32(-0.5))]))


def test_booleans_in_memory_are_bytes():
    x = RNG.integers(0, 2, 64).astype(bool)
    np.testing.assert_array_equal(elementwise("~a", x, out="bool"), ~x)
    np.testing.assert_array_equal(elementwise("a & (b > 0)", x, np.arange(64, dtype=np.float32) - 30, out="bool"), x & (np.arange(64) > 30))


# -- random numbers ----------------------------------------------------------------------------------------------------
KNOWN = [  # of the Random123 library's known-answer tests, philox4x32-10: counter, key, words
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, 0xFFFFFFFFFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0A4093822, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]


@pytest.mark.parametrize("counter, key, words", KNOWN)
def test_philox_known_answers(counter, key, words):
    kernel = define("""
        @triton.jit
        def kernel(r, c, k):
            out = tl.philox(tl.load(k), tl.load(c), tl.load(c + 1), tl.load(c + 2), tl.load(c + 3))
            for i in tl.static_range(4):
                tl.store(r + i, out[i])
        """)
    r = np.zeros(4, np.uint32)
    run_both(kernel, r, np.array(counter, np.uint32), np.array([key], np.uint64))
    assert tuple(r.tolist()) == words


def test_random_numbers_are_uniform_normal_and_repeatable():
    kernel = define("""
        @triton.jit
        def kernel(u, n, w, seed, N: tl.constexpr):
            i = tl.arange(0, N)
            tl.store(u + i, tl.rand(seed, i))
            tl.store(n + i, tl.randn(seed, i))
            tl.store(w + i, tl.randint(seed, i.to(tl.int64) + 8589934592))
        """)
    u, n, w = np.zeros(4096, np.float32), np.zeros(4096, np.float32), np.zeros(4096, np.uint32)
    run_both(kernel, u, n, w, 1234, N=4096)
    assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 0.02 and abs(u.var() - 1 / 12) < 0.005
    assert abs(n.mean()) < 0.06 and abs(n.std() - 1) < 0.04 and len(set(w.tolist())) > 4090
    again = np.zeros_like(u)
    run_both(kernel, again, n.copy(), w.copy(), 1234, N=4096)
    np.testing.assert_array_equal(u, again)


# -- libdevice ---------------------------------------------------------------------------------------------------------
def test_libdevice_functions_made_of_primitive_operations():
    a, b = (RNG.standard_normal((2, 64)) * 100).astype(np.float32)
    a[:5] = (np.nan, np.inf, -np.inf, -0.0, 0.0)
    L = "libdevice."
    for expression, expected in ((L + "isnan(a)", np.isnan(a)), (L + "isinf(a)", np.isinf(a)), (L + "finitef(a)", np.isfinite(a)), (L + "signbit(a)", np.signbit(a))):
        np.testing.assert_array_equal(elementwise(expression, a, out="bool"), expected, err_msg=expression)
    np.testing.assert_array_equal(elementwise(L + "copysign(a, b)", a, b, out="float32"), np.copysign(a, b))
    np.testing.assert_array_equal(elementwise(L + "fdim(a, b)", b, b[::-1].copy(), out="float32"), np.maximum(b - b[::-1], 0))
    np.testing.assert_array_equal(elementwise(L + "float_as_int(a)", a, out="int32"), a.view(np.int32))
    np.testing.assert_array_equal(elementwise(L + "float2int_rz(a)", b, out="int32"), b.astype(np.int32))
    np.testing.assert_array_equal(elementwise(L + "float2int_rd(a)", b, out="int32"), np.floor(b).astype(np.int32))
    np.testing.assert_array_equal(elementwise(L + "float2ll_ru(a)", b, out="int64"), np.ceil(b).astype(np.int64))
    x, y = ints("int32"), ints("int32")
    np.testing.assert_array_equal(elementwise(L + "mulhi(a, b)", x, y, out="int32"), (x.astype(np.int64) * y >> 32).astype(np.int32))
    np.testing.assert_array_equal(elementwise(L + "hadd(a, b)", x, y, out="int32"), ((x.astype(np.int64) + y) >> 1).astype(np.int32))
    np.testing.assert_array_equal(elementwise(L + "sad(a, b, 3)", x >> 2, y >> 2, out="int32"), np.abs((x >> 2) - (y >> 2)) + 3)
    z = (x.astype(np.int64) << 32) | (y.astype(np.int64) & 0xFFFFFFFF)
    np.testing.assert_array_equal(elementwise(L + "hiloint2double(a, b)", x, y, out="float64").view(np.int64), z)
    d = RNG.standard_normal(64)
    np.testing.assert_array_equal(elementwise(L + "double2hiint(a)", d, out="int32"), (d.view(np.int64) >> 32).astype(np.int32))
    np.testing.assert_array_equal(elementwise(L + "double2loint(a)", d, out="int32"), (d.view(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32))


def test_every_libdevice_function_builds_a_kernel():
    """Each with arguments of the types that its name asks for; those with no primitive form become extern_elementwise."""
    from tilewright.language.extra import libdevice

    made = 0
    for name in libdevice.__all__:
        for arguments in _libdevice_arguments(name):
            kernel = define(f"""
                @triton.jit
                def kernel(p, q, r, s, u, v):
                    x, i, d, l, w, m = tl.load(p), tl.load(q), tl.load(r), tl.load(s), tl.load(u), tl.load(v)
                    y = libdevice.{name}({arguments})
                    tl.store(p, y.to(tl.float32))
                """)
            compile_tt(kernel, {"p": "*fp32", "q": "*i32", "r": "*fp64", "s": "*i64", "u": "*u32", "v": "*u64"})
            made += 1
    assert made >= len(libdevice.__all__) >= 190


def _libdevice_arguments(name: str) -> list[str]:
    if name in ("brev", "clz", "popc", "ffs"):
        return ["i", "l"]
    if name in ("mul24", "mulhi", "hadd", "rhadd"):
        return ["i, i", "w, w"]
    if name in ("byte_perm", "sad"):
        return ["i, i, i"]
    if name in ("ldexp", "scalbn"):
        return ["x, i", "d, i"]
    if name in ("jn", "yn"):
        return ["i, x"]
    if name == "rcp64h":
        return ["d"]
    if name in ("hiloint2double",):
        return ["i, i"]
    for prefix, argument in (("double", "d"), ("int", "i"), ("uint", "w"), ("ll", "l"), ("ull", "m"), ("longlong", "l")):
        if name.startswith((prefix + "2", prefix + "_as")):
            return [argument]
    if name.startswith(("norm3d", "rnorm3d", "fma")):
        return ["x, x, x", "d, d, 1.0"]
    if name.startswith(("norm4d", "rnorm4d")):
        return ["x, x, x, x"]
    if name.startswith(("add_", "sub_", "mul_", "div_")) or name in ("atan2", "fmod", "hypot", "nextafter", "remainder", "rhypot", "fast_dividef",
                                                                      "fast_powf", "fdim", "copysign", "pow"):
        return ["x, x", "x, 2.0"]
    return ["x"]
