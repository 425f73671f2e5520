"""The affine analysis against numpy: on random kernels of wrapping arithmetic, where a value's facts hold, its polynomial is the value."""

from __future__ import annotations

import random

import numpy as np
import pytest
from evaluate import Evaluator
from kernel_texts import Text, V, ptr

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.affine import Affine, NotAffine, pointer_roots
from tilewright.dialects.analysis.affine_build import Writer
from tilewright.dialects.analysis.polynomial import Atom, Poly
from tilewright.dialects.analysis.structure import Function, functions, type_info
from tilewright.dialects.context import mlir_context

SHAPES = ((), (4,), (1, 4), (8, 1), (8, 4))


exact = np.frompyfunc(int, 1, 1)


def wrapped(x, bits):
    return (exact(x) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def truncated(a, b):
    if b == 0:
        return 0  # anything
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


_BINARY = {"arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b, "arith.muli": lambda a, b: a * b,
           "arith.minsi": np.frompyfunc(min, 2, 1), "arith.maxsi": np.frompyfunc(max, 2, 1), "tt.addptr": lambda a, b: a + b,
           "arith.divsi": np.frompyfunc(truncated, 2, 1), "arith.remsi": np.frompyfunc(lambda a, b: a - truncated(a, b) * b, 2, 1)}


class Exact(Evaluator):
    """Integers wrap at their width. At each store the stored value, or the pointer, is compared with its polynomial."""

    def __init__(self, function: Function, arguments, program_id, affine: Affine):
        self.affine, self.compared, self.refused, self.wrapped_away, self.arguments = affine, 0, 0, 0, arguments
        super().__init__(function, arguments, program_id)

    def compute(self, node, x):
        if node.name in _BINARY:
            x = [exact(v) for v in x]
            result = _BINARY[node.name](*x)
            bits = type_info(node.results[0].type).bits
            return [wrapped(result, bits)]
        if node.name == "arith.trunci":
            return [wrapped(x[0], type_info(node.results[0].type).bits)]
        return super().compute(node, x)

    def _scf_for(self, node, x, shape):
        return super()._scf_for(node, [int(v) for v in x[:3]] + x[3:], shape)

    def _tt_store(self, node, x, shape):
        for v in (node.operands[1], node.operands[0]):
            try:
                value = self.affine.value(v)
            except NotAffine:
                self.refused += 1
                continue
            size = type_info(v.type).shape or ()
            try:
                holds = all(self.holds(f, size) for f in value.facts)
            except ZeroDivisionError:
                holds = False
            if not holds:
                self.wrapped_away += 1
                continue
            got = np.broadcast_to(self.poly(value.poly, size), size)
            want = np.broadcast_to(exact(self.env[v]), size)
            bits = type_info(v.type).bits
            assert np.all(wrapped(got - want, bits) == 0), (value, got, want)
            self.compared += 1
        return []

    def holds(self, fact, shape):
        values = self.poly(fact.poly, shape)
        if fact.kind == "fits":
            return np.all(values == wrapped(values, fact.number))
        return np.all(values >= 0) if fact.kind == "nonneg" else np.all(values % fact.number == 0)

    def poly(self, poly: Poly, shape):
        total = np.asarray(0, object)
        for monomial, c in poly.terms.items():
            product = np.asarray(c, object)
            for a in monomial:
                product = product * self.atom(a, shape)
            total = total + product
        return total

    def atom(self, a: Atom, shape):
        if a.kind == "arg":
            return int(self.arguments[a.payload[0]])
        if a.kind == "base":
            return a.payload[0] << 32
        if a.kind == "program_id":
            return self.program_id[a.payload[0]]
        if a.kind == "dim":
            d, extent = a.payload
            assert shape[d] == extent
            return np.arange(extent).astype(object).reshape([extent if i == d else 1 for i in range(len(shape))])
        if a.kind in ("loop", "opaque"):
            return exact(self.env[a.value])
        x, y = (self.poly(p, shape) for p in a.payload[:2])
        if a.kind in ("div", "rem") and np.any(y == 0):
            raise ZeroDivisionError
        return _BINARY[{"div": "arith.divsi", "rem": "arith.remsi", "min": "arith.minsi", "max": "arith.maxsi"}[a.kind]](x, y)


class Random:
    """Grows a kernel of integer arithmetic in which every few values are stored."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.t = Text([("y", ptr("i32"), 1), ("n", "i32", 1), ("m", "i32", 1), ("w", "i64", 1)])
        self.y, *self.arguments = self.t.args
        self.scopes: list[list[V]] = [[*self.arguments[:2], self.t.pid(0), self.t.pid(1)]]
        self.wide: list[list[V]] = [[self.arguments[2]]]
        self.pointers: list[list[V]] = [[self.y]]

    def pick(self, scopes=None):
        return self.rng.choice(self.rng.choice([s for s in (scopes or self.scopes) if s]))

    def joined(self, a: V, b: V):
        if a.shape and b.shape and len(a.shape) != len(b.shape):
            return None
        if a.shape and b.shape and not all(1 in p or p[0] == p[1] for p in zip(a.shape, b.shape)):
            return None
        shape = tuple(max(p) for p in zip(a.shape, b.shape)) if a.shape and b.shape else a.shape or b.shape
        return self.t.to(a, shape), self.t.to(b, shape)

    def step(self, depth):
        rng, t = self.rng, self.t
        kind = rng.choice(["constant", "range", "binary", "binary", "binary", "wide", "pointer", "shape", "division", "tile", "loop", "store", "store"])
        if kind == "constant":
            self.scopes[-1].append(t.const(rng.choice((0, 1, 2, 4, 8, -3, 16, 1 << 28)), rng.choice(SHAPES), "i32"))
        elif kind == "range":
            self.scopes[-1].append(t.range(4))
        elif kind == "binary":
            pair = self.joined(self.pick(), self.pick())
            if pair:
                self.scopes[-1].append(t.bin(rng.choice(("arith.addi", "arith.subi", "arith.muli")), *pair))
        elif kind == "wide":
            a = self.pick()
            w = t.cast("arith.extsi", a, "i64")
            other = self.pick(self.wide)
            pair = self.joined(w, other)
            if pair:
                w = t.bin(rng.choice(("arith.addi", "arith.muli")), *pair)
            self.wide[-1].append(w)
            if rng.random() < 0.3:
                self.scopes[-1].append(t.cast("arith.trunci", w, "i32"))
        elif kind == "pointer":
            pair = self.joined(self.pick(self.pointers), self.pick(rng.choice((self.scopes, self.wide))))
            if pair:
                self.pointers[-1].append(t.addptr(*pair))
        elif kind == "shape":
            a = self.pick()
            if len(a.shape) == 1:
                self.scopes[-1].append(t.expand(a, rng.randrange(2)))
        elif kind == "division":
            a, b = self.pick(), self.pick()
            if not a.shape and not b.shape:
                self.scopes[-1].append(t.bin(rng.choice(("arith.divsi", "arith.remsi", "arith.minsi", "arith.maxsi")), a,
                                             t.bin("arith.maxsi", b, t.const(1, (), "i32"))))
        elif kind == "tile":
            start = t.bin("arith.muli", rng.choice([v for s in self.scopes for v in s if not v.shape]), t.const(rng.choice((4, 8, 3)), (), "i32"))
            run = t.bin("arith.addi", start, t.range(4))
            by = t.bin("arith.maxsi", rng.choice([v for s in self.scopes for v in s if not v.shape]), t.const(1, (), "i32"))
            by = t.bin("arith.muli", by, t.const(rng.choice((1, 4)), (), "i32"))
            self.scopes[-1].append(t.bin("arith.remsi", run, by))
        elif kind == "loop" and depth < 2:
            self.loop(depth)
        elif kind == "store":
            self.store()

    def loop(self, depth):
        rng, t = self.rng, self.t
        carried = [self.pick() for _ in range(rng.randint(0, 2))] + [self.pick(self.pointers) for _ in range(rng.randint(0, 2))]
        bounds = [t.const(rng.choice((0, 1, -2)), (), "i32"), t.const(rng.randint(2, 5), (), "i32"), t.const(rng.choice((1, 2)), (), "i32")]
        with t.loop(*bounds, carried) as (i, args, results):
            for stack, new in ((self.scopes, [i, *[a for a in args if a.element == "i32"]]), (self.wide, []),
                               (self.pointers, [a for a in args if a.element != "i32"])):
                stack.append(new)
            for _ in range(rng.randint(1, 6)):
                self.step(depth + 1)
            t.yield_([self.advanced(a) for a in args])
            for stack in (self.scopes, self.wide, self.pointers):
                stack.pop()
        for r in results:
            (self.scopes if r.element == "i32" else self.pointers)[-1].append(r)

    def advanced(self, a: V):
        rng, t = self.rng, self.t
        by = rng.choice((t.const(rng.choice((0, 1, 4, 1 << 27)), (), "i32"), rng.choice([v for v in self.scopes[0] if not v.shape])))
        if rng.random() < 0.15:
            by = rng.choice([v for v in self.scopes[-1] if not v.shape] or [by])
        if a.element != "i32":
            return t.addptr(a, by)
        return t.bin("arith.addi", a, by) if rng.random() < 0.9 else a

    def store(self):
        value = self.pick()
        pointer = self.pick(self.pointers)
        pair = self.joined(pointer, value)
        if pair:
            self.t.store(*pair)

    def text(self):
        for _ in range(self.rng.randint(10, 40)):
            self.step(0)
        for _ in range(5):
            self.store()
        return str(self.t)


def analysed(text):
    module = ir.Module.parse(text)
    assert module.operation.verify()
    return functions(module)[0]


def test_random_kernels():
    compared = refused = wrapped_away = 0
    with mlir_context():
        for seed in range(40):
            function = analysed(Random(seed).text())
            affine = Affine(function)
            for arguments, program in (((5, 3, 7), (0, 0, 0)), ((64, 8, 2**40), (3, 1, 0)), ((-9, 2**30, -1), (2, 5, 0)), ((16, 48, 100), (1, 2, 0))):
                run = Exact(function, [np.zeros(1), *arguments], program, affine)
                compared, refused, wrapped_away = compared + run.compared, refused + run.refused, wrapped_away + run.wrapped_away
    assert compared > 2000 and refused > 20 and wrapped_away > 20, (compared, refused, wrapped_away)


def test_written_polynomials_compute_them():
    """Scalars, once more as ops that affine_build wrote."""
    written = 0
    with mlir_context():
        for seed in range(40):
            function = analysed(Random(seed).text())
            affine = Affine(function)
            writer = Writer(function, affine)
            pairs = []
            for node in [n for n in function.nodes() if n.name == "tt.store"]:
                for v in node.operands:
                    source = function.def_node(v)
                    if source is None or source.name != "tt.splat" or type_info(v.type).kind != "int":
                        continue
                    value = affine.value(source.operands[0])
                    if value.poly.known:
                        pairs.append((node, source.operands[0], value, writer.at(node.op.location).integer(value.poly, 32)))

            class Compared(Exact):
                def _tt_store(self, node, x, shape):
                    nonlocal written
                    for store, v, value, copy in pairs:
                        if store is node and all(self.holds(f, ()) for f in value.facts):
                            assert int(self.env[v]) == int(self.env[copy])
                            written += 1
                    return []

            assert function.module.operation.verify()
            for arguments, program in (((5, 3, 7), (0, 0, 0)), ((64, 8, 2**40), (3, 1, 0))):
                Compared(function, [np.zeros(1), *arguments], program, affine)
    assert written > 30, written


def one(build, *args):
    """The affine value (and analysis) of what ``build(text)`` stores."""
    t = Text([("y", ptr("i32"), 16), ("n", "i32", 16), ("m", "i32", 1)])
    value = build(t)
    shape = value.shape or (4,)
    t.store(t.splat(t.args[0], shape), t.to(value, shape))
    function = analysed(str(t))
    affine = Affine(function)
    store = next(n for n in function.nodes() if n.name == "tt.store")
    return affine, function, store.operands[1]


def test_facts_are_asked_for_where_the_width_matters():
    with mlir_context():
        affine, _, v = one(lambda t: t.cast("arith.trunci", t.bin("arith.addi", t.cast("arith.extsi", t.bin("arith.muli", t.args[1], t.args[2]), "i64"),
                                                                   t.cast("arith.extsi", t.args[1], "i64")), "i32"))
        value = affine.value(v)
        assert [(f.kind, repr(f.poly), f.number) for f in value.facts] == [("fits", "arg1·arg2", 32)]
        affine, _, v = one(lambda t: t.bin("arith.muli", t.args[1], t.args[2]))
        assert not affine.value(v).facts  # the product is the polynomial modulo 2^32, whatever the product is
        affine, _, v = one(lambda t: t.bin("arith.divsi", t.bin("arith.addi", t.args[1], t.const(7, (), "i32")), t.const(8, (), "i32")))
        assert [(f.kind, repr(f.poly)) for f in affine.value(v).facts] == [("fits", "arg1 + 7")]


def test_ranges_and_divisors():
    with mlir_context():
        def body(t):
            p = t.bin("arith.muli", t.pid(0), t.const(32, (), "i32"))
            return t.bin("arith.addi", t.bin("arith.remsi", p, t.const(128, (), "i32")), t.range(4))

        affine, _, v = one(body)
        poly = affine.value(v).poly
        assert poly.range() == (0, 130)
        assert poly.split(lambda m: any(a.kind == "dim" for a in m))[1].divisor() == 32
        affine, _, v = one(lambda t: t.bin("arith.muli", t.args[1], t.const(3, (), "i32")))
        poly = affine.value(v).poly
        assert poly.divisor() == 48 and poly.uniform and poly.range() == (float("-inf"), float("inf"))


def test_conditions():
    with mlir_context():
        def body(t):
            i = t.expand(t.range(8), 1)
            j = t.expand(t.range(4), 0)
            shape = (8, 4)
            below = t.bin("arith.andi", t.to(t.cmp(2, i, t.args[1]), shape), t.to(t.cmp(5, t.args[2], j), shape))
            both = t.bin("arith.andi", below, t.to(t.cmp(6, i, t.args[1]), shape))
            return t.where(both, t.const(1, shape, "i32"), t.const(0, shape, "i32"))

        affine, function, v = one(body)
        mask = function.def_node(v).operands[0]
        conditions = affine.conditions(mask)
        assert [repr(c.poly) for c in conditions] == ["dim0 + -1·arg1", "dim1 + -1·arg2 + -1", "dim0 + -1·arg1", "-1·dim0 + -1"]
        assert [[f.kind for f in c.facts] for c in conditions] == [[], [], ["nonneg"], ["nonneg"]]

        affine, function, v = one(lambda t: t.where(t.cmp(1, t.range(4), t.args[1]), t.const(1, (4,), "i32"), t.const(0, (4,), "i32")))
        with pytest.raises(NotAffine, match="compares by !="):
            affine.conditions(function.def_node(v).operands[0])


def test_pointer_roots():
    text = f"""
func.func @k(%a: {ptr("f32")}, %b: {ptr("f32")}, %c: {ptr("i64")}, %n: i32, %i: i1) {{
  %0 = arith.constant 0 : i32
  %1 = arith.constant 1 : i32
  %p:2 = scf.for %k = %0 to %n step %1 iter_args(%x = %a, %y = %b) -> ({ptr("f32")}, {ptr("f32")}) : i32 {{
    %z = "tt.addptr"(%x, %n) : ({ptr("f32")}, i32) -> {ptr("f32")}
    scf.yield %y, %z : {ptr("f32")}, {ptr("f32")}
  }}
  %q = scf.if %i -> ({ptr("f32")}) {{ scf.yield %a : {ptr("f32")} }} else {{ scf.yield %b : {ptr("f32")} }}
  %l = "tt.load"(%c) {{cache = "none", evict = "normal", is_volatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}} : ({ptr("i64")}) -> i64
  %r = "tt.int_to_ptr"(%l) : (i64) -> {ptr("f32")}
  %s = "tt.addptr"(%b, %n) : ({ptr("f32")}, i32) -> {ptr("f32")}
  %t = arith.select %i, %s, %r : {ptr("f32")}
  return
}}"""
    with mlir_context():
        function = analysed(text)
        by_name = {n.name: n for n in function.nodes()}
        found = [pointer_roots(function, v) for v in (*by_name["scf.for"].results, *by_name["scf.if"].results, *by_name["tt.int_to_ptr"].results,
                                                      *[n for n in function.nodes() if n.name == "tt.addptr"][-1].results,
                                                      *by_name["arith.select"].results)]
        assert found == [{0, 1}, {0, 1}, {0, 1}, None, {1}, None]


def test_limits():
    def deep(t):
        v = t.range(4)
        for _ in range(1200):
            v = t.bin("arith.addi", v, t.to(t.args[1], (4,)))
        return v

    def wide(t):
        v = t.bin("arith.addi", t.args[1], t.args[2])
        for axis in range(3):
            v = t.bin("arith.muli", t.bin("arith.addi", v, t.pid(axis)), t.bin("arith.addi", v, t.const(axis + 2, (), "i32")))
        return t.bin("arith.addi", t.range(4), t.to(v, (4,)))

    with mlir_context():
        affine, _, v = one(deep)
        with pytest.raises(NotAffine, match="too many steps"):
            affine.value(v)
        affine, _, v = one(wide)
        assert [a.kind for a in affine.value(v).poly.atoms()] == ["dim", "opaque"]  # the scalar is taken as it is
