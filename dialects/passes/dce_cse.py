"""Drop what nothing needs and compute once what is computed twice: one mark-and-sweep and one scoped table.

Upstream's canonicalize and cse ask every op that Python declares for its effects, at 20 µs each; this costs about 5 µs an op.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.dots import is_asynchronous_dot
from tilewright.dialects.analysis.structure import (
    Function,
    Node,
    Region,
    attribute_names,
    block_region_of,
    functions,
    is_removable,
)
from tilewright.dialects.pipeline import PassContext

_READS = frozenset(("tt.load", "tt.descriptor_load", "tt.descriptor_gather", "ttg.local_load", "ttg.local_alloc"))
_BRANCHES = ("scf.for", "scf.if", "scf.while")


def run(module: Any, ctx: PassContext) -> None:
    """Before: any tt or ttg. After: the same effects, no unused pure op, no unused loop-carried value or branch result,
    and no two equal pure ops of which one dominates the other."""
    for function in functions(module):
        cse(function)
        dce(function)


# ------------------------------------------------------------------------------------------------------------ CSE
def is_pure(node: Node) -> bool:
    """Whether the op's results depend on its operands and attributes alone (no memory is read)."""
    return is_removable(node) and node.name not in _READS and not is_asynchronous_dot(node.name)


def _region_key(region: Region, numbers: dict[Any, int]) -> tuple[Any, ...]:
    for arg in region.args:
        numbers[arg] = len(numbers)
    return tuple(_key(node, numbers) for node in region.ops)


def _key(node: Node, numbers: dict[Any, int] | None = None) -> tuple[Any, ...]:
    """Equal for ops that compute the same. Inside a combiner, values of its own are numbered."""
    op = node.op
    attributes = tuple((name, op.attributes[name]) for name in attribute_names(op))
    if numbers is None:
        operands: tuple[Any, ...] = tuple(node.operands)
        regions: tuple[Any, ...] = tuple(_region_key(region, {}) for region in node.regions) if node.regions else ()
    else:
        operands = tuple(numbers.get(v, v) for v in node.operands)
        regions = tuple(_region_key(region, numbers) for region in node.regions)
    key = (node.name, operands, attributes, tuple(v.type for v in node.results), regions)
    if numbers is not None:
        for result in node.results:
            numbers[result] = len(numbers)
    return key


def cse(function: Function) -> int:
    """Replace each pure op by an equal one that dominates it; how many were replaced."""
    replaced = 0

    def visit(region: Region, table: dict[Any, Node]) -> None:
        nonlocal replaced
        for node in list(region.ops):
            if node.regions and (node.name in _BRANCHES or block_region_of(node.name) is not None):
                for inner in node.regions:
                    visit(inner, dict(table))
                continue
            if not node.results or not is_pure(node):
                continue
            key = _key(node)
            earlier = table.setdefault(key, node)
            if earlier is not node:
                for old, new in zip(node.results, earlier.results):
                    function.replace_uses(old, new)
                function.erase(node)
                replaced += 1

    visit(function.body, {})
    return replaced


# ------------------------------------------------------------------------------------------------------------ DCE
def _live(function: Function) -> tuple[set[Any], set[int]]:
    """(live values, ids of live nodes), from the ops with effects backwards through loops and branches."""
    values: set[Any] = set()
    nodes: set[int] = set()
    work: list[Any] = []

    def use(value: Any) -> None:
        if value not in values:
            values.add(value)
            work.append(value)

    def keep(node: Node) -> None:
        """The op stays: with it what it is controlled by, and what it reads."""
        if id(node) in nodes or node.name == "func.func":
            return
        nodes.add(id(node))
        if node.name == "scf.for":
            for v in node.operands[:3]:
                use(v)
        elif node.name == "scf.if":
            use(node.operands[0])
        elif node.name == "scf.while":
            for end in (node, node.regions[0].ops[-1], node.regions[1].ops[-1]):  # all that it carries, for it is not rebuilt
                for v in end.operands:
                    use(v)
        elif node.name not in ("scf.yield", "scf.condition") and block_region_of(node.name) is None:
            for v in node.operands:
                use(v)
            for inner in node.walk():  # combiners: whole
                nodes.add(id(inner))
                for v in inner.operands:
                    use(v)
        if node.parent is not None:
            keep(node.parent)

    for node in function.nodes():
        if node.name not in _BRANCHES and not is_removable(node) and not _ends_branch(node) and not _in_combiner(node):
            keep(node)
        elif node.name == "scf.while":
            keep(node)  # it may not terminate
    while work:
        value = work.pop()
        found = function.defs.get(value)
        if found is None:
            region, index = function.arg_of[value]
            parent = region.parent
            keep(parent)  # an argument of a loop or a combiner
            if parent.name == "scf.for" and index > 0:
                use(parent.operands[index + 2])
                use(region.ops[-1].operands[index - 1])
            elif parent.name == "scf.while":
                if region.index == 0:
                    use(parent.operands[index])
                    use(parent.regions[1].ops[-1].operands[index])
                else:
                    use(parent.regions[0].ops[-1].operands[index + 1])
            continue
        node, index = found
        keep(node)
        if node.name == "scf.for":
            use(node.regions[0].args[index + 1])
        elif node.name == "scf.if":
            for region in node.regions:
                use(region.ops[-1].operands[index])
        elif node.name == "scf.while":
            use(node.regions[0].ops[-1].operands[index + 1])
    return values, nodes


def _ends_branch(node: Node) -> bool:
    return node.name in ("scf.yield", "scf.condition")


def _in_combiner(node: Node) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.name in ("tt.reduce", "tt.scan", "tt.map_elementwise"):
            return True
        parent = parent.parent
    return False


def dce(function: Function) -> int:
    """Remove dead ops, loop-carried values and branch results; how many ops were removed.

    The mirror is not kept up: ``function`` must not be used afterwards.
    """
    values, live = _live(function)
    nodes = list(function.nodes())
    kept = {id(node): _kept_results(node, values) for node in nodes if node.name in ("scf.for", "scf.if") and id(node) in live}
    for node in nodes:  # first no live terminator uses what is dead
        if id(node) in kept and len(kept[id(node)]) < len(node.results):
            for region in node.regions:
                end = region.ops[-1]
                new = ir.Operation.create("scf.yield", operands=[end.operands[i] for i in kept[id(node)]], loc=end.op.location,
                                          ip=ir.InsertionPoint(end.op))
                end.op.erase()
                end.op = new
    removed = 0
    erased: set[int] = set()
    for node in reversed(nodes):  # so all that follows a loop or lies in it is done before the loop itself
        if id(node) in kept:
            if len(kept[id(node)]) < len(node.results):
                _rebuild(node, kept[id(node)], erased)
        elif id(node) not in live and not _ends_branch(node) and not _in_combiner(node):
            parent = node.parent
            if parent is None or parent.name == "func.func" or id(parent) in live:  # else it goes with its parent
                erased.add(id(node))
                removed += 1 + sum(1 for _ in node.walk())
                node.op.erase()
    return removed


def _kept_results(node: Node, values: set[Any]) -> list[int]:
    if node.name == "scf.for":
        args = node.regions[0].args
        return [i for i, r in enumerate(node.results) if r in values or args[i + 1] in values]
    return [i for i, r in enumerate(node.results) if r in values]


def _rebuild(node: Node, kept: list[int], erased: set[int]) -> None:
    """Give an scf.for or scf.if only the results numbered ``kept``; nothing uses the others any more, nor their region
    arguments, and the terminators are right already."""
    is_loop = node.name == "scf.for"
    old = node.op
    operands = node.operands[:3] + [old.operands[3 + i] for i in kept] if is_loop else node.operands
    new = ir.Operation.create(node.name, results=[node.results[i].type for i in kept], operands=operands,
                              attributes={n: old.attributes[n] for n in attribute_names(old)},
                              regions=len(old.regions), loc=old.location, ip=ir.InsertionPoint(old))
    for region in node.regions:
        args = [region.args[0]] + [region.args[1 + i] for i in kept] if is_loop else []
        block = new.regions[region.index].blocks.append(*[a.type for a in args], arg_locs=[old.location] * len(args))
        for inner in region.ops:
            if id(inner) not in erased:
                block.append(inner.op)
        for before, after in zip(args, block.arguments):
            before.replace_all_uses_with(after)
    for i, result in zip(kept, new.results):
        node.results[i].replace_all_uses_with(result)
    old.erase()
    node.op = new
