"""Matrix descriptors: the numbers proven on the hardware, and every tile read back by the manual's layouts, written anew here."""

import itertools

import numpy as np
import pytest

from tilewright.dialects import encodings, ttg
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.lowering.context import SharedMemory
from tilewright.targets.nvidia.matrix_descriptor import describe


@pytest.fixture(autouse=True)
def _context():
    with mlir_context():
        yield


def panel_encoding(shape, bits, order, swizzle=128):
    """Panels of ``swizzle`` bytes (0: of 16), or as wide as the fastest dim is."""
    row = min(swizzle or 16, shape[order[0]] * bits // 8)
    phases = row // 16 if swizzle else 1
    return ttg.PanelSharedEncoding.of(row * 8 // bits, 128 // bits, 128 // row if phases > 1 else 1, phases, order)


def memory(shape, encoding):
    return SharedMemory(None, None, tuple(shape), encodings.to_linear_layout(shape, encoding), (0,) * len(shape), encoding)


def fields(constant):
    """(LBO, SBO, swizzle) of a descriptor by the manual's table "Matrix descriptor format"."""
    assert constant >> 64 == 0 and constant & 0x3FFF == 0 and (constant >> 49) & 7 == 0  # no address, base offset 0
    swizzle = {0: 0, 1: 128, 2: 64, 3: 32}[constant >> 62]
    return ((constant >> 16) & 0x3FFF) << 4, ((constant >> 32) & 0x3FFF) << 4, swizzle


def hardware_address(start, constant, mn_major, size, mn, k):
    """Where wgmma reads element (mn, k) of a tile: tables of "Strides" and "Canonical layouts", in units of 16-byte rows of
    8-row core matrices; then the swizzle on the address."""
    lbo, sbo, swizzle = fields(constant)
    t = 16 // size  # elements in 128 bits
    width = swizzle // 16 or 1  # core matrices side by side in the swizzle's atom
    if not mn_major:
        if swizzle:  # ((8, m), (T, 2k)) : ((width T, SBO), (1, T))
            at = (mn % 8) * width * 16 + mn // 8 * sbo + k * size
        else:  # ((8, m), (T, 2k)) : ((1T, SBO), (1, LBO))
            at = (mn % 8) * 16 + mn // 8 * sbo + k % t * size + k // t * lbo
    elif swizzle:  # ((T, width, m), (8, k)) : ((1, T, LBO), (width T, SBO))
        at = mn % (t * width) * size + mn // (t * width) * lbo + (k % 8) * width * 16 + k // 8 * sbo
    else:  # ((T, 1, m), (8, k)) : ((1, T, SBO), (1T, LBO))
        at = mn % t * size + mn // t * sbo + (k % 8) * 16 + k // 8 * lbo
    address = start + at
    if swizzle == 128:
        address ^= (address >> 3) & 0x70
    elif swizzle == 64:
        address ^= (address >> 3) & 0x30
    elif swizzle == 32:
        address ^= (address >> 3) & 0x10
    return address


def check(mem, k_dim, tile, bits, base=4096):
    """Every element of every tile of the view lies where the hardware would read it."""
    found = describe(mem, k_dim, tile, bits)
    size = bits // 8
    k_tile = 32 // size
    inverse = mem.layout.invert()
    mn_size, k_size = mem.shape[1 - k_dim], mem.shape[k_dim]
    mn, k = np.meshgrid(np.arange(tile), np.arange(k_tile), indexing="ij")
    for i, j in itertools.product(range(mn_size // tile), range(k_size // k_tile)):
        at = [None, None]
        at[1 - k_dim], at[k_dim] = mn + i * tile, k + j * k_tile
        at = [a + o for a, o in zip(at, mem.offsets)]
        want = base + inverse.apply_array({d: a for d, a in zip(mem.layout.out_dims, at)})["offset"] * size
        start = base + found.start(i * tile, j * k_tile)
        assert start % 16 == 0
        np.testing.assert_array_equal(hardware_address(start, found.constant, found.mn_major, size, mn, k), want)
    return found


def test_k_major_as_proven_on_the_hardware():
    """A [128, 64] fp16, 128-byte swizzle: SBO 1024, + 32 bytes a step of 16, + 8192 bytes an m64 block."""
    found = check(memory([128, 64], ttg.PanelSharedEncoding.of(64, 8, 1, 8, [1, 0])), 1, 64, 16)
    assert fields(found.constant) == (16, 1024, 128) and not found.mn_major
    assert found.constant == (1 << 16) | (64 << 32) | (1 << 62)
    assert [found.start(0, k) for k in (0, 16, 32, 48)] == [0, 32, 64, 96] and found.start(64, 16) == 8192 + 32


def test_k_major_with_several_panels():
    """Q [64, 128] of attention: k beyond 64 lies in the next panel, 64 rows of 128 bytes further."""
    found = check(memory([64, 128], ttg.PanelSharedEncoding.of(64, 8, 1, 8, [1, 0])), 1, 64, 16)
    assert [found.start(0, k) for k in range(0, 128, 16)] == [p * 8192 + r for p in (0, 1) for r in (0, 32, 64, 96)]


def test_mn_major_as_proven_on_the_hardware():
    """B [64, 256] fp16, n fastest: LBO from one panel of 64 columns to the next, SBO 1024, + 2048 bytes a step of 16."""
    found = check(memory([64, 256], ttg.PanelSharedEncoding.of(64, 8, 1, 8, [1, 0])), 0, 256, 16)
    assert fields(found.constant) == (64 * 128, 1024, 128) and found.mn_major
    assert [found.start(0, k) for k in (0, 16, 32, 48)] == [0, 2048, 4096, 6144]


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("tile", [8, 64, 256])
def test_k_major_of_every_swizzle(swizzle, bits, tile):
    k = 128 * 8 // bits
    for shape, order, k_dim in (([256, 2 * k], [1, 0], 1), ([2 * k, 256], [0, 1], 0), ([256, 32 * 8 // bits], [1, 0], 1)):
        if (swizzle or 16) <= shape[k_dim] * bits // 8:
            encoding = panel_encoding(shape, bits, order, swizzle)
            found = check(memory(shape, encoding), k_dim, tile, bits)
            assert not found.mn_major and fields(found.constant)[2] == swizzle


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("tile", [8, 16, 32, 64, 128, 256])
def test_mn_major_of_every_swizzle(swizzle, tile):
    for shape, order, k_dim in (([64, 256], [1, 0], 0), ([256, 32], [0, 1], 1)):
        mem = memory(shape, panel_encoding(shape, 16, order, swizzle))
        if tile * 2 < swizzle:
            with pytest.raises(UnsupportedOnTargetError, match="none of the manual's layouts"):
                describe(mem, k_dim, tile, 16)
        else:
            found = check(mem, k_dim, tile, 16)
            assert found.mn_major and fields(found.constant)[2] == swizzle


def test_transposed_views():
    """memdesc_trans swaps which dim is k, nothing else."""
    mem = memory([128, 64], panel_encoding([128, 64], 16, [1, 0]))
    turned = mem.with_(shape=(64, 128), layout=mem.layout.permute_tensor_dims([1, 0]))
    assert check(turned, 0, 128, 16).constant == check(mem, 1, 128, 16).constant
    assert check(turned, 1, 64, 16).mn_major and check(mem, 0, 64, 16).mn_major


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_slices(swizzle):
    whole = memory([128, 128], panel_encoding([128, 128], 16, [1, 0], swizzle))
    for offsets, shape in (((64, 0), (64, 128)), ((0, 64), (128, 64)), ((64, 32), (64, 32)), ((0, 16), (128, 16))):
        part = whole.with_(shape=shape, offsets=offsets)
        found = check(part, 1, 64, 16)
        assert found.origin == whole.layout.invert().apply({"dim0": offsets[0], "dim1": offsets[1]})["offset"] * 2


def test_what_has_no_descriptor():
    def fails(shape, encoding, k_dim, tile, bits, message):
        with pytest.raises(UnsupportedOnTargetError, match=message):
            describe(memory(shape, encoding), k_dim, tile, bits)

    n_fastest = ttg.PanelSharedEncoding.of(128, 16, 1, 8, [1, 0])
    fails([32, 128], n_fastest, 0, 128, 8, "operands of 8 bits must have k as the fastest dim")
    fails([8, 64], ttg.PanelSharedEncoding.of(32, 4, 1, 8, [1, 0]), 0, 64, 32, "operands of 32 bits must have k as the fastest dim")
    swizzled = ttg.SwizzledSharedEncoding.of(8, 1, 8, [1, 0])  # the same bytes, but a buffer may begin anywhere
    fails([128, 64], swizzled, 1, 64, 16, "needs buffers at multiples of 1024 bytes")
    fails([128, 128], ttg.SwizzledSharedEncoding.of(8, 1, 8, [1, 0]), 1, 64, 16, "none of the manual's layouts")
    fails([128, 64], ttg.PanelSharedEncoding.of(64, 8, 2, 4, [1, 0]), 1, 64, 16, "none of the manual's layouts")
    fails([128, 64], ttg.PaddedSharedEncoding.of(64, 8, [1, 0]), 1, 64, 16, "padding")
    fails([32, 64], panel_encoding([32, 64], 16, [1, 0]), 1, 64, 16, "no multiple of the tile's 64")
    eighth = memory([64, 64], panel_encoding([64, 64], 16, [1, 0])).with_(shape=(16, 64), offsets=(16, 0))
    assert check(eighth, 1, 16, 16).origin == 2048
    inside = memory([64, 64], panel_encoding([64, 64], 16, [1, 0])).with_(shape=(4, 64), offsets=(4, 0))
    with pytest.raises(UnsupportedOnTargetError, match="begin inside the pattern"):
        describe(inside, 1, 4, 16)
