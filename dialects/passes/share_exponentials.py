"""Take one exponential where a running sum of exponentials takes two, of which one is always 1.

Before and after: tt. A running logarithm of a sum of exponentials (an online softmax, one element at a time) holds a greatest value
``a`` and a sum, and takes in ``b`` by ::

    m = max(a, b)
    sum = sum · exp(a − m) + exp(b − m)                  # or exp2; the second may have a factor too

After: with e = exp(−|b − a|) the factor of the lesser is e and that of the greater is 1, so that one instruction of the unit for
exponentials, which such loops wait for, does for two. Not 1 but m · 0 + 1, which is NaN where m is infinite or NaN: there a − m or b − m
is NaN, and so is the sum, as before. Without contraction the sum has the bits that it had, since b − a is −(a − b), and exp(0) is 1; with it
e is of the difference that was not rounded, and the greater's factor, before of a rounding error, is 1.

Where only one of a and b is NaN, and max ignores it, the two factors may be NaN the other way round. So this is done only where each factor
goes into that one sum.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, functions, position, type_info
from tilewright.dialects.passes.fold_constants import constant_attribute
from tilewright.dialects.pipeline import PassContext

_MAXIMA = ("arith.maxnumf", "arith.maximumf")
_EXPONENTIALS = ("math.exp2", "math.exp")
_UNORDERED_OR_GREATER = 9  # of arith.cmpf


def run(module: Any, ctx: PassContext) -> None:
    """Before: tt. After: where m = max(a, b) and one sum takes both exp(a − m) and exp(b − m), at once or with a factor each, one exponential
    is computed, e = exp(−|b − a|): the factor of the lesser is e, that of the greater is m · 0 + 1."""
    for function in functions(module):
        for node in list(function.nodes()):
            if node.name in _MAXIMA and (info := type_info(node.results[0].type)).shape is not None and info.bits == 32:
                pair = _pair(function, node)
                if pair is not None:
                    _rewrite(function, node, *pair)


def _pair(function: Function, maximum: Node) -> tuple[Node, Node] | None:
    """The exponentials of both operands' distances from their maximum, where one sum takes both and nothing else does."""
    a, b = maximum.operands
    if a == b:
        return None
    found = [_exponentials(function, v, maximum) for v in (a, b)]
    if [len(f) for f in found] != [1, 1]:
        return None
    (of_a,), (of_b,) = found
    if of_a.name != of_b.name or of_a.region is not of_b.region:
        return None
    sums = [_sum(function, e) for e in (of_a, of_b)]
    return (of_a, of_b) if sums[0] is not None and sums[0] is sums[1] else None


def _exponentials(function: Function, value: Any, maximum: Node) -> list[Node]:
    """The ops exp(value − maximum)."""
    differences = [user for user, i in function.uses(maximum.results[0])
                   if user.name == "arith.subf" and i == 1 and user.operands[0] == value]
    return [user for d in differences for user, _ in function.uses(d.results[0]) if user.name in _EXPONENTIALS]


def _sum(function: Function, exponential: Node) -> Node | None:
    """The addition that the exponential goes into, at once or with a factor; None where it is used in another way too."""
    value = exponential.results[0]
    for factors in range(2):
        uses = function.uses(value)
        if len(uses) != 1:
            return None
        user, place = uses[0]
        if user.name == "arith.addf" or (user.name == "math.fma" and factors <= (place == 2)):
            return user
        if user.name != "arith.mulf":
            return None
        value = user.results[0]
    return None


def _rewrite(function: Function, maximum: Node, of_a: Node, of_b: Node) -> None:
    a, b = maximum.operands
    m = maximum.results[0]
    at = min((of_a, of_b), key=position)
    type_ = m.type
    location = at.op.location
    info = type_info(type_)
    truth = ir.RankedTensorType.get(info.shape, ir.IntegerType.get_signless(1), type_.encoding)

    def op(name: str, *operands: Any, result: Any = type_, **attributes: Any) -> Any:
        return function.insert_before(at, name, [result], list(operands), attributes, location).results[0]

    def number(value: float) -> Any:
        return op("arith.constant", value=constant_attribute(type_, value))

    lesser = op(at.name, op("arith.negf", op("math.absf", op("arith.subf", b, a))))
    greater = op("math.fma", m, number(0.0), number(1.0))
    predicate = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _UNORDERED_OR_GREATER)
    rises = op("arith.cmpf", b, a, result=truth, predicate=predicate)
    function.replace_uses(of_a.results[0], op("arith.select", rises, lesser, greater))
    function.replace_uses(of_b.results[0], op("arith.select", rises, greater, lesser))
    function.erase(of_a)
    function.erase(of_b)
