"""v_cmp and v_cmpx: comparisons and classes, into a lane mask. ISA manuals, "VOPC".

Lanes that are not active give 0. v_cmpx writes EXEC, on GFX9 the named mask too. Denormal operands count as 0 where the kernel's mode flushes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.targets.amd.isa.modifiers import Operands
from tilewright.targets.amd.isa.program import Instruction
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import Waves
from tilewright.targets.amd.isa.valu_numbers import Array, class_mask

Compare = Callable[[Array, Array], Any]


def _not(f: Compare) -> Compare:
    return lambda a, b: ~f(a, b)


def _less_or_greater(a: Array, b: Array) -> Array:
    return (a < b) | (a > b)


def _unordered(a: Array, b: Array) -> Array:
    return (a != a) | (b != b)


_FLOAT: dict[str, Compare] = {
    "f": lambda a, b: np.zeros(np.broadcast(a, b).shape, bool), "lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt,
    "lg": _less_or_greater, "ge": operator.ge, "o": _not(_unordered), "u": _unordered, "nge": _not(operator.ge), "nlg": _not(_less_or_greater),
    "ngt": _not(operator.gt), "nle": _not(operator.le), "neq": operator.ne, "nlt": _not(operator.lt),
    "tru": lambda a, b: np.ones(np.broadcast(a, b).shape, bool)}
_INTEGER: dict[str, Compare] = {
    "f": _FLOAT["f"], "lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ne": operator.ne, "ge": operator.ge, "t": _FLOAT["tru"]}


def _mask_step(ins: Instruction, ctx: DecodeContext, o: Operands, compare: Callable[[Waves], Array], named: bool) -> Step:
    """Writes what ``compare`` gives, a bool array that broadcasts over the lanes."""
    into_exec = ins.base.startswith("v_cmpx_")
    write = o.mask_result(0) if named else None
    o.done()
    if into_exec:
        if named != (ctx.generation == 9):
            raise ctx.unknown(ins, "v_cmpx with the operands of another generation")

        def both(w: Waves) -> None:
            mask = np.broadcast_to(compare(w), (w.n, w.lanes)) & w.exec_mask
            if write is not None:
                write(w, mask)
            w.exec = w.mask_to_sgpr(mask)

        return both
    if write is None:
        raise ctx.unknown(ins, "a comparison without destination")
    destination = write
    return lambda w: destination(w, compare(w))


def _comparison(kind: str, compare: Compare) -> Callable[[Instruction, DecodeContext], Step]:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        o = Operands(ins, ctx)
        named = len(ins.operands) == 3
        a, b = o.source(int(named), kind, 0), o.source(int(named) + 1, kind, 1)
        return _mask_step(ins, ctx, o, lambda w: compare(a(w), b(w)), named)

    return make


for kinds, table in ((("f16", "f32", "f64"), _FLOAT), (("i16", "u16", "i32", "u32", "i64", "u64"), _INTEGER)):
    for kind in kinds:
        for name, compare in table.items():
            instruction(f"v_cmp_{name}_{kind}", f"v_cmpx_{name}_{kind}")(_comparison(kind, compare))


def _class(ins: Instruction, ctx: DecodeContext) -> Step:
    """Whether the value is of one of the classes whose bits the second source has; denormals are told from zeros whatever the mode."""
    kind = ins.base[-3:]
    o = Operands(ins, ctx)
    named = len(ins.operands) == 3
    value, classes = o.source(int(named), kind, 0, flushes=False), o.source(int(named) + 1, "b32" if kind != "f16" else "b16", 1)
    return _mask_step(ins, ctx, o, lambda w: (class_mask(value(w), kind) & classes(w)) != 0, named)


for kind in ("f16", "f32", "f64"):
    instruction(f"v_cmp_class_{kind}", f"v_cmpx_class_{kind}")(_class)
