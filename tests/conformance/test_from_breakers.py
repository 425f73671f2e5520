"""Kernels of people who tried to break the compiler, each once wrong on some target."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import compare, poisoned, tl_name


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_gather_with_narrow_indices(dtype):
    """An unsigned 8-bit index above 127 is one of 256 elements, not a negative number."""
    x = np.arange(256, dtype=np.int32) * 3
    compare(f"""
        @triton.jit
        def kernel(x, o):
            i = tl.arange(0, 256)
            tl.store(o + i, tl.gather(tl.load(x + i), (255 - i).to({tl_name(dtype)}), 0))
    """, {"x": torch.from_numpy(x), "o": poisoned("int32", 256)}, expected={"o": x[::-1]}, num_warps=2)


def test_histogram_and_addresses_of_narrow_values():
    x = (np.arange(256, dtype=np.int32) * 7 % 256).astype(np.uint8)
    x[:100] = 200
    compare("""
        @triton.jit
        def kernel(x, o, q):
            i = tl.arange(0, 256)
            tl.store(o + i, tl.histogram(tl.load(x + i), 256))
            tl.store(q + i.to(tl.uint8), i)
    """, {"x": torch.from_numpy(x), "o": poisoned("int32", 256), "q": poisoned("int32", 256)}, num_warps=2,
        expected={"o": np.bincount(x, minlength=256), "q": np.arange(256)})
