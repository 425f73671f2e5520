"""The layout of each encoding against its definition, written out independently; and questions asked of layouts."""

from __future__ import annotations

import itertools
import time

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tilewright.dialects import encodings as E
from tilewright.dialects import matrix_ops, ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.matrix_ops import MatrixOp, OperandBases

# mma.sync m16n8k16 (PTX manual); CDNA 16x16x16 and 32x32x8; RDNA3 16x16x16, whose upper lanes repeat the lower ones.
ROWS = [
    MatrixOp("test.m16n8k16", 16, 8, 16, "f16", "f16", "f32",
             OperandBases(((0, 1), (8, 0), (0, 8)), ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))),
             OperandBases(((1, 0), (8, 0)), ((2, 0), (4, 0), (0, 1), (0, 2), (0, 4))),
             OperandBases(((0, 1), (8, 0)), ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))), 32, ""),
    MatrixOp("test.cdna16", 16, 16, 16, "f16", "f16", "f32",
             OperandBases(((0, 1), (0, 2)), ((1, 0), (2, 0), (4, 0), (8, 0), (0, 4), (0, 8))),
             OperandBases(((1, 0), (2, 0)), ((0, 1), (0, 2), (0, 4), (0, 8), (4, 0), (8, 0))),
             OperandBases(((1, 0), (2, 0)), ((0, 1), (0, 2), (0, 4), (0, 8), (4, 0), (8, 0))), 64, ""),
    MatrixOp("test.cdna32", 32, 32, 8, "f16", "f16", "f32",
             OperandBases(((0, 1), (0, 2)), ((1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (0, 4))),
             OperandBases(((1, 0), (2, 0)), ((0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (4, 0))),
             OperandBases(((1, 0), (2, 0), (8, 0), (16, 0)), ((0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (4, 0))), 64, ""),
    MatrixOp("test.rdna3", 16, 16, 16, "f16", "f16", "f32",
             OperandBases(((0, 1), (0, 2), (0, 4), (0, 8)), ((1, 0), (2, 0), (4, 0), (8, 0), (0, 0))),
             OperandBases(((1, 0), (2, 0), (4, 0), (8, 0)), ((0, 1), (0, 2), (0, 4), (0, 8), (0, 0))),
             OperandBases(((2, 0), (4, 0), (8, 0)), ((0, 1), (0, 2), (0, 4), (0, 8), (1, 0))), 32, ""),
]
matrix_ops.register_rows(ROWS)


@pytest.fixture(autouse=True)
def _context():
    with mlir_context():
        yield


def elements(layout):
    """(register, lane, warp) → element, as an array of tuples' components: shape [registers, lanes, warps, rank]."""
    r, l, w = (layout.in_size(d) for d in ("register", "lane", "warp"))
    out = layout.apply_array({"register": np.arange(r)[:, None, None], "lane": np.arange(l)[None, :, None],
                              "warp": np.arange(w)[None, None, :]})
    return np.stack([np.broadcast_to(out[d], (r, l, w)) for d in layout.out_dims], -1)


def split(number, sizes, order):
    """A number to coordinates, order[0] fastest."""
    at = [0] * len(sizes)
    for d in order:
        at[d], number = number % sizes[d], number // sizes[d]
    return at


def brute_blocked(shape, size, threads, warps, order):
    """Straight from the definition; registers of the block beyond the shape are left out."""
    rank = len(shape)
    repeats = [max(1, s // (a * b * c)) for s, a, b, c in zip(shape, size, threads, warps)]
    registers = []
    for rep in range(int(np.prod(repeats))):
        for r in range(int(np.prod(size))):
            inner, outer = split(r, size, order), split(rep, repeats, order)
            if all(x < s for x, s in zip(inner, shape)):
                registers.append((inner, outer))
    out = np.empty((len(registers), int(np.prod(threads)), int(np.prod(warps)), rank), int)
    for i, (inner, outer) in enumerate(registers):
        for lane in range(out.shape[1]):
            t = split(lane, threads, order)
            for warp in range(out.shape[2]):
                w = split(warp, warps, order)
                out[i, lane, warp] = [(((outer[d] * warps[d] + w[d]) * threads[d] + t[d]) * size[d] + inner[d]) % shape[d]
                                      for d in range(rank)]
    return out


powers = st.sampled_from([1, 2, 4])


@st.composite
def blocked_cases(draw):
    rank = draw(st.integers(1, 3))
    lists = [[draw(powers) for _ in range(rank)] for _ in range(3)]
    return [1 << draw(st.integers(0, 4 if rank < 3 else 3)) for _ in range(rank)], *lists, draw(st.permutations(range(rank)))


@hypothesis.settings(deadline=None, max_examples=80)
@hypothesis.given(blocked_cases())
def test_blocked(case):
    shape, size, threads, warps, order = case
    with mlir_context():
        layout = E.to_linear_layout(shape, ttg.BlockedEncoding.of(size, threads, warps, order))
    want = brute_blocked(shape, size, threads, warps, order)
    np.testing.assert_array_equal(elements(layout), want)
    assert layout.is_surjective() and layout.in_dims == E.REGISTER_DIMS


@hypothesis.settings(deadline=None, max_examples=50)
@hypothesis.given(blocked_cases(), st.data())
def test_slice_is_the_parent_without_the_dim(case, data):
    shape, size, threads, warps, order = case
    hypothesis.assume(len(shape) > 1)
    dim = data.draw(st.integers(0, len(shape) - 1))
    rest = [s for i, s in enumerate(shape) if i != dim]
    with mlir_context():
        parent = ttg.BlockedEncoding.of(size, threads, warps, order)
        layout = E.to_linear_layout(rest, ttg.SliceEncoding.of(dim, parent))
        reduced = E.drop_dim(E.to_linear_layout(shape, parent), dim)
    assert layout == reduced  # reducing a tensor leaves exactly the slice layout
    want = np.delete(brute_blocked([1 if i == dim else s for i, s in enumerate(shape)], size, threads, warps, order), dim, -1)
    np.testing.assert_array_equal(elements(layout), want)


def test_linear_round_trip_wrap_and_repeat():
    layout = E.to_linear_layout([32, 64], ttg.MmaEncoding.of("test.m16n8k16", [2, 2]))
    encoding = E.linear_encoding(layout)
    assert E.to_linear_layout([32, 64], encoding) == layout
    bigger = E.to_linear_layout([64, 64], encoding)
    assert bigger.bases["register"] == layout.bases["register"] + [(32, 0)]
    smaller = E.to_linear_layout([16, 64], encoding)
    assert smaller.bases["warp"] == [(0, 0), (0, 8)] and smaller.in_size("register") == layout.in_size("register")


def test_m16n8k16_by_the_manual():
    """Accumulator and operands of one instruction, then its warps (M first) and repetition (N, then M)."""
    mma = ttg.MmaEncoding.of("test.m16n8k16", [2, 2])
    acc = elements(E.to_linear_layout([64, 32], mma))
    a = elements(E.to_linear_layout([64, 32], ttg.DotOperandEncoding.of(0, mma)))
    b = elements(E.to_linear_layout([32, 32], ttg.DotOperandEncoding.of(1, mma)))
    assert acc.shape[0] == 16 and a.shape[0] == 32 and b.shape[0] == 16
    for lane, warp in itertools.product(range(32), range(4)):
        g, q, wm, wn = lane // 4, lane % 4, warp % 2, warp // 2
        for r in range(16):
            m_rep, n_rep, i = r // 8, r // 4 % 2, r % 4
            assert list(acc[r, lane, warp]) == [32 * m_rep + 16 * wm + g + 8 * (i // 2), 16 * n_rep + 8 * wn + 2 * q + i % 2]
            n_rep, k_rep = r // 8, r // 4 % 2
            assert list(b[r, lane, warp]) == [16 * k_rep + 2 * q + i % 2 + 8 * (i // 2), 16 * n_rep + 8 * wn + g]
        for r in range(32):
            m_rep, k_rep, pair, i = r // 16, r // 8 % 2, r % 8 // 2, r % 2
            assert list(a[r, lane, warp]) == [32 * m_rep + 16 * wm + g + 8 * (pair % 2), 16 * k_rep + 2 * q + i + 8 * (pair // 2)]


def multiply(row, mma, shape, k_width, rng):
    """a @ b by instructions: each takes the registers that ``instruction_tiles`` names, from all lanes of one warp."""
    *batch, m, n, k = shape
    kinds = {"a": (batch + [m, k], ttg.DotOperandEncoding.of(0, mma, k_width)),
             "b": (batch + [k, n], ttg.DotOperandEncoding.of(1, mma, k_width)), "c": (batch + [m, n], mma)}
    a, b = rng.integers(-8, 8, kinds["a"][0]), rng.integers(-8, 8, kinds["b"][0])
    values, tiles = {}, {}
    for name, (dims, encoding) in kinds.items():
        layout = E.to_linear_layout(dims, encoding)
        where = tuple(np.moveaxis(elements(layout), -1, 0))
        values[name] = np.zeros(where[0].shape, int) if name == "c" else {"a": a, "b": b}[name][where]
        tiles[name] = E.instruction_tiles(dims, encoding)
        if name == "c":
            c_where = where
    sides = {"a": ("b", row.b, row.k, row.n), "b": ("a", row.a, row.m, row.k)} if E.boolean(mma.params[2]) else {
        "a": ("a", row.a, row.m, row.k), "b": ("b", row.b, row.k, row.n)}

    def matrix(name, registers, warp):
        """Gather one instruction's operand as the hardware sees it, before any transposition."""
        _, bases, rows, columns = sides[name]
        held = LinearLayout({"register": bases.register, "lane": bases.lane}, {"r": rows, "c": columns})
        out = np.full((rows, columns), 999)
        for i, r in enumerate(registers):
            for lane in range(held.in_size("lane")):
                at = tuple(held.apply({"register": i, "lane": lane}).values())
                assert out[at] in (999, values[name][r, lane, warp])
                out[at] = values[name][r, lane, warp]
        return out

    held_c = LinearLayout({"register": row.c.register, "lane": row.c.lane}, {"r": row.m, "c": row.n})
    for warp in range(values["c"].shape[2]):
        for (bt, i, j), registers in tiles["c"].items():
            total = 0
            for kk in range(k // row.k):
                left, right = matrix("a", tiles["a"][bt, i, kk], warp), matrix("b", tiles["b"][bt, kk, j], warp)
                total = total + (right @ left if sides["a"][0] == "b" else left @ right)
            for x, r in enumerate(registers):
                for lane in range(row.warp_size):
                    values["c"][r, lane, warp] = total[tuple(held_c.apply({"register": x, "lane": lane}).values())]
    got = np.full(batch + [m, n], 999)
    got[c_where] = values["c"]
    np.testing.assert_array_equal(got, a @ b)
    assert (got[c_where] == values["c"]).all()  # every copy of an element has the same value


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_products_by_instructions(row, transposed):
    rng = np.random.default_rng(0)
    for shape, warps, k_width in [((64, 32, 32), [2, 1], 0), ((32, 64, 32), [1, 2], 2 * E.native_k_width(row))]:
        multiply(row, ttg.MmaEncoding.of(row.name, warps, transposed), list(shape), k_width, rng)


def test_product_with_a_batch_dim_and_wide_k():
    rng = np.random.default_rng(1)
    multiply(ROWS[0], ttg.MmaEncoding.of("test.m16n8k16", [2, 1, 2]), [4, 16, 32, 64], 8, rng)
    multiply(ROWS[2], ttg.MmaEncoding.of("test.cdna32", [1, 2, 1], True), [2, 64, 32, 16], 8, rng)


def test_k_width_gives_that_many_consecutive_k():
    mma = ttg.MmaEncoding.of("test.m16n8k16", [1, 1])
    for k_width in (2, 4, 8):
        a = elements(E.to_linear_layout([16, 64], ttg.DotOperandEncoding.of(0, mma, k_width)))
        for lane in range(32):
            ks = sorted(set(a[:, lane, 0, 1]))
            runs = [ks[i:i + k_width] for i in range(0, len(ks), k_width)]
            assert all(run == list(range(run[0], run[0] + k_width)) and run[0] % k_width == 0 for run in runs)
    with pytest.raises(ValueError, match="k_width 8"):
        E.to_linear_layout([16, 32], ttg.DotOperandEncoding.of(0, mma, 8))


def test_fma_operands_hold_all_k_of_the_accumulators():
    parent = ttg.BlockedEncoding.of([2, 4], [4, 8], [2, 2], [1, 0])
    acc = elements(E.to_linear_layout([32, 64], parent))
    a = elements(E.to_linear_layout([32, 16], ttg.DotOperandEncoding.of(0, parent)))
    b = elements(E.to_linear_layout([16, 64], ttg.DotOperandEncoding.of(1, parent)))
    for lane, warp in itertools.product(range(32), range(4)):
        rows, columns = set(acc[:, lane, warp, 0]), set(acc[:, lane, warp, 1])
        assert {tuple(x) for x in a[:, lane, warp]} == set(itertools.product(rows, range(16)))
        assert {tuple(x) for x in b[:, lane, warp]} == set(itertools.product(range(16), columns))
    assert len(a) == len(rows) * 16 and len(b) == len(columns) * 16  # no register twice


@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]),
                  st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_swizzled_shared_by_the_formula(vec, per_phase, max_phase, row_bits, column_bits, row_major):
    shape, order = [1 << row_bits, 1 << column_bits], [1, 0] if row_major else [0, 1]
    with mlir_context():
        layout = E.to_linear_layout(shape, ttg.SwizzledSharedEncoding.of(vec, per_phase, max_phase, order))
    inverse = layout.invert()
    columns = shape[order[0]]
    for element in itertools.product(*map(range, shape)):
        column, row = element[order[0]], element[order[1]]
        swizzle = vec * (row // per_phase % max_phase) % columns
        assert inverse.apply(dict(zip(layout.out_dims, element)))["offset"] == row * columns + (column ^ swizzle)


def test_shared_with_more_and_fewer_dims():
    three = E.to_linear_layout([2, 8, 16], ttg.SwizzledSharedEncoding.of(4, 1, 4, [2, 1, 0])).invert()
    for b, r, c in itertools.product(range(2), range(8), range(16)):
        assert three.apply({"dim0": b, "dim1": r, "dim2": c})["offset"] == b * 128 + r * 16 + (c ^ 4 * (r % 4))
    one = E.to_linear_layout([64], ttg.SwizzledSharedEncoding.of(1, 1, 1, [0]))
    assert one == LinearLayout.identity_1d(64, "offset", "dim0")


PANELS = [(64, 8, 1, 8), (32, 8, 2, 4), (16, 8, 4, 2), (8, 8, 1, 1), (32, 4, 1, 8), (8, 4, 4, 2), (128, 16, 1, 8), (4, 1, 2, 4)]


@hypothesis.settings(deadline=None, max_examples=80)
@hypothesis.given(st.sampled_from(PANELS), st.lists(st.integers(0, 5), min_size=1, max_size=3), st.integers(0, 2), st.data())
def test_panel_shared_by_the_formula(parameters, bits, panels_bits, data):
    panel, vec, per_phase, max_phase = parameters
    order = data.draw(st.permutations(range(len(bits))))
    shape = [1 << b for b in bits]
    shape[order[0]] = panel << panels_bits
    with mlir_context():
        encoding = ttg.PanelSharedEncoding.of(panel, vec, per_phase, max_phase, order)
        layout = E.to_linear_layout(shape, encoding)
        assert E.shared_rank(encoding) == len(shape) and E.shared_alignment(encoding) == 1024
        assert E.shared_elements(shape, encoding) == np.prod(shape)
    places = layout.invert()
    rows = int(np.prod(shape)) // shape[order[0]]
    grid = np.indices(shape).reshape(len(shape), -1)
    row, stride = 0, 1
    for d in order[1:]:
        row, stride = row + grid[d] * stride, stride * shape[d]
    number, within = np.divmod(grid[order[0]], panel)
    swizzled = (within // vec ^ row // per_phase % max_phase) * vec + within % vec
    got = places.apply_array({d: g for d, g in zip(layout.out_dims, grid)})["offset"]
    np.testing.assert_array_equal(got, number * rows * panel + np.asarray(row) * panel + swizzled)


def test_panel_shared_says_what_does_not_fit():
    with pytest.raises(ValueError, match="panels of 64 elements, wider than dim 1"):
        E.to_linear_layout([64, 32], ttg.PanelSharedEncoding.of(64, 8, 1, 8, [1, 0]))
    with pytest.raises(ValueError, match="8 phases of 8 elements are more than a panel's 32"):
        E.to_linear_layout([64, 32], ttg.PanelSharedEncoding.of(32, 8, 1, 8, [1, 0]))
    with pytest.raises(ValueError, match="no permutation"):
        E.to_linear_layout([64, 32], ttg.PanelSharedEncoding.of(32, 8, 2, 4, [0, 0]))


def test_padded_shared():
    encoding = ttg.PaddedSharedEncoding.of(32, 4, [0, 1])
    layout = E.to_linear_layout([8, 16], encoding).invert()
    seen = set()
    for r, c in itertools.product(range(8), range(16)):
        linear = layout.apply({"dim0": r, "dim1": c})["offset"]
        assert linear == c * 8 + r
        seen.add(E.shared_offset(encoding, linear))
    assert seen == {i + i // 32 * 4 for i in range(128)} and E.shared_elements([8, 16], encoding) == 128 + 3 * 4
    np.testing.assert_array_equal(E.shared_offset(encoding, np.arange(64)), np.arange(64) + np.arange(64) // 32 * 4)


@pytest.mark.parametrize("shape,size,order", [([128, 64], [1, 4], [1, 0]), ([64, 256], [8, 1], [0, 1]), ([4, 8], [1, 8], [1, 0]),
                                              ([16], [4], [0]), ([1, 1024], [1, 1], [1, 0]), ([2, 16, 32], [1, 1, 2], [2, 1, 0])])
@pytest.mark.parametrize("warp_size", [32, 64])
def test_blocked_for_uses_every_thread_and_no_element_twice_needlessly(shape, size, order, warp_size):
    layout = E.to_linear_layout(shape, E.blocked_for(shape, size, order, 4, warp_size))
    assert (layout.in_size("lane"), layout.in_size("warp")) == (warp_size, 4) and layout.is_surjective()
    owned = layout.in_size("register") * warp_size * 4
    assert owned == max(np.prod(shape), warp_size * 4 * np.prod([min(a, b) for a, b in zip(shape, size)]))


def test_default_blocked():
    layout = E.to_linear_layout([4, 256], E.default_blocked([4, 256], 4, 32))
    assert layout.bases["lane"] == [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16)] and layout.bases["warp"] == [(0, 32), (0, 64)]


def test_repeats_and_owners():
    enc = ttg.BlockedEncoding.of([1, 4], [8, 4], [4, 1], [1, 0])
    assert not E.repeats_lanes(E.to_linear_layout([32, 16], enc)) and not E.repeats_warps(E.to_linear_layout([32, 16], enc))
    narrow = E.to_linear_layout([32, 1], enc)
    assert E.repeats_lanes(narrow) and not E.repeats_warps(narrow) and E.registers_per_thread(narrow) == 1
    assert E.repeats_warps(E.to_linear_layout([8, 16], enc))
    odd = LinearLayout({"register": [(1,), (0,), (1,), (2,)], "lane": [], "warp": [], "block": []}, {"dim0": 4})
    assert E.register_owners(odd) == [0, 1, 0, 1, 1, 0, 1, 0, 8, 9, 8, 9, 9, 8, 9, 8]
    assert E.unique_registers(odd) == [0, 1, 8, 9] and E.repeats_registers(odd)


def test_contiguity():
    row_major = E.to_linear_layout([32, 64], ttg.BlockedEncoding.of([2, 8], [8, 4], [2, 2], [1, 0]))
    assert E.contiguous_elements(row_major) == 8 and E.contiguous_along(row_major, 0) == 1
    column_major = E.to_linear_layout([32, 64], ttg.BlockedEncoding.of([4, 2], [8, 4], [1, 4], [0, 1]))
    assert E.contiguous_elements(column_major) == 1 and E.contiguous_along(column_major, 0) == 4


def test_types_and_errors():
    f16, enc = ir.F16Type.get(), E.default_blocked([128], 4, 32)
    tensor = ir.RankedTensorType.get([128], f16, enc)
    assert E.layout_of(tensor) is E.to_linear_layout([128], enc)
    memdesc = ttg.MemDescType.of([16, 16], f16, ttg.SwizzledSharedEncoding.of(1, 1, 1, [1, 0]))
    assert E.layout_of(memdesc).in_dims == ("offset",)
    with pytest.raises(TypeError, match="no encoding"):
        E.layout_of(ir.RankedTensorType.get([128], f16))
    with pytest.raises(ValueError, match="shape"):
        E.to_linear_layout([4, 4], enc)
    with pytest.raises(TypeError, match="not an encoding"):
        E.to_linear_layout([4], ir.StringAttr.get("x"))
    with pytest.raises(ValueError, match="permutation"):
        E.to_linear_layout([4, 4], ttg.BlockedEncoding.of([1, 1], [1, 1], [1, 1], [0, 0]))
    for text, bits in [("i1", 1), ("i8", 8), ("f16", 16), ("bf16", 16), ("i64", 64), ("f64", 64), ("f8E4M3FN", 8), ("f8E5M2", 8)]:
        assert E.element_bits(ir.Type.parse(text)) == bits
    assert E.element_bits(ir.Type.parse("!tt.ptr<f32, 1 : i32>")) == 64 and E.storage_bits(ir.Type.parse("i1")) == 8
    with pytest.raises(TypeError):
        E.element_bits(ir.Type.parse("tuple<>"))


def test_fast_enough():
    """Lowering asks for layouts all the time: 5 µs when cached, and building one costs well under 1 ms."""
    tensor = ir.RankedTensorType.get([128, 128], ir.F32Type.get(), ttg.MmaEncoding.of("test.m16n8k16", [2, 2]))
    E.layout_of(tensor)
    best = min(_timed(lambda: E.layout_of(tensor), 1000) for _ in range(5))
    assert best < 5e-6
    shapes = iter([1 << i, 1 << j] for i in range(4, 9) for j in range(4, 9))
    assert min(_timed(lambda: E.to_linear_layout(next(shapes), tensor.encoding), 5) for _ in range(5)) < 1e-3


def _timed(fn, n):
    start = time.perf_counter()
    for _ in range(n):
        fn()
    return (time.perf_counter() - start) / n
