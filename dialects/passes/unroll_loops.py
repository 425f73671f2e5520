"""Unroll loops by the factor that ``tl.range(…, loop_unroll_factor=n)`` gives: n iterations a round, and the rest one by one.

    for %i = %lo to %hi step %s          for %i = %lo to %mid step n·%s: n copies of the body, at %i, %i + %s, …
      body(%i)                     →     for %i = %mid to %hi step %s: body(%i)

with ``%mid = %lo + c · %s``, c the number of iterations rounded down to a multiple of n; ``%hi`` where these are all, so that nothing passes the
type's limits. Loops by steps of which n are beyond these, and by such as are not positive, stay as they are. Iterations come in the order that they had, so
values stay bit for bit. Bounds may be known or not; a loop that is known not to run is not made.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import attribute_names
from tilewright.dialects.pipeline import PassContext

FACTOR, STAGES = "tt.loop_unroll_factor", "tt.num_stages"
_EQ, _SGT, _ULT = 0, 4, 6


def run(module: Any, ctx: PassContext) -> None:
    """Before: tt. After: no loop has tt.loop_unroll_factor; those that had one above 1 are unrolled. The loop of the iterations that are left
    is not pipelined (tt.num_stages is 1)."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "scf.for" and FACTOR in op.attributes:
            found.append(op)
        return ir.WalkResult.ADVANCE

    (module.operation if hasattr(module, "operation") else module).walk(visit, ir.WalkOrder.POST_ORDER)
    for loop in found:  # inner loops first, so that they are copied unrolled
        factor = int(ir.IntegerAttr(loop.attributes[FACTOR]).value)
        del loop.attributes[FACTOR]
        step = _constant(loop.operands[2])
        if factor > 1 and (step is None or 0 < step and step * factor < 1 << loop.operands[2].type.width - 1):
            _Unroller(loop, factor).run()


def _constant(value: Any) -> int | None:
    owner = getattr(value.owner, "operation", None)
    if owner is None or owner.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(owner.attributes["value"]).value)


class _Unroller:
    """One loop."""

    def __init__(self, loop: Any, factor: int):
        self.loop, self.factor = loop, factor
        self.low, self.high, self.step, *self.inits = list(loop.operands)
        self.type = self.low.type
        self.ip: Any = ir.InsertionPoint(loop)

    def op(self, name: str, type: Any, *operands: Any, **attributes: Any) -> Any:
        return ir.Operation.create(name, results=[type], operands=list(operands), attributes=attributes, loc=self.loop.location, ip=self.ip).result

    def number(self, value: int) -> Any:
        bits = self.type.width
        value &= (1 << bits) - 1
        return self.op("arith.constant", self.type, value=ir.IntegerAttr.get(self.type, value - (1 << bits) if value >> (bits - 1) else value))

    def times(self, value: Any, factor: int) -> Any:
        """``value · factor``, where known a constant."""
        known = _constant(value)
        return self.number(known * factor) if known is not None else self.op("arith.muli", self.type, value, self.number(factor))

    def run(self) -> None:
        low, high, step = map(_constant, (self.low, self.high, self.step))
        count = None
        if low is not None and high is not None and step is not None:
            count = max(0, -(-(high - low) // step))
            rounds = count // self.factor
            if not rounds:
                return
            middle = self.number(min(low + rounds * self.factor * step, high))
        else:
            middle = self.middle()
        results = self.rounds(middle)
        if count is not None and count % self.factor == 0:
            for old, new in zip(self.loop.results, results):
                old.replace_all_uses_with(new)
            self.loop.erase()
            return
        self.loop.operands[0] = middle
        for i, value in enumerate(results):
            self.loop.operands[3 + i] = value
        i32 = ir.IntegerType.get_signless(32)
        self.loop.attributes[STAGES] = ir.IntegerAttr.get(i32, 1)

    def middle(self) -> Any:
        """Where the rounds end. The distance of the bounds is exact as an unsigned number, however far they lie apart."""
        i1, type = ir.IntegerType.get_signless(1), self.type
        zero, one = self.number(0), self.number(1)

        def compare(predicate: int, a: Any, b: Any) -> Any:
            return self.op("arith.cmpi", i1, a, b, predicate=ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate))

        runs = compare(_SGT, self.high, self.low)
        if _constant(self.step) is None:  # n steps have to be a number of the type, and above 0
            few = self.op("arith.subi", type, self.step, one)
            runs = self.op("arith.andi", i1, runs, compare(_ULT, few, self.number(((1 << type.width - 1) - 1) // self.factor)))
        last = self.op("arith.subi", type, self.op("arith.subi", type, self.high, self.low), one)
        count = self.op("arith.addi", type, self.op("arith.divui", type, last, self.op("arith.select", type, runs, self.step, one)), one)
        count = self.op("arith.select", type, runs, count, zero)
        factor = self.number(self.factor)
        whole = self.op("arith.muli", type, self.op("arith.divui", type, count, factor), factor)
        middle = self.op("arith.addi", type, self.low, self.op("arith.muli", type, whole, self.step))
        all_of_them = self.op("arith.andi", i1, runs, compare(_EQ, whole, count))
        return self.op("arith.select", type, all_of_them, self.high, middle)

    def rounds(self, middle: Any) -> list[Any]:
        """The loop of whole rounds; its results."""
        old = self.loop.regions[0].blocks[0]
        steps = [self.step, *(self.times(self.step, k) for k in range(2, self.factor))]
        made = ir.Operation.create("scf.for", results=[v.type for v in self.inits], operands=[
            self.low, middle, self.times(self.step, self.factor), *self.inits], attributes={
            name: self.loop.attributes[name] for name in attribute_names(self.loop)}, regions=1, loc=self.loop.location, ip=self.ip)
        block = made.regions[0].blocks.append(*[a.type for a in old.arguments], arg_locs=[self.loop.location] * len(old.arguments))
        counter, *carried = list(block.arguments)
        ops = [view.operation for view in old.operations]
        self.ip = ir.InsertionPoint(block)
        for k in range(self.factor):
            at = counter if k == 0 else self.op("arith.addi", self.type, counter, steps[k - 1])
            values = dict(zip(old.arguments, [at, *carried]))
            for op in ops[:-1]:
                copy = op.clone(ip=self.ip)
                _take(copy, values)
                values.update(zip(op.results, copy.results))
            carried = [values.get(v, v) for v in ops[-1].operands]
        ir.Operation.create("scf.yield", operands=carried, loc=self.loop.location, ip=self.ip)
        return list(made.results)


def _take(copy: Any, values: dict[Any, Any]) -> None:
    """Let an op, and all inside it, use what ``values`` has for its operands."""

    def visit(op: Any) -> Any:
        for i, operand in enumerate(op.operands):
            new = values.get(operand)
            if new is not None:
                op.operands[i] = new
        return ir.WalkResult.ADVANCE

    copy.walk(visit, ir.WalkOrder.PRE_ORDER)
