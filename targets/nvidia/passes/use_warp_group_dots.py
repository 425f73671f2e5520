"""Give dots to warp groups: ``tt.dot`` becomes ``ttng.warp_group_dot``, whose operands are read from shared memory (wgmma).

Before: ttg with coalesced loads; dots have any blocked accumulator. After: a rank-2 dot of which the table of warp-group
instructions has a row, of at least 64 rows, 8 columns and one instruction's k, in a kernel of whole warp groups, is ::

    %sa = ttg.local_alloc %a                          #ttg.panel_shared, in the order in which the operand was loaded
    %sb = ttg.memdesc_trans (ttg.local_alloc %b)      where it came through tt.trans: what is stored is what was loaded
    %d  = ttng.warp_group_dot %sa, %sb, %c            #ttg.mma<row, [4 · groups along M, groups along N]>, is_async = false

with ``ttg.convert_layout`` around it for C and the result. Every other dot is left to accelerate_dot.

- Row: the one of the operand types whose n is what a warp group has of N, at most 256. Groups lie along M as far as there are
  blocks of 64 rows, the rest along N. Operands and accumulators of f32 are tf32, so only where that was asked for.
- Panels: 128 bytes of the fastest dim, or 64, 32 or 16 where it has no more (of a group's part of M or N, where that is fastest).
  16-bit types are read with either dim fastest, all others with k fastest (PTX ISA manual, "Strides" of wgmma's matrix
  descriptors): where the load has it otherwise, its registers are stored transposed.
- A stays in registers where it is another product's result after elementwise arithmetic and no thread has to hand anything to
  another (P of attention), or is loaded and then cast: k_width is the instruction's own. B, and any other A that is computed, is
  stored to shared memory.
- C known to be zero is not read (``use_c`` false).
- fp8 adds up in fewer bits than f32 has: where ``max_num_imprecise_acc`` is not more than K, each so many of K are a product
  of their own, added to C in f32 (0: each instruction's k). Without being asked, programs have NvidiaOptions' default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.dots import is_dot
from tilewright.dialects.analysis.layout_cost import conversion_kind
from tilewright.dialects.analysis.structure import (
    Function,
    Node,
    erase_dead,
    functions,
    region_ancestor,
    type_info,
    with_encoding,
)
from tilewright.dialects.encodings import element_bits, native_k_width
from tilewright.dialects.matrix_ops import MatrixOp
from tilewright.dialects.passes import fold_constants
from tilewright.dialects.passes.accelerate_dot import sources_of
from tilewright.dialects.passes.convert_tt_to_ttg import convert_operand
from tilewright.dialects.passes.optimize_dot_operands import layout_order, path_to_load
from tilewright.targets.nvidia.warp_group_ops import warp_group_row

_WARPS = 4  # of a warp group
_ROWS = 64  # of the result that a warp group computes with one instruction
_MAX_N = 256
_PANEL_BYTES = (128, 64, 32, 16)
# through these a product's result reaches the next one's A in the same threads
_ELEMENTWISE = ("arith.", "math.", "ttg.convert_layout", "tt.fp_to_fp", "tt.clampf")


@dataclass(frozen=True)
class Plan:
    """``row``: the instruction; ``encoding``: of the accumulator; ``columns``: those of one warp group; ``piece``: of K, what is
    added up before the sum is added to C (0: C is the accumulator)."""

    row: MatrixOp
    encoding: Any
    columns: int
    piece: int


def plan_of(dot: Node, num_warps: int) -> Plan | None:
    """How warp groups compute a tt.dot; None where they cannot."""
    a, b, c = (type_info(v.type) for v in dot.operands)
    if a.shape is None or c.shape is None or len(c.shape) != 2 or num_warps % _WARPS:
        return None
    (m, n), k = c.shape, a.shape[1]
    names = str(a.element), str(b.element), str(c.element)
    if "f64" in names or ("f32" in names[:2] and dot.str_attr("input_precision") != "tf32"):
        return None
    groups = num_warps // _WARPS
    along_m = min(groups, m // _ROWS)
    if m % _ROWS or not along_m:
        return None
    columns = n // (groups // along_m)
    row = warp_group_row(*names, min(columns, _MAX_N)) if columns >= 8 else None
    if row is None or k % row.k:
        return None
    piece = 0
    asked = dot.int_attr("max_num_imprecise_acc")
    if names[0].startswith("f8") and names[2] == "f32" and asked <= k:
        piece = min(k, max(row.k, 1 << asked.bit_length() >> 1))
    encoding = ttg.MmaEncoding.of(row.name, [_WARPS * along_m, groups // along_m])
    return Plan(row, encoding, columns, piece)


def panel_encoding(shape: tuple[int, ...], bits: int, order: tuple[int, ...], widest: int) -> Any:
    """``#ttg.panel_shared`` of the widest panels that the fastest dim fills, at most ``widest`` elements."""
    inner = min(shape[order[0]], widest) * bits // 8
    panel = next((b for b in _PANEL_BYTES if b <= inner), 0)
    if not panel:
        raise ValueError(f"{shape} of {bits} bits has less than {_PANEL_BYTES[-1]} bytes along dim {order[0]}")
    phases = panel // 16  # rows of 16 bytes whose place is exchanged within each 128 bytes: 8, 4, 2, 1
    per_phase = 128 // panel if phases > 1 else 1
    return ttg.PanelSharedEncoding.of(panel * 8 // bits, 128 // bits, per_phase, phases, list(order))


def _is_zero(function: Function, value: Any) -> bool:
    node = function.def_node(value)
    while node is not None and node.name == "ttg.convert_layout":
        node = function.def_node(node.operands[0])
    if node is None or node.name != "arith.constant":
        return False
    number = fold_constants.attribute_value(node.attr("value"))
    return number is not None and number == 0 and str(number) != "-0.0"


def _source(function: Function, value: Any) -> tuple[Any, tuple[int, ...]]:
    """What ``value`` is before conversions and tt.trans, and the permutation: dim i of ``value`` is dim permutation[i] of it."""
    permutation = tuple(range(len(type_info(value.type).shape or ())))
    node = function.def_node(value)
    while node is not None and node.name in ("ttg.convert_layout", "tt.trans"):
        if node.name == "tt.trans":
            order = node.ints_attr("order")
            permutation = tuple(order[i] for i in permutation)
        value = node.operands[0]
        node = function.def_node(value)
    return value, permutation


class _Rewriter:
    """Rewrites the dots of one function, in program order."""

    def __init__(self, function: Function):
        self.function = function
        self.buffers: dict[tuple[Any, Any], Any] = {}  # (value, encoding) → its memdesc

    def rewrite(self, dot: Node, plan: Plan) -> None:
        function = self.function
        a = None if plan.piece else self._registers(dot, plan)
        if a is None:
            a = self._shared(dot, 0, plan)
        b = self._shared(dot, 1, plan)
        c = dot.operands[2]
        old = dot.results[0].type
        type_ = with_encoding(old, plan.encoding)
        total = None
        if not _is_zero(function, c):
            convert_operand(function, dot, 2, plan.encoding)
            total = dot.operands[2]
        if plan.piece:
            for start in range(0, b.type.shape[0], plan.piece):
                part = self._dot(dot, type_, self._slice(dot, a, 1, start, plan.piece), self._slice(dot, b, 0, start, plan.piece), None)
                total = part if total is None else function.insert_before(dot, "arith.addf", [type_], [total, part]).results[0]
        else:
            total = self._dot(dot, type_, a, b, total)
        back = function.insert_before(dot, "ttg.convert_layout", [old], [total]) if type_ != old else None
        function.replace_uses(dot.results[0], back.results[0] if back else total)
        function.erase(dot)

    def _dot(self, dot: Node, type_: Any, a: Any, b: Any, c: Any) -> Any:
        """The product; ``c`` None: of nothing but a and b."""
        operands = [a, b, c] if c is not None else [a, b, self._zero(dot, type_), self._false(dot)]
        attributes = {"input_precision": dot.op.attributes["input_precision"],
                      "max_num_imprecise_acc": dot.op.attributes["max_num_imprecise_acc"], "is_async": ir.BoolAttr.get(False)}
        return self.function.insert_before(dot, "ttng.warp_group_dot", [type_], operands, attributes).results[0]

    def _zero(self, dot: Node, type_: Any) -> Any:
        element = type_info(type_).element
        zero = ir.FloatAttr.get(element, 0.0) if isinstance(element, ir.FloatType) else ir.IntegerAttr.get(element, 0)
        return self.function.insert_before(dot, "arith.constant", [type_], [],
                                           {"value": ir.DenseElementsAttr.get_splat(type_, zero)}).results[0]

    def _false(self, dot: Node) -> Any:
        return self.function.insert_before(dot, "arith.constant", [ir.IntegerType.get_signless(1)], [],
                                           {"value": ir.BoolAttr.get(False)}).results[0]

    def _slice(self, dot: Node, memory: Any, dim: int, start: int, size: int) -> Any:
        """``size`` of the memdesc's ``dim`` from ``start``."""
        t = memory.type
        if t.shape[dim] == size:
            return memory
        shape = [size if d == dim else s for d, s in enumerate(t.shape)]
        view = ttg.MemDescType.of(shape, t.element_type, t.encoding, t.is_mutable)
        offsets = [start if d == dim else 0 for d in range(len(shape))]
        return self.function.insert_before(dot, "ttg.memdesc_subslice", [view], [memory],
                                           {"offsets": ir.DenseI32ArrayAttr.get(offsets)}).results[0]

    # -- operands
    def _registers(self, dot: Node, plan: Plan) -> Any:
        """A as a tensor, where it should stay one."""
        function, value = self.function, dot.operands[0]
        shape = type_info(value.type).shape
        assert shape is not None
        wanted = ttg.DotOperandEncoding.of(0, plan.encoding, native_k_width(plan.row))
        path = path_to_load(function, value)
        if path is not None:
            # in the order of the load k runs along registers only where it is contiguous; a tile loaded whole goes to shared memory
            plain = path.permutation == tuple(range(len(shape)))
            stays = bool(path.casts) and plain and layout_order(shape, type_info(path.load.results[0].type).encoding)[0] == 1
        else:
            found = (type_info(s.results[0].type) for s in sources_of(function, value, _ELEMENTWISE) if is_dot(s.name))
            stays = any(t.shape == shape and conversion_kind(shape, t.encoding, wanted) in ("none", "register") for t in found)
        if not stays:
            return None
        convert_operand(function, dot, 0, wanted)
        return dot.operands[0]

    def _order(self, value: Any, source: Any, permutation: tuple[int, ...], k: int) -> tuple[int, ...]:
        """The operand's dims from fastest to slowest, as its source is loaded or, where it is computed, row by row."""
        if element_bits(type_info(value.type).element) != 16:
            return k, 1 - k
        path = path_to_load(self.function, value)
        if path is not None:
            loaded = type_info(path.load.results[0].type)
            order, permutation = layout_order(loaded.shape or (), loaded.encoding), path.permutation
        else:
            order = tuple(reversed(range(len(permutation))))
        return tuple(permutation.index(d) for d in order)

    def _shared(self, dot: Node, index: int, plan: Plan) -> Any:
        """Operand ``index`` in shared memory, allocated where its value comes from."""
        function, value = self.function, dot.operands[index]
        source, permutation = _source(function, value)
        info = type_info(source.type)
        assert info.shape is not None
        order = self._order(value, source, permutation, 1 - index)
        widest = info.shape[permutation[order[0]]]
        if order[0] != 1 - index:  # a warp group's part of M or N begins at a panel
            widest = plan.columns if index else _ROWS
        encoding = panel_encoding(info.shape, max(8, info.bits), tuple(permutation[d] for d in order), widest)
        key = (source, encoding)
        memory = self.buffers.get(key)
        if memory is None:
            place = region_ancestor(dot, function.region_of(source))
            assert place is not None  # what an op uses is defined in a region around it
            memory = self.buffers[key] = function.insert_before(
                place, "ttg.local_alloc", [ttg.MemDescType.of(info.shape, info.element, encoding)], [source]).results[0]
        if permutation != tuple(range(len(permutation))):
            shape = [info.shape[d] for d in permutation]
            panel, vec, per_phase, max_phase = (ir.IntegerAttr(p).value for p in encoding.params[:4])
            view = ttg.PanelSharedEncoding.of(panel, vec, per_phase, max_phase, list(order))
            memory = function.insert_before(dot, "ttg.memdesc_trans", [ttg.MemDescType.of(shape, info.element, view)], [memory],
                                            {"order": ir.DenseI32ArrayAttr.get(list(permutation))}).results[0]
        return memory


def run(module: Any, ctx: Any) -> None:
    """Before: ttg, dots with any blocked accumulator. After: those that warp groups can compute are ttng.warp_group_dot."""
    for function in functions(module):
        rewriter = _Rewriter(function)
        for dot in [n for n in function.nodes() if n.name == "tt.dot"]:
            plan = plan_of(dot, ctx.num_warps)
            if plan is not None:
                rewriter.rewrite(dot, plan)
        if rewriter.buffers:
            erase_dead(function)
