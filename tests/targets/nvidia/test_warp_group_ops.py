"""The warp-group rows against the manual's fragment pictures, lane by lane, and what the table offers to whom."""

import numpy as np
import pytest

from tilewright.dialects import encodings, ttg
from tilewright.dialects.context import mlir_context
from tilewright.dialects.matrix_ops import lookup, register_rows
from tilewright.targets.nvidia.capabilities import capabilities
from tilewright.targets.nvidia.target import TARGET
from tilewright.targets.nvidia.warp_group_ops import WARP_GROUP_OPS, warp_group_row, warp_group_rows

register_rows(TARGET.matrix_ops())
WIDTH = {"f16": 16, "bf16": 16, "tf32": 32, "i8": 8, "f8E4M3FN": 8, "f8E5M2": 8}


@pytest.fixture(autouse=True)
def _context():
    with mlir_context():
        yield


def held(shape, encoding):
    """[registers, lanes, warps, 2]: the element that each register holds."""
    layout = encodings.to_linear_layout(shape, encoding)
    sizes = [layout.in_size(d) for d in ("register", "lane", "warp")]
    at = np.indices(sizes)
    out = layout.apply_array(dict(zip(("register", "lane", "warp"), at)))
    return np.stack([np.broadcast_to(out[d], sizes) for d in layout.out_dims], -1)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("row", WARP_GROUP_OPS, ids=lambda r: r.name)
def test_accumulator_by_the_manual(row, groups):
    """Figures of the m64nNkK accumulator fragment: row = 16·(warp % 4) + groupID, + 8 for d2 and d3 of each four; column =
    8·(i / 4) + 2·(lane % 4) + i % 2; a further warp group takes the next 64 rows."""
    got = held([64 * groups, row.n], ttg.MmaEncoding.of(row.name, [4 * groups, 1]))
    assert got.shape == (row.n // 2, 32, 4 * groups, 2)
    i, lane, warp = np.indices(got.shape[:3])
    np.testing.assert_array_equal(got[..., 0], 64 * (warp // 4) + 16 * (warp % 4) + lane // 4 + np.where(i % 4 >= 2, 8, 0))
    np.testing.assert_array_equal(got[..., 1], i // 4 * 8 + lane % 4 * 2 + (i & 1))


def a_column(bits, i, q):
    """Column of A's element i by the figures for 16-bit, 8-bit and tf32 types."""
    if bits == 16:
        return np.where(i < 4, q * 2 + (i & 1), q * 2 + (i & 1) + 8)
    if bits == 8:
        return np.where(i < 8, q * 4 + (i & 3), q * 4 + (i & 3) + 16)
    return np.where(i < 2, q, q + 4)


@pytest.mark.parametrize("row", [r for r in WARP_GROUP_OPS if r.n == 64], ids=lambda r: r.name)
def test_a_in_registers_by_the_manual(row):
    bits = WIDTH[row.a_type]
    assert row.k == 256 // bits
    got = held([64, row.k], ttg.DotOperandEncoding.of(0, ttg.MmaEncoding.of(row.name, [4, 1])))
    assert got.shape == (row.k * 16 // 32, 32, 4, 2)
    i, lane, warp = np.indices(got.shape[:3])
    per = 32 // bits
    np.testing.assert_array_equal(got[..., 0], 16 * warp + lane // 4 + np.where(i // per % 2, 8, 0))
    np.testing.assert_array_equal(got[..., 1], a_column(bits, i, lane % 4))


@pytest.mark.parametrize("shape", [(64, 128), (128, 64), (256, 32)])
def test_a_16_bit_accumulator_is_the_next_operand(shape):
    for name in ("nvidia.wgmma_m64n32k16_bf16", "nvidia.wgmma_m64n32k16_f16"):
        mma = ttg.MmaEncoding.of(name, [4, 1])
        assert encodings.to_linear_layout(shape, mma) == encodings.to_linear_layout(shape, ttg.DotOperandEncoding.of(0, mma))


def test_tiles_of_a_product():
    """Two warp groups, two m64 blocks each; registers of (i, j) are one instruction's accumulators, in its order."""
    mma = ttg.MmaEncoding.of("nvidia.wgmma_m64n32k16_f16", [8, 1])
    tiles = encodings.instruction_tiles([256, 64], mma)
    where = held([256, 64], mma)
    assert sorted(tiles) == [(0, i, j) for i in range(2) for j in range(2)]
    for (_, i, j), registers in tiles.items():
        for n, r in enumerate(registers):
            row, column = where[r, 0, 0]
            assert (row, column) == (128 * i + 8 * (n // 2 % 2), 32 * j + n // 4 * 8 + n % 2)


def test_who_is_offered_them():
    assert {r.n for r in WARP_GROUP_OPS} == {8, 16, 32, 64, 128, 256} and len(WARP_GROUP_OPS) == 6 * 9
    assert warp_group_rows(90) == WARP_GROUP_OPS and not any(map(warp_group_rows, (80, 89, 100, 120)))
    for arch in ("sm_80", "sm_90a"):
        assert not any("wgmma" in name for name in capabilities(arch).matrix_ops)
    assert lookup("nvidia.wgmma_m64n256k8_tf32").extra["warp_group"] and lookup("nvidia.wgmma_m64n256k8_tf32").m == 16
    assert warp_group_row("f32", "f32", "f32", 64).name == "nvidia.wgmma_m64n64k8_tf32"
    assert warp_group_row("f8E5M2", "f8E4M3FN", "f32", 8).intrinsic == "wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e4m3"
    assert warp_group_row("f16", "bf16", "f32", 64) is None and warp_group_row("f16", "f16", "f32", 24) is None
