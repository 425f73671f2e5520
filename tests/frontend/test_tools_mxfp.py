"""tilewright.tools.mxfp: rounding, packing, scales; by the definition of the formats."""

import itertools
import math

import pytest

torch = pytest.importorskip("torch")

from tilewright.dialects.errors import ArgumentError  # noqa: E402
from tilewright.tools.mxfp import MXFP4Tensor, MXScaleTensor  # noqa: E402

NUMBERS = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def test_every_code_is_its_number():
    x = MXFP4Tensor(size=(16,)).random()
    x.data = torch.arange(16, dtype=torch.uint8)
    assert x.to(torch.float32).tolist() == [*NUMBERS, *(-v for v in NUMBERS)]
    assert math.copysign(1, x.to(torch.float32)[8]) == -1
    assert torch.equal(MXFP4Tensor(data=x.to(torch.float32)).data, x.data)


@pytest.mark.parametrize("given, code", [(0.25, 0), (0.26, 1), (0.75, 2), (0.74, 1), (1.25, 2), (1.75, 4), (2.5, 4), (2.6, 5), (3.5, 6), (5.0, 6), (5.1, 7), (1e9, 7),
                                         (math.inf, 7), (math.nan, 7), (-0.2, 8), (-0.75, 10), (-math.inf, 15), (-0.0, 8)])
def test_rounds_to_nearest_even_and_saturates(given, code):
    assert MXFP4Tensor(data=torch.tensor([given])).data.tolist() == [code]


@pytest.mark.parametrize("shape, dim", [((4, 6), 0), ((4, 6), 1), ((3, 5), 0), ((3, 5), 1), ((2, 3, 7), 2)])
def test_packs_and_unpacks(shape, dim):
    x = MXFP4Tensor(size=shape).random()
    packed = x.to_packed_tensor(dim)
    assert packed.dtype == torch.uint8 and list(packed.shape) == [(n + 1) // 2 if d == dim else n for d, n in enumerate(shape)]
    for at in itertools.product(*map(range, shape)):
        byte = int(packed[tuple(i // 2 if d == dim else i for d, i in enumerate(at))])
        assert (byte >> 4 if at[dim] % 2 else byte & 15) == x.data[at]
    assert torch.equal(x.unpack_packed_tensor(packed, dim, shape), x.data)


def test_scales():
    given = torch.tensor([1.0, 1.99, 2.0, 0.75, 2.0**-127, 2.0**-140, 3.4e38, 0.0, -1.0, math.inf, math.nan])
    scales = MXScaleTensor(data=given)
    assert scales.data.tolist() == [127, 127, 128, 126, 0, 0, 254, 255, 255, 255, 255]
    values = scales.to(torch.float32)
    assert values[:7].tolist() == [1, 1, 2, 0.5, 2.0**-127, 2.0**-127, 2.0**127] and values[7:].isnan().all()
    drawn = MXScaleTensor(size=(1000,)).random(low=1 / 8, high=4.0).to(torch.float32)
    assert set(drawn.tolist()) == {2.0**e for e in range(-3, 3)}
    assert MXScaleTensor(size=500).random().data.max() < 255


@pytest.mark.parametrize("call", [lambda: MXFP4Tensor(), lambda: MXFP4Tensor(data=[1.0]), lambda: MXFP4Tensor(size=(4,)).random().to(torch.float16),
                                  lambda: MXFP4Tensor(size=(4,)).random().to_packed_tensor(1), lambda: MXScaleTensor(size=(2,)).random(low=4.0, high=1.0)])
def test_refusals(call):
    with pytest.raises(ArgumentError):
        call()
