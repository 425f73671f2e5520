"""The walk from tt to loops: each tt op becomes a scalar, or a tile (see tiles); stores, dots and reductions make the loops.

The kernel becomes ``func.func @NAME(arguments…, pid x, y, z, grid x, y, z, scratch)``, functions that it calls as calls.py says. A lowering
is a function ``(lowering, op) -> list of values``, one a result, registered by ``@lowers(op name)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.errors import CompilationError, UnsupportedOnTargetError
from tilewright.dialects.pass_runner import error_at, place_of
from tilewright.dialects.prints import check_element, operand_text
from tilewright.targets.cpu.loop_builder import VECTOR_LANES, LoopBuilder
from tilewright.targets.cpu.lower_elementwise import compute_type, element_of, emit, from_storage, to_storage
from tilewright.targets.cpu.tiles import Arena, Buffer, Lazy, Tile, fill, materialise, width

Lowering = Callable[["TileLowering", Any], list[Any]]
LOWERINGS: dict[str, Lowering] = {}
# computing these again for each use would be felt
_COSTLY = {"arith.divf", "arith.remf", "tt.precise_divf", "tt.precise_sqrt", "tt.extern_elementwise", "arith.divsi", "arith.divui"}
_CHEAP_MATH = {"math.absf", "math.absi", "math.fma", "math.floor", "math.ceil"}
_DIVIDES = {"arith.divsi", "arith.divui", "arith.remsi", "arith.remui"}
# ops that write memory or wait: a load may not be read later than these
WRITES = {"tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.debug_barrier", "tt.assert", "tt.print", "func.call", "tt.elementwise_inline_asm"}


# ops that evaluate all their operands in one loop
_ONE_LOOP = {"tt.store", "tt.reduce", "tt.scan", "tt.map_elementwise", "tt.elementwise_inline_asm", "tt.atomic_rmw", "tt.atomic_cas"}
_LANEWISE = {"tt.fp_to_fp", "tt.clampf", "tt.bitcast", "tt.precise_divf", "tt.precise_sqrt", "tt.mulhiui", "tt.int_to_ptr", "tt.ptr_to_int",
             "tt.extern_elementwise"}


def is_lanewise(name: str) -> bool:
    """Whether the op of that name computes each element from the operands' elements of the same index."""
    return name.startswith(("arith.", "math.")) or name in _LANEWISE


def lowers(name: str) -> Callable[[Lowering], Lowering]:
    """Register a lowering for the op."""

    def add(fn: Lowering) -> Lowering:
        LOWERINGS[name] = fn
        return fn

    return add


class TileLowering:
    """State of one kernel's lowering."""

    def __init__(self, b: LoopBuilder, arena: Arena, axis: AxisInfoAnalysis, module: Any, messages: list[str], vector_bits: int = 256,
                 arch: str = "native"):
        self.b, self.arena, self.axis, self.module, self.messages = b, arena, axis, module, messages
        self.vector_bits, self.arch = vector_bits, arch
        self.env: dict[Any, Any] = {}
        self.program: list[Any] = []
        self.grid: list[Any] = []
        self.failed: Any = None  # the flag of an assertion after which the rest of the block is to be skipped
        self.flag: Any = None  # of a called function: where its caller looks whether an assertion failed
        self.called: dict[str, Any] = {}  # by name, the functions that are lowered already
        self.results: list[Buffer] = []  # of a called function: where its caller wants the results
        self.destination: dict[Any, Buffer] = {}  # where the maker of a value may put it
        self.apart: set[tuple[int, int]] | None = set()  # numbers of arguments that must not be one array; None: any may be
        self._declared: set[str] = set()
        self._sinks: dict[Any, set[Any]] = {}

    # ---------------------------------------------------------------------------------------------------- types
    @staticmethod
    def shape(op: Any, result: int = 0) -> list[int]:
        return list(ir.RankedTensorType(op.results[result].type).shape)

    @staticmethod
    def element(op: Any, result: int = 0) -> Any:
        return element_of(op.results[result].type)

    @staticmethod
    def is_tile(value: Any) -> bool:
        return isinstance(value.type, ir.RankedTensorType)

    # --------------------------------------------------------------------------------------------------- values
    def tile(self, value: Any) -> Tile:
        return self.env[value]

    def scalar(self, value: Any) -> Any:
        """A scalar in compute form."""
        return self.env[value]

    def new_flag(self, op: Any) -> Any:
        """Where an assertion of ``op`` says that it failed, if ``op`` stands in the function's own block: then the program ends. It is clear."""
        if op.block.owner.operation.name != "func.func":
            return None
        if self.flag is not None:
            return self.flag
        flag = self.arena.take([1], self.b.i8, wide=True).ptr
        self.b.store(self.b.const(self.b.i8, 0), flag)
        return flag

    def declare(self, symbol: str, arity: int) -> None:
        """A C function of ``arity`` doubles."""
        if symbol not in self._declared:
            self._declared.add(symbol)
            f64 = self.b.f64
            self._declare(symbol, [f64] * arity, [f64])

    def declare_callback(self, symbol: str, inputs: Sequence[Any]) -> None:
        if symbol not in self._declared:
            self._declared.add(symbol)
            self._declare(symbol, inputs, [])

    def _declare(self, symbol: str, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        ir.Operation.create("func.func", attributes={
            "sym_name": ir.StringAttr.get(symbol), "sym_visibility": ir.StringAttr.get("private"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(list(inputs), list(results)))}, regions=1,
            loc=ir.Location.unknown(), ip=ir.InsertionPoint(self.module.body))

    def message(self, text: str) -> Any:
        """Number of a text in the kernel's table, as an i32 constant."""
        if text not in self.messages:
            self.messages.append(text)
        return self.b.const(self.b.i32, self.messages.index(text))

    # ----------------------------------------------------------------------------------------------------- walk
    def block(self, ops: Sequence[Any]) -> None:
        """Lower the ops of a block, the terminator not included. Scratch taken here is free again afterwards."""
        for i, op in enumerate(ops):
            self.b.loc = op.location
            self.lower(op)
            if op.name in ("tt.assert", "func.call") and self.failed is not None:
                self._unless_failed(ops[i + 1:])
                return

    def _unless_failed(self, ops: Sequence[Any]) -> None:
        """The rest of the program, where its assertion holds."""
        b = self.b
        ok, self.failed = b.cmpi("eq", b.load(self.failed, b.i8), b.const(b.i8, 0)), None

        def rest() -> list[Any]:
            self.block(ops)
            return []

        b.if_(ok, rest, None, [])

    def lower(self, op: Any) -> None:
        try:
            lowering = LOWERINGS.get(op.name)
            if lowering is not None:
                values = lowering(self, op)
            elif op.name.startswith(("arith.", "math.", "tt.")) and len(op.results) == 1:
                values = [self.elementwise(op)]
            else:
                raise UnsupportedOnTargetError(f"cpu: the operation {op.name!r} is not supported")
        except CompilationError as e:
            raise error_at(e, op) from None
        for result, value in zip(op.results, values):
            self.env[result] = self.settle(result, value)

    def settle(self, result: Any, value: Any) -> Any:
        """A costly tile that several loops need, or one inside another block, is computed once, into scratch memory."""
        if not isinstance(value, Lazy) or not value.costly:
            return value
        return materialise(self.b, self.arena, value) if len(self.sinks(result)) > 1 else value

    def sinks(self, value: Any) -> set[Any]:
        """The loops that evaluate a costly tile: (op, operand number) for ops that make a loop an operand, (op, 0) for the others.

        A use in another block (which may be a loop's) counts as two. Values that several loops need are themselves computed
        once, at their op.
        """
        found = self._sinks.get(value)
        if found is None:
            found, home = set(), None
            for use in value.uses:
                user = use.owner.operation
                if home is None:
                    owner = value.owner
                    home = getattr(getattr(owner, "operation", owner), "block", owner)
                if user.block != home:
                    found |= {(user, -1), (user, -2)}
                elif is_lanewise(user.name) or user.name in ("tt.expand_dims", "tt.addptr", "tt.load"):
                    inner = self.sinks(user.results[0]) if self.is_tile(user.results[0]) else {(user, 0)}
                    found |= inner if len(inner) == 1 else {(user, 0)} if inner else set()
                else:
                    found.add((user, 0 if user.name in _ONE_LOOP else use.operand_number))
            self._sinks[value] = found
        return found

    # ---------------------------------------------------------------------------------------------- elementwise
    def elementwise(self, op: Any) -> Any:
        operands = [self.env[v] for v in op.operands]
        if not self.is_tile(op.results[0]):
            return emit(self.b, op, operands, 1, self.declare)
        tiles = [t for t in operands if isinstance(t, Tile)]
        costly = any(t.costly for t in tiles) or op.name in _COSTLY or (op.name.startswith("math.") and op.name not in _CHEAP_MATH)
        divides = any(t.divides for t in tiles) or op.name in _DIVIDES
        element = self.element(op)
        location = op.location
        mask = operands[0] if op.name == "arith.select" else None
        shortcut = mask if isinstance(mask, Lazy) and mask.all_on_shortcut is not None else None

        def compute(index: Any, n: int) -> Any:
            outer, self.b.loc = self.b.loc, location
            if n > 1 and shortcut is not None:
                out = self._where(op, shortcut, operands, index, n)
            else:
                lanes = [t.lanes(index, n) if isinstance(t, Tile) else self.b.broadcast(t, n) for t in operands]
                out = emit(self.b, op, lanes, n, self.declare)
            self.b.loc = outer
            return out

        return Lazy(self.b, self.shape(op), element, compute, costly, divides, self._all_on(op, operands) if element == self.b.i1 else None)

    def _where(self, op: Any, mask: Lazy, operands: list[Any], index: Any, n: int) -> Any:
        """A select whose mask is all on but at an edge: there alone the mask's lanes are made."""
        b = self.b
        chosen, other = (t.lanes(index, n) if isinstance(t, Tile) else b.broadcast(t, n) for t in operands[1:])
        return b.if_(mask.all_on(index, n), lambda: [chosen], lambda: [b.select(mask.lanes(index, n), chosen, other)], [chosen.type])[0]

    def _all_on(self, op: Any, operands: list[Any]) -> Callable[[Any, int], Any] | None:
        """A way to tell by scalars whether all lanes of a mask are set: of ``offsets < n`` the last lane decides."""
        b = self.b
        if op.name == "arith.andi" and any(isinstance(t, Lazy) and t.all_on_shortcut for t in operands):
            return lambda index, n: b.bin("arith.andi", *(t.all_on(index, n) for t in operands))
        if op.name != "arith.cmpi":
            return None
        predicate = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")[ir.IntegerAttr(op.attributes["predicate"]).value]
        width = min(VECTOR_LANES, self.shape(op)[-1])
        infos = [self.axis.get(v) for v in op.operands]
        uniform, rising = [[a[-1] >= width for a in (i.constancy, i.contiguity)] for i in infos], None
        if uniform[1][0] and uniform[0][1]:
            rising = 0
        elif uniform[0][0] and uniform[1][1]:
            rising = 1
        if rising is None or predicate in ("eq", "ne") or predicate[0] == "u":
            return None
        # of the operand that rises by one a lane, the lane that is hardest to satisfy
        last = (predicate in ("slt", "sle")) == (rising == 0)

        def shortcut(index: Any, n: int) -> Any:
            sides = []
            for i, tile in enumerate(operands):
                where = [*index[:-1], b.add(index[-1], b.idx(n - 1))] if i == rising and last else index
                sides.append(tile.lanes(where, 1))
            return b.cmpi(predicate, *sides)

        return shortcut

    def forced(self, value: Any, result: Any = None) -> Buffer:
        """``value`` (a tile) in scratch memory; in the place chosen for ``result`` where there is one."""
        where = self.destination.get(result) if result is not None else None
        return fill(self.b, where, value) if where is not None else materialise(self.b, self.arena, value)

    def out_buffer(self, op: Any, result: int = 0) -> Buffer:
        """Where a result that is computed element by element goes."""
        where = self.destination.get(op.results[result])
        return where if where is not None else self.arena.take(self.shape(op, result), self.element(op, result))


@lowers("arith.constant")
def constant(lo: TileLowering, op: Any) -> list[Any]:
    b, attr = lo.b, op.attributes["value"]
    element = element_of(op.results[0].type)

    def number(a: Any) -> Any:
        if isinstance(element, ir.IntegerType):
            return b.const(element, ir.IntegerAttr(a).value)
        if isinstance(element, ir.IndexType):
            return b.const(element, ir.IntegerAttr(a).value)
        return b.const(compute_type(b, element), ir.FloatAttr(a).value)

    if not lo.is_tile(op.results[0]):
        return [number(attr)]
    dense = ir.DenseElementsAttr(attr)
    if not dense.is_splat:
        raise UnsupportedOnTargetError("cpu: a constant tile must have one value throughout")
    value = number(dense.get_splat_value())
    return [Lazy(lo.b, lo.shape(op), element, lambda index, n: b.broadcast(value, n))]


@lowers("tt.get_program_id")
def get_program_id(lo: TileLowering, op: Any) -> list[Any]:
    return [lo.program[ir.IntegerAttr(op.attributes["axis"]).value]]


@lowers("tt.get_num_programs")
def get_num_programs(lo: TileLowering, op: Any) -> list[Any]:
    return [lo.grid[ir.IntegerAttr(op.attributes["axis"]).value]]


@lowers("tt.assume")
def assume(lo: TileLowering, op: Any) -> list[Any]:
    return []


@lowers("tt.debug_barrier")
def debug_barrier(lo: TileLowering, op: Any) -> list[Any]:
    """A program is one thread: there is nobody to wait for."""
    return []


@lowers("tt.addptr")
def addptr(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    pointer, offset = (lo.env[v] for v in op.operands)
    size = b.size(_pointee_storage(b, element_of(op.results[0].type)))

    def advance(p: Any, o: Any) -> Any:
        wide = b.cast_int(o, b.i64)
        return b.add(p, b.mul(wide, b.const(wide.type, size)))

    if not lo.is_tile(op.results[0]):
        return [advance(pointer, offset)]
    tiles = [t for t in (pointer, offset) if isinstance(t, Tile)]

    def compute(index: Any, n: int) -> Any:
        return advance(*(t.lanes(index, n) if isinstance(t, Tile) else b.broadcast(t, n) for t in (pointer, offset)))

    return [Lazy(lo.b, lo.shape(op), lo.element(op), compute, any(t.costly for t in tiles), any(t.divides for t in tiles))]


def _pointee_storage(b: LoopBuilder, pointer: Any) -> Any:
    from tilewright.targets.cpu.lower_elementwise import storage_type

    return storage_type(b, pointer.pointee_type)


# ------------------------------------------------------------------------------------------------- print, assert
@lowers("tt.print")
def print_(lo: TileLowering, op: Any) -> list[Any]:
    """Calls ``tilewright_cpu_print(message, x, y, z, count, kind, data)`` once an operand. ``kind``, a text: whether in hexadecimal, the kind of
    dialects/prints, the bits that count and those stored, the shape; with a count of 0 the message is all."""
    b = lo.b
    lo.declare_callback("tilewright_cpu_print", [b.i32] * 6 + [b.ptr])
    prefix = ir.StringAttr(op.attributes["prefix"]).value
    as_hex = ir.BoolAttr(op.attributes["hex"]).value
    if not len(op.operands):
        nothing = lo.arena.take([1], b.i8, wide=True)
        b.op("func.call", [lo.message(prefix), *lo.program, b.const(b.i32, 0), lo.message(""), nothing.ptr], [],
             {"callee": ir.FlatSymbolRefAttr.get("tilewright_cpu_print")})
    signs = list(ir.DenseI32ArrayAttr(op.attributes["is_signed"]))
    for k, (value, signed) in enumerate(zip(op.operands, signs)):
        held = lo.env[value]
        element = element_of(value.type)
        check_element(str(element), as_hex)
        shape = tuple(value.type.shape) if isinstance(value.type, ir.RankedTensorType) else ()
        tile = held if isinstance(held, Tile) else Lazy(lo.b, [1], element, lambda _index, _n, h=held: h)  # type: ignore[misc]
        buffer = lo.arena.take(tile.shape, element, wide=True)
        fill(b, buffer, tile)
        stored, name = str(buffer.stored), str(element)
        letter = "p" if name.startswith("!tt.ptr") else "f" if stored.startswith("f") else "i" if signed else "u"
        kind = lo.message(f"{int(as_hex)} {letter} {1 if name == 'i1' else int(stored[1:])} {int(stored[1:])} {' '.join(map(str, shape))}")
        b.op("func.call", [lo.message(operand_text(prefix, k, len(signs))), *lo.program, b.const(b.i32, math.prod(shape)), kind, buffer.ptr], [],
             {"callee": ir.FlatSymbolRefAttr.get("tilewright_cpu_print")})
    return []


@lowers("tt.assert")
def assert_(lo: TileLowering, op: Any) -> list[Any]:
    """Calls ``tilewright_cpu_assert(message, x, y, z)`` for elements that do not hold; the launch then raises. An assertion that
    stands in the function's own block ends the program; in a loop or branch the program goes on."""
    b = lo.b
    flag = lo.new_flag(op)
    lo.declare_callback("tilewright_cpu_assert", [b.i32] * 4)
    held = lo.env[op.operands[0]]
    place = place_of(op.location)
    message = lo.message(ir.StringAttr(op.attributes["message"]).value + (f" at {place[0]}:{place[1]}" if place else ""))

    def fail() -> list[Any]:
        b.op("func.call", [message, *lo.program], [], {"callee": ir.FlatSymbolRefAttr.get("tilewright_cpu_assert")})
        if flag is not None:
            b.store(b.const(b.i8, 1), flag)
        return []

    def check(ok: Any) -> None:
        if b.element(ok.type) != b.i1:
            ok = b.cmpi("ne", ok, b.const(ok.type, 0))
        b.if_(b.op("arith.xori", [ok, b.const(b.i1, 1)], [b.i1]).result, fail, None, [])

    if isinstance(held, Tile):
        from tilewright.targets.cpu.tiles import each

        each(b, held.shape, 1, lambda index: check(held.lanes(index, 1)))
    else:
        check(held)
    lo.failed = flag
    return []


__all__ = ["LOWERINGS", "TileLowering", "WRITES", "from_storage", "lowers", "to_storage", "width"]
