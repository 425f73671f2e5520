"""Quotients and roots of compiled code from estimates as bad as the manuals allow: correctly rounded all the same."""

import re

import numpy as np
import pytest
from amd_harness import Kernel

from tilewright.targets.amd.lower_division import _root, precise_quotient
from tilewright.targets.amd.simulate import simulate

KINDS = {"f32": (np.float32, np.uint32, 23), "f64": (np.float64, np.uint64, 52)}


def program(kind, root):
    def body(b, hooks, args):
        element = b.t_f32 if kind == "f32" else b.t_f64
        lane = hooks.thread_id(b)
        n, d, out = (b.gep(p, lane, element) for p in args)
        x, y = b.load(n, element), b.load(d, element)
        b.store(_root(b, x) if root else precise_quotient(b, x, y), out)

    return Kernel("gfx942", ["!llvm.ptr<1>"] * 3, body).assembly()


def nudged(text, kind, by):
    """The code with its estimates off by ``by`` units in the last place of f32, or 2^-20 of f64's low word."""
    def more(match):
        low = match.group(2).split(":")[0]
        return f"{match.group(0)}\n\tv_xor_b32_e32 v{low}, {by}, v{low}" if kind == "f64" else f"{match.group(0)}\n\tv_add_u32_e32 v{low}, {by}, v{low}"

    text, count = re.subn(r"\tv_(rcp|rsq)_f(?:32|64)_e32 v\[?([0-9:]+)\]?, .*", more, text)
    assert count == 1
    return text


def values(kind, rng):
    """Of 64 lanes: numerators of one bit, of all ones, random; denominators of all ones, up to 256 places below, random."""
    type, _, bits = KINDS[kind]
    top = 1 << (bits + 1)
    a = np.array([1 << int(rng.integers(0, bits)), top - 1, int(rng.integers(top // 2, top))] * 22)[:64]
    b = np.array([top - 1, top - 1 - 2 * int(rng.integers(0, 128)), int(rng.integers(top // 2, top)), top - 3])[np.arange(64) % 4]
    for i in range(0, 64, 5):  # as near to the middle as quotients by b come
        odd = int(b[i]) | 1
        b[i], a[i] = odd, pow(2 * (top % odd), -1, odd) if i % 2 else pow(top % odd, -1, odd)
    scale = rng.integers(-9, 9, 64)
    return np.ldexp(a.astype(type), scale), np.ldexp(b.astype(type), -scale)


@pytest.mark.parametrize("kind, by", [("f32", -1), ("f32", 0), ("f32", 1), ("f64", 0), ("f64", 0x1FFFFFFF), ("f64", 0x2A5A5A5A)])
def test_quotients_from_bad_reciprocals(kind, by):
    rng = np.random.default_rng()
    text = nudged(program(kind, False), kind, by)
    for _ in range(8):
        a, b = values(kind, rng)
        if kind == "f32":  # reciprocals that the nudge takes beyond 1 ulp are not the hardware's
            r = ((1 / b).view(np.uint32) + np.uint32(by & 0xFFFFFFFF)).view(np.float32)
            b = np.where(np.abs(r - 1 / b.astype(float)) <= np.spacing(1 / b), b, np.float32(2**24 - 1))
        out = np.zeros_like(a)
        simulate(text, (1,), [a, b, out], num_warps=1)
        np.testing.assert_array_equal(out, a / b, err_msg=f"{[x.hex() for x in a.tolist()]} / {[x.hex() for x in b.tolist()]}")


@pytest.mark.parametrize("by", [0, 0x1FFFFFFF, 0x2A5A5A5A])
def test_roots_from_bad_estimates(by):
    """Beside squares, of subnormal numbers, and of what has no root."""
    rng = np.random.default_rng()
    text = nudged(program("f64", True), "f64", by)
    square = rng.integers(1 << 25, 1 << 26, 40).astype(float) ** 2
    x = np.concatenate([np.nextafter(square, rng.choice([0, np.inf], 40)), [1 - 2.0**-53, 4 - 2.0**-51, 2.0**-1074, 3 * 2.0**-1070, 2.0**-767, 2.0**-768],
                        [0.0, -0.0, np.inf, -1.0, np.nan, np.finfo(float).max, np.finfo(float).tiny], 2.0 ** rng.integers(-1074, 1000, 11)])
    out = np.zeros_like(x)
    simulate(text, (1,), [x, x, out], num_warps=1)
    with np.errstate(invalid="ignore"):
        expected = np.sqrt(x)
    np.testing.assert_array_equal(out, expected)
    assert np.signbit(out[47])
