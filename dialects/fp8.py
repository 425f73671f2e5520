"""The floats of eight bits: their codes, and rounding to them.

One rule for all: conversions round to nearest even (or towards zero, where that is asked for) and **saturate**: what is larger than the
largest number, infinities included, becomes that number with its sign. NaN becomes the one code ``nan``, whatever its sign and payload.
The FNUZ formats have no -0. e4b15, the oldest, has no NaN either: NaN becomes its largest number, and the code above that, which
conversions never make, reads as the number that its bits say (1.875).

Sources: OCP "8-bit Floating Point Specification" 1.0 (E4M3, E5M2); Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022 (FNUZ).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Fp8:
    """A format: mantissa bits, exponent bias, the largest finite magnitude's code, and where NaN and infinity are.

    nan: the code that NaN becomes. inf: of +infinity, None where there is none. fnuz: NaN is 0x80 and 0 has no sign.
    has_nan: False where no code is NaN.
    """

    mantissa: int
    bias: int
    largest: int
    nan: int
    inf: int | None = None
    fnuz: bool = False
    has_nan: bool = True

    def decode(self, code: int) -> float:
        """The value of a code, by the format's definition."""
        if self.fnuz and code == 0x80:
            return math.nan
        sign, magnitude = -1.0 if code & 0x80 else 1.0, code & 0x7F
        if self.has_nan and not self.fnuz and magnitude > self.largest:
            return sign * math.inf if magnitude == self.inf else math.nan
        exponent, fraction = magnitude >> self.mantissa, magnitude & ((1 << self.mantissa) - 1)
        if exponent == 0:
            return sign * math.ldexp(fraction, 1 - self.bias - self.mantissa)
        return sign * math.ldexp((1 << self.mantissa) + fraction, exponent - self.bias - self.mantissa)

    def encode(self, value: float) -> int:
        """The code of ``value`` rounded to nearest even, saturating."""
        if math.isnan(value):
            return self.nan
        numbers, size = _magnitudes(self), abs(value)
        at = min(bisect_left(numbers, size), self.largest)
        if at and numbers[at] > size:
            below, above = size - numbers[at - 1], numbers[at] - size
            if below < above or below == above and at % 2:
                at -= 1
        return at | 0x80 if math.copysign(1, value) < 0 and (at or not self.fnuz) else at

    def encode_exact(self, value: float) -> int:
        """The code of a value that the format has. Raises ValueError for another."""
        code = self.encode(value)
        decoded = self.decode(code)
        if math.isnan(value) and math.isnan(decoded) or decoded == value and math.copysign(1, decoded) == math.copysign(1, value):
            return code
        if self.inf is not None and math.isinf(value):
            return self.inf | (0x80 if value < 0 else 0)
        raise ValueError(f"{value} is not a number of this fp8 format")

    def round(self, value: float) -> float:
        """``value`` as the format holds it."""
        return self.decode(self.encode(value))


@cache
def _magnitudes(f: Fp8) -> list[float]:
    """The values of the codes from 0 to the largest, which rise."""
    return [f.decode(code) for code in range(f.largest + 1)]


# the language's name → format
FORMATS = {
    "fp8e4nv": Fp8(3, 7, 0x7E, 0x7F),
    "fp8e5": Fp8(2, 15, 0x7B, 0x7F, inf=0x7C),
    "fp8e4b8": Fp8(3, 8, 0x7F, 0x80, fnuz=True),
    "fp8e5b16": Fp8(2, 16, 0x7F, 0x80, fnuz=True),
    "fp8e4b15": Fp8(3, 15, 0x7E, 0x7E, has_nan=False),
}
# MLIR's name → format. The last stands in conversions to and from e4b15, which MLIR lacks: the same codes, 16 times as large.
FP8 = {
    "f8E4M3FN": FORMATS["fp8e4nv"],
    "f8E5M2": FORMATS["fp8e5"],
    "f8E4M3FNUZ": FORMATS["fp8e4b8"],
    "f8E5M2FNUZ": FORMATS["fp8e5b16"],
    "f8E4M3B11FNUZ": Fp8(3, 11, 0x7F, 0x80, fnuz=True),
}
