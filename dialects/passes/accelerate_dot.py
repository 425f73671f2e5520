"""Choose how each ``tt.dot`` is computed: which matrix instruction, and how warps share the tile.

Before: dots have blocked accumulators. After: a dot that a row of ``capabilities.matrix_ops`` can compute has an ``#ttg.mma``
accumulator and dot operands of it; one that no row can (fp32 asked to be exact where there are only tf32 rows, integers without a
row, tiles smaller than every instruction) stays on FMA with a blocked accumulator of 2×2 or 4×4 elements a thread. Operand types
that no row takes are converted as the language says: fp8 to fp16 (to bf16 beside bf16), and an accumulator narrower than every
row's goes through that row's. ``ttg.convert_layout`` joins all this to the rest; remove_layout_conversions clears it up.

Choices:
- Row: the first (capabilities list the best first) of matching types whose tiles occupy all warps; else the one with the most.
- Warps: so that the operand bytes that a warp reads are fewest. Where a dot feeds another dot's A operand (attention), all warps
  along M: a row of the accumulator then lies in one warp, and the second dot reads it from registers.
- transposed: where an instruction's accumulator registers run along M they are made to run along N (row-major stores, and
  the first operand of a following dot, have it so); ``capabilities.extra["transposed_accumulators"] = False`` says never.
- tf32x3, bf16x3, bf16x6: f32 operands are cut into parts of the narrower type, whose products are added from the smallest up
  (passes/split_dot.py); on a target without such rows they are computed by f32 rows or FMA, which is no less exact.
- A dot whose A operand is another dot's result, untransposed, takes the form of its row under ``capabilities.extra["fed_rows"]``
  (row → row), if there is one: the same instruction with k in the order in which accumulators lie, so that nothing has to move.
- k_width: what the instruction holds consecutively, or as many as make 32 bits (``capabilities.extra["operand_bits"]``, if that is
  there) of the narrower type that was loaded;
  ``capabilities.extra["k_pack"]`` times as many where the target's options ask for it.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.dots import is_dot
from tilewright.dialects.analysis.structure import Function, Node, functions, type_info, with_encoding
from tilewright.dialects.encodings import instruction_operand, native_k_width
from tilewright.dialects.matrix_ops import MatrixOp, lookup
from tilewright.dialects.passes.convert_tt_to_ttg import convert_operand, convert_result
from tilewright.dialects.passes.explain_dot import describe, why_converted, why_fma
from tilewright.dialects.passes.split_dot import SPLITS, split_dot

_THROUGH = ("arith.", "math.", "ttg.convert_layout", "tt.fp_to_fp", "tt.broadcast", "tt.trans", "tt.expand_dims", "tt.clampf")
_CASTS = frozenset(("arith.extf", "arith.truncf", "arith.extsi", "arith.extui", "arith.trunci", "arith.sitofp", "arith.uitofp",
                    "arith.fptosi", "arith.fptoui", "tt.fp_to_fp", "tt.bitcast", "ttg.convert_layout", "tt.trans"))


def sources_of(function: Function, value: Any, through: tuple[str, ...]) -> list[Node]:
    """The ops that are not passed through from which ``value`` is computed."""
    found: list[Node] = []
    seen: set[Any] = set()
    todo = [value]
    while todo:
        v = todo.pop()
        if v in seen:
            continue
        seen.add(v)
        node = function.def_node(v)
        if node is None:
            continue
        if node.name.startswith(through):
            todo += node.operands
        else:
            found.append(node)
    return found


def chained_dots(function: Function, dots: list[Node]) -> tuple[set[int], set[int]]:
    """(dots in a chain, dots whose A operand comes from another dot), as ids of nodes."""
    chain: set[int] = set()
    fed: set[int] = set()
    for dot in dots:
        for source in sources_of(function, dot.operands[0], _THROUGH):
            if is_dot(source.name):
                chain |= {id(source), id(dot)}
                fed.add(id(dot))
    return chain, fed


def _fed_untransposed(function: Function, dot: Node) -> bool:
    """Whether the A operand is computed from another dot's result without changing rows and columns."""
    through = tuple(name for name in _THROUGH if name != "tt.trans")
    return any(is_dot(source.name) for source in sources_of(function, dot.operands[0], through))


def _loaded_bits(function: Function, value: Any) -> int:
    """Width of the narrowest element type on the way of casts to ``value``."""
    bits = type_info(value.type).bits
    node = function.def_node(value)
    while node is not None and node.name in _CASTS:
        bits = min(bits, type_info(node.operands[0].type).bits)
        node = function.def_node(node.operands[0])
    return bits


# ------------------------------------------------------------------------------------------------ choosing a row
def _type_names(element: Any, precision: str) -> list[str]:
    """The row types that may stand for an operand's element type, best first."""
    name = str(element)
    if name != "f32":
        return [name]
    # without such a row a target's exact f32 instruction does more than was asked
    return {"tf32": ["tf32", "f32"], "tf32x3": ["tf32", "f32"], "bf16x3": ["bf16", "f32"], "bf16x6": ["bf16", "f32"]}.get(precision, ["f32"])


def is_transposed(row: MatrixOp, ctx: Any) -> bool:
    """Whether this row's accumulators are used transposed: their first registers run along M."""
    wanted = ctx.capabilities.extra.get("transposed_accumulators", True)
    return bool(wanted) and bool(row.c.register) and row.c.register[0][0] != 0


def _tiles(row: MatrixOp, transposed: bool) -> tuple[int, int]:
    """Rows and columns of the dot's result that one instruction computes."""
    _, m, n = instruction_operand(row, "c", transposed)
    return m, n


def choose_row(a: Any, b: Any, c: Any, precision: str, shape: tuple[int, int, int], num_warps: int, ctx: Any,
               along_m: bool = False, any_accumulator: bool = False) -> MatrixOp | None:
    """The row for element types a, b, c and sizes (M, N, K); with ``any_accumulator`` one of a wider float accumulator.

    ``along_m``: all warps are to lie along M.
    """
    m, n, k = shape
    best: tuple[int, MatrixOp] | None = None
    for names in zip(_type_names(a, precision), _type_names(b, precision)):
        for name in ctx.capabilities.matrix_ops:
            row = lookup(name)
            transposed = is_transposed(row, ctx)
            types = (row.b_type, row.a_type) if transposed else (row.a_type, row.b_type)
            if types != names or (row.c_type != str(c) and not (any_accumulator and row.c_type == "f32")):
                continue
            if row.warp_size != ctx.warp_size:
                continue
            tile_m, tile_n = _tiles(row, transposed)
            if m % tile_m or n % tile_n or k % row.k:
                continue
            tiles = min(num_warps, (m // tile_m) * (1 if along_m else n // tile_n))
            if best is None or tiles > best[0]:
                best = (tiles, row)
        if best is not None:
            return best[1]
    return None


# ---------------------------------------------------------------------------------------------- sharing the tile
def warps_for(m: int, n: int, tile_m: int, tile_n: int, num_warps: int, all_along_m: bool) -> tuple[int, int]:
    """Warps along M and N, a power of two each. ``tile`` is what one instruction (or one warp of FMA) computes."""
    most_m, most_n = max(1, m // tile_m), max(1, n // tile_n)
    if all_along_m:
        along_m = min(num_warps, most_m)
        return along_m, num_warps // along_m
    best = None
    along_m = 1
    while along_m <= num_warps:
        along_n = num_warps // along_m
        idle = max(1, along_m // most_m) * max(1, along_n // most_n)  # warps that only repeat others' work
        traffic = max(m // along_m, tile_m) + max(n // along_n, tile_n)
        key = (idle, traffic, along_n)
        if best is None or key < best[0]:
            best = (key, (along_m, along_n))
        along_m *= 2
    assert best is not None
    return best[1]


def _fma_encoding(shape: tuple[int, ...], num_warps: int, warp_size: int) -> Any:
    """Blocked accumulator for FMA: 4×4 elements a thread where there are enough, lanes and warps about square."""
    batch, (m, n) = shape[:-2], shape[-2:]
    per_thread = m * n // (num_warps * warp_size)
    side = 4 if per_thread >= 16 else 2 if per_thread >= 4 else 1
    size_m, size_n = min(side, m), min(side, n)
    threads_m, threads_n = 1, 1
    while threads_m * threads_n < warp_size:
        if threads_n <= threads_m and threads_n * size_n < n or threads_m * size_m >= m:
            threads_n *= 2
        else:
            threads_m *= 2
    warps_m, warps_n = warps_for(m, n, size_m * threads_m, size_n * threads_n, num_warps, False)
    ones = [1] * len(batch)
    rank = len(shape)
    return ttg.BlockedEncoding.of([*ones, size_m, size_n], [*ones, threads_m, threads_n], [*ones, warps_m, warps_n],
                                  list(reversed(range(rank))))


def mma_encoding(row: MatrixOp, shape: tuple[int, ...], num_warps: int, all_along_m: bool, ctx: Any) -> Any:
    """The accumulator's ``#ttg.mma`` for a dot of ``shape``: warps share it so that each reads few operands."""
    transposed = is_transposed(row, ctx)
    tile_m, tile_n = _tiles(row, transposed)
    batches = []
    warps = num_warps
    if len(shape) == 3:
        batches = [min(warps, shape[0])]
        warps //= batches[0]
    # two instructions side by side share an operand: keep a warp's tile about square where the instruction is not
    side = max(tile_m, tile_n)
    m, n = shape[-2:]
    along = warps_for(m, n, tile_m, min(side, n), warps, all_along_m)
    return ttg.MmaEncoding.of(row.name, [*batches, *along], transposed)


def _cast(function: Function, dot: Node, index: int, element: Any) -> None:
    """Convert operand ``index`` to another float element type."""
    value = dot.operands[index]
    info = type_info(value.type)
    type_ = ir.RankedTensorType.get(list(info.shape or ()), element, info.encoding)
    if info.bits == 8:
        node = function.insert_before(dot, "tt.fp_to_fp", [type_], [value], {"rounding": ir.StringAttr.get("rtne")})
    else:
        node = function.insert_before(dot, "arith.extf", [type_], [value])
    function.set_operand(dot, index, node.results[0])


def _is_fp8(element: Any) -> bool:
    return str(element).startswith("f8")


def _operand_target(a: Any, b: Any) -> Any:
    """The type to which both operands are converted where no row takes them as they are; None where nothing helps."""
    if not (_is_fp8(a) or _is_fp8(b)):
        return None
    other = b if _is_fp8(a) else a
    return ir.BF16Type.get() if str(other) == "bf16" else ir.F16Type.get() if str(other) == "f16" or _is_fp8(other) else None


def _rewrite(function: Function, dot: Node, in_chain: bool, fed: bool, ctx: Any) -> None:
    num_warps = ctx.num_warps
    a, b, c = (type_info(v.type) for v in dot.operands)
    assert a.shape is not None and c.shape is not None
    sizes = (c.shape[-2], c.shape[-1], a.shape[-1])
    precision = dot.str_attr("input_precision")
    # a batch spreads over the warps first
    warps = max(1, num_warps // c.shape[0]) if len(c.shape) == 3 else num_warps
    types = [a.element, b.element]

    def choose() -> tuple[MatrixOp | None, bool]:
        """The row for ``types``, and whether its accumulator is wider than the dot's."""
        found = choose_row(types[0], types[1], c.element, precision, sizes, warps, ctx, in_chain)
        if found is None and c.kind == "float" and c.bits < 32:
            found = choose_row(types[0], types[1], c.element, precision, sizes, warps, ctx, in_chain, any_accumulator=True)
            return found, found is not None
        return found, False

    row, widen = choose()
    target = _operand_target(a.element, b.element)
    if row is None and target is not None:
        types = [target, target]
        row, widen = choose()
    if row is not None and fed and _fed_untransposed(function, dot):
        row = lookup(ctx.capabilities.extra.get("fed_rows", {}).get(row.name, row.name))
    if row is None:
        encoding, k_width = _fma_encoding(c.shape, num_warps, ctx.warp_size), 0
    else:
        encoding = mma_encoding(row, c.shape, num_warps, in_chain, ctx)
        k_width = native_k_width(row)
        if not fed:
            narrow = min(_loaded_bits(function, dot.operands[0]), _loaded_bits(function, dot.operands[1]))
            extra = ctx.capabilities.extra
            wide = max(int(extra.get("operand_bits", 32)) // max(8, narrow), k_width * int(extra.get("k_pack", 1)))
            if "operand_bits" in extra:  # as much of it as there is of k
                wide = min(wide, k_width * (sizes[2] // row.k))
            if wide > k_width and sizes[2] >= row.k * (wide // k_width):
                k_width = wide
    _explain(dot, row, (a.element, b.element, c.element), types, sizes, precision, ctx)
    for i in (0, 1):
        convert_operand(function, dot, i, ttg.DotOperandEncoding.of(i, encoding, k_width))
        if row is not None and type_info(dot.operands[i].type).element != types[i]:
            _cast(function, dot, i, types[i])
    convert_operand(function, dot, 2, encoding)
    convert_result(function, dot, 0, encoding)
    if widen:
        _widen_accumulator(function, dot)
    if row is not None and precision in SPLITS and row.a_type != "f32" and str(type_info(dot.operands[0].type).element) == "f32":
        split_dot(function, dot, precision)
    elif precision != "ieee" and (row is None or row.a_type != "tf32"):
        dot.op.attributes["input_precision"] = ir.StringAttr.get("ieee")  # what f32 rows and FMA give


def _explain(dot: Node, row: MatrixOp | None, elements: tuple[Any, Any, Any], types: list[Any], sizes: tuple[int, int, int], precision: str,
             ctx: Any) -> None:
    """Say which instruction computes a dot of ``elements`` (a, b, c), its operands converted to ``types``; or why none does."""
    a, b, c = elements
    what = describe(a, b, sizes, precision)
    if row is None:
        asked = list(zip(_type_names(a, precision), _type_names(b, precision)))
        if types != [a, b]:
            asked += zip(_type_names(types[0], precision), _type_names(types[1], precision))
        ctx.explain(dot.op, what, "multiply-adds, no matrix instruction", why_fma(a, b, c, asked, sizes, lambda r: is_transposed(r, ctx), ctx))
        return
    converted = [f"{old} is converted to {new}: {why_converted(old, ctx)}" for old, new in zip((a, b), types) if old != new]
    if precision in SPLITS and row.a_type != "f32" and str(a) == "f32":
        converted.append(f"{precision} takes several products of {row.a_type} parts")
    ctx.explain(dot.op, what, f"matrix instruction {row.name}", "; ".join(dict.fromkeys(converted)))


def _widen_accumulator(function: Function, dot: Node) -> None:
    """Compute in f32 and round to the accumulator's own type, which no instruction has."""
    info = type_info(dot.results[0].type)
    f32 = ir.F32Type.get()
    narrow = dot.results[0].type
    wide = with_encoding(ir.RankedTensorType.get(list(info.shape or ()), f32), info.encoding)
    _cast(function, dot, 2, f32)
    dot.results[0].set_type(wide)
    rounded = function.insert_after(dot, "arith.truncf", [narrow], [dot.results[0]])
    function.replace_uses(dot.results[0], rounded.results[0], keep=rounded)


def run(module: Any, ctx: Any) -> None:
    """Before: ttg, dots with any blocked accumulator. After: each dot has the layouts of its matrix instruction, or of FMA."""
    for function in functions(module):
        dots = [n for n in function.nodes() if n.name == "tt.dot"]
        chain, fed = chained_dots(function, dots)
        for dot in dots:
            _rewrite(function, dot, id(dot) in chain, id(dot) in fed, ctx)
