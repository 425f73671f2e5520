"""canonicalize_tt and dce_cse on whole kernels and on random programs: what is computed stays, by numpy."""

from __future__ import annotations

import random

import numpy as np
import pytest
from evaluate import Evaluator, poisoned
from kernel_texts import KERNELS, Text, V, context, ptr

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import mlir_context
from tilewright.dialects.passes import canonicalize_tt, dce_cse

SHAPES = ((), (1, 4), (8, 1), (8, 4))


class Random:
    """Grows a kernel of i32 arithmetic. Every value stays small (|v| ≤ 1000), so that nothing wraps."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.t = Text([("y", ptr("i32"), 1), ("n", "i32", 1), ("m", "i32", 1)])
        self.y, self.n, self.m = self.t.args
        self.scopes = [[(self.n, 9), (self.m, 9)]]  # values and bounds of their size
        self.stored = 0

    def pick(self):
        return self.rng.choice(self.rng.choice([s for s in self.scopes if s]))

    def add(self, v: V, bound: int):
        self.scopes[-1].append((v, bound))

    def constant(self, shape):
        value = self.rng.choice((0, 0, 1, 1, -1, 2, 5))
        return self.t.const(value, shape, "i32"), abs(value)

    def join(self, a: V, b: V):
        if a.shape == b.shape or not a.shape or not b.shape or all(1 in p or p[0] == p[1] for p in zip(a.shape, b.shape)):
            shape = tuple(max(p) for p in zip(a.shape, b.shape)) if a.shape and b.shape else a.shape or b.shape
            return self.t.to(a, shape), self.t.to(b, shape), shape
        return None

    def step(self, depth):
        rng, t = self.rng, self.t
        kind = rng.choice(("constant", "range", "binary", "binary", "binary", "select", "shape", "loop", "if", "store"))
        if kind == "constant":
            self.add(*self.constant(rng.choice(SHAPES)))
        elif kind == "range":
            self.add(t.expand(t.range(4), 0), 3)
        elif kind == "shape":
            a, bound = self.pick()
            for shape in rng.sample(SHAPES, len(SHAPES)):
                if shape != a.shape and shape and (not a.shape or all(x in (1, y) for x, y in zip(a.shape, shape))):
                    self.add(t.to(a, shape), bound)
                    break
        elif kind in ("binary", "select"):
            a, x = self.pick()
            b, y = self.constant(rng.choice((a.shape, ()))) if rng.random() < 0.5 else self.pick()
            joined = self.join(a, b)
            if joined is None:
                return
            a, b, shape = joined
            if kind == "select":
                self.add(t.where(t.cmp(rng.randrange(6), a, b), a, b), max(x, y))
                return
            name = rng.choice(("arith.addi", "arith.subi", "arith.muli", "arith.maxsi", "arith.minsi", "arith.andi", "arith.ori"))
            bound = {"arith.addi": x + y, "arith.subi": x + y, "arith.muli": x * y}.get(name, 2 * max(x, y) + 1)
            if bound <= 1000:
                self.add(t.bin(name, a, b), bound)
        elif kind == "store":
            a, _ = self.pick()
            self.store(a)
        elif kind == "loop" and depth < 2:
            inits = [self.pick() for _ in range(rng.randint(0, 3))]
            bounds = [t.const(rng.choice((0, 0, 1)), (), "i32"), self.n if rng.random() < 0.6 else t.const(rng.randint(0, 2), (), "i32"),
                      t.const(rng.choice((1, 2)), (), "i32")]
            with t.loop(*bounds, [v for v, _ in inits]) as (i, args, results):
                self.scopes.append([(i, 9)] + [(a, 1000) for a in args])  # unknown size: added to nothing but by and, or, min, max
                self.body(depth)
                t.yield_([self.like(v, a) for (v, _), a in zip(inits, args)])
                self.scopes.pop()
            for r in results:
                self.add(r, 1000)
        elif kind == "if" and depth < 2:
            c = t.cmp(rng.randrange(6), self.n, self.m) if rng.random() < 0.7 else t.cmp(rng.randrange(6), t.const(1, (), "i32"), t.const(2, (), "i32"))
            with_else = rng.random() < 0.5
            t.lines.append(f'"scf.if"({c.name}) ({{')
            for side in range(2):
                self.scopes.append([])
                if side == 0 or with_else:
                    self.body(depth)
                    t.lines.append('"scf.yield"() : () -> ()')
                self.scopes.pop()
                t.lines.append("}, {" if side == 0 else "}) : (i1) -> ()")

    def like(self, v: V, arg: V):
        """A value of the shape and size that a loop-carried one may have."""
        fitting = [a for s in self.scopes for a, bound in s if a.shape == v.shape]
        return self.rng.choice(fitting) if fitting and self.rng.random() < 0.8 else arg

    def body(self, depth):
        for _ in range(self.rng.randint(1, 6)):
            self.step(depth + 1)

    def store(self, a: V):
        at = self.t.const(self.stored * 32, (8, 4), "i32")
        self.stored += 1
        rows = self.t.bin("arith.muli", self.t.expand(self.t.range(8), 1), self.t.const(4, (), "i32"))
        index = self.t.bin("arith.addi", self.t.bin("arith.addi", rows, self.t.expand(self.t.range(4), 0)), at)
        self.t.store(self.t.addptr(self.y, index), self.t.to(a, (8, 4)))

    def text(self):
        for _ in range(self.rng.randint(5, 30)):
            self.step(0)
        for a, _ in self.scopes[0]:
            if self.rng.random() < 0.5:
                self.store(a)
        return str(self.t)


def run(text, arguments, passes):
    module = ir.Module.parse(text)
    for p in passes:
        p.run(module, context())
        assert module.operation.verify()
    function = functions(module)[0]
    Evaluator(function, arguments)
    return sum(1 for _ in function.nodes())


@pytest.mark.parametrize("seed", range(50))
def test_random_programs(seed):
    program = Random(seed)
    text = program.text()
    with mlir_context():
        for n, m in ((0, 3), (5, -2)):
            results, sizes = [], []
            for passes in ((), (canonicalize_tt, dce_cse), (dce_cse, *(canonicalize_tt, dce_cse) * 2)):
                y = poisoned(max(1, program.stored) * 32)
                sizes.append(run(text, [y, n, m], passes))
                results.append(y)
            for got in results[1:]:
                np.testing.assert_array_equal(results[0], got)
            assert max(sizes[1:]) <= sizes[0]


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_stay_valid_and_do_not_grow(name):
    with mlir_context():
        before = ir.Module.parse(KERNELS[name]())
        count = sum(1 for _ in functions(before)[0].nodes())
        for p in (canonicalize_tt, dce_cse):
            p.run(before, context())
        assert before.operation.verify()
        assert 0 < sum(1 for _ in functions(before)[0].nodes()) <= count
