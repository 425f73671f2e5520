"""Element formats of the matrix instructions: registers → numbers, and numbers → accumulators.

Sources: the CDNA 3 and CDNA 4 manuals' chapter 7 (matrix arithmetic), the RDNA 3 and RDNA 4 manuals' section 7.9 and 7.12 (WMMA); OCP's "8-bit
floating point" and "Microscaling formats" for the small floats. Everything is float64 inside, which holds each element and each product of two exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True)
class Format:
    """``bits`` of an element; ``decode``: uint32 (…, words) → float64 (…, elements), the lowest bits first."""

    name: str
    bits: int
    decode: Callable[[Array], Array]


def small_float(exponent: int, mantissa: int, bias: int, special: str) -> Array:
    """The values of all codes of a float of 1 + ``exponent`` + ``mantissa`` bits.

    ``special``: "ieee" (all exponent bits set: infinity and NaN), "fn" (all bits set: NaN), "fnuz" (only −0's code: NaN), "none"."""
    codes = np.arange(1 << (1 + exponent + mantissa))
    sign = np.where(codes >> (exponent + mantissa) & 1, -1.0, 1.0)
    power, fraction = codes >> mantissa & ((1 << exponent) - 1), codes & ((1 << mantissa) - 1)
    normal = np.ldexp(1.0 + fraction / (1 << mantissa), power - bias)
    subnormal = np.ldexp(fraction / (1 << mantissa), 1 - bias)
    value = sign * np.where(power == 0, subnormal, normal)
    top = power == (1 << exponent) - 1
    if special == "ieee":
        value = np.where(top, np.where(fraction == 0, sign * np.inf, np.nan), value)
    elif special == "fn":
        value = np.where(top & (fraction == (1 << mantissa) - 1), np.nan, value)
    elif special == "fnuz":
        value = np.where(codes == 1 << (exponent + mantissa), np.nan, value)
    return value


@cache
def _table(name: str) -> Array:
    if name in ("f16", "f16 flushed"):
        with np.errstate(all="ignore"):
            table = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
        return np.where(np.abs(table) < 2.0**-14, np.copysign(0.0, table), table) if "flushed" in name else table
    if name in ("bf16", "bf16 flushed"):
        with np.errstate(all="ignore"):
            table = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)
        return np.where(np.abs(table) < 2.0**-126, np.copysign(0.0, table), table) if "flushed" in name else table
    return {
        "fp8 fnuz": lambda: small_float(4, 3, 8, "fnuz"), "bf8 fnuz": lambda: small_float(5, 2, 16, "fnuz"),
        "fp8": lambda: small_float(4, 3, 7, "fn"), "bf8": lambda: small_float(5, 2, 15, "ieee"),
        "fp6": lambda: small_float(2, 3, 1, "none"), "bf6": lambda: small_float(3, 2, 3, "none"), "fp4": lambda: small_float(2, 1, 1, "none"),
        "i8": lambda: np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float64), "u8": lambda: np.arange(256, dtype=np.float64),
        "i4": lambda: np.array([*range(8), *range(-8, 0)], np.float64), "u4": lambda: np.arange(16, dtype=np.float64),
    }[name]()


def _of_halves(name: str) -> Callable[[Array], Array]:
    return lambda words: _table(name).take(words.view(np.uint16))


def _of_bytes(name: str) -> Callable[[Array], Array]:
    return lambda words: _table(name).take(words.view(np.uint8))


def _of_nibbles(name: str) -> Callable[[Array], Array]:
    def decode(words: Array) -> Array:
        octets = words.view(np.uint8)
        return _table(name).take(np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1))

    return decode


def _of_six(name: str) -> Callable[[Array], Array]:
    def decode(words: Array) -> Array:
        bits = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
        codes = bits.reshape(*words.shape[:-1], -1, 6) @ (1 << np.arange(6, dtype=np.int64))
        return _table(name).take(codes)

    return decode


def _xf32(words: Array) -> Array:
    """A float of 8 exponent and 10 fraction bits. How the hardware drops the other 13 bits is not documented: here to nearest even."""
    rounded = words + np.uint32(0xFFF) + (words >> np.uint32(13) & np.uint32(1)) & np.uint32(0xFFFFE000)
    special = words & np.uint32(0x7F800000) == np.uint32(0x7F800000)
    return np.where(special, words, rounded).view(np.float32).astype(np.float64)


FORMATS: dict[str, Format] = {f.name: f for f in (
    *(Format(n, 16, _of_halves(n)) for n in ("f16", "bf16", "f16 flushed", "bf16 flushed")),
    *(Format(n, 8, _of_bytes(n)) for n in ("fp8 fnuz", "bf8 fnuz", "fp8", "bf8", "i8", "u8")),
    Format("fp6", 6, _of_six("fp6")), Format("bf6", 6, _of_six("bf6")),
    *(Format(n, 4, _of_nibbles(n)) for n in ("fp4", "i4", "u4")),
    Format("f32", 32, lambda words: words.view(np.float32).astype(np.float64)),
    Format("xf32", 32, _xf32),
    Format("f64", 64, lambda words: words.view(np.float64)),
)}


# --------------------------------------------------------------------------------------------------- accumulators
def to_bf16(value: Array) -> Array:
    """float64 → bits of the nearest bf16, ties to even, as uint16."""
    near = value.astype(np.float32)
    # odd rounding to f32 first, so that the second rounding sees that something was cut off
    cut = np.where(np.abs(near) > np.abs(value), np.nextafter(near, np.float32(0)), near)
    bits = cut.view(np.uint32) | (cut != value)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return np.where(np.isnan(value), np.uint16(0x7FC0), (rounded >> np.uint32(16)).astype(np.uint16))


def from_bf16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def flush(value: Array) -> Array:
    """Subnormal float32 numbers → zero of their sign."""
    return np.where(np.abs(value) < np.float32(2.0**-126), np.copysign(np.float32(0), value), value)
