"""Host-side tensors in microscaling formats, to make inputs of ``tl.dot_scaled`` and to check results: e2m1 numbers and e8m0 scales.

Source: OCP "Microscaling Formats (MX) Specification" 1.0. Needs torch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.dialects.errors import ArgumentError

if TYPE_CHECKING:
    import torch

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_BIAS, _NAN = 127, 255


class _Codes:
    """What both kinds share: ``data``, a uint8 tensor of codes, made of float32 numbers, or by ``random()`` of a ``size``."""

    data: torch.Tensor

    def __init__(self, data: torch.Tensor | None = None, size: int | tuple[int, ...] | None = None, device: Any = None):
        import torch

        self.device = device
        if data is not None:
            if not isinstance(data, torch.Tensor):
                raise ArgumentError(f"data is a torch tensor of float32 numbers, not {data!r} ({type(data).__name__})")
            self.device = data.device
            self.data = self._from_float(data)
        elif size is not None:
            self.size = tuple(size) if isinstance(size, (tuple, list)) else (size,)
        else:
            raise ArgumentError(f"{type(self).__name__} takes data (a tensor of numbers) or a size")

    def _from_float(self, values: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _only_float32(self, dtype: torch.dtype) -> None:
        import torch

        if dtype != torch.float32:
            raise ArgumentError(f"{type(self).__name__} converts to torch.float32, not to {dtype}")


class MXFP4Tensor(_Codes):
    """Numbers of four bits, e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.

    ``MXFP4Tensor(data=x)`` rounds a float32 tensor to nearest, ties to even, saturating (infinities and NaN to ±6); ``MXFP4Tensor(size=shape, device=None)
    .random()`` takes all 16 codes alike. ``.data`` is a uint8 tensor of one code an element.
    """

    def random(self) -> MXFP4Tensor:
        """Fill with random codes; returns itself."""
        import torch

        self.data = torch.randint(0, 16, self.size, dtype=torch.uint8, device=self.device)
        return self

    def to(self, dtype: torch.dtype) -> torch.Tensor:
        """The numbers, as torch.float32 (else ArgumentError)."""
        import torch

        self._only_float32(dtype)
        numbers = torch.tensor([*_E2M1, *(-v for v in _E2M1)], dtype=dtype, device=self.data.device)
        return numbers[self.data.to(torch.int64)]

    def _from_float(self, values: torch.Tensor) -> torch.Tensor:
        import torch

        size = values.abs().nan_to_num(nan=math.inf)
        code = torch.zeros_like(size, dtype=torch.uint8)
        for at, (below, above) in enumerate(zip(_E2M1, _E2M1[1:])):  # one up for each middle between neighbours that it is beyond
            middle = (below + above) / 2
            code += ((size >= middle) if at % 2 else (size > middle)).to(torch.uint8)
        return code | (torch.signbit(values).to(torch.uint8) << 3)

    def to_packed_tensor(self, dim: int) -> torch.Tensor:
        """uint8 of two codes along ``dim``, the first in the lower half; an odd size is filled up with 0."""
        import torch

        data = self.data
        if not 0 <= dim < data.ndim:
            raise ArgumentError(f"the dim to pack along is one of 0 to {data.ndim - 1}, not {dim}")
        if data.shape[dim] % 2:
            shape = [1 if d == dim else n for d, n in enumerate(data.shape)]
            data = torch.cat([data, data.new_zeros(shape)], dim)
        halves = data.unflatten(dim, (-1, 2))
        return halves.select(dim + 1, 0) | (halves.select(dim + 1, 1) << 4)

    def unpack_packed_tensor(self, packed_tensor: torch.Tensor, dim: int, original_shape: Any) -> torch.Tensor:
        """The codes, one an element, of what ``to_packed_tensor(dim)`` made of a tensor of ``original_shape``."""
        import torch

        codes = torch.stack((packed_tensor & 15, packed_tensor >> 4), dim + 1).flatten(dim, dim + 1)
        return codes.narrow(dim, 0, original_shape[dim]).to(torch.uint8)


class MXScaleTensor(_Codes):
    """Scales, e8m0: a code s is 2^(s-127), 255 is NaN.

    ``MXScaleTensor(data=x)`` takes the power of two at or below each number of a float32 tensor (not positive or not finite: NaN);
    ``MXScaleTensor(size=shape, device=None).random(low, high)`` powers between the two numbers. ``.data`` is the uint8 tensor that kernels take.
    """

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Fill with random powers of two from ``low`` to ``high`` (default: all there are), never NaN; returns itself."""
        import torch

        first = 0 if low is None else max(0, int(math.log2(low)) + _BIAS)
        last = _NAN - 1 if high is None else min(_NAN - 1, max(0, int(math.log2(high)) + _BIAS))
        if first > last:
            raise ArgumentError(f"low ({low}) is above high ({high})")
        self.data = torch.randint(first, last + 1, self.size, dtype=torch.uint8, device=self.device)
        return self

    def to(self, dtype: torch.dtype) -> torch.Tensor:
        """The powers of two, as torch.float32 (else ArgumentError)."""
        import torch

        self._only_float32(dtype)
        table = torch.tensor([math.ldexp(1.0, s - _BIAS) for s in range(_NAN)] + [math.nan], dtype=dtype, device=self.data.device)
        return table[self.data.to(torch.int64)]

    def _from_float(self, values: torch.Tensor) -> torch.Tensor:
        import torch

        usable = torch.isfinite(values) & (values > 0)
        exponent = torch.frexp(torch.where(usable, values, 1.0)).exponent - 1
        return torch.where(usable, (exponent + _BIAS).clamp(0, _NAN - 1), _NAN).to(torch.uint8)
