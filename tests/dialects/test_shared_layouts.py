"""Layouts of buffers and what they cost, against addresses that are enumerated; transposing reads, against transposed matrices."""

from types import MappingProxyType

import numpy as np
import pytest

from tilewright.dialects.context import mlir_context
from tilewright.dialects.encodings import (
    blocked_for,
    linear_encoding,
    permuted_shared,
    shared_elements,
    shared_rank,
    to_linear_layout,
)
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.shared_layouts import cost, is_transposing, linear_candidate, transposed_read
from tilewright.dialects.shared_model import SharedModel
from tilewright.dialects.swizzle import access_vector

PLAIN, STRIDED = SharedModel(32), SharedModel(32, MappingProxyType({16: (1, 2, 20)}))
TURNING = SharedModel(64, MappingProxyType({16: (1, 2, 12, 20)}), MappingProxyType({16: 8, 8: 8}))


def addresses(layout, shared):
    """[warp, lane, register] → offset, of every element that a layout holds."""
    table = np.asarray(layout.compose(shared.pseudo_invert()).table())
    return table.reshape(layout.in_size("warp"), layout.in_size("lane"), layout.in_size("register"))


def random_layout(rng, shape, lanes, warps, repeat=0):
    """A random bijection of registers, lanes and warps to the tensor, ``repeat`` of the lane bits holding copies."""
    total = sum(s.bit_length() - 1 for s in shape)
    while True:
        columns = [int(c) for c in rng.integers(1, 1 << total, total)]
        cut = lanes - repeat
        parts = {"register": columns[cut + warps:], "lane": columns[:cut] + [0] * repeat, "warp": columns[cut:cut + warps]}
        layout = LinearLayout.from_columns(parts, {f"dim{i}": s for i, s in enumerate(shape)})
        if layout.is_surjective():
            return layout


def groups(model, lanes, size, write):
    """The lanes that are served together, spelt out."""
    masks = () if write else model.read_lanes.get(size, ())
    count = min(lanes, model.banks * 4 // max(4, size))
    if not masks:
        return [list(range(i, i + count)) for i in range(0, lanes, count)]
    first = [0]
    for m in masks:
        first += [x ^ m for x in first]
    seen, out = set(), []
    for lane in range(lanes):
        if lane not in seen:
            out.append([lane ^ x for x in first])
            seen.update(out[-1])
    return out


def cycles(model, layout, shared, bytes_, vec, write):
    where = addresses(layout, shared)
    free = layout.free_variable_masks() if write else {"lane": 0}
    total = 0
    for w in range(1):
        starts = sorted({int(o) // vec for o in where[w, 0]})
        for start in starts:
            register = next(r for r, o in enumerate(where[w, 0]) if o // vec == start)
            words = where[w, :, register] // vec * vec * bytes_ // 4
            for group in groups(model, layout.in_size("lane"), vec * bytes_, write):
                active = [x for x in group if not x & free["lane"]]
                distinct = np.unique(words[active][:, None] + np.arange(max(1, vec * bytes_ // 4))) if active else np.array([], int)
                total += max([1, *np.bincount(distinct % model.banks)]) if len(distinct) else 1
    return total


@pytest.mark.parametrize("model, lanes", [(PLAIN, 5), (STRIDED, 5), (STRIDED, 6), (TURNING, 6)], ids=["plain", "wave32", "wave64", "banks64"])
@pytest.mark.parametrize("bytes_", [1, 2, 4])
def test_cost_is_what_enumeration_finds(model, lanes, bytes_):
    rng = np.random.default_rng()
    for repeat in (0, 1):
        for _ in range(6):
            shape = (64, 64)
            written, read = random_layout(rng, shape, lanes, 1), random_layout(rng, shape, lanes, 1, repeat)
            shared = LinearLayout.from_columns({"offset": random_layout(rng, shape, 6, 0).flat_columns}, written.out_sizes)
            found = cost(written, read, shared, 8 * bytes_, SharedModel(model.banks, model.read_lanes))
            expected = (cycles(model, written, shared, bytes_, access_vector(written, shared, bytes_, write=True), True)
                        + cycles(model, read, shared, bytes_, access_vector(read, shared, bytes_), False))
            assert found.cycles == expected


@pytest.mark.parametrize("bits", [16, 8])
def test_transposed_read_gives_the_layout(bits):
    """A transposing load from the addresses of ``transposed_read`` brings every lane what the operand's layout says."""
    with mlir_context():
        layout = LinearLayout({"register": [(1, 0), (2, 0), (4, 0), (32, 0)], "lane": [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (8, 0)],
                               "warp": [(16, 0)]}, {"dim0": 64, "dim1": 32})
        written = to_linear_layout((64, 32), blocked_for((64, 32), [1, 8], [1, 0], 2, 64))
        found, encoding = linear_candidate((64, 32), linear_encoding(written), linear_encoding(layout), bits, TURNING)
        shared = to_linear_layout((64, 32), encoding)
    read = is_transposing(shared, layout, bits, 8)
    assert read is not None and found.conflicts == 0
    count = 64 // bits
    memory = np.zeros(64 * 32, int)
    memory[addresses(written, shared).ravel()] = np.asarray(written.table()).ravel()
    where, wanted = addresses(read, shared), np.asarray(layout.table()).reshape(2, 64, 16)
    for warp in range(2):
        for first in range(0, 16, count):  # the load's own registers come first in both
            words = np.stack([memory[where[warp, :, first] + i] for i in range(count)], axis=1)
            rows = words.reshape(4, count, 16)  # of each 16 lanes the words are rows of 16 elements
            received = rows.transpose(0, 2, 1).reshape(64, count)
            np.testing.assert_array_equal(received, wanted[warp, :, first:first + count])


def test_layouts_that_cannot_be_read_transposed():
    short = LinearLayout({"register": [(1, 0)], "lane": [(0, 1), (0, 2), (0, 4), (0, 8)], "warp": []}, {"dim0": 2, "dim1": 16})
    assert transposed_read(short, 16, 8) is None  # two rows where four are wanted
    copies = LinearLayout({"register": [(1, 0), (2, 0)], "lane": [(0, 1), (0, 0), (0, 2), (0, 4)], "warp": []}, {"dim0": 4, "dim1": 8})
    assert transposed_read(copies, 16, 8) is None


@pytest.mark.parametrize("model, lanes", [(PLAIN, 32), (STRIDED, 32), (STRIDED, 64), (TURNING, 64)], ids=["plain", "wave32", "wave64", "banks64"])
@pytest.mark.parametrize("order", [[1, 0], [0, 1]])
def test_chosen_layouts_have_no_conflicts(model, lanes, order):
    """Of a tile that is loaded along rows (or columns) and read as a matrix operand, eight of k a lane."""
    with mlir_context():
        for shape in ((64, 64), (32, 128), (128, 32)):
            size = [1, 1]
            size[order[0]] = 8
            written = blocked_for(shape, size, order, 4, lanes)
            rows = [(0, 1 << i) for i in range(4)] + [(8 << i, 0) for i in range(lanes.bit_length() - 5)]
            k = [(1, 0), (2, 0), (4, 0), *[(8 << i, 0) for i in range(lanes.bit_length() - 5, (shape[0] // 8).bit_length() - 1)]]
            n = [(0, 16 << i) for i in range((shape[1] // 16).bit_length() - 1)]
            read = linear_encoding(LinearLayout({"register": [*k, *n[2:]], "lane": rows, "warp": (n + [(0, 0)] * 2)[:2]},
                                                {"dim0": shape[0], "dim1": shape[1]}))
            found, encoding = linear_candidate(shape, written, read, 16, model)
            assert found.conflicts == 0
            assert shared_elements(shape, encoding) == shape[0] * shape[1] and shared_rank(encoding) == 2
            view = permuted_shared(encoding, shape, (1, 0))
            ours, turned = to_linear_layout(shape, encoding), to_linear_layout(shape[::-1], view)
            for offset in (0, 1, 5, 97, 511):
                at = ours.apply({"offset": offset})
                assert turned.apply({"offset": offset}) == {"dim0": at["dim1"], "dim1": at["dim0"]}


def test_vectors_of_two_operands_cost_moves():
    """Four of k of one instruction's operand and four of another's in one access: each word has to be moved where operands are eight of k."""
    layout = LinearLayout({"register": [(1, 0), (2, 0), (4, 0), (0, 16)], "lane": [(0, 1), (0, 2), (0, 4), (0, 8), (8, 0)], "warp": []},
                          {"dim0": 16, "dim1": 32})
    mixed = LinearLayout({"offset": [(1, 0), (2, 0), (0, 16), (0, 1), (0, 2), (0, 4), (0, 8), (4, 0), (8, 0)]}, layout.out_sizes)
    costs = [cost(layout, layout, mixed, 16, PLAIN, together).instructions for together in (0, 2, 3)]
    assert costs == [4, 4, 12]  # two accesses each way; 8 words of 16 elements


def test_linear_shared_must_be_a_bijection_of_its_shape():
    with mlir_context():
        from tilewright.dialects import ttg

        encoding = ttg.LinearSharedEncoding.of([(0, 1), (1, 0), (1, 0)], 2)
        with pytest.raises(ValueError, match="no bijection"):
            to_linear_layout((2, 4), encoding)
