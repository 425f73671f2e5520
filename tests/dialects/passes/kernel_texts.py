"""tt IR text of the kernels that the pass tests run on, written with a small builder."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, functions
from tilewright.dialects.matrix_ops import MatrixOp, OperandBases, register_rows
from tilewright.dialects.passes import verify_layouts
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.protocol import Capabilities

ONE = "array<i32: 1, 0, 0, 0, 0, 0, 0, 0>"  # tt.segment_sizes(1)


class V(NamedTuple):
    """A value of the text: its name, shape (() for scalars) and element type."""

    name: str
    shape: tuple[int, ...]
    element: str

    @property
    def type(self) -> str:
        return f"tensor<{'x'.join(map(str, self.shape))}x{self.element}>" if self.shape else self.element


def ptr(element: str) -> str:
    return f"!tt.ptr<{element}, 1 : i32>"


class Text:
    """Builds one kernel's text. Methods return values; broadcasting is explicit, as in the dialect."""

    def __init__(self, args: Sequence[tuple[str, str, int]]):
        self.args = [V(f"%{name}", (), type_) for name, type_, _ in args]
        self.divisors = [d for *_, d in args]
        self.lines: list[str] = []
        self.n = 0

    def new(self, shape: Sequence[int], element: str) -> V:
        self.n += 1
        return V(f"%{self.n}", tuple(shape), element)

    def op(self, name: str, operands: Sequence[V], shape: Sequence[int], element: str, attrs: str = "") -> V:
        r = self.new(shape, element)
        self.lines.append(f'{r.name} = "{name}"({", ".join(o.name for o in operands)}) {{{attrs}}} : '
                          f'({", ".join(o.type for o in operands)}) -> {r.type}')
        return r

    def pid(self, axis: int = 0) -> V:
        return self.op("tt.get_program_id", [], (), "i32", f"axis = {axis} : i32")

    def range(self, n: int) -> V:
        return self.op("tt.make_range", [], (n,), "i32", f"start = 0 : i32, end = {n} : i32")

    def const(self, value: object, shape: Sequence[int], element: str) -> V:
        r = self.new(shape, element)
        text = f"dense<{value}> : {r.type}" if r.shape else f"{value} : {r.type}"
        self.lines.append(f"{r.name} = arith.constant {text}")
        return r

    def splat(self, v: V, shape: Sequence[int]) -> V:
        return self.op("tt.splat", [v], shape, v.element)

    def expand(self, v: V, axis: int) -> V:
        return self.op("tt.expand_dims", [v], (*v.shape[:axis], 1, *v.shape[axis:]), v.element, f"axis = {axis} : i32")

    def to(self, v: V, shape: Sequence[int]) -> V:
        """Splat, or broadcast, to ``shape``."""
        if v.shape == tuple(shape):
            return v
        return self.splat(v, shape) if not v.shape else self.op("tt.broadcast", [v], shape, v.element)

    def bin(self, name: str, a: V, b: V) -> V:
        shape = tuple(max(p) for p in zip(a.shape, b.shape)) if a.shape and b.shape else a.shape or b.shape
        return self.op(name, [self.to(a, shape), self.to(b, shape)], shape, a.element)

    def cmp(self, predicate: int, a: V, b: V) -> V:
        shape = tuple(max(p) for p in zip(a.shape, b.shape)) if a.shape and b.shape else a.shape or b.shape
        return self.op("arith.cmpi", [self.to(a, shape), self.to(b, shape)], shape, "i1", f"predicate = {predicate} : i64")

    def cast(self, name: str, v: V, element: str, attrs: str = "") -> V:
        return self.op(name, [v], v.shape, element, attrs)

    def unary(self, name: str, v: V) -> V:
        return self.op(name, [v], v.shape, v.element)

    def where(self, c: V, a: V, b: V) -> V:
        shape = tuple(max(p) for p in zip(c.shape, a.shape or c.shape))
        return self.op("arith.select", [self.to(c, shape), self.to(a, shape), self.to(b, shape)], shape, a.element)

    def addptr(self, p: V, offset: V) -> V:
        shape = tuple(max(q) for q in zip(p.shape, offset.shape)) if p.shape and offset.shape else p.shape or offset.shape
        return self.op("tt.addptr", [self.to(p, shape), self.to(offset, shape)], shape, p.element)

    def load(self, p: V, mask: V | None = None, other: V | None = None) -> V:
        operands = [p] + [self.to(x, p.shape) for x in (mask, other) if x is not None]
        sizes = [1, int(mask is not None), int(other is not None)]
        element = p.element[len("!tt.ptr<"):].split(",")[0]
        return self.op("tt.load", operands, p.shape, element, 'cache = "none", evict = "normal", is_volatile = false, '
                       f'operandSegmentSizes = array<i32: {", ".join(map(str, sizes))}>')

    def store(self, p: V, v: V, mask: V | None = None) -> None:
        operands = [p, v] + ([self.to(mask, p.shape)] if mask is not None else [])
        self.lines.append(f'"tt.store"({", ".join(o.name for o in operands)}) {{cache = "none", evict = "normal", '
                          f'operandSegmentSizes = array<i32: 1, 1, {int(mask is not None)}>}} : '
                          f'({", ".join(o.type for o in operands)}) -> ()')

    def dot(self, a: V, b: V, c: V, precision: str = "ieee") -> V:
        return self.op("tt.dot", [a, b, c], c.shape, c.element,
                       f'input_precision = "{precision}", max_num_imprecise_acc = 0 : i32')

    def reduce(self, v: V, axis: int, op: str) -> V:
        shape = v.shape[:axis] + v.shape[axis + 1:]
        r, e = self.new(shape, v.element), v.element
        self.lines.append(f'{r.name} = "tt.reduce"({v.name}) ({{\n^bb0(%x{r.name[1:]}: {e}, %y{r.name[1:]}: {e}):\n'
                          f'%z{r.name[1:]} = {op} %x{r.name[1:]}, %y{r.name[1:]} : {e}\n'
                          f'"tt.reduce_return"(%z{r.name[1:]}) {{operandSegmentSizes = {ONE}}} : ({e}) -> ()\n}}) {{axis = {axis} : i32, '
                          f'operandSegmentSizes = {ONE}, resultSegmentSizes = {ONE}}} : ({v.type}) -> {r.type}')
        return r

    def scan(self, v: V, axis: int) -> V:
        r, e = self.new(v.shape, v.element), v.element
        self.lines.append(f'{r.name} = "tt.scan"({v.name}) ({{\n^bb0(%x{r.name[1:]}: {e}, %y{r.name[1:]}: {e}):\n'
                          f'%z{r.name[1:]} = arith.addf %x{r.name[1:]}, %y{r.name[1:]} : {e}\n'
                          f'"tt.scan_return"(%z{r.name[1:]}) {{operandSegmentSizes = {ONE}}} : ({e}) -> ()\n}}) {{axis = {axis} : i32, reverse = false, '
                          f'operandSegmentSizes = {ONE}, resultSegmentSizes = {ONE}}} : '
                          f'({v.type}) -> {r.type}')
        return r

    def split(self, v: V) -> tuple[V, V]:
        a, b = self.new(v.shape[:-1], v.element), self.new(v.shape[:-1], v.element)
        self.lines.append(f'{a.name}, {b.name} = "tt.split"({v.name}) : ({v.type}) -> ({a.type}, {b.type})')
        return a, b

    @contextlib.contextmanager
    def loop(self, lower: V, upper: V, step: V, inits: Sequence[V]):
        """Yields (iv, args, results); the body ends with ``yield_``."""
        iv = self.new((), lower.element)
        args = [self.new(v.shape, v.element) for v in inits]
        results = [self.new(v.shape, v.element) for v in inits]
        left = f'{", ".join(r.name for r in results)} = ' if results else ""
        block = ", ".join(f"{a.name}: {a.type}" for a in (iv, *args))
        operands = [lower, upper, step, *inits]
        self.lines.append(f'{left}"scf.for"({", ".join(o.name for o in operands)}) ({{\n^bb0({block}):')
        yield iv, args, results
        self.lines.append(f'}}) : ({", ".join(o.type for o in operands)}) -> ({", ".join(r.type for r in results)})')

    def yield_(self, values: Sequence[V]) -> None:
        self.lines.append(f'"scf.yield"({", ".join(v.name for v in values)}) : ({", ".join(v.type for v in values)}) -> ()')

    def __str__(self) -> str:
        args = ", ".join(f"{a.name}: {a.type}" + (f" {{tt.divisibility = {d} : i32}}" if d > 1 else "")
                         for a, d in zip(self.args, self.divisors))
        return "module {\nfunc.func @kernel(" + args + ") attributes {tt.kernel} {\n" + "\n".join(self.lines) + "\nreturn\n}\n}"


def masked_add(n: int = 1024, element: str = "f32") -> str:
    t = Text([("x", ptr(element), 16), ("y", ptr(element), 16), ("o", ptr(element), 16), ("n", "i32", 16)])
    x, y, o, size = t.args
    offsets = t.bin("arith.addi", t.bin("arith.muli", t.pid(), t.const(n, (), "i32")), t.range(n))
    mask = t.cmp(2, offsets, size)
    a = t.load(t.addptr(x, offsets), mask)
    b = t.load(t.addptr(y, offsets), mask)
    t.store(t.addptr(o, offsets), t.bin("arith.addf", a, b), mask)
    return str(t)


def transpose_copy(m: int = 64, n: int = 64, element: str = "f16") -> str:
    """o[j, i] = x[i, j], both row-major with a leading dim that 16 divides."""
    t = Text([("x", ptr(element), 16), ("o", ptr(element), 16), ("sx", "i32", 16), ("so", "i32", 16)])
    x, o, sx, so = t.args
    i, j = t.range(m), t.range(n)
    xs = t.bin("arith.addi", t.bin("arith.muli", t.expand(i, 1), sx), t.expand(j, 0))
    v = t.load(t.addptr(x, xs))
    os = t.bin("arith.addi", t.bin("arith.muli", t.expand(j, 0), so), t.expand(i, 1))
    t.store(t.addptr(o, os), v)
    return str(t)


def softmax(n: int = 1024) -> str:
    t = Text([("x", ptr("f32"), 16), ("o", ptr("f32"), 16), ("stride", "i32", 16), ("n", "i32", 1)])
    x, o, stride, size = t.args
    row = t.bin("arith.muli", t.pid(), stride)
    cols = t.range(n)
    mask = t.cmp(2, cols, size)
    v = t.load(t.addptr(t.addptr(x, row), cols), mask, t.const("0xFF800000", (n,), "f32"))
    e = t.unary("math.exp", t.bin("arith.subf", v, t.reduce(v, 0, "arith.maxnumf")))
    t.store(t.addptr(t.addptr(o, row), cols), t.bin("arith.divf", e, t.reduce(e, 0, "arith.addf")), mask)
    return str(t)


def layer_norm(n: int = 1024) -> str:
    t = Text([("x", ptr("f16"), 16), ("o", ptr("f16"), 16), ("w", ptr("f16"), 16), ("stride", "i32", 16), ("n", "i32", 16)])
    x, o, w, stride, size = t.args
    row = t.bin("arith.muli", t.pid(), stride)
    x, o = t.addptr(x, row), t.addptr(o, row)
    zero, step = t.const(0, (), "i32"), t.const(n, (), "i32")
    fzero = t.const("0.0", (n,), "f32")
    hzero = t.const("0.0", (n,), "f16")
    with t.loop(zero, size, step, [fzero]) as (start, (total,), (sums,)):
        cols = t.bin("arith.addi", start, t.range(n))
        v = t.cast("arith.extf", t.load(t.addptr(x, cols), t.cmp(2, cols, size), hzero), "f32")
        t.yield_([t.bin("arith.addf", total, v)])
    mean = t.bin("arith.divf", t.reduce(sums, 0, "arith.addf"), t.cast("arith.sitofp", size, "f32"))
    with t.loop(zero, size, step, []) as (start, _, _):
        cols = t.bin("arith.addi", start, t.range(n))
        mask = t.cmp(2, cols, size)
        v = t.cast("arith.extf", t.load(t.addptr(x, cols), mask, hzero), "f32")
        g = t.cast("arith.extf", t.load(t.addptr(w, cols), mask, hzero), "f32")
        y = t.cast("arith.truncf", t.bin("arith.mulf", t.bin("arith.subf", v, mean), g), "f16")
        t.store(t.addptr(o, cols), y, mask)
        t.yield_([])
    return str(t)


def matmul(m: int = 128, n: int = 128, k: int = 32, element: str = "f16", w_column_major: bool = False, bias: bool = True,
           precision: str = "ieee", out: str = "f16", acc: str = "f32") -> str:
    """relu-less y = x @ w + b of the example: masked along k, pointers incremented in the loop."""
    t = Text([("x", ptr(element), 16), ("w", ptr(element), 16), ("b", ptr(out), 16), ("y", ptr(out), 16), ("M", "i32", 16),
              ("N", "i32", 16), ("K", "i32", 16), ("sxm", "i32", 16), ("sw", "i32", 16), ("sym", "i32", 16)])
    x, w, b, y, size_m, size_n, size_k, sxm, sw, sym = t.args
    zero, one, bk = t.const(0, (), "i32"), t.const(1, (), "i32"), t.const(k, (), "i32")
    om = t.bin("arith.addi", t.bin("arith.muli", t.pid(0), t.const(m, (), "i32")), t.range(m))
    on = t.bin("arith.addi", t.bin("arith.muli", t.pid(1), t.const(n, (), "i32")), t.range(n))
    offs_m, offs_n = t.bin("arith.remsi", om, size_m), t.bin("arith.remsi", on, size_n)
    ok = t.range(k)
    xp = t.addptr(t.addptr(x, t.bin("arith.muli", t.expand(offs_m, 1), sxm)), t.expand(ok, 0))
    if w_column_major:
        wp = t.addptr(t.addptr(w, t.bin("arith.muli", t.expand(offs_n, 0), sw)), t.expand(ok, 1))
        step = t.splat(bk, (k, n))
    else:
        wp = t.addptr(t.addptr(w, t.bin("arith.muli", t.expand(ok, 1), sw)), t.expand(offs_n, 0))
        step = t.splat(t.bin("arith.muli", sw, bk), (k, n))
    zero_text = "0.0" if element[0] in "fb" else "0"
    zx, zw = t.const(zero_text, (m, k), element), t.const(zero_text, (k, n), element)
    total = t.bin("arith.divsi", t.bin("arith.addi", size_k, t.const(k - 1, (), "i32")), bk)
    init = t.const("0.0" if acc[0] == "f" else "0", (m, n), acc)
    with t.loop(zero, total, one, [init, xp, wp]) as (iv, (c, xq, wq), (result, _, _)):
        left = t.bin("arith.subi", size_k, t.bin("arith.muli", iv, bk))
        a = t.load(xq, t.cmp(2, t.expand(ok, 0), left), zx)
        v = t.load(wq, t.cmp(2, t.expand(ok, 1), left), zw)
        d = t.dot(a, v, c, precision)
        t.yield_([d, t.addptr(xq, t.splat(bk, (m, k))), t.addptr(wq, step)])
    if bias:
        loaded = t.load(t.addptr(b, on), t.cmp(2, on, size_n), t.const("0.0", (n,), out))
        wide = loaded if out == "f32" else t.cast("arith.extf", loaded, "f32")
        result = t.bin("arith.addf", result, t.expand(wide, 0))
    yp = t.addptr(t.addptr(y, t.bin("arith.muli", t.expand(om, 1), sym)), t.expand(on, 0))
    mask = t.bin("arith.andi", t.cmp(2, t.expand(om, 1), size_m), t.cmp(2, t.expand(on, 0), size_n))
    t.store(yp, t.cast("arith.truncf", result, out) if out != acc else result, mask)
    return str(t)


def attention(m: int = 64, n: int = 32, d: int = 64, element: str = "f16", causal: bool = True) -> str:
    t = Text([(p, ptr(element), 16) for p in "qkvo"] + [("s", "i32", 16), ("size", "i32", 1), ("scale", "f32", 1)])
    q, k, v, o, s, size, scale = t.args
    om = t.bin("arith.addi", t.bin("arith.muli", t.pid(), t.const(m, (), "i32")), t.range(m))
    on, od = t.range(n), t.range(d)
    half = t.const("0.0", (m, d), element)
    row_ok = t.cmp(2, t.expand(om, 1), size)
    qt = t.load(t.addptr(q, t.bin("arith.addi", t.bin("arith.muli", t.expand(om, 1), s), t.expand(od, 0))), row_ok, half)
    kp = t.addptr(k, t.bin("arith.addi", t.bin("arith.muli", t.expand(on, 0), s), t.expand(od, 1)))
    vp = t.addptr(v, t.bin("arith.addi", t.bin("arith.muli", t.expand(on, 1), s), t.expand(od, 0)))
    acc0, l0, m0 = t.const("0.0", (m, d), "f32"), t.const("0.0", (m,), "f32"), t.const("-1.0e30", (m,), "f32")
    zero, bn = t.const(0, (), "i32"), t.const(n, (), "i32")
    with t.loop(zero, size, bn, [acc0, l0, m0]) as (start, (acc, l, mi), (acc_r, l_r, _)):
        cols = t.bin("arith.addi", start, on)
        move = t.bin("arith.muli", start, s)
        kt = t.load(t.addptr(kp, t.splat(move, (d, n))), t.cmp(2, t.expand(cols, 0), size), t.const("0.0", (d, n), element))
        qk = t.bin("arith.mulf", t.dot(qt, kt, t.const("0.0", (m, n), "f32")), scale)
        visible = t.cmp(2, t.expand(cols, 0), size)
        if causal:
            visible = t.bin("arith.andi", visible, t.cmp(5, t.expand(om, 1), t.expand(cols, 0)))
        qk = t.where(visible, qk, t.const("-1.0e30", (m, n), "f32"))
        new = t.bin("arith.maxnumf", mi, t.reduce(qk, 1, "arith.maxnumf"))
        p = t.unary("math.exp2", t.bin("arith.subf", qk, t.expand(new, 1)))
        alpha = t.unary("math.exp2", t.bin("arith.subf", mi, new))
        ln = t.bin("arith.addf", t.bin("arith.mulf", l, alpha), t.reduce(p, 1, "arith.addf"))
        scaled = t.bin("arith.mulf", acc, t.expand(alpha, 1))
        vt = t.load(t.addptr(vp, t.splat(move, (n, d))), t.cmp(2, t.expand(cols, 1), size), t.const("0.0", (n, d), element))
        t.yield_([t.dot(t.cast("arith.truncf", p, element), vt, scaled), ln, new])
    out = t.cast("arith.truncf", t.bin("arith.divf", acc_r, t.expand(l_r, 1)), element)
    op = t.addptr(o, t.bin("arith.addi", t.bin("arith.muli", t.expand(om, 1), s), t.expand(od, 0)))
    t.store(op, out, row_ok)
    return str(t)


KERNELS = {"masked_add": masked_add, "transpose_copy": transpose_copy, "softmax": softmax, "layer_norm": layer_norm,
           "matmul": matmul, "attention": attention}

# ------------------------------------------------------------------------------------- matrix instructions of the tests
_MMA_C = OperandBases(((0, 1), (8, 0)), ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0)))


def _mma(name: str, k: int, a: str, c: str) -> MatrixOp:
    per = k // 8  # consecutive k of a register
    low = tuple((0, 1 << i) for i in range(per.bit_length() - 1))
    half = ((0, 4 * per),)
    lanes = ((0, per), (0, 2 * per))
    rows = ((1, 0), (2, 0), (4, 0))
    return MatrixOp(name, 16, 8, k, a, a, c, OperandBases(low + ((8, 0),) + half, lanes + rows),
                    OperandBases(tuple((y, x) for x, y in low + half), tuple((y, x) for x, y in lanes + rows)), _MMA_C, 32, "")


_W32 = OperandBases(tuple((0, 1 << i) for i in range(2)), tuple((1 << i, 0) for i in range(5)) + ((0, 4),))
ROWS = (
    _mma("test.m16n8k16_f16", 16, "f16", "f32"), _mma("test.m16n8k16_bf16", 16, "bf16", "f32"),
    _mma("test.m16n8k8_tf32", 8, "tf32", "f32"), _mma("test.m16n8k32_i8", 32, "i8", "i32"),
    MatrixOp("test.w64_32x32x8_f16", 32, 32, 8, "f16", "f16", "f32", _W32,
             OperandBases(tuple((y, x) for x, y in _W32.register), tuple((y, x) for x, y in _W32.lane)),
             OperandBases(((1, 0), (2, 0), (8, 0), (16, 0)), tuple((0, 1 << i) for i in range(5)) + ((4, 0),)), 64, ""),
)
register_rows(ROWS)


def context(warp_size: int = 32, num_warps: int = 4, rows: Sequence[str] | None = None, **extra: object) -> PassContext:
    """A context of an imaginary target with the rows above that have its warp size."""
    names = tuple(r.name for r in ROWS if r.warp_size == warp_size) if rows is None else tuple(rows)
    copies = (16, 8, 4) if warp_size == 32 else ()
    caps = Capabilities("test", warp_size, 64 << 10, matrix_ops=names, async_copy_bytes=copies, extra=extra)
    return PassContext(None, "test", caps, SimpleNamespace(num_warps=num_warps, num_stages=3))


def run_passes(text: str, ctx: PassContext, *passes) -> tuple[ir.Module, Function]:
    """Parse, run the passes with MLIR's and our verifier after each, and mirror the function."""
    module = ir.Module.parse(text)
    for p in passes:
        p.run(module, ctx)
        module.operation.verify()
        verify_layouts.run(module, ctx)
    return module, functions(module)[0]
