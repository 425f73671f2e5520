"""Lowers ttg text and executes it with numpy over all threads of a block, for warps of any size and a made-up target.

``Kernel(text, num_warps, warp_size)``: ``text`` is one func.func ``@k`` in ttg with attributes written by the helpers below.
Shared memory is allocated and barriers are inserted by the real passes.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.lowering import lower_to_llvm
from tilewright.dialects.lowering.hooks import TargetHooks
from tilewright.dialects.passes import allocate_shared_memory, insert_barriers
from tilewright.dialects.pipeline import PassContext
from tilewright.dialects.simt import SimtExecutor


class Hooks(TargetHooks):
    """Every primitive is a call to an intrinsic that the executor is taught; memory is plain loads and stores in branches."""

    has_async_copy = True

    def __init__(self, warp_size: int, math: Any = None):
        self.warp_size = warp_size
        self.math = math or {}

    def declare_kernel(self, b, func, num_warps):
        pass

    def check_inline_asm(self, asm, constraints, results, operands, location):
        return asm

    def thread_id(self, b):
        return b.call_intrinsic("llvm.test.tid", b.t_i32, [])

    def program_id(self, b, axis):
        return b.call_intrinsic(f"llvm.test.pid{axis}", b.t_i32, [])

    def num_programs(self, b, axis):
        return b.call_intrinsic(f"llvm.test.npid{axis}", b.t_i32, [])

    def barrier(self, b):
        b.call_intrinsic("llvm.test.barrier", None, [])

    def shuffle_xor(self, b, value, mask):
        return b.call_intrinsic("llvm.test.shfl.xor", b.t_i32, [value, b.i32(mask)])

    def shuffle_idx(self, b, value, lane):
        return b.call_intrinsic("llvm.test.shfl.idx", b.t_i32, [value, lane])

    def load_global(self, b, ptr, type, pred, other, cache, evict, volatile, align):
        def load():
            return b.load(ptr, type, align=align, volatile=volatile)

        if pred is None:
            return load()
        return b.if_then_else(pred, load, lambda: b.zero(type) if other is None else other)[0]

    def store_global(self, b, ptr, value, pred, cache, evict, align):
        if pred is None:
            b.store(value, ptr, align=align)
        else:
            b.if_then(pred, lambda: b.store(value, ptr, align=align))

    def atomic_rmw(self, b, op, ptr, value, pred, sem, scope):
        def run():
            return b.atomicrmw(op, ptr, value)

        return run() if pred is None else b.if_then_else(pred, run, lambda: b.zero(value.type))[0]

    def atomic_cas(self, b, ptr, cmp, value, pred, sem, scope):
        def run():
            return b.cmpxchg(ptr, cmp, value)

        return run() if pred is None else b.if_then_else(pred, run, lambda: b.zero(value.type))[0]

    def async_copy(self, b, dst, src, num_bytes, pred, cache, evict):
        pred = b.i1(1) if pred is None else pred
        b.call_intrinsic("llvm.test.async.copy", None, [dst, src, b.i32(num_bytes), pred])

    def async_commit(self, b):
        b.call_intrinsic("llvm.test.async.commit", None, [])

    def async_wait(self, b, num):
        b.call_intrinsic("llvm.test.async.wait", None, [b.i32(num)])

    def mma(self, b, row, a, bv, c):
        """A call that multiplies by the row's bases; elements are passed as f32 or i32."""
        wide = b.t_i32 if row.c_type == "i32" else b.t_f32

        def widen(x):
            if wide == b.t_i32:
                return b.sext(x, wide)
            return b.fpext(x, wide) if x.type != wide else x

        result = b.struct([wide] * len(c))
        out = b.call_intrinsic(f"llvm.test.mma.{row.name}", result, [widen(x) for x in (*a, *bv)] + list(c))
        return b.unpack_struct(out)


def _shuffle(m, value, lanes):
    m.require_full_warps("a shuffle")
    base = m.thread_ids // m.warp_size * m.warp_size
    return value[base + lanes % m.warp_size]


def _copy(m, dst, src, size, pred):
    size, pred = int(size[0]), pred.astype(bool)
    data = m.load_bytes(src, size, 1, pred)
    data[~pred] = 0
    m.async_copy(dst, data, None, size)


def _mma(info):
    from tilewright.dialects.matrix_ops import lookup

    row = lookup(info.text.removeprefix("llvm.test.mma."))

    def indices(operand, m):
        """(registers, threads) → row and column."""
        r = np.zeros((1 << len(operand.register), m.num_threads, 2), int)
        for i, v in enumerate(operand.register):
            r[np.arange(len(r)) >> i & 1 == 1] ^= np.array(v)
        for i, v in enumerate(operand.lane):
            r[:, m.lane_ids >> i & 1 == 1] ^= np.array(v)
        return r[..., 0], r[..., 1]

    def run(m, *values):
        m.require_full_warps("a matrix instruction")
        dtype = np.int32 if row.c_type == "i32" else np.float32
        values = [np.asarray(v).view(dtype) for v in values]
        na, nb, nc = (1 << len(o.register) for o in (row.a, row.b, row.c))
        warps = m.num_threads // m.warp_size

        def tile(part, operand, shape):
            out = np.zeros((warps, *shape), dtype)
            r, c = indices(operand, m)
            for i, v in enumerate(part):
                out[m.warp_ids, r[i], c[i]] = v
            return out

        a = tile(values[:na], row.a, (row.m, row.k))
        bv = tile(values[na:na + nb], row.b, (row.k, row.n))
        c = tile(values[na + nb:], row.c, (row.m, row.n)) + a @ bv
        r, col = indices(row.c, m)
        return tuple(c[m.warp_ids, r[i], col[i]].view(np.uint32 if dtype == np.int32 else dtype) for i in range(nc))

    return run


def _program(axis):
    return lambda info: lambda m: np.full(m.num_threads, m.program_ids[axis], np.uint32)


def _grid(axis):
    return lambda info: lambda m: np.full(m.num_threads, m.grid[axis], np.uint32)


def semantics():
    import re

    out: dict[Any, Any] = {
        "llvm.test.tid": lambda info: lambda m: m.thread_ids,
        "llvm.test.barrier": lambda info: lambda m: m.barrier(),
        "llvm.test.shfl.xor": lambda info: lambda m, v, mask: _shuffle(m, v, m.lane_ids ^ mask),
        "llvm.test.shfl.idx": lambda info: lambda m, v, lane: _shuffle(m, v, lane),
        "llvm.test.async.copy": lambda info: _copy,
        "llvm.test.async.commit": lambda info: lambda m: m.async_commit(),
        "llvm.test.async.wait": lambda info: lambda m, n: m.async_wait(int(n[0])),
        re.compile(r"^llvm\.test\.mma\."): _mma,
    }
    for axis in range(3):
        out[f"llvm.test.pid{axis}"] = _program(axis)
        out[f"llvm.test.npid{axis}"] = _grid(axis)
    return out


def pass_context(num_warps: int, warp_size: int, **options: Any) -> PassContext:
    capabilities = SimpleNamespace(warp_size=warp_size, max_vector_bits=128, max_shared_bytes=1 << 18, async_copy_bytes=(4, 8, 16),
                                   arch="test", matrix_ops=())
    hooks = Hooks(warp_size, options.pop("math", None))
    target = SimpleNamespace(name="test", hooks=lambda arch, opts: hooks, lowerings=dict)
    return PassContext(target, "test", capabilities, SimpleNamespace(num_warps=num_warps, num_stages=1, enable_fp_fusion=False, **options))


class Kernel:
    """``module``: the LLVM dialect. ``run(*args, grid=)`` executes it; arrays are changed in place."""

    def __init__(self, text: str, num_warps: int = 4, warp_size: int = 32, **options: Any):
        self.num_warps, self.warp_size = num_warps, warp_size
        ctx = pass_context(num_warps, warp_size, **options)
        with mlir_context():
            self.module = ir.Module.parse(text)
            assert self.module.operation.verify()
            allocate_shared_memory.run(self.module, ctx)
            insert_barriers.run(self.module, ctx)
            lower_to_llvm(self.module, ctx)
            assert self.module.operation.verify()
        self.metadata = ctx.metadata

    def run(self, *args: Any, grid: tuple[int, ...] = (1,), **checks: Any) -> None:
        checks.setdefault("check_uninitialised", True)
        with mlir_context():
            executor = SimtExecutor(self.module, "k", self.num_warps * self.warp_size, self.warp_size, self.metadata["shared"],
                                    semantics(), **checks)
            executor.run(grid, list(args))

    def text(self) -> str:
        with mlir_context():
            return str(self.module)


# ---------------------------------------------------------------------------------------------------- writing text
def blocked(size, threads, warps, order) -> str:
    parts = ", ".join(f"array<i32: {', '.join(map(str, p))}>" for p in (size, threads, warps, order))
    return f"#ttg.blocked<{parts}>"


def slice_of(dim, parent) -> str:
    return f"#ttg.slice<{dim} : i32, {parent}>"


def tensor(shape, element, encoding) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{element}, {encoding}>"


def swizzled(vec, per_phase, max_phase, order) -> str:
    return f"#ttg.swizzled_shared<{vec} : i32, {per_phase} : i32, {max_phase} : i32, array<i32: {', '.join(map(str, order))}>>"


def panels(panel, vec, per_phase, max_phase, order) -> str:
    numbers = ", ".join(f"{n} : i32" for n in (panel, vec, per_phase, max_phase))
    return f"#ttg.panel_shared<{numbers}, array<i32: {', '.join(map(str, order))}>>"


def memdesc(shape, element, encoding, mutable=True) -> str:
    return f"!ttg.memdesc<array<i64: {', '.join(map(str, shape))}>, {element}, {encoding}, {str(mutable).lower()}>"


class Text:
    """Collects lines of a kernel; methods return the name of the value."""

    def __init__(self, *arguments: str):
        self.arguments = list(arguments)
        self.lines: list[str] = []
        self.count = 0

    def __call__(self, op: str, operands: str, types: str, result: str | None, attrs: str = "", region: str = "") -> str:
        """``op`` in generic form: operands "%a, %b", types "i32, i32", result type (several: separated by commas)."""
        attrs = f" {{{attrs}}}" if attrs else ""
        region = f" ({{{region}}})" if region else ""
        if result is None:
            self.lines.append(f'"{op}"({operands}){region}{attrs} : ({types}) -> ()')
            return ""
        self.count += 1
        name = f"%v{self.count}"
        many = result.count("@@") + 1
        result = result.replace("@@", ", ")
        self.lines.append(f'{name}{":" + str(many) if many > 1 else ""} = "{op}"({operands}){region}{attrs} : ({types}) -> ({result})')
        return name

    def constant(self, value: str, type: str) -> str:
        literal = f"dense<{value}> : {type}" if type.startswith("tensor") else f"{value} : {type}"
        return self("arith.constant", "", "", type, f"value = {literal}")

    def index(self, shape, encoding) -> str:
        """Row-major number of each element, i32."""
        total = None
        type = tensor(shape, "i32", encoding)
        for dim in range(len(shape)):
            line = encoding
            for other in reversed(range(len(shape))):
                if other != dim:
                    line = slice_of(other, line)
            r = self("tt.make_range", "", "", tensor([shape[dim]], "i32", line), f"start = 0 : i32, end = {shape[dim]} : i32")
            # insert the other dims one by one
            have, sizes, layouts = [dim], [shape[dim]], []
            chain = encoding
            for other in reversed(range(len(shape))):
                if other != dim:
                    layouts.append((other, chain))
                    chain = slice_of(other, chain)
            for other, layout in reversed(layouts):
                axis = sum(h < other for h in have)
                before = tensor(sizes, "i32", slice_of(axis, layout))
                sizes.insert(axis, 1)
                have.insert(axis, other)
                r = self("tt.expand_dims", r, before, tensor(sizes, "i32", layout), f"axis = {axis} : i32")
            if list(sizes) != list(shape):
                r = self("tt.broadcast", r, tensor(sizes, "i32", encoding), type)
            stride = int(np.prod(shape[dim + 1:]))
            r = self("arith.muli", f"{r}, {self.constant(str(stride), type)}", f"{type}, {type}", type)
            total = r if total is None else self("arith.addi", f"{total}, {r}", f"{type}, {type}", type)
        assert total is not None
        return total

    def pointers(self, argument: str, element: str, shape, encoding) -> str:
        """argument + row-major number."""
        p = tensor(shape, f"!tt.ptr<{element}, 1 : i32>", encoding)
        i = tensor(shape, "i32", encoding)
        base = self("tt.splat", argument, f"!tt.ptr<{element}, 1 : i32>", p)
        return self("tt.addptr", f"{base}, {self.index(shape, encoding)}", f"{p}, {i}", p)

    def load(self, argument: str, element: str, shape, encoding) -> str:
        p = tensor(shape, f"!tt.ptr<{element}, 1 : i32>", encoding)
        return self("tt.load", self.pointers(argument, element, shape, encoding), p, tensor(shape, element, encoding),
                    'cache = "none", evict = "normal", is_volatile = false, operandSegmentSizes = array<i32: 1, 0, 0>')

    def store(self, argument: str, value: str, element: str, shape, encoding) -> None:
        p = tensor(shape, f"!tt.ptr<{element}, 1 : i32>", encoding)
        self("tt.store", f"{self.pointers(argument, element, shape, encoding)}, {value}", f"{p}, {tensor(shape, element, encoding)}", None,
             'cache = "none", evict = "normal", operandSegmentSizes = array<i32: 1, 1, 0>')

    def masked_load(self, argument: str, element: str, shape, encoding, mask: str, other: str | None = None) -> str:
        p = tensor(shape, f"!tt.ptr<{element}, 1 : i32>", encoding)
        m, v = tensor(shape, "i1", encoding), tensor(shape, element, encoding)
        operands = [self.pointers(argument, element, shape, encoding), mask] + ([other] if other else [])
        return self("tt.load", ", ".join(operands), ", ".join([p, m] + ([v] if other else [])), v,
                    'cache = "none", evict = "normal", is_volatile = false, '
                    f"operandSegmentSizes = array<i32: 1, 1, {int(bool(other))}>")

    def masked_store(self, argument: str, value: str, element: str, shape, encoding, mask: str) -> None:
        p, m = tensor(shape, f"!tt.ptr<{element}, 1 : i32>", encoding), tensor(shape, "i1", encoding)
        self("tt.store", f"{self.pointers(argument, element, shape, encoding)}, {value}, {mask}",
             f"{p}, {tensor(shape, element, encoding)}, {m}", None,
             'cache = "none", evict = "normal", operandSegmentSizes = array<i32: 1, 1, 1>')

    def below(self, shape, encoding, limit: str) -> str:
        """Mask: row-major number < the i32 scalar ``limit``."""
        i = tensor(shape, "i32", encoding)
        n = self("tt.splat", limit, "i32", i)
        return self("arith.cmpi", f"{self.index(shape, encoding)}, {n}", f"{i}, {i}", tensor(shape, "i1", encoding),
                    "predicate = 2 : i64")

    def kernel(self, num_warps: int = 4, warp_size: int = 32, **options: Any) -> Kernel:
        body = "\n  ".join(self.lines)
        text = (f'module attributes {{"ttg.num-warps" = {num_warps} : i32, "ttg.threads-per-warp" = {warp_size} : i32}} {{\n'
                f'func.func @k({", ".join(self.arguments)}) attributes {{tt.kernel}} {{\n  {body}\n  return\n}}\n}}')
        self.source = text
        return Kernel(text, num_warps, warp_size, **options)


def ptr(name: str, element: str, divisibility: int = 16) -> str:
    return f"%{name}: !tt.ptr<{element}, 1 : i32> {{tt.divisibility = {divisibility} : i32}}"


def sizes(n: int) -> str:
    """``tt.segment_sizes`` as text."""
    return f"array<i32: {', '.join(['1'] * n + ['0'] * (8 - n))}>"


def combine_region(ops: str, types: list[str], results: str, terminator: str) -> str:
    """A combiner: arguments %a0.. (accumulators) and %b0.. (elements)."""
    arguments = ", ".join(f"%{x}{i}: {t}" for x in "ab" for i, t in enumerate(types))
    return (f'^bb0({arguments}):\n{ops}\n"{terminator}"({results}) {{operandSegmentSizes = {sizes(len(types))}}} : '
            f'({", ".join(types)}) -> ()')


SUM = '%r = "arith.addf"(%a0, %b0) : (f32, f32) -> f32'
# larger value, then lower index
ARGMAX = '''%gt = arith.cmpf ogt, %a0, %b0 : f32
%eq = arith.cmpf oeq, %a0, %b0 : f32
%lt = arith.cmpi slt, %a1, %b1 : i32
%tie = arith.andi %eq, %lt : i1
%first = arith.ori %gt, %tie : i1
%r = arith.select %first, %a0, %b0 : f32
%ri = arith.select %first, %a1, %b1 : i32'''


def reduce(t: Text, values: list[str], elements: list[str], shape, axis, encoding, ops: str, results: str) -> list[str]:
    """tt.reduce of tensors of one shape; names of the results."""
    rest = [s for i, s in enumerate(shape) if i != axis]
    types = ", ".join(tensor(shape, e, encoding) for e in elements)
    out = "@@".join(tensor(rest, e, slice_of(axis, encoding)) if rest else e for e in elements)
    name = t("tt.reduce", ", ".join(values), types, out,
             f"axis = {axis} : i32, operandSegmentSizes = {sizes(len(values))}, resultSegmentSizes = {sizes(len(values))}",
             combine_region(ops, elements, results, "tt.reduce_return"))
    return [name] if len(values) == 1 else [f"{name}#{i}" for i in range(len(values))]


def scan(t: Text, values: list[str], elements: list[str], shape, axis, encoding, ops: str, results: str, reverse=False) -> list[str]:
    """tt.scan; names of the results."""
    types = [tensor(shape, e, encoding) for e in elements]
    name = t("tt.scan", ", ".join(values), ", ".join(types), "@@".join(types),
             f"axis = {axis} : i32, reverse = {str(reverse).lower()}, operandSegmentSizes = {sizes(len(values))}, "
             f"resultSegmentSizes = {sizes(len(values))}", combine_region(ops, elements, results, "tt.scan_return"))
    return [name] if len(values) == 1 else [f"{name}#{i}" for i in range(len(values))]


# layouts of all kinds: (shape, encoding, num_warps, warp_size)
LAYOUTS = {
    "2d": ([32, 64], blocked([1, 4], [4, 8], [2, 2], [1, 0]), 4, 32),
    "column_major_wave64": ([16, 32], blocked([2, 2], [8, 8], [2, 4], [0, 1]), 8, 64),
    "wide": ([16, 128], blocked([1, 2], [8, 4], [1, 4], [1, 0]), 4, 32),
    "repeated_lanes_and_warps": ([4, 8], blocked([1, 2], [8, 4], [2, 2], [1, 0]), 4, 32),
    "tall": ([128, 8], blocked([1, 1], [32, 1], [4, 1], [1, 0]), 4, 32),
    "3d": ([4, 8, 16], blocked([1, 2, 2], [2, 2, 8], [1, 2, 1], [2, 1, 0]), 2, 32),
    "one_warp": ([8, 32], blocked([2, 2], [4, 8], [1, 1], [1, 0]), 1, 32),
    "linear": ([16, 32], "#ttg.linear<array<i32: 0, 1, 8, 0, 0, 16>, array<i32: 0, 2, 0, 4, 1, 0, 2, 0, 0, 8>, array<i32: 4, 0, 0, 0>, "
               "array<i32>, 2 : i32>", 4, 32),
}
