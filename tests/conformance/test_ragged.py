"""tilewright.tools.ragged_tma: subarrays of a ragged tensor read, written and added to, nothing beyond their rows."""

from __future__ import annotations

import pytest
import torch

from tilewright.conformance.harness import DEVICE, module_of, rng_of
from tilewright.dialects.errors import ArgumentError
from tilewright.tools.ragged_tma import create_ragged_descriptor

_SOURCE = """
    from tilewright.tools.ragged_tma import atomic_add_ragged, load_ragged, store_ragged

    @triton.jit
    def kernel(x, y, sizes, ADD: tl.constexpr, DIM: tl.constexpr):
        b = tl.program_id(0)
        offset = 0
        for i in range(0, b):
            offset += tl.load(sizes + i)
        size = tl.load(sizes + b)
        for row in range(0, size, 4):
            if DIM == 0:
                at = [row, 0]
            else:
                at = [1, row, 0]
            block = load_ragged(x, offset, size, at, DIM)
            if ADD:
                atomic_add_ragged(y, offset, size, at, block + 1, DIM)
            else:
                store_ragged(y, offset, size, at, block + 1, DIM)
    """


@pytest.mark.parametrize("shape, dim, add", [((20, 16), 0, False), ((20, 16), 0, True), ((2, 20, 16), 1, False)])
def test_subarrays(shape, dim, add):
    """Block by block: rows of the neighbours in a block read as 0 and are not written."""
    sizes = [3, 5, 0, 7]
    kernel = module_of(_SOURCE).kernel
    block = [4, 16] if dim == 0 else [1, 4, 16]
    x = torch.from_numpy(rng_of(shape, add).integers(-50, 50, shape)).float()
    results = []
    for launch in (lambda *a: interpret_with(kernel, *a), lambda *a: kernel[(4,)](*a)):
        y = torch.full(shape, 100.0).to(DEVICE)
        launch(create_ragged_descriptor(x.to(DEVICE), block, dim), create_ragged_descriptor(y, block, dim), torch.tensor(sizes, dtype=torch.int32).to(DEVICE), add, dim)
        results.append(y.cpu())
    expected = torch.full(shape, 100.0)
    part = (slice(0, 15),) if dim == 0 else (1, slice(0, 15))
    expected[part] = x[part] + 1 + (100 if add else 0)
    for got in results:
        assert torch.equal(got, expected)


def interpret_with(kernel, *args):
    from tilewright.runtime.interpreter import InterpretedFunction

    InterpretedFunction(kernel)[(4,)](*args)


def test_refusals():
    x = torch.zeros((4, 16))
    for call in (lambda: create_ragged_descriptor(x, [4, 16], 1), lambda: create_ragged_descriptor(x, [4]), lambda: create_ragged_descriptor(x[0], [16])):
        with pytest.raises(ArgumentError):
            call()
