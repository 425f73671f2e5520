"""The layout passes change where elements are, never what is computed: whole kernels and random programs, with numpy."""

import numpy as np
import pytest
from evaluate import Evaluator, poisoned
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_texts import (
    Text,
    attention,
    context,
    layer_norm,
    masked_add,
    matmul,
    ptr,
    run_passes,
    softmax,
    transpose_copy,
)

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import mlir_context
from tilewright.dialects.passes import (
    accelerate_dot,
    coalesce,
    convert_tt_to_ttg,
    optimize_dot_operands,
    remove_layout_conversions,
    verify_layouts,
)

PASSES = (convert_tt_to_ttg, coalesce, accelerate_dot, remove_layout_conversions, optimize_dot_operands)


def both(text, make_arguments, ctx=None, program_id=(0, 0, 0)):
    """Memory after the kernel ran as it is, and after it went through the passes."""
    with mlir_context():
        memory = []
        for passes in ((), PASSES):
            if passes:
                _, f = run_passes(text, ctx or context(), *passes)
            else:
                f = functions(ir.Module.parse(text))[0]
            arguments = make_arguments()
            Evaluator(f, arguments, program_id)
            memory.append([a for a in arguments if isinstance(a, np.ndarray)])
        return memory


def same(memory):
    for a, b in zip(*memory, strict=True):
        np.testing.assert_array_equal(a, b)


def data(n, seed):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float16).astype(np.float64)


@pytest.mark.parametrize("warp_size", [32, 64])
@pytest.mark.parametrize("text,arguments", [
    (masked_add(), lambda: [data(2048, 0), data(2048, 1), poisoned(2048), 1100]),
    (transpose_copy(), lambda: [data(64 * 80, 0), poisoned(64 * 96), 80, 96]),
    (softmax(), lambda: [data(4096, 0), poisoned(4096), 1000, 777]),
    (layer_norm(), lambda: [data(6000, 0), poisoned(6000), data(3000, 1), 3000, 2999]),
    (matmul(64, 64, 32), lambda: [data(100 * 112, 0), data(112 * 80, 1), data(80, 2), poisoned(100 * 80), 100, 80, 70, 112, 80, 80]),
    (matmul(64, 64, 32, w_column_major=True),
     lambda: [data(100 * 112, 0), data(112 * 80, 1), data(80, 2), poisoned(100 * 80), 100, 80, 70, 112, 112, 80]),
    (attention(), lambda: [*(data(100 * 64, i) for i in range(3)), poisoned(100 * 64), 64, 97, 0.125]),
])
def test_kernels(text, arguments, warp_size):
    for pid in ((0, 0, 0), (1, 1, 0)):
        memory = both(text, arguments, context(warp_size), pid)
        same(memory)
        assert any(np.isnan(a).any() and not np.isnan(a).all() for a in memory[0])  # something was written, not everything


class Random:
    """A random program over 1-D and 2-D float tensors: loads, elementwise, reductions, shape ops, loops and branches."""

    def __init__(self, draw):
        self.draw = draw
        self.t = Text([("x", ptr("f32"), 16), ("o", ptr("f32"), 16), ("n", "i32", 1)])
        self.m, self.n = draw(st.sampled_from([(16, 32), (32, 16), (64, 8), (16, 16)]))
        self.stored = 0

    def offsets(self, shape):
        t = self.t
        kind = self.draw(st.integers(0, 2))
        if len(shape) == 1:
            r = t.range(shape[0])
            return t.bin("arith.muli", r, t.const(2, (), "i32")) if kind == 2 else r
        i, j = t.expand(t.range(shape[0]), 1), t.expand(t.range(shape[1]), 0)
        if kind:  # row-major or column-major
            return t.bin("arith.addi", t.bin("arith.muli", i, t.const(shape[1], (), "i32")), j)
        return t.bin("arith.addi", i, t.bin("arith.muli", j, t.const(shape[0], (), "i32")))

    def load(self, shape):
        o = self.offsets(shape)
        mask = self.t.cmp(2, o, self.t.args[2]) if self.draw(st.booleans()) else None
        return self.t.load(self.t.addptr(self.t.args[0], o), mask)

    def store(self, v):
        o = self.t.bin("arith.addi", self.offsets(v.shape), self.t.const(self.stored * 1024, (), "i32"))
        self.stored += 1
        self.t.store(self.t.addptr(self.t.args[1], o), v)

    def shape(self):
        return self.draw(st.sampled_from([(self.m, self.n), (self.n, self.m), (self.m,), (self.n,)]))

    def make(self, pool, shape, depth=0):
        """A tensor of ``shape`` out of the pool, or a new one."""
        t, draw = self.t, self.draw
        fitting = [v for v in pool if v.shape == shape]
        kind = draw(st.integers(0, 14))
        if fitting and (kind < 4 or depth > 2):
            return draw(st.sampled_from(fitting))
        if depth > 2 or kind == 4:
            return self.load(shape) if draw(st.booleans()) else t.const("1.5", shape, "f32")
        if kind == 5 and len(shape) == 1:
            rows = self.n if shape[0] == self.m else self.m
            axis = draw(st.integers(0, 1))
            source = self.make(pool, (shape[0], rows) if axis == 1 else (rows, shape[0]), depth + 1)
            return t.reduce(source, axis, draw(st.sampled_from(["arith.addf", "arith.maxnumf"])))
        if kind == 6 and len(shape) == 2:
            axis = draw(st.integers(0, 1))
            return t.to(t.expand(self.make(pool, (shape[1 - axis],), depth + 1), axis), shape)
        if kind == 7 and len(shape) == 2:
            return t.op("tt.trans", [self.make(pool, shape[::-1], depth + 1)], shape, "f32", "order = array<i32: 1, 0>")
        if kind == 8 and len(shape) == 2:
            return t.op("tt.reshape", [self.make(pool, shape[::-1], depth + 1)], shape, "f32", "allow_reorder = false")
        if kind == 9:
            return t.cast("arith.sitofp", self.offsets(shape), "f32")
        if kind == 10:
            return t.scan(self.make(pool, shape, depth + 1), draw(st.integers(0, len(shape) - 1)))
        if kind == 11:  # one half of two tensors joined, or of a tensor whose last dim is cut off
            if draw(st.booleans()) or len(shape) == 1:
                source = t.op("tt.join", [self.make(pool, shape, depth + 1) for _ in range(2)], (*shape, 2), "f32")
            else:
                whole = self.make(pool, shape, depth + 1)
                other = t.op("tt.reshape", [whole], (shape[0], shape[1] // 2, 2), "f32", "allow_reorder = false")
                x, y = t.split(other)
                return t.op("tt.reshape", [t.op("tt.join", [y, x], other.shape, "f32")], shape, "f32", "allow_reorder = false")
            return t.split(source)[draw(st.integers(0, 1))]
        if kind == 14:  # through a scalar
            row = self.make(pool, draw(st.sampled_from([(self.m,), (self.n,)])), depth + 1)
            return t.splat(t.reduce(row, 0, draw(st.sampled_from(["arith.addf", "arith.maxnumf"]))), shape)
        if kind == 12 and len(shape) == 1:
            half = (shape[0] // 2,)
            return t.op("tt.cat", [self.make(pool, half, depth + 1) for _ in range(2)], shape, "f32")
        if kind == 13:
            axis = draw(st.integers(0, len(shape) - 1))
            indices = t.bin("arith.remsi", self.offsets(shape), t.const(shape[axis], (), "i32"))
            return t.op("tt.gather", [self.make(pool, shape, depth + 1), indices], shape, "f32", f"axis = {axis} : i32")
        a, b = self.make(pool, shape, depth + 1), self.make(pool, shape, depth + 1)
        return t.bin(draw(st.sampled_from(["arith.addf", "arith.mulf", "arith.maxnumf"])), a, b)

    def block(self, pool, steps, depth):
        pool = list(pool)
        for _ in range(steps):
            kind = self.draw(st.integers(0, 7))
            if kind == 0 and depth < 2:
                pool += self.loop(pool, depth)
            elif kind == 1 and depth < 2:
                pool += self.branch(pool, depth)
            elif kind == 2:
                self.store(self.make(pool, self.shape()))
            else:
                pool.append(self.make(pool, self.shape()))
        return pool

    def loop(self, pool, depth):
        t = self.t
        inits = [self.make(pool, self.shape()) for _ in range(self.draw(st.integers(1, 3)))]
        pointer_shape = self.shape()
        # a carried pointer and a carried range: free values, perhaps wanted in several layouts
        inits += [t.addptr(t.args[0], self.offsets(pointer_shape)), t.range(self.m)]
        bounds = [t.const(v, (), "i32") for v in (0, self.draw(st.integers(0, 2)), 1)]
        with t.loop(*bounds, inits) as (_, args, results):
            *tensors, pointers, numbers = args
            wide = t.cast("arith.sitofp", numbers, "f32")
            loaded = t.load(pointers)
            row = t.to(t.expand(wide, 1), (self.m, self.n))
            column = t.to(t.expand(wide, 0), (self.n, self.m))
            if self.draw(st.booleans()):  # the range is wanted by rows and by columns
                self.store(t.bin("arith.addf", row, self.load((self.m, self.n))))
                self.store(t.bin("arith.addf", column, self.load((self.n, self.m))))
            inner = self.block([*pool, *tensors, loaded, wide, row, column], self.draw(st.integers(0, 2)), depth + 1)
            out = [self.make(inner, v.shape) for v in tensors]
            t.yield_([*out, t.addptr(pointers, t.const(1, pointer_shape, "i32")),
                      t.bin("arith.addi", numbers, t.const(1, (self.m,), "i32"))])
        return [*results[:-2], t.cast("arith.sitofp", results[-1], "f32")]

    def branch(self, pool, depth):
        t = self.t
        c = t.cmp(4, t.args[2], t.const(self.draw(st.sampled_from([100, 10000])), (), "i32"))
        shape = self.shape()
        r = t.new(shape, "f32")
        t.lines.append(f'{r.name} = "scf.if"({c.name}) ({{')
        inner = self.block(pool, self.draw(st.integers(0, 1)), depth + 1)
        t.yield_([self.make(inner, shape)])
        t.lines.append("}, {")
        t.yield_([self.make(pool, shape)])
        t.lines.append(f"}}) : (i1) -> {r.type}")
        return [r]


@st.composite
def programs(draw):
    r = Random(draw)
    pool = r.block([r.load((r.m, r.n))], draw(st.integers(1, 4)), 0)
    for v in pool[-2:]:
        r.store(v)
    return str(r.t)


QUICK = dict(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
MACHINES = st.sampled_from([(32, 4), (32, 1), (64, 2)])


def check_random(text, machine):
    same(both(text, lambda: [data(4096, 0), poisoned(1 << 16), 300], context(*machine)))


@settings(max_examples=20, **QUICK)
@given(programs(), MACHINES)
def test_random_programs(text, machine):
    check_random(text, machine)


@pytest.mark.slow
@settings(max_examples=400, **QUICK)
@given(programs(), MACHINES)
def test_more_random_programs(text, machine):
    check_random(text, machine)


@settings(max_examples=15, **QUICK)
@given(programs())
def test_a_second_removal_keeps_values_too(text):
    with mlir_context():
        module, _ = run_passes(text, context(), *PASSES)
        remove_layout_conversions.run(module, context())
        module.operation.verify()
        verify_layouts.run(module)
        results = []
        for f in (functions(ir.Module.parse(text))[0], functions(module)[0]):
            arguments = [data(4096, 0), poisoned(1 << 16), 300]
            Evaluator(f, arguments)
            results.append(arguments[1])
        np.testing.assert_array_equal(*results)
