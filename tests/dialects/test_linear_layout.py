"""Every LinearLayout operation against brute force over all inputs."""

from __future__ import annotations

import itertools
import pickle

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tilewright.dialects.gf2 import Gf2Solver, common_complement, independent, intersection
from tilewright.dialects.linear_layout import LinearLayout, log2


def given(*strategies):
    """Brute force over all inputs is slow enough for hypothesis's deadline to fire on a loaded machine."""
    return lambda test: hypothesis.settings(deadline=None, max_examples=60)(hypothesis.given(*strategies)(test))


IN_NAMES, OUT_NAMES = ("register", "lane", "warp"), ("dim0", "dim1", "dim2")


@st.composite
def layouts(draw, in_names=None, outs=None, in_bits=3):
    if in_names is None:
        in_names = draw(st.sampled_from([IN_NAMES[:1], IN_NAMES[:2], IN_NAMES]))
    if outs is None:
        names = draw(st.sampled_from([OUT_NAMES[:1], OUT_NAMES[:2], OUT_NAMES]))
        outs = {d: 1 << draw(st.integers(0, 3)) for d in names}
    bases = {d: [tuple(draw(st.integers(0, s - 1)) for s in outs.values()) for _ in range(draw(st.integers(0, in_bits)))]
             for d in in_names}
    return LinearLayout(bases, outs)


@st.composite
def bijections(draw):
    """A random invertible map: a permuted identity with random additions of one basis to another."""
    bits = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    total = sum(bits)
    cols = draw(st.permutations([1 << i for i in range(total)]))
    for _ in range(draw(st.integers(0, 6)) if total > 1 else 0):
        i, j = draw(st.integers(0, total - 1)), draw(st.integers(0, total - 1))
        if i != j:
            cols[i] ^= cols[j]
    cut = sorted(draw(st.lists(st.integers(0, total), min_size=2, max_size=2)))
    columns = {"register": cols[:cut[0]], "lane": cols[cut[0]:cut[1]], "warp": cols[cut[1]:]}
    return LinearLayout.from_columns(columns, {d: 1 << b for d, b in zip(OUT_NAMES, bits)})


def inputs(layout):
    for values in itertools.product(*(range(layout.in_size(d)) for d in layout.in_dims)):
        yield dict(zip(layout.in_dims, values))


def brute(layout, index):
    """By the definition: xor of the bases of the set bits."""
    out = [0] * len(layout.out_dims)
    for d, vectors in layout.bases.items():
        for bit, vec in enumerate(vectors):
            if index[d] >> bit & 1:
                out = [a ^ b for a, b in zip(out, vec)]
    return dict(zip(layout.out_dims, out))


def flat(layout, out):
    word = 0
    for d in layout.out_dims:
        word = word * layout.out_size(d) + out[d]
    return word


@given(layouts())
def test_apply_is_the_xor_of_bases(layout):
    for number, index in enumerate(sorted(inputs(layout), key=lambda i: [i[d] for d in reversed(layout.in_dims)])):
        want = brute(layout, index)
        assert layout.apply(index) == want
        assert layout.apply_flat(number) == layout.table()[number] == flat(layout, want)


@given(layouts())
def test_apply_array_broadcasts(layout):
    axes = {d: np.arange(layout.in_size(d)).reshape([-1 if i == j else 1 for j in range(len(layout.in_dims))])
            for i, d in enumerate(layout.in_dims)}
    got = layout.apply_array(axes)
    for index in inputs(layout):
        at = tuple(index.values())
        want = brute(layout, index)
        for d in layout.out_dims:
            assert np.broadcast_to(got[d], [layout.in_size(i) for i in layout.in_dims])[at] == want[d]


@given(st.data())
def test_compose(data):
    first = data.draw(layouts())
    names = data.draw(st.permutations(first.out_dims))
    outs = {"x": 4, "y": 8}
    second = LinearLayout(
        {d: [tuple(data.draw(st.integers(0, s - 1)) for s in outs.values())
             for _ in range(log2(first.out_size(d)) + data.draw(st.integers(0, 1)))] for d in names}, outs)
    both = first.compose(second)
    for index in inputs(first):
        assert both.apply(index) == second.apply(first.apply(index))


@given(layouts(in_bits=1), layouts(in_bits=2))
def test_product(a, b):
    product = a * b
    for index in inputs(product):
        low = {d: index[d] % a.in_size(d) for d in a.in_dims}
        high = {d: index[d] // (a.in_size(d) if d in a.in_dims else 1) for d in b.in_dims}
        one, two = brute(a, low), brute(b, high)
        for d, got in product.apply(index).items():
            scale = a.out_size(d) if d in a.out_dims else 1
            assert got == one.get(d, 0) + two.get(d, 0) * scale
    assert LinearLayout.empty() * a == a == a * LinearLayout.empty()


@given(bijections())
def test_invert(layout):
    inverse = layout.invert()
    for index in inputs(layout):
        assert inverse.apply(layout.apply(index)) == index
    for out in inputs(inverse):
        assert layout.apply(inverse.apply(out)) == out


@given(layouts())
def test_injective_surjective_rank(layout):
    images = [tuple(brute(layout, i).values()) for i in inputs(layout)]
    assert layout.is_injective() == (len(set(images)) == len(images))
    assert layout.is_surjective() == (len(set(images)) == 1 << layout.total_out_bits)
    assert len(set(images)) == 1 << layout.rank


@given(layouts())
def test_invert_needs_a_bijection_and_pseudo_invert_a_surjection(layout):
    if not (layout.is_injective() and layout.is_surjective()):
        with pytest.raises(ValueError):
            layout.invert()
    if layout.is_surjective():
        right = layout.pseudo_invert()
        masks = layout.free_variable_masks()
        for out in inputs(right):
            index = right.apply(out)
            assert layout.apply(index) == out
            assert all(index[d] & masks[d] == 0 for d in layout.in_dims)
    else:
        with pytest.raises(ValueError):
            layout.pseudo_invert()


@given(st.data())
def test_invert_and_compose(data):
    outs = {"dim0": 1 << data.draw(st.integers(0, 2)), "dim1": 1 << data.draw(st.integers(0, 2))}
    a, b = data.draw(layouts(outs=outs)), data.draw(layouts(outs=outs))
    reached = {tuple(brute(b, i).values()) for i in inputs(b)}
    if all(tuple(brute(a, i).values()) in reached for i in inputs(a)):
        link = a.invert_and_compose(b)
        for index in inputs(a):
            assert brute(b, link.apply(index)) == brute(a, index)
    else:
        with pytest.raises(ValueError):
            a.invert_and_compose(b)


@given(layouts())
def test_free_variables_name_owners(layout):
    masks = layout.free_variable_masks()
    owned = [tuple(brute(layout, i).values()) for i in inputs(layout) if all(i[d] & masks[d] == 0 for d in masks)]
    everything = {tuple(brute(layout, i).values()) for i in inputs(layout)}
    assert len(owned) == len(set(owned)) and set(owned) == everything


@given(layouts(), st.data())
def test_sublayout(layout, data):
    ins = data.draw(st.sets(st.sampled_from(layout.in_dims)))
    outs = data.draw(st.sets(st.sampled_from(layout.out_dims)))
    sub = layout.sublayout(ins, outs)
    for index in inputs(sub):
        full = brute(layout, {d: index.get(d, 0) for d in layout.in_dims})
        assert sub.apply(index) == {d: full[d] for d in layout.out_dims if d in outs}


@given(layouts(in_names=("register", "lane")), st.integers(0, 2), st.booleans())
def test_quotient(layout, bits, spoil):
    block = LinearLayout.identity_1d(1 << bits, "block", "block")
    product = layout * block
    assert product.quotient(["block"]) == layout
    if spoil and bits and product.total_in_bits > bits:
        columns = {d: list(product.columns(d)) for d in product.in_dims}
        victim = next(d for d in columns if columns[d])
        columns[victim][0] ^= 1  # the last out dim, block, is lowest
        spoiled = LinearLayout.from_columns(columns, product.out_sizes)
        assert spoiled.quotient(["block"]) is None


@given(layouts(in_bits=1), layouts(in_bits=2))
def test_divide_left(a, b):
    product = a * b
    rest = product.divide_left(a)
    assert rest is not None
    again = a * rest
    for index in inputs(product):
        assert again.apply(index) == product.apply(index)


@given(layouts(outs={"dim0": 4, "dim1": 8}), layouts(outs={"dim0": 2, "dim1": 4}))
def test_divide_left_refuses_what_is_no_factor(layout, tile):
    rest = layout.divide_left(tile)
    if rest is not None:
        again = tile * rest
        for index in inputs(layout):
            assert again.apply(index) == layout.apply(index)


@given(layouts(outs={"dim0": 4, "dim1": 8}))
def test_reshape_and_transpose(layout):
    reshaped = layout.reshape_outs({"a": 2, "b": 16})
    permuted = layout.permute_tensor_dims([1, 0])
    listed = layout.transpose_outs(["dim1", "dim0"])
    elements = np.arange(32)
    for index in inputs(layout):
        out = brute(layout, index)
        new = reshaped.apply(index)
        assert elements.reshape(2, 16)[new["a"], new["b"]] == elements.reshape(4, 8)[out["dim0"], out["dim1"]]
        assert permuted.apply(index) == {"dim0": out["dim1"], "dim1": out["dim0"]}
        assert listed.apply(index) == out
    with pytest.raises(ValueError):
        layout.reshape_outs({"a": 64})


@given(layouts())
def test_consecutive(layout):
    """Against the definition: the largest n where aligned runs of n first indices give aligned runs along the last dim."""
    first, last = layout.in_dims[0], layout.out_dims[-1]

    def holds(n):
        if n > layout.in_size(first) or n > layout.out_size(last):
            return False
        for index in inputs(layout):
            if index[first] % n == 0:
                run = [brute(layout, {**index, first: index[first] + i}) for i in range(n)]
                if run[0][last] % n or any(r != {**run[0], last: run[0][last] + i} for i, r in enumerate(run)):
                    return False
        return True

    n = layout.num_consecutive_in_out()
    assert holds(n) and not holds(2 * n)


def test_simple_layouts():
    assert [LinearLayout.identity_1d(8, "r", "x").apply({"r": i})["x"] for i in range(8)] == list(range(8))
    assert [LinearLayout.strided_1d(4, 8, "r", "x").apply({"r": i})["x"] for i in range(4)] == [0, 8, 16, 24]
    assert LinearLayout.strided_1d(4, 8, "r", "x").out_size("x") == 32
    assert [LinearLayout.zeros_1d(4, "r", "x", 2).apply({"r": i})["x"] for i in range(4)] == [0] * 4


@given(layouts())
def test_value_semantics(layout):
    twin = LinearLayout(layout.bases, layout.out_sizes)
    assert twin == layout and hash(twin) == hash(layout) and pickle.loads(pickle.dumps(layout)) == layout
    with pytest.raises(AttributeError):
        layout.in_dims = ()
    grown = layout * LinearLayout.identity_1d(2, "block", "dim9")
    assert grown != layout


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="not a power of two"):
        LinearLayout({"r": [(1,)]}, {"x": 3})
    with pytest.raises(ValueError, match="outside"):
        LinearLayout({"r": [(4,)]}, {"x": 4})
    with pytest.raises(ValueError, match="one entry"):
        LinearLayout({"r": [(1, 0)]}, {"x": 4})
    with pytest.raises(ValueError, match="outside"):
        LinearLayout.identity_1d(4, "r", "x").apply({"r": 4})
    with pytest.raises(ValueError, match="compose"):
        LinearLayout.identity_1d(4, "r", "x").compose(LinearLayout.identity_1d(4, "y", "z"))
    with pytest.raises(KeyError):
        LinearLayout.identity_1d(4, "r", "x").in_size("lane")


@given(st.lists(st.integers(0, 63), max_size=7), st.integers(0, 63))
def test_solver(columns, target):
    solver = Gf2Solver(columns)
    sums = {}
    for mask in range(1 << len(columns)):
        word = 0
        for i, c in enumerate(columns):
            word ^= c if mask >> i & 1 else 0
        sums.setdefault(word, []).append(mask)
    x = solver.solve(target)
    assert (x is None) == (target not in sums)
    if x is not None:
        assert x in sums[target] and x & solver.free == 0
    assert len(sums) == 1 << solver.rank


def span(vectors):
    words = {0}
    for v in vectors:
        words |= {w ^ v for w in words}
    return words


@given(st.lists(st.integers(0, 63), max_size=5), st.lists(st.integers(0, 63), max_size=5))
def test_subspaces(a, b):
    both = intersection(a, b)
    assert span(both) == span(a) & span(b) and len(span(both)) == 1 << len(both)
    more = independent(b, given=a)
    assert span(a + more) == span(a + b) and len(span(a + more)) == len(span(a)) << len(more)


@given(st.lists(st.integers(0, 63), max_size=5), st.lists(st.integers(0, 63), max_size=5))
def test_common_complement(a, b):
    a, b = independent(a), independent(b)
    size, space = min(len(a), len(b)), [1 << i for i in range(6)]
    if len(a) != len(b):
        with pytest.raises(ValueError):
            common_complement(a, b, space)
    rest = common_complement(a[:size], b[:size], space)
    assert len(rest) == 6 - size
    assert len(span(a[:size] + rest)) == len(span(b[:size] + rest)) == 64
