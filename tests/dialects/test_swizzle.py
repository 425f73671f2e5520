"""Shared-memory layouts: bank conflicts counted by brute force, on the pairs that kernels meet and on random ones."""

from __future__ import annotations

import random

import pytest
from test_convert_layout import random_pairs
from test_encodings import ROWS

from tilewright.dialects import encodings as E
from tilewright.dialects import ttg
from tilewright.dialects.context import mlir_context
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.passes.optimize_dot_operands import choose_swizzle
from tilewright.dialects.swizzle import access_vector, bank_conflicts, choose_shared, conflicts_of_choice


@pytest.fixture(autouse=True)
def _context():
    with mlir_context():
        yield


def blocked(vec, warp_size, warps, row_major):
    """Rows of 64 elements in vectors along the fast dim, the usual coalesced layout."""
    across = min(max(1, 64 // vec), warp_size)
    size, threads, order = [1, vec], [warp_size // across, across], [1, 0]
    counts = [warps, 1]
    if not row_major:
        size, threads, counts, order = size[::-1], threads[::-1], counts[::-1], [0, 1]
    return ttg.BlockedEncoding.of(size, threads, counts, order)


def pairs(bits, row):
    """name → (src, dst) encodings."""
    warp, vec = row.warp_size, max(1, 128 // bits)
    acc = ttg.MmaEncoding.of(row.name, [2, 2])
    turned = ttg.MmaEncoding.of(row.name, [2, 2], True)
    a, b = (ttg.DotOperandEncoding.of(i, acc) for i in (0, 1))
    rows, columns = blocked(vec, warp, 4, True), blocked(vec, warp, 4, False)
    return {"blocked to A": (rows, a), "blocked to B": (rows, b), "column-major blocked to A": (columns, a),
            "column-major blocked to B": (columns, b), "accumulator to blocked": (acc, rows),
            "turned accumulator to blocked": (turned, rows), "accumulator to A": (acc, a),
            "transpose": (rows, columns), "transpose back": (columns, rows),
            "scalar blocked to columns": (blocked(1, warp, 4, True), columns)}


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_no_conflicts_in_the_usual_pairs(row, bits):
    for name, (src, dst) in pairs(bits, row).items():
        for shape, limit in ([64, 64], None), ([128, 32], 4096):
            s, d = E.to_linear_layout(shape, src), E.to_linear_layout(shape, dst)
            choice = choose_shared(s, d, bits // 8, limit)
            assert choice.layout.is_injective() and choice.layout.is_surjective()
            assert conflicts_of_choice(s, d, choice, bits) == (0, 0), (name, shape, limit)
            assert access_vector(s, choice.layout, bits // 8, write=True) >= choice.store_vec
            assert access_vector(d, choice.layout, bits // 8) >= choice.load_vec


def test_no_conflicts_in_random_pairs():
    for src, dst, bits, _, _, limit in random_pairs(150, seed=7):
        choice = choose_shared(src, dst, max(8, bits) // 8, limit)
        assert conflicts_of_choice(src, dst, choice, bits) == (0, 0)


def test_vectors_are_as_wide_as_can_be():
    """Both sides vectorised where they share registers, one side where they do not."""
    shape = [64, 64]
    rows = E.to_linear_layout(shape, blocked(8, 32, 4, True))
    again = E.to_linear_layout(shape, ttg.BlockedEncoding.of([1, 8], [8, 4], [2, 2], [1, 0]))
    columns = E.to_linear_layout(shape, blocked(8, 32, 4, False))
    same = choose_shared(rows, again, 2)
    assert (same.store_vec, same.load_vec) == (8, 8)
    turned = choose_shared(rows, columns, 2)
    assert {turned.store_vec, turned.load_vec} == {1, 8}


def test_rounds_divide_the_scratch():
    shape = [128, 128]
    rows = E.to_linear_layout(shape, blocked(4, 32, 4, True))
    acc = E.to_linear_layout(shape, ttg.MmaEncoding.of("test.m16n8k16", [2, 2]))
    for limit, rounds in ((None, 1), (1 << 16, 1), (1 << 14, 4), (1 << 12, 16)):
        choice = choose_shared(acc, rows, 4, limit)
        assert choice.rounds == rounds and choice.layout.in_size("offset") * 4 == (1 << 16) // rounds


def naive(shape, order):
    return E.to_linear_layout(shape, ttg.SwizzledSharedEncoding.of(1, 1, 1, order))


def test_the_counter_finds_textbook_conflicts():
    """A column of a row-major 32x32 f32 tile lies in one bank: each of 32 reads takes 32 wavefronts."""
    column = LinearLayout.from_columns({"register": [1 << i for i in range(5)], "lane": [32 << i for i in range(5)], "warp": []},
                                       {"dim0": 32, "dim1": 32})
    row = LinearLayout.from_columns({"register": [32 << i for i in range(5)], "lane": [1 << i for i in range(5)], "warp": []},
                                    {"dim0": 32, "dim1": 32})
    flat = naive([32, 32], [1, 0])
    assert bank_conflicts(row, flat, 32) == 0
    # the column layout has vectors of four along the row: eight accesses of four groups of eight lanes, each in one 16-byte column
    assert access_vector(column, flat, 4) == 4
    assert bank_conflicts(column, flat, 32) == 8 * 4 * 7
    transposed = naive([32, 32], [0, 1])
    assert bank_conflicts(row, transposed, 32) == 8 * 4 * 7 and bank_conflicts(column, transposed, 32) == 0
    swizzled = E.to_linear_layout([32, 32], ttg.SwizzledSharedEncoding.of(4, 1, 8, [1, 0]))
    assert bank_conflicts(column, swizzled, 32) == 0 == bank_conflicts(row, swizzled, 32)
    # one f64 element apart by 128 bytes, 16 lanes at once
    wide = LinearLayout.from_columns({"register": [], "lane": [16 << i for i in range(5)], "warp": []}, {"dim0": 512})
    assert bank_conflicts(wide, naive([512], [0]), 64) == 2 * 15


def test_repeats_are_no_conflicts():
    """Lanes that read one word share the wavefront; lanes that repeat an element do not write."""
    layout = LinearLayout.from_columns({"register": [1, 2], "lane": [0, 0, 4, 8, 16], "warp": []}, {"dim0": 32})
    flat = naive([32], [0])
    assert bank_conflicts(layout, flat, 32) == 0 == bank_conflicts(layout, flat, 32, write=True)


def test_random_shared_layouts_do_have_conflicts():
    """The zeros above are not the counter's habit."""
    rng = random.Random(0)
    total = 0
    for src, dst, bits, *_ in random_pairs(30, seed=8):
        columns = [1 << i for i in range(src.total_out_bits)]
        rng.shuffle(columns)
        shared = LinearLayout.from_columns({"offset": columns}, src.out_sizes)
        total += bank_conflicts(src, shared, bits, write=True) + bank_conflicts(dst, shared, bits)
    assert total > 1000


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("shape", [[64, 64], [128, 32], [32, 128], [64, 16]])
def test_buffers_of_dot_operands_serve_matrix_loads_and_row_writes(shape, bits):
    """The swizzle that optimize_dot_operands takes, counted here: eight lanes that read 16 bytes of eight rows, and coalesced writes."""
    vec = 128 // bits
    source = E.blocked_for(shape, [1, vec], [1, 0], 4, 32)
    operand = ttg.DotOperandEncoding.of(0, ttg.MmaEncoding.of("test.m16n8k16", [4, 1]))
    swizzle = choose_swizzle(tuple(shape), (1, 0), bits, source, operand)
    shared = E.to_linear_layout(shape, ttg.SwizzledSharedEncoding.of(*swizzle, [1, 0]))
    rows, columns = (s.bit_length() - 1 for s in shape)
    inner = vec.bit_length() - 1
    down = [1 << (columns + i) for i in range(3)]
    rest = [1 << i for i in range(inner, columns)] + [1 << (columns + i) for i in range(3, rows)]
    matrix = LinearLayout.from_columns({"register": [1 << i for i in range(inner)] + rest[2:], "lane": down + rest[:2], "warp": []},
                                       shared.out_sizes)
    assert access_vector(matrix, shared, bits // 8) == vec and bank_conflicts(matrix, shared, bits) == 0
    assert bank_conflicts(E.to_linear_layout(shape, source), shared, bits, write=True) == 0
