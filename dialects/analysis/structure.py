"""A Python mirror of a function's operations, built in one walk, for analyses and passes.

The bindings make some questions dear (``value.owner`` and ``type.encoding`` 40 µs, iterating a block 9 µs an op) and others
cheap (operands, results, types: under 1 µs). So a pass builds the mirror once (about 3 µs an op), asks it for definitions,
uses and nesting, and keeps it up to date while it edits: ``Function.insert_before/insert_after/erase``.

Types are described by ``type_info``, cached by type, since the same few types occur again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.dots import is_dot
from tilewright.dialects.errors import TilewrightError

_TERMINATORS = frozenset(("scf.yield", "scf.condition", "tt.reduce_return", "tt.scan_return", "tt.map_elementwise_return", "func.return"))
# ops known to have regions whose blocks end in one of the terminators above
_REGION_OPS = frozenset(("func.func", "scf.for", "scf.if", "scf.while", "tt.reduce", "tt.scan", "tt.map_elementwise"))

# attribute (i32) of a loop: the lowering writes its body so often, one iteration after another, so that what alternates is constant in each
ROUNDS = "ttg.rounds"

_concurrent: dict[str, int] = {}


def register_concurrent(name: str, block_region: int = 0) -> None:
    """Let a target say that the regions of its op ``name`` are run at the same time, each once and by threads of its own.

    Such an op has no operands and no results; values from above are used freely inside. It begins by ordering what came before it
    for all threads, and it ends the function. Region number ``block_region`` is the one that the program's threads run (those that
    layouts spread tensors over and ttg.barrier counts); in the others no barrier may stand.
    """
    if _concurrent.setdefault(name, block_region) != block_region:
        raise ValueError(f"{name} was registered with region {_concurrent[name]}")


def block_region_of(name: str) -> int | None:
    """The number of the region that the program's threads run, of an op with concurrent regions; None of any other op."""
    return _concurrent.get(name)


class TypeInfo:
    """What passes ask about a type: ``shape`` (None for scalars), ``element`` type, ``encoding`` (None without),
    ``kind`` of the element ("int", "index", "float", "ptr", "other"), ``bits`` of an element (64 for pointers) and
    ``pointee_bits`` (of what an element points to, else 0)."""

    __slots__ = ("type", "shape", "element", "encoding", "kind", "bits", "pointee_bits")

    def __init__(self, type_: Any):
        self.type = type_
        self.shape: tuple[int, ...] | None = None
        self.encoding: Any = None
        element = type_
        if isinstance(type_, ir.RankedTensorType):
            self.shape = tuple(type_.shape)
            element = type_.element_type
            self.encoding = type_.encoding
        self.element = element
        self.kind, self.bits, self.pointee_bits = "other", 0, 0
        if isinstance(element, ir.IntegerType):
            self.kind, self.bits = "int", element.width
        elif isinstance(element, ir.IndexType):
            self.kind, self.bits = "index", 64
        elif isinstance(element, ir.FloatType):
            self.kind, self.bits = "float", element.width
        elif isinstance(element, tt.PtrType):
            self.kind, self.bits = "ptr", 64
            pointee = element.pointee_type
            self.pointee_bits = getattr(pointee, "width", 0)
            if isinstance(pointee, tt.PtrType):
                self.pointee_bits = 64

    @property
    def numel(self) -> int:
        """Number of elements; 1 for scalars."""
        n = 1
        for s in self.shape or ():
            n *= s
        return n


_type_infos: dict[Any, TypeInfo] = {}


def type_info(type_: Any) -> TypeInfo:
    """``TypeInfo`` of an ``ir.Type``, cached."""
    info = _type_infos.get(type_)
    if info is None:
        if len(_type_infos) > 20000:  # a long-lived process that compiles many kernels
            _type_infos.clear()
        info = _type_infos[type_] = TypeInfo(type_)
    return info


_encoded: dict[Any, Any] = {}


def with_encoding(type_: Any, encoding: Any) -> Any:
    """The tensor type with its encoding replaced; cached."""
    key = (type_, encoding)
    result = _encoded.get(key)
    if result is None:
        if len(_encoded) > 20000:
            _encoded.clear()
        info = type_info(type_)
        result = _encoded[key] = ir.RankedTensorType.get(list(info.shape or ()), info.element, encoding)
    return result


class Region:
    """One region of a single block: its ``args`` (values) and ``ops`` (nodes; the last one is the terminator)."""

    __slots__ = ("args", "ops", "parent", "index")

    def __init__(self, args: list[Any], parent: Node, index: int):
        self.args, self.parent, self.index = args, parent, index
        self.ops: list[Node] = []


class Node:
    """One op: ``op``, ``name``, ``operands``, ``results`` (values), ``regions``, and ``region`` (the one it lies in)."""

    __slots__ = ("op", "name", "operands", "results", "regions", "region", "_at")

    def __init__(self, op: Any, name: str, region: Region | None, at: int = 0):
        self.op, self.name, self.region = op, name, region
        self._at = at  # where it was last seen in region.ops
        self.operands: list[Any] = list(op.operands)
        self.results: list[Any] = list(op.results)
        self.regions: list[Region] = []

    def __repr__(self) -> str:
        return f"<{self.name} at {self.op.location}>"

    def attr(self, name: str) -> Any:
        return self.op.attributes[name]

    def int_attr(self, name: str) -> int:
        return int(ir.IntegerAttr(self.op.attributes[name]).value)

    def str_attr(self, name: str) -> str:
        return str(ir.StringAttr(self.op.attributes[name]).value)

    def bool_attr(self, name: str) -> bool:
        return bool(ir.BoolAttr(self.op.attributes[name]).value)

    def ints_attr(self, name: str) -> list[int]:
        return list(ir.DenseI32ArrayAttr(self.op.attributes[name]))

    @property
    def parent(self) -> Node | None:
        return self.region.parent if self.region is not None else None

    @property
    def depth(self) -> int:
        """Number of loops around this op."""
        n, node = 0, self.parent
        while node is not None:
            n += node.name in ("scf.for", "scf.while")
            node = node.parent
        return n

    def set_operand(self, index: int, value: Any) -> None:
        self.op.operands[index] = value
        self.operands[index] = value

    def set_type(self, index: int, type_: Any) -> None:
        self.results[index].set_type(type_)

    def walk(self) -> Iterator[Node]:
        """All nodes inside, in order; not this one."""
        for region in self.regions:
            for node in region.ops:
                yield node
                yield from node.walk()


class Function:
    """The mirror of one ``func.func``: ``root`` node, and by value ``defs`` (node, result number) and ``arg_of``
    (region, argument number). ``uses(value)`` is computed on the first call and kept up by the editing methods."""

    def __init__(self, root: Node, module: Any = None):
        self.root = root
        self.module = module  # values are dangling once their module is collected
        self.defs: dict[Any, tuple[Node, int]] = {}
        self.arg_of: dict[Any, tuple[Region, int]] = {}
        self._uses: dict[Any, list[tuple[Node, int]]] | None = None
        for node in self.nodes():
            for i, v in enumerate(node.results):
                self.defs[v] = (node, i)
            for region in node.regions:
                for i, v in enumerate(region.args):
                    self.arg_of[v] = (region, i)
        for region in root.regions:
            for i, v in enumerate(region.args):
                self.arg_of[v] = (region, i)

    @property
    def body(self) -> Region:
        return self.root.regions[0]

    def nodes(self) -> Iterator[Node]:
        """Every op, parents before their contents, in program order."""
        return self.root.walk()

    def def_node(self, value: Any) -> Node | None:
        """The op that makes ``value``; None for block arguments."""
        found = self.defs.get(value)
        return found[0] if found else None

    def region_of(self, value: Any) -> Region:
        """The region in whose block ``value`` is defined."""
        found = self.defs.get(value)
        if found:
            assert found[0].region is not None
            return found[0].region
        return self.arg_of[value][0]

    # -- uses
    def _all_uses(self) -> dict[Any, list[tuple[Node, int]]]:
        if self._uses is None:
            uses: dict[Any, list[tuple[Node, int]]] = {}
            for node in self.nodes():
                for i, v in enumerate(node.operands):
                    uses.setdefault(v, []).append((node, i))
            self._uses = uses
        return self._uses

    def uses(self, value: Any) -> list[tuple[Node, int]]:
        """(node, operand number) of each use."""
        return self._all_uses().get(value, [])

    # -- editing
    def set_operand(self, node: Node, index: int, value: Any) -> None:
        if self._uses is not None:
            old = self._uses.get(node.operands[index])
            if old is not None:
                old.remove((node, index))
            self._uses.setdefault(value, []).append((node, index))
        node.set_operand(index, value)

    def replace_uses(self, old: Any, new: Any, keep: Node | None = None) -> None:
        """Let every use of ``old`` use ``new``, except in the op ``keep``."""
        for node, i in list(self.uses(old)):
            if node is not keep:
                self.set_operand(node, i, new)

    def _register(self, op: Any, name: str, region: Region, at: int) -> Node:
        node = Node(op, name, region, at)
        region.ops.insert(at, node)
        for i, v in enumerate(node.results):
            self.defs[v] = (node, i)
        if self._uses is not None:
            for i, v in enumerate(node.operands):
                self._uses.setdefault(v, []).append((node, i))
        return node

    def insert_before(self, anchor: Node, name: str, results: Sequence[Any], operands: Sequence[Any],
                      attributes: dict[str, Any] | None = None, location: Any = None) -> Node:
        """Create an op before ``anchor``, with its location unless another is given."""
        op = ir.Operation.create(name, results=list(results), operands=list(operands), attributes=attributes or {},
                                 loc=location or anchor.op.location, ip=ir.InsertionPoint(anchor.op))
        region = anchor.region
        assert region is not None
        return self._register(op, name, region, position(anchor))

    def insert_after(self, anchor: Node, name: str, results: Sequence[Any], operands: Sequence[Any],
                     attributes: dict[str, Any] | None = None, location: Any = None) -> Node:
        """Create an op right after ``anchor`` (not a terminator), with its location unless another is given."""
        region = anchor.region
        assert region is not None
        following = region.ops[position(anchor) + 1]
        return self.insert_before(following, name, results, operands, attributes, location or anchor.op.location)

    def insert_at_start(self, region: Region, name: str, results: Sequence[Any], operands: Sequence[Any],
                        attributes: dict[str, Any] | None = None, location: Any = None) -> Node:
        return self.insert_before(region.ops[0], name, results, operands, attributes, location)

    def clone_after(self, anchor: Node, source: Node, operands: Sequence[Any], result_types: Sequence[Any]) -> Node:
        """A copy of ``source`` (without regions) right after ``anchor`` under other operands and result types."""
        attributes = {name: source.op.attributes[name] for name in attribute_names(source.op)}
        return self.insert_after(anchor, source.name, result_types, operands, attributes, source.op.location)

    def erase(self, node: Node) -> None:
        """Remove an op whose results have no uses."""
        doomed = (node, *node.walk())
        if self._uses is not None:
            for inner in doomed:  # before any result is forgotten: a combiner's ops use each other's
                for i, v in enumerate(inner.operands):
                    self._uses[v].remove((inner, i))
        for inner in doomed:
            for v in inner.results:
                self.defs.pop(v, None)
                if self._uses is not None:
                    self._uses.pop(v, None)
        assert node.region is not None
        del node.region.ops[position(node)]
        node.op.erase()


def is_zero(function: Function, value: Any, through: Iterable[str] = ()) -> bool:
    """Whether every bit of every element is clear (-0.0 is not): a constant, splat or not, behind ops named in ``through``, which make 0 of 0."""
    node = function.def_node(value)
    while node is not None and (node.name == "tt.splat" or node.name in through):
        node = function.def_node(node.operands[0])
    if node is None or node.name != "arith.constant":
        return False
    attr = node.op.attributes["value"]
    if isinstance(attr, ir.DenseElementsAttr):
        if not attr.is_splat:
            return False
        attr = attr.get_splat_value()
    return str(attr.value) in ("0", "0.0", "False")


def region_ancestor(node: Node, region: Region) -> Node | None:
    """The op of ``region`` that is ``node`` or holds it."""
    current: Node | None = node
    while current is not None and current.region is not region:
        current = current.parent
    return current


def attribute_names(op: Any) -> list[str]:
    """Names of an op's attributes, properties included."""
    return [a.name if hasattr(a, "name") else a for a in op.attributes]


def position(node: Node) -> int:
    """Where ``node`` is in its region's list. From where it was last seen: ops that were put in before it moved it on."""
    assert node.region is not None
    ops, at = node.region.ops, node._at
    if at >= len(ops) or ops[at] is not node:
        try:
            at = ops.index(node, at)
        except ValueError:
            at = ops.index(node)
        node._at = at
    return at


def _parse(ops: list[Any], at: int, region: Region, last: Any) -> int:
    """Fill ``region`` from the pre-order list ``ops`` at ``at``, up to its terminator; the index after it."""
    while True:
        op = ops[at]
        name = op.name
        node = Node(op, name, region, len(region.ops))
        region.ops.append(node)
        at += 1
        if name in _REGION_OPS or (name not in _TERMINATORS and len(op.regions)):
            at = _parse_regions(ops, at, node)
        if name in _TERMINATORS if last is None else op == last:
            return at


def _parse_regions(ops: list[Any], at: int, node: Node) -> int:
    for i, region in enumerate(node.op.regions):
        blocks = list(region.blocks)
        if not blocks:
            continue
        if len(blocks) > 1:
            raise TilewrightError(f"{node.name} at {node.op.location} has a region of {len(blocks)} blocks; these passes take "
                                  f"structured control flow (scf) only")
        mirror = Region(list(blocks[0].arguments), node, i)
        node.regions.append(mirror)
        last = None
        if node.name not in _REGION_OPS:
            block_ops = blocks[0].operations
            last = block_ops[len(block_ops) - 1].operation
        at = _parse(ops, at, mirror, last)
    return at


def functions(module: Any) -> list[Function]:
    """The mirrors of a module's functions that have a body."""
    ops: list[Any] = []
    advance = ir.WalkResult.ADVANCE

    def collect(op: Any) -> Any:
        ops.append(op)
        return advance

    operation = module.operation if hasattr(module, "operation") else module
    operation.walk(collect, ir.WalkOrder.PRE_ORDER)
    result = []
    at = 0
    while at < len(ops):
        if ops[at].name == "func.func":
            root = Node(ops[at], "func.func", None)
            at = _parse_regions(ops, at + 1, root)
            if root.regions:
                result.append(Function(root, module))
        else:
            at += 1
    return result


def erase_dead(function: Function, pure: Iterable[str] | None = None) -> int:
    """Remove ops without effects whose results have no uses, those that only they used too; how many."""
    erased = 0
    for node in reversed(list(function.nodes())):
        if node.results and is_removable(node) and not any(function.uses(v) for v in node.results):
            function.erase(node)
            erased += 1
    return erased


_PURE_TT = frozenset("tt." + n for n in (
    "get_program_id get_num_programs make_range splat unsplat broadcast expand_dims reshape trans join split cat addptr dot "
    "reduce scan map_elementwise gather histogram bitcast int_to_ptr ptr_to_int fp_to_fp precise_sqrt precise_divf mulhiui clampf "
    "make_tensor_descriptor").split())
_PURE_TTG = frozenset(("ttg.convert_layout", "ttg.memdesc_index", "ttg.memdesc_subslice", "ttg.memdesc_trans"))


def is_removable(node: Node) -> bool:
    """Whether a use-less op of this kind may be dropped: no effects, or a read that is not volatile."""
    name = node.name
    if name in _PURE_TT or name in _PURE_TTG or is_dot(name) or name.startswith(("arith.", "math.")):
        return True
    if name == "tt.load":
        return not node.bool_attr("is_volatile")
    if name in ("ttg.local_load", "ttg.local_alloc", "tt.descriptor_load", "tt.descriptor_gather"):
        return True
    if name in ("tt.extern_elementwise", "tt.elementwise_inline_asm"):
        return node.bool_attr("pure")
    return False


def reaches(function: Function, body: Any, values: Any, target: Any) -> bool:
    """Whether ``target`` is among ``values`` or what they are computed from within ``body``."""
    todo, seen = list(values), set()
    while todo:
        v = todo.pop()
        if v == target:
            return True
        if v in seen:
            continue
        seen.add(v)
        node = function.def_node(v)
        if node is not None and node.region is body:
            todo += node.operands
    return False
