"""Turn loads and stores through tiles of pointers into descriptor loads and stores, where that is proven to mean the same.

A tile ``base + Σ coordinate · stride`` under a mask ``coordinate < bound …`` (descriptor_tiles.py) is a box of a tensor that the host
can describe before the launch. What cannot be proven here becomes a guard on the launch's values (dialects.analysis.host_recipe); what can be
neither leaves the access as it is. Every decision and its reason goes to ``metadata["host"]["choices"]``.

Loads are worth it where a tt.dot reads them; stores, of tiles of two or more dims, in kernels that have such loads. Bulk copies go
through the async proxy (PTX ISA manual, "Memory Consistency Model", proxies), so a kernel must not store to what it loads so: loads
from an argument that is stored to are left alone, and guards see to other arguments not overlapping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.affine import Affine, Fact, NotAffine, pointer_roots
from tilewright.dialects.analysis.affine_build import Writer
from tilewright.dialects.analysis.polynomial import Poly
from tilewright.dialects.analysis.structure import Function, Node, functions, is_zero, type_info
from tilewright.dialects.analysis.unobserved import never_observed
from tilewright.dialects.passes import dce_cse
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.passes.descriptor_tiles import Dim, Tile, Unobserved, match
from tilewright.targets.nvidia.passes.host_recipe import (
    ALIGNED_END,
    ALIGNED_START,
    ALIGNMENT,
    INT32_MAX,
    NO_ALIAS,
    UNBOUNDED,
    WHAT,
    Host,
    Refused,
)
from tilewright.targets.nvidia.passes.kernel_memory import memory_of
from tilewright.targets.nvidia.passes.use_warp_group_dots import plan_of

_MIN_ROW_BYTES = 16  # of a box (cuTensorMapEncodeTiled)
_MAX_TILE_BYTES = 128 * 1024  # of one tile: it must lie in shared memory, beside others
_STAGES = 3  # of the loads', for which stores leave shared memory
_MARGIN = 8192  # bytes of shared memory for barriers, conversions and reductions
_BITS = (8, 16, 32, 64)
# what may stand between a load and its dot: the tile stays what it is
_CASTS = frozenset(("arith.extf", "arith.truncf", "arith.extsi", "arith.extui", "arith.trunci", "arith.sitofp", "arith.uitofp",
                    "arith.bitcast", "tt.fp_to_fp", "tt.bitcast", "tt.trans"))


def run(module: Any, ctx: PassContext) -> None:
    """Before: canonical tt. After: the same meaning wherever ``metadata["host"]["guards"]`` hold; promoted accesses are descriptor ops
    on tt.make_tensor_descriptor ops at the function's entry, whose operands come from arguments and constants alone."""
    if not ctx.options.tma:
        return
    for function in functions(module):
        if "tt.kernel" in function.root.op.attributes:
            Promoter(function, ctx).run()
    dce_cse.run(module, ctx)


@dataclass
class _Descriptor:
    value: Any
    node: Node
    no_alias: set[int]


def _tile_bytes(node: Node) -> int:
    info = type_info(node.operands[0].type)
    return info.numel * (info.pointee_bits or 0) // 8


class Promoter:
    """Decides and rewrites one kernel."""

    def __init__(self, function: Function, ctx: PassContext):
        self.function = function
        self.affine = Affine(function)
        self.host = Host(ctx)
        self.memory = memory_of(function, self.host)
        # tiles go by bulk copies only where warp_specialize.py will find products of four or eight warps to feed
        # (without an option num_warps, as in tests of this pass alone, any dot will do)
        warps = getattr(ctx.options, "num_warps", None)
        self.has_products = warps is None or (warps in (4, 8) and any(
            n.name == "tt.dot" and plan_of(n, warps) is not None for n in function.nodes()))
        # shared memory: bytes of the loads' tiles (one stage), of the stores' so far, and what there is
        self.loaded = self.stored = 0
        self.shared_limit = int(ctx.capabilities.max_shared_bytes) - _MARGIN
        self.stages = getattr(ctx.options, "num_stages", _STAGES)
        self.descriptors: dict[Any, _Descriptor] = {}
        self.promoted: set[int] = set()  # ids of the nodes of promoted loads

    def run(self) -> None:
        accesses = [n for n in self.function.nodes() if n.name in ("tt.load", "tt.store") and type_info(n.operands[0].type).shape is not None]
        plans: list[tuple[Node, Tile, set[int]]] = []
        for node in accesses:
            if node.name == "tt.load":
                self._decide(node, plans, self._plan_load)
        if plans:
            self.promoted = {id(node) for node, *_ in plans}
            self.loaded = sum(_tile_bytes(node) for node, *_ in plans)
            for node in accesses:
                if node.name == "tt.store":
                    self._decide(node, plans, self._plan_store)
        self.writer = Writer(self.function, self.affine, [n for n in accesses if any(n is node for node, *_ in plans)])
        for node, tile, no_alias in plans:
            (self._rewrite_load if node.name == "tt.load" else self._rewrite_store)(node, tile, no_alias)
        for node, *_ in plans:  # now: the writer puts ops before them
            self.function.erase(node)
        for d in self.descriptors.values():
            d.node.op.attributes[NO_ALIAS] = ir.DenseI32ArrayAttr.get(sorted(d.no_alias))

    # -- decisions
    def _decide(self, node: Node, plans: list[tuple[Node, Tile, set[int]]], plan: Any) -> None:
        mark = self.host.mark()
        try:
            tile, no_alias = plan(node)
        except (NotAffine, Refused) as e:
            self.host.forget(mark)
            self.host.choose(node.op, self._what(node, None), "pointer", str(e))
            return
        plans.append((node, tile, no_alias))
        shape = "x".join(map(str, tile.box))
        self.host.choose(node.op, self._what(node, tile.base), "tma", f"boxes of {shape} of a tensor of {len(tile.dims)} dims")

    def _what(self, node: Node, base: int | None) -> str:
        verb = "tl.load of" if node.name == "tt.load" else "tl.store to"
        if base is None:
            roots = pointer_roots(self.function, node.operands[0])
            base = next(iter(roots)) if roots is not None and len(roots) == 1 else None
        return f"{verb} " + ("pointers" if base is None else f"argument {base}")

    def _plan_load(self, node: Node) -> tuple[Tile, set[int]]:
        if not self._feeds_dot(node.results[0]):
            raise Refused("it feeds no dot")
        if not self.has_products:
            raise Refused("no dot of the kernel is a product of warp groups, which need copies of their own")
        if node.bool_attr("is_volatile") or node.str_attr("cache") == "cv":
            raise Refused("it is volatile")
        _, has_mask, has_other = node.ints_attr("operandSegmentSizes")
        if has_other and not is_zero(self.function, node.operands[2], ("tt.fp_to_fp", "arith.truncf", "arith.extf")):
            raise Refused("other is not 0, what copies fill with")
        tile = self._tile(node, node.operands[1] if has_mask else None)
        if self.memory.unknown_write or id(node) in self.memory.in_place:
            raise Refused(self.memory.unknown_write or self.memory.in_place[id(node)])
        if tile.base in self.memory.writes:
            raise Refused("the kernel also stores to that argument")
        self._guards(tile, self._what(node, tile.base), node)
        return tile, set(self.memory.writes)

    def _plan_store(self, node: Node) -> tuple[Tile, set[int]]:
        if len(type_info(node.operands[0].type).shape or ()) < 2:
            raise Refused("stores of fewer than two dims gain nothing")
        tile = self._tile(node, node.operands[2] if node.ints_attr("operandSegmentSizes")[2] else None)
        memory, base = self.memory, tile.base
        if memory.unknown_write or memory.unknown_read:
            raise Refused(memory.unknown_write or "the kernel loads through a pointer that is derived from no argument")
        if base in memory.reads:
            raise Refused("the kernel also loads from that argument")
        if len(memory.writes[base]) > 1:
            raise Refused("the kernel stores to that argument in more than one place")
        changes = frozenset().union(*(d.start.regions for d in tile.dims))
        parent = node.region
        while parent is not None and parent.parent is not None:
            if parent.parent.name == "scf.for" and parent not in changes:
                raise Refused("a loop stores to one place again and again, and copies may overtake each other")
            parent = parent.parent.region
        self._room(node)
        self._guards(tile, self._what(node, base), node)
        # what only promoted loads read is guarded from their side
        others = {a for a, nodes in memory.reads.items() if any(id(n) not in self.promoted for n in nodes)} | set(memory.writes)
        return tile, others - {base}

    def _room(self, node: Node) -> None:
        """Refuse stores through shared memory that would leave too little of it to the loads."""
        needed, limit = self.loaded * min(self.stages, _STAGES) + self.stored + _tile_bytes(node), self.shared_limit
        if needed > limit:
            raise Refused(f"its tile, those of other stores and {min(self.stages, _STAGES)} stages of the loads' would take {needed} bytes of shared "
                          f"memory, {limit} are there")
        self.stored += _tile_bytes(node)

    def _tile(self, node: Node, mask: Any | None) -> Tile:
        """What loads and stores have in common."""
        parent = node.parent
        while parent is not None:
            if parent.name in ("scf.if", "scf.while"):
                raise Refused(f"it stands in {'an if' if parent.name == 'scf.if' else 'a while loop'}, which not every program runs")
            parent = parent.parent
        info = type_info(node.operands[0].type)
        shape, bits = info.shape or (), info.pointee_bits
        if isinstance(info.element.pointee_type, tt.PtrType) or bits not in _BITS:
            raise Refused(f"elements of type {info.element.pointee_type} cannot be copied")
        tile = match(self.affine, node.operands[0], mask, shape, bits // 8, self._unobserved(node))
        if tile.box[-1] * bits // 8 < _MIN_ROW_BYTES:
            raise Refused(f"its rows have {tile.box[-1] * bits // 8} bytes; copies move at least {_MIN_ROW_BYTES}")
        if info.numel * bits // 8 > _MAX_TILE_BYTES:
            raise Refused(f"the tile has {info.numel * bits // 8} bytes, more than the {_MAX_TILE_BYTES} that are copied at once")
        self._alignment(tile, bits // 8)
        return tile

    def _unobserved(self, node: Node) -> Unobserved | None:
        """For loads: whether elements beyond the bound of a remainder, or its like, reach no memory."""
        if node.name != "tt.load":
            return None
        return lambda dim, m: never_observed(self.function, self.affine, node.results[0], dim, m.start, m.bound)

    def _alignment(self, tile: Tile, itemsize: int) -> None:
        """Refuse what is never aligned. What may be aligned is seen to at the launch, for every descriptor."""
        divisor = self.affine.argument_divisor(tile.base)
        offset = tile.offset.constant
        if divisor % ALIGNMENT == 0 and offset is not None and offset * itemsize % ALIGNMENT:
            raise Refused(f"its base is never a multiple of {ALIGNMENT} bytes")
        for d in tile.dims[:-1]:
            stride = d.stride.constant
            if stride is not None and (stride * itemsize % ALIGNMENT or stride < 1):
                raise Refused(f"a stride is {stride * itemsize} bytes; copies need positive multiples of {ALIGNMENT}")
        for d in tile.dims:
            if d.bound is not None and d.bound.constant is not None and d.bound.constant < 1:
                raise Refused("the mask lets nothing through")

    def _guards(self, tile: Tile, what: str, node: Node) -> None:
        """Guards that coordinates are what the descriptor takes them for, that copies are what the hardware does as the manual says
        (host_recipe.py), and that the kernel's arithmetic is exact."""
        stores, unit = node.name != "tt.load", ALIGNMENT * 8 // type_info(node.operands[0].type).pointee_bits
        inner = tile.dims[-1]
        if not self.host.multiple(inner.start, unit, f"{what}: {ALIGNED_START}"):
            raise Refused(ALIGNED_START)
        if stores and inner.bound is not None and not self.host.multiple(inner.bound, unit, f"{what}: {ALIGNED_END}"):
            raise Refused(ALIGNED_END)
        for i, d in enumerate(tile.dims):
            low = -INT32_MAX - 1 if d.checked and not stores else 0
            within = f"within {'-2^31' if low else '0'} to 2^31 - 1"
            if not self.host.in_range(d.start, low, INT32_MAX - d.extent, f"{what}: coordinates of dim {i} must lie {within}"):
                raise Refused(f"coordinates of dim {i} are never {within}")
        for fact in sorted(tile.mask_facts, key=repr):
            self._fact(fact, None, f"{what}: ")
        for fact in sorted(tile.address_facts - tile.mask_facts, key=repr):
            self._fact(fact, tile, f"{what}: ")

    def _fact(self, fact: Fact, tile: Tile | None, what: str) -> None:
        if not fact.poly.known:
            raise Refused("it depends on arithmetic that the host cannot follow")
        if fact.kind == "fits" and self._is_remainder(fact.poly, fact.number):
            return
        if fact.kind == "nonneg" and tile is not None and any(not d.checked and d.start == fact.poly for d in tile.dims):
            return  # as every coordinate
        expression = self._where_let_through(fact.poly, tile) if fact.kind == "fits" and tile is not None else None
        if not self.host.fact(fact, what, expression):
            raise Refused({"fits": f"its {fact.number}-bit arithmetic wraps", "nonneg": "coordinates under a remainder or a minimum are outside",
                           "multiple": "the remainder's divisor is no multiple of the block"}[fact.kind])

    def _is_remainder(self, poly: Poly, bits: int) -> bool:
        """Whether it is start % m + (0 … n-1), which is below m where n divides both."""
        rest = [a for a in poly.atoms() if a.kind != "dim"]
        return len(rest) == 1 and rest[0].bits <= bits and (m := self.affine.modulo_of(rest[0])) is not None and any(
            poly == Poly.of(rest[0]) + self.affine.dim(a.payload[0], m.extent) for a in poly.atoms() if a.kind == "dim")

    def _where_let_through(self, poly: Poly, tile: Tile) -> int | None:
        """An expression of ``poly`` for elements that the mask lets through: their coordinates are below the bounds."""
        host, parts, rest = self.host, [], poly
        for d in tile.dims:
            if d.bound is None or d.tile is None:
                continue
            for by in (d.stride, Poly.const(1)):
                product = d.index(self.affine) * by
                if product and all(rest.terms.get(m) == c for m, c in product.terms.items()):
                    index = host.node("min", host.poly(d.index(self.affine)), host.poly(d.bound - 1))
                    if d.checked:
                        index = host.node("max", index, host.const(0))
                    parts.append(host.node("mul", index, host.poly(by)))
                    rest = rest - product
                    break
        if not parts:
            return None
        total = parts[0] if not rest else host.poly(rest)
        for p in parts[0 if rest else 1:]:
            total = host.node("add", total, p)
        return total

    def _feeds_dot(self, value: Any) -> bool:
        todo, seen = [value], set()
        while todo:
            v = todo.pop()
            for user, index in self.function.uses(v):
                if user.name == "tt.dot" and index < 2:
                    return True
                if (user.name in _CASTS or (user.name == "arith.mulf" and self._is_splat(user.operands[1 - index]))) and id(user) not in seen:
                    seen.add(id(user))
                    todo.append(user.results[0])
        return False

    def _is_splat(self, value: Any) -> bool:
        node = self.function.def_node(value)
        return node is not None and node.name in ("tt.splat", "arith.constant")

    # -- rewriting
    def _descriptor(self, node: Node, tile: Tile, element: Any, no_alias: set[int]) -> Any:
        key = (tile.base, tile.offset, tuple((d.stride, d.bound, d.extent) for d in tile.dims), element)
        found = self.descriptors.get(key)
        if found is None:
            writer = self.writer.at(node.op.location)
            operands = [writer.pointer(tile.base, tile.offset)]
            operands += [writer.constant(UNBOUNDED, 32) if d.bound is None else writer.integer(d.bound, 32) for d in tile.dims]
            operands += [writer.integer(d.stride, 64) for d in tile.dims]
            rank = len(tile.dims)
            value = writer.op("tt.make_tensor_descriptor", tt.TensorDescType.of(tile.box, element), operands, frozenset(), {
                "padding": ir.StringAttr.get("zero"), "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, rank, rank]),
                WHAT: ir.StringAttr.get(self._what(node, tile.base))})
            made = self.function.def_node(value)
            assert made is not None
            found = self.descriptors[key] = _Descriptor(value, made, set())
        found.no_alias |= no_alias
        return found.value

    def _coordinates(self, node: Node, dims: list[Dim]) -> list[Any]:
        writer = self.writer.at(node.op.location)
        return [writer.integer(d.start, 32) for d in dims]

    @staticmethod
    def _hints(node: Node, prefix: str = "") -> dict[str, Any]:
        return {prefix + n: node.attr(n) for n in ("cache", "evict")}

    def _rewrite_load(self, node: Node, tile: Tile, no_alias: set[int]) -> None:
        result, shape = node.results[0].type, type_info(node.results[0].type).shape or ()
        desc = self._descriptor(node, tile, result.element_type, no_alias)
        type_ = ir.RankedTensorType.get(tile.box[len(tile.box) - len(shape):], result.element_type)
        value = self.function.insert_before(node, "tt.descriptor_load", [type_], [desc, *self._coordinates(node, tile.dims)],
                                            self._hints(node)).results[0]
        if tile.order != sorted(tile.order):
            order = ir.DenseI32ArrayAttr.get([tile.order.index(d) for d in range(len(shape))])
            value = self.function.insert_before(node, "tt.trans", [result], [value], {"order": order}).results[0]
        self.function.replace_uses(node.results[0], value)

    def _rewrite_store(self, node: Node, tile: Tile, no_alias: set[int]) -> None:
        value = node.operands[1]
        type_ = value.type
        desc = self._descriptor(node, tile, type_.element_type, no_alias)
        if tile.order != sorted(tile.order):
            turned = ir.RankedTensorType.get([type_.shape[d] for d in tile.order], type_.element_type)
            order = ir.DenseI32ArrayAttr.get(tile.order)
            value = self.function.insert_before(node, "tt.trans", [turned], [value], {"order": order}).results[0]
        hints = {n: a for n, a in self._hints(node, "tt.").items() if a.value not in ("none", "normal")}
        self.function.insert_before(node, "tt.descriptor_store", [], [desc, value, *self._coordinates(node, tile.dims)], hints)
