"""Bytes of registers put together by v_perm_b32: any bytes in any order, and a block of 4 × 4 turned by eight instructions."""

import numpy as np
import pytest
from amd_harness import Kernel

from tilewright.targets.amd.lower_bytes import pack_bytes

P1 = "!llvm.ptr<1>"


def packed(groups, count):
    """(the bytes that a kernel makes of 0 … count - 1 in registers, its assembly)"""
    size = len(groups[0])

    def body(b, h, args):
        lane = h.thread_id(b)
        vector = b.load(b.gep(args[0], b.mul(lane, b.i32(count)), b.t_i8), b.vec(count, b.t_i8), align=4)
        for i, v in enumerate(pack_bytes(b, b.unpack_vector(vector, count), groups)):
            b.store(v, b.gep(args[1], b.add(b.mul(lane, b.i32(size * len(groups))), b.i32(i * size)), b.t_i8), align=4)

    kernel = Kernel("gfx942", [P1] * 2, body)
    given = np.random.default_rng().integers(0, 256, (64, count)).astype(np.uint8)
    made = np.zeros((64, size * len(groups)), np.uint8)
    kernel.run(given, made)
    np.testing.assert_array_equal(made, given[:, np.array(groups).ravel()])
    return kernel.assembly()


@pytest.mark.parametrize("seed", range(6))
def test_any_bytes_in_any_order(seed):
    rng = np.random.default_rng(seed)
    packed([list(map(int, rng.integers(0, 16, 8))) for _ in range(2)], 16)  # repeats too
    packed([list(map(int, g)) for g in rng.permutation(16).reshape(4, 4)], 16)


def test_a_block_is_turned_by_eight_instructions():
    text = packed([[column + 4 * row for row in range(4)] for column in range(4)], 16)
    assert text.count("v_perm_b32") == 8
    text = packed([[column + 8 * row for row in range(8)] for column in range(8)], 64)
    assert text.count("v_perm_b32") == 32


def test_words_that_lie_in_registers_are_left_to_llvm():
    assert pack_bytes(None, list(range(16)), [[0, 1, 2, 3], [4, 5, 6, 7, 12, 13, 14, 15]]) is None
    assert pack_bytes(None, list(range(16)), [[0, 4], [1, 5]]) is None  # no whole words
