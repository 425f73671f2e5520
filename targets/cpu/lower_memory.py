"""Loads, stores and atomics. Contiguity comes from the axis analysis: a run of contiguous elements is one vector access."""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import attribute_names
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.targets.cpu.loop_builder import VECTOR_LANES
from tilewright.targets.cpu.lower import WRITES, TileLowering, lowers
from tilewright.targets.cpu.lower_elementwise import element_of, from_storage, storage_type, to_storage
from tilewright.targets.cpu.tiles import Buffer, Lazy, Tile, each, width

_PURE_REGIONS = ("tt.reduce", "tt.scan", "tt.map_elementwise")  # their regions only compute
_ORDERING = {"relaxed": 2, "acquire": 4, "release": 5, "acq_rel": 6}
_RMW = {"xchg": 0, "add": 1, "and": 3, "or": 5, "xor": 6, "max": 7, "min": 8, "umax": 9, "umin": 10, "fadd": 11}


def _optional(op: Any, names: int) -> list[Any]:
    """Operands by segment, None where absent."""
    sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])) if "operandSegmentSizes" in op.attributes else [1] * len(op.operands)
    out, at = [], 0
    for size in sizes[:names]:
        out.append(op.operands[at] if size else None)
        at += size
    return out + [None] * (names - len(out))


def _run(lo: TileLowering, pointer: Any, shape: Any) -> int:
    """Elements along the last dim that are surely contiguous, as lanes to access at once (1: gather)."""
    return int(lo.axis.get(pointer).contiguity[-1])


def _constant_mask_run(lo: TileLowering, mask: Any) -> int:
    return int(lo.axis.get(mask).constancy[-1])


def _volatile(op: Any) -> bool:
    return "is_volatile" in op.attributes and ir.BoolAttr(op.attributes["is_volatile"]).value


class _Spill:
    """Memory for one access's lanes: where addresses, mask and values lie while they are walked through one at a time."""

    def __init__(self, lo: TileLowering, n: int, kind: Any):
        self.lo, self.n, self.kind = lo, n, kind
        self.addresses, self.on, self.values = (lo.arena.take([n], t, wide=True).ptr for t in (lo.b.i64, lo.b.i8, kind))

    def _walk(self, addresses: Any, on: Any, one: Any) -> None:
        """``one(pointer, i)`` for each lane that is on, in order; a loop, so that the code stays small."""
        b = self.lo.b
        b.store(addresses, self.addresses)
        if on is not None:
            b.store(b.un("arith.extui", on, b.vec(self.n, b.i8)), self.on)

        def body(i: Any, _: list[Any]) -> list[Any]:
            def access() -> list[Any]:
                one(b.to_ptr(b.load(b.gep(self.addresses, i, b.i64), b.i64)), b.gep(self.values, i, self.kind))
                return []

            if on is None:
                access()
            else:
                b.if_(b.cmpi("ne", b.load(b.gep(self.on, i, b.i8), b.i8), b.const(b.i8, 0)), access, None, [])
            return []

        b.for_(b.idx(0), b.idx(self.n), b.idx(1), [], body)

    def load(self, addresses: Any, on: Any, default: Any) -> Any:
        b = self.lo.b
        b.store(default, self.values)
        self._walk(addresses, on, lambda pointer, slot: b.store(b.load(pointer, self.kind), slot))
        return b.load(self.values, b.vec(self.n, self.kind))

    def store(self, raw: Any, addresses: Any, on: Any) -> None:
        b = self.lo.b
        b.store(raw, self.values)
        self._walk(addresses, on, lambda pointer, slot: b.store(b.load(slot, self.kind), pointer))


def _consecutive(lo: TileLowering, address: Any, n: int, size: int) -> Any:
    """Addresses of ``n`` elements from ``address`` on."""
    b = lo.b
    steps = b.bin("arith.muli", b.iota(n, b.i64), b.const(b.vec(n, b.i64), size))
    return b.bin("arith.addi", b.broadcast(address, n), steps)


def _all_on(mask: Any, index: Any, n: int) -> Any:
    """Whether all those lanes of a mask (a tile or a scalar) are set."""
    return mask.all_on(index, n) if isinstance(mask, Tile) else mask


def _moved(b: Any, index: Any, lanes: int) -> Any:
    """The index that many elements on along the last dim."""
    return [*index[:-1], b.add(index[-1], b.idx(lanes))] if lanes else index


def _both(b: Any, x: Any, y: Any) -> Any:
    return y if x is None else b.bin("arith.andi", x, y)


def _uniform(value: Any) -> bool:
    """Whether the tensor (or scalar) is known to have one value throughout."""
    if not isinstance(value.type, ir.RankedTensorType):
        return True
    op = getattr(value.owner, "operation", value.owner)
    return getattr(op, "name", "") in ("arith.constant", "tt.splat")


@lowers("tt.load")
def load(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    pointer, mask, other = _optional(op, 3)
    element = element_of(op.results[0].type)
    kind = storage_type(b, element)
    size = b.size(kind)
    volatile = _volatile(op)

    def read_one(address: Any, on: Any, otherwise: Any) -> Any:
        """A scalar in storage form."""
        if on is None:
            return b.load(b.to_ptr(address), kind, volatile)
        default = b.const(kind, 0) if otherwise is None else to_storage(b, otherwise, element)
        return b.if_(on, lambda: [b.load(b.to_ptr(address), kind, volatile)], lambda: [default], [kind])[0]

    if not lo.is_tile(op.results[0]):
        on = None if mask is None else lo.scalar(mask)
        return [from_storage(b, read_one(lo.scalar(pointer), on, None if other is None else lo.scalar(other)), element)]

    pointers = lo.tile(pointer)
    on_tile = None if mask is None else lo.env[mask]
    other_tile = None if other is None else lo.env[other]
    run = _run(lo, pointer, pointers.shape)
    mask_run = _constant_mask_run(lo, mask) if mask is not None and isinstance(on_tile, Tile) else 1 << 30
    lanes = width(pointers)
    if lanes > run and not volatile and (other is None or _uniform(other)):
        column = _column(lo, pointer, pointers.shape)
        if column is not None:
            uniform = mask is None or not lo.is_tile(mask) or lo.axis.get(mask).constancy[column] >= min(VECTOR_LANES, pointers.shape[column])
            return [_load_columns(lo, pointers, on_tile, other_tile, column, element, uniform, read_one)]
    careful = run < lanes or (mask is not None and mask_run < lanes and size < 4)
    spill = _Spill(lo, lanes, kind) if careful and lanes > 1 else None

    def at(held: Any, index: Any, n: int) -> Any:
        return held.lanes(index, n) if isinstance(held, Tile) else b.broadcast(held, n)

    def compute(index: Any, n: int) -> Any:
        if n == 1:
            on = None if on_tile is None else at(on_tile, index, 1)
            return from_storage(b, read_one(pointers.lanes(index, 1), on, None if other_tile is None else at(other_tile, index, 1)), element)
        vector = b.vec(n, kind)
        default = b.const(vector, 0) if other_tile is None else to_storage(b, at(other_tile, index, n), element)
        if run >= n:
            first = pointers.lanes(index, 1)
            address = b.to_ptr(first)
            if on_tile is None:
                raw = b.load(address, vector, volatile)
            elif mask_run >= n:  # the whole vector is on or off
                raw = b.if_(at(on_tile, index, 1), lambda: [b.load(address, vector, volatile)], lambda: [default], [vector])[0]
            else:
                def partly() -> list[Any]:
                    if spill is None or n != spill.n:
                        return [b.masked_load(address, vector, lambda first, m: at(on_tile, _moved(b, index, first), m), default, lo.vector_bits)]
                    # narrow types have no masked instruction
                    return [spill.load(_consecutive(lo, first, n, size), at(on_tile, index, n), default)]

                raw = b.if_(_all_on(on_tile, index, n), lambda: [b.load(address, vector, volatile)], partly, [vector])[0]
            return from_storage(b, raw, element)
        on = None if on_tile is None else at(on_tile, index, n)
        addresses = pointers.lanes(index, n)
        first = b.extract(addresses, 0)
        straight = b.cmpi("eq", addresses, _consecutive(lo, first, n, size))
        where = spill if spill is not None and n == spill.n else _Spill(lo, n, kind)
        raw = b.if_(b.all_of(_both(b, on, straight)), lambda: [b.load(b.to_ptr(first), vector, volatile)],
                    lambda: [where.load(addresses, on, default)], [vector])[0]
        return from_storage(b, raw, element)

    tile = Lazy(lo.b, pointers.shape, element, compute, costly=True)
    return [tile if _may_wait(lo, op) and not volatile else lo.forced(tile, op.results[0])]


def _column(lo: TileLowering, pointer: Any, shape: Any) -> int | None:
    """A dim other than the last along which whole vectors of elements are contiguous."""
    info = lo.axis.get(pointer)
    for d in range(len(shape) - 1):
        n = min(VECTOR_LANES, shape[d])
        if n > 1 and info.contiguity[d] >= n:
            return d
    return None


def _load_columns(lo: TileLowering, pointers: Tile, on_tile: Any, other_tile: Any, d: int, element: Any, uniform: bool, read_one: Any) -> Buffer:
    """The tile in scratch memory, read by vectors along dim ``d`` and written an element at a time. ``uniform``: whether the mask has
    one value a vector."""
    b = lo.b
    kind = storage_type(b, element)
    out = lo.arena.take(pointers.shape, element, wide=True)
    n = min(VECTOR_LANES, pointers.shape[d])
    vector = b.vec(n, kind)
    order = [i for i in range(len(out.shape)) if i != d] + [d]

    def scalar(held: Any, index: list[Any]) -> Any:
        return held.lanes(index, 1) if isinstance(held, Tile) else held

    def put(index: list[Any], raw: Any) -> list[Any]:
        values = from_storage(b, raw, element)
        for i in range(n):
            out.put(_at(b, index, d, b.idx(i)), b.extract(values, i))
        return []

    def body(place: list[Any]) -> None:
        index: list[Any] = [None] * len(order)
        for i, v in zip(order, place):
            index[i] = v
        address = b.to_ptr(pointers.lanes(index, 1))
        if on_tile is None:
            put(index, b.load(address, vector))
            return
        if uniform:
            default = b.const(vector, 0) if other_tile is None else b.broadcast(to_storage(b, scalar(other_tile, index), element), n)
            put(index, b.if_(scalar(on_tile, index), lambda: [b.load(address, vector)], lambda: [default], [vector])[0])
            return
        on = scalar(on_tile, index)
        for i in range(1, n):
            on = b.bin("arith.andi", on, scalar(on_tile, _at(b, index, d, b.idx(i))))

        def one_by_one() -> list[Any]:
            def one(i: Any, _: list[Any]) -> list[Any]:
                where = _at(b, index, d, i)
                raw = read_one(pointers.lanes(where, 1), scalar(on_tile, where), None if other_tile is None else scalar(other_tile, where))
                out.put(where, from_storage(b, raw, element))
                return []

            b.for_(b.idx(0), b.idx(n), b.idx(1), [], one)
            return []

        b.if_(on, lambda: put(index, b.load(address, vector)), one_by_one, [])

    each(b, [out.shape[i] for i in order], n, body)
    return out


def _at(b: Any, index: list[Any], d: int, more: Any) -> list[Any]:
    """``index`` moved on along dim ``d``."""
    return [*index[:d], b.add(index[d], more), *index[d + 1:]]


def _may_wait(lo: TileLowering, op: Any) -> bool:
    """Whether the load may be done where its one use is: nothing writes before the op that will force it, and that op, if it
    writes, writes where the load read or to memory of another argument."""
    sinks = lo.sinks(op.results[0])
    if len(sinks) != 1:
        return not sinks
    sink = next(iter(sinks))[0]
    if len(sink.regions) and sink.name not in _PURE_REGIONS and sink.name != "scf.for":
        return False
    return not _writes_between(op, sink) and (sink.name not in WRITES or _disjoint(lo, op.operands[0], sink))


def _disjoint(lo: TileLowering, pointer: Any, writer: Any) -> bool:
    """Whether ``writer`` cannot change, before the load reads it, what a load through ``pointer`` reads in the same loop.

    Two arguments may be one array: where that matters they are noted in ``lo.apart``, and launches see to it; where ``lo`` has none, they may be.
    Arrays that overlap without being one are a race in the language, as on a GPU.
    """
    if writer.name == "tt.debug_barrier" or not len(writer.operands):
        return False
    if writer.name == "tt.elementwise_inline_asm":
        return bool(ir.BoolAttr(writer.attributes["pure"]).value)
    if writer.name in ("tt.assert", "tt.print", "func.call"):  # of these, what is read is an operand: it is read first
        return True
    target = writer.operands[0]
    stored_once = writer.name == "tt.store" and not _repeats(lo, pointer)
    if target == pointer:
        return stored_once
    one, two = base_of(pointer), base_of(target)
    if one is None or two is None or one == two:
        return False
    if stored_once and _same_place(pointer, target):
        return True
    if lo.apart is None:
        return False
    numbers = sorted(ir.BlockArgument(v).arg_number for v in (one, two))
    lo.apart.add((numbers[0], numbers[1]))
    return True


def _repeats(lo: TileLowering, pointer: Any) -> bool:
    """Whether elements of the tile surely have one address."""
    return lo.is_tile(pointer) and any(c > 1 for c, n in zip(lo.axis.get(pointer).constancy, pointer.type.shape) if n > 1)


def _same_place(one: Any, two: Any) -> bool:
    """Whether two pointers are made in the same way, of two arguments: were these one, so would be each element's address."""
    while True:
        if one.type != two.type:
            return False
        owners = [getattr(v.owner, "operation", v.owner) for v in (one, two)]
        if any(isinstance(o, ir.Block) for o in owners):
            return all(isinstance(o, ir.Block) and o.owner.operation.name == "func.func" for o in owners)
        first, second = owners
        if first.name != second.name or first.name not in _POINTERS or list(first.operands)[1:] != list(second.operands)[1:]:
            return False
        if {n: first.attributes[n] for n in attribute_names(first)} != {n: second.attributes[n] for n in attribute_names(second)}:
            return False
        one, two = first.operands[0], second.operands[0]


# what makes a pointer of its first operand
_POINTERS = ("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "tt.bitcast", "tt.reshape")


def base_of(value: Any) -> Any:
    """The kernel argument that a pointer is made from by arithmetic, or None where that is not plain."""
    for _ in range(200):
        owner = value.owner
        owner = getattr(owner, "operation", owner)
        name = getattr(owner, "name", None)
        if name in _POINTERS:
            value = owner.operands[0]
            continue
        if name == "scf.for":
            position = [r == value for r in owner.results].index(True)
            body = owner.regions[0].blocks[0]
        elif isinstance(owner, ir.Block):
            parent, position, body = owner.owner.operation, ir.BlockArgument(value).arg_number - 1, owner
            if parent.name == "func.func":  # two arguments of a called function may come from one of the kernel's
                return value if "tt.kernel" in parent.attributes else None
            if parent.name != "scf.for" or position < 0:
                return None
            owner = parent
        else:
            return None
        # what a loop carries is the argument's where each round moves it on alone, also after the loop
        if not _moves(body.operations[len(body.operations) - 1].operation.operands[position], body.arguments[position + 1]):
            return None
        value = owner.operands[3 + position]
    return None


def _moves(value: Any, argument: Any) -> bool:
    """Whether ``value`` is ``argument`` moved on by addptr any number of times."""
    for _ in range(200):
        if value == argument:
            return True
        owner = getattr(value.owner, "operation", value.owner)
        if getattr(owner, "name", "") != "tt.addptr":
            return False
        value = owner.operands[0]
    return False


def _writes_between(first: Any, last: Any) -> bool:
    op = _next(first)
    while op is not None and op != last:
        if _may_write(op):
            return True
        op = _next(op)
    return False


def _next(op: Any) -> Any:
    """The op after ``op`` in its block (from the positions of lower_function's walk), or None."""
    return _ORDER.get(op)


_ORDER: dict[Any, Any] = {}


def note_order(ops: list[Any]) -> None:
    """Remember which op follows which in a block."""
    for a, c in zip(ops, ops[1:]):
        _ORDER[a] = c


def forget_order() -> None:
    _ORDER.clear()


def _may_write(op: Any) -> bool:
    if op.name in WRITES:
        return True
    if not len(op.regions) or op.name in _PURE_REGIONS:
        return False
    found: list[bool] = []

    def visit(inner: Any) -> Any:
        if inner.name in WRITES:
            found.append(True)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return bool(found)


@lowers("tt.store")
def store(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    pointer, value, mask = _optional(op, 3)
    element = element_of(value.type)

    def write_one(address: Any, raw: Any, on: Any) -> None:
        def write() -> list[Any]:
            b.store(raw, b.to_ptr(address))
            return []

        if on is None:
            write()
        else:
            b.if_(on, write, None, [])

    held, on_held = lo.env[value], None if mask is None else lo.env[mask]
    if not lo.is_tile(pointer):
        write_one(lo.scalar(pointer), to_storage(b, held, element), on_held)
        return []
    pointers = lo.tile(pointer)
    run = _run(lo, pointer, pointers.shape)
    mask_run = _constant_mask_run(lo, mask) if mask is not None and isinstance(on_held, Tile) else 1 << 30
    n = width(pointers)
    kind = storage_type(b, element)
    size = b.size(kind)
    mark = lo.arena.top
    careful = n > 1 and (run < n or (mask is not None and mask_run < n and size < 4))
    spill: Any = _Spill(lo, n, kind) if careful else None

    def at(tile: Any, index: Any, lanes: int) -> Any:
        return tile.lanes(index, lanes) if isinstance(tile, Tile) else b.broadcast(tile, lanes)

    def body(index: Any) -> None:
        raw = to_storage(b, at(held, index, n), element)
        if n == 1:
            write_one(pointers.lanes(index, 1), raw, None if on_held is None else at(on_held, index, 1))
        elif run >= n:
            first = pointers.lanes(index, 1)
            address = b.to_ptr(first)
            if on_held is None:
                b.store(raw, address)
            elif mask_run >= n:
                b.if_(at(on_held, index, 1), lambda: b.store(raw, address), None, [])
            else:
                def partly() -> list[Any]:
                    if spill is None:
                        b.masked_store(raw, address, lambda first, m: at(on_held, _moved(b, index, first), m), lo.vector_bits)
                    else:
                        spill.store(raw, _consecutive(lo, first, n, size), at(on_held, index, n))
                    return []

                # masked stores are slow on many CPUs even where all lanes are on
                b.if_(_all_on(on_held, index, n), lambda: b.store(raw, address), partly, [])
        else:
            addresses = pointers.lanes(index, n)
            on = None if on_held is None else at(on_held, index, n)
            first = b.extract(addresses, 0)
            straight = b.cmpi("eq", addresses, _consecutive(lo, first, n, size))

            def one_by_one() -> list[Any]:
                spill.store(raw, addresses, on)
                return []

            b.if_(b.all_of(_both(b, on, straight)), lambda: b.store(raw, b.to_ptr(first)), one_by_one, [])

    each(b, pointers.shape, n, body)
    lo.arena.top = mark
    return []


def _atomic(lo: TileLowering, op: Any, pointer: Any, mask: Any, update: Any, element: Any, inputs: list[Any]) -> list[Any]:
    """``update(address, scalars)`` gives the old value in storage form; masked-off elements give 0."""
    b = lo.b
    kind = storage_type(b, element)

    def one(address: Any, scalars: list[Any], on: Any) -> Any:
        if on is None:
            return update(b.to_ptr(address), scalars)
        return b.if_(on, lambda: [update(b.to_ptr(address), scalars)], lambda: [b.const(kind, 0)], [kind])[0]

    held = [lo.env[v] for v in inputs]
    on_held = None if mask is None else lo.env[mask]
    if not lo.is_tile(pointer):
        return [from_storage(b, one(lo.scalar(pointer), [to_storage(b, h, element) for h in held], on_held), element)]
    pointers = lo.tile(pointer)
    out = lo.out_buffer(op)

    def at(tile: Any, index: Any) -> Any:
        return tile.lanes(index, 1) if isinstance(tile, Tile) else tile

    def body(index: Any) -> None:
        old = one(pointers.lanes(index, 1), [to_storage(b, at(h, index), element) for h in held], None if on_held is None else at(on_held, index))
        out.put(index, from_storage(b, old, element))

    each(b, pointers.shape, 1, body)
    return [out]


@lowers("tt.atomic_rmw")
def atomic_rmw(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    pointer, value, mask = _optional(op, 3)
    element = element_of(value.type)
    name = ir.StringAttr(op.attributes["rmw_op"]).value
    if name == "fadd" and str(element) in ("f16", "bf16"):
        return _atomic(lo, op, pointer, mask, lambda p, v: _fadd_16(lo, p, v[0], element), element, [value])
    attrs = {"bin_op": ir.IntegerAttr.get(b.i64, _RMW[name]),
             "ordering": ir.IntegerAttr.get(b.i64, _ORDERING[ir.StringAttr(op.attributes["sem"]).value])}

    def update(p: Any, v: list[Any]) -> Any:
        return b.op("llvm.atomicrmw", [p, v[0]], [v[0].type], attrs).result

    return _atomic(lo, op, pointer, mask, update, element, [value])


def _compare_exchange(lo: TileLowering, p: Any, old: Any, new: Any) -> Any:
    b = lo.b
    pair = ir.Type.parse(f"!llvm.struct<({old.type}, i1)>")
    attrs = {"success_ordering": ir.IntegerAttr.get(b.i64, 6), "failure_ordering": ir.IntegerAttr.get(b.i64, 4)}
    result = b.op("llvm.cmpxchg", [p, old, new], [pair], attrs).result
    return b.op("llvm.extractvalue", [result], [old.type], {"position": ir.DenseI64ArrayAttr.get([0])}).result


def _fadd_16(lo: TileLowering, p: Any, value: Any, element: Any) -> Any:
    """16-bit floats by a compare-and-swap loop, each sum rounded to the type."""
    from tilewright.targets.cpu.lower_elementwise import round_lanes

    b = lo.b
    addend = from_storage(b, value, element)
    start = b.load(p, b.i16)
    loop = b.op("scf.while", [start], [b.i16], None, 2)
    before = loop.regions[0].blocks.append(b.i16, arg_locs=[b.loc])
    after = loop.regions[1].blocks.append(b.i16, arg_locs=[b.loc])
    outer = b.ip
    b.ip = ir.InsertionPoint(before)
    seen = before.arguments[0]
    total = round_lanes(b, b.bin("arith.addf", from_storage(b, b.bitcast(seen, value.type), element), addend), element)
    found = _compare_exchange(lo, p, seen, b.bitcast(to_storage(b, total, element), b.i16))
    b.op("scf.condition", [b.cmpi("ne", found, seen), found])
    b.ip = ir.InsertionPoint(after)
    b.op("scf.yield", [after.arguments[0]])
    b.ip = outer
    return b.bitcast(loop.results[0], value.type)


@lowers("tt.atomic_cas")
def atomic_cas(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    pointer, compare, value = list(op.operands)
    element = element_of(value.type)

    def update(p: Any, v: list[Any]) -> Any:
        kind = v[0].type
        if isinstance(kind, ir.IntegerType):
            return _compare_exchange(lo, p, v[0], v[1])
        integer = ir.IntegerType.get_signless(8 * b.size(kind))
        return b.bitcast(_compare_exchange(lo, p, b.bitcast(v[0], integer), b.bitcast(v[1], integer)), kind)

    if str(element).startswith("f8"):
        raise UnsupportedOnTargetError(f"cpu: atomic_cas on {element} is not supported; cast the pointer to int8")
    return _atomic(lo, op, pointer, None, update, element, [compare, value])
