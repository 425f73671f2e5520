"""Choose the layout of every tensor anew, so that few conversions are left and none where it hurts.

Before: a ttg module in which coalesce and accelerate_dot have given memory ops and dots their layouts, joined to the rest by
``ttg.convert_layout``. After: the same anchors; every other tensor has a layout that follows from them; a convert_layout stands
only where two anchors disagree, on the narrowest and cheapest value between them, as few loops deep as its source.

Conversions are not patched one by one: all are dropped first, and layouts are assigned to the values themselves.

1. Forward: anchors (loads and atomics of at least one element a thread, dots, gathers, …) fix their results; what is computed
   from them follows, through loops by a fixpoint in which a carried value takes the layout that the body hands on. Where an
   op's operands disagree, the layout for which bringing the others over is cheapest is taken. Values that depend on no
   anchor (ranges, constants, pointers, masks) stay free, also through loops and ifs.
2. Demand: from stores, dots and other effects backwards each operand is asked for in the layout that its user needs. A free
   value is computed in that layout (in place the first time, as a copy of its op further on). A value with another layout is
   either converted, or its op is repeated on operands that are brought over, whichever costs less (analysis/layout_cost.py):
   so conversions move up to narrow values, through expand_dims and broadcast, and out of loops.
3. Conversions are moved down to just before their first use, and ops without uses go.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis import layout_rules as rules
from tilewright.dialects.analysis.dots import is_dot
from tilewright.dialects.analysis.layout_cost import LOOP_WEIGHT, conversion_cost, op_cost, registers
from tilewright.dialects.analysis.loop_edit import add_carried
from tilewright.dialects.analysis.structure import (
    Function,
    Node,
    Region,
    attribute_names,
    block_region_of,
    erase_dead,
    functions,
    is_removable,
    position,
    type_info,
    with_encoding,
)
from tilewright.dialects.passes.convert_tt_to_ttg import set_constant_type

_CONVERT = "ttg.convert_layout"
_LOOPS = ("scf.for", "scf.while")
# results stay as given whatever the operands are
_FIXED = frozenset(("tt.gather", "tt.histogram", "tt.atomic_rmw", "tt.atomic_cas", "tt.cat", "func.call", "func.return"))
_SHAPE_OPS = frozenset(("tt.expand_dims", "tt.broadcast", "tt.trans", "tt.reshape", "tt.join", "tt.split"))
# operands are taken in any layout
_TAKES_ANY = frozenset(("tt.print", "tt.assert", "tt.unsplat", "ttg.local_alloc", "ttg.local_store"))
_MAX_DEPTH = 24  # how far up a conversion is pushed
_FREE_OPS = 8  # ops an element by which repeating a free value may exceed a conversion


class Group:
    """Values that structured control flow makes one: a loop argument with the result, or an if's result.

    ``feeds``: (node, operand number) of what flows in; ``home``: the group's layout, once known.
    """

    __slots__ = ("members", "feeds", "home", "node", "realised", "others")

    def __init__(self, node: Node, members: list[Any], feeds: list[tuple[Node, int]]):
        self.node, self.members, self.feeds = node, members, feeds
        self.home: Any = None
        self.realised = False
        self.others: dict[Any, list[Node]] = {}  # further layouts → the conversions that stand for the members in them


def _groups(node: Node) -> list[Group]:
    """The groups of one scf op, of tensors only."""
    out: list[Group] = []
    if node.name == "scf.for":
        (body,) = node.regions
        end = body.ops[-1]
        for i, r in enumerate(node.results):
            out.append(Group(node, [body.args[i + 1], r], [(end, i), (node, 3 + i)]))
    elif node.name == "scf.if":
        for i, r in enumerate(node.results):
            out.append(Group(node, [r], [(region.ops[-1], i) for region in node.regions]))
    elif node.name == "scf.while":
        before, after = node.regions
        for i, a in enumerate(before.args):
            out.append(Group(node, [a], [(after.ops[-1], i), (node, i)]))
        for i, r in enumerate(node.results):
            out.append(Group(node, [after.args[i], r], [(before.ops[-1], i + 1)]))
    return [g for g in out if type_info(g.members[0].type).shape is not None]


class _Assigner:
    """The state of the pass on one function."""

    def __init__(self, function: Function, threads: int):
        self.f = function
        self.threads = threads
        self.given: dict[Any, Any] = {}  # value → the encoding it came with
        self.source: dict[Any, Any] = {}  # result of a conversion → what is converted, transitively
        self.lay: dict[Any, Any] = {}  # value → decided encoding; free values have none
        self.group_of: dict[Any, Group] = {}
        self.groups: dict[int, list[Group]] = {}
        self.depths: dict[int, int] = {}
        self.values: dict[tuple[Any, Any], Any] = {}  # (value, encoding) → the value that holds it
        self.free_homes: set[Any] = set()  # free values whose layout the first demand decided
        self.done: set[int] = set()
        self.todo: list[tuple[Node, list[tuple[int, Any, Any]]]] = []  # node, [(operand, original value, encoding)]
        self.converts: list[Node] = []
        for a in function.body.args:
            encoding = type_info(a.type).encoding
            if encoding is not None:  # an argument's layout is the caller's business
                self.given[a] = self.lay[a] = encoding
                self.values[(a, encoding)] = a
        for node in function.nodes():
            for v in node.results:
                encoding = type_info(v.type).encoding
                if encoding is not None:
                    self.given[v] = encoding
            if node.name == _CONVERT:
                v = node.operands[0]
                self.source[node.results[0]] = self.source.get(v, v)
            elif node.regions:
                for region in node.regions:
                    for a in region.args:
                        encoding = type_info(a.type).encoding
                        if encoding is not None:
                            self.given[a] = encoding
                if node.name.startswith("scf."):
                    self.groups[id(node)] = groups = _groups(node)
                    for g in groups:
                        for m in g.members:
                            self.group_of[m] = g
        # every node's operands with conversions looked through, as they were before anything is changed
        self.operands: dict[int, list[Any]] = {
            id(n): [self.source.get(v, v) for v in n.operands] for n in function.nodes() if n.name != _CONVERT}
        self.depth_of_region: dict[int, int] = {}
        self._depths(function.body, 0)

    def _depths(self, region: Region, depth: int) -> None:
        self.depth_of_region[id(region)] = depth
        for node in region.ops:
            for inner in node.regions:
                self._depths(inner, depth + (node.name in _LOOPS))

    def weight(self, value: Any) -> float:
        """What code right after the definition of ``value`` counts."""
        return LOOP_WEIGHT ** self.depth_of_region.get(id(self.f.region_of(value)), 0)

    # ------------------------------------------------------------------------------------------- 1. forward
    def decide_region(self, region: Region) -> None:
        for node in region.ops:
            if node.name == _CONVERT:
                continue
            if id(node) in self.groups:
                self._decide_scf(node)
            elif block_region_of(node.name) is not None:
                for inner in node.regions:
                    self.decide_region(inner)
            elif node.results:
                self._decide(node)

    def _set(self, node: Node, encoding: Any) -> None:
        for v in node.results:
            if type_info(v.type).shape is not None:
                if encoding is None:
                    self.lay.pop(v, None)
                else:
                    self.lay[v] = encoding

    def _given(self, node: Node) -> None:
        for v in node.results:
            if v in self.given:
                self.lay[v] = self.given[v]

    def is_small(self, node: Node) -> bool:
        """A memory op of less than one element a thread: it follows its users, since its own layout gains nothing."""
        return type_info(node.operands[0].type).numel < self.threads

    def _decide(self, node: Node) -> None:
        name = node.name
        if not any(v in self.given for v in node.results):
            return
        if name == "tt.load" and not (self.is_small(node) and not node.bool_attr("is_volatile")):
            self._given(node)
            return
        if name == "tt.load" or name in rules.SOURCES:
            self._set(node, None)
            return
        if name in _FIXED or is_dot(name) or name.startswith("ttg."):
            self._given(node)
            return
        if any(isinstance(self.given.get(v), ttg.DotOperandEncoding) for v in node.results):
            self._given(node)  # accelerate_dot computes dot operands in their layout, from narrower or shared data
            return
        operands = [(i, v) for i, v in enumerate(self.operands[id(node)]) if type_info(v.type).shape is not None]
        known = [(i, v) for i, v in operands if v in self.lay]
        if not known:
            if rules.is_elementwise(name) or name in _SHAPE_OPS and name not in ("tt.join", "tt.split"):
                self._set(node, None)
            else:
                self._given(node)
            return
        choices: dict[Any, list[tuple[int, Any]]] = {}
        for i, v in known:
            choices.setdefault(self.lay[v], []).append((i, v))
        if len(choices) > 1:
            best = min(choices, key=lambda e: sum(self.cost(v, e, {}) for _, v in known if self.lay[v] != e))
        else:
            best = next(iter(choices))
        result = rules.forward(node, choices[best][0][0], best)
        if result is None:
            self._given(node)
        else:
            self._set(node, result)

    def _decide_scf(self, node: Node) -> None:
        groups = self.groups[id(node)]
        for g in groups:
            self._set_group(g, None)
        for _ in range(len(groups) + 1):
            for region in node.regions:
                self.decide_region(region)
                if node.name == "scf.while" and region.index == 0:  # what the condition passes on is known now
                    for g in groups:
                        if g.members[0] in node.regions[1].args:
                            self._set_group(g, self._feed_layout(g))
            changed = False
            for g in groups:
                if g.home is None:
                    found = self._feed_layout(g)
                    if found is not None:
                        changed = True
                        self._set_group(g, found)
            if not changed:
                return

    def _feed_layout(self, g: Group) -> Any:
        """The layout of the first value flowing in that has one; what a loop's body hands on comes before the initial value."""
        for node, i in g.feeds:
            found = self.lay.get(self.operands[id(node)][i])
            if found is not None:
                return found
        return None

    def _set_group(self, g: Group, encoding: Any) -> None:
        g.home = encoding
        for m in g.members:
            if encoding is None:
                self.lay.pop(m, None)
            else:
                self.lay[m] = encoding

    # --------------------------------------------------------------------------------------------- costs
    def cost(self, value: Any, encoding: Any, memo: dict[tuple[Any, Any], float], depth: int = 0) -> float:
        """Cost of having ``value`` in ``encoding``: of converting it, or of repeating its op on operands brought over."""
        home = self.lay.get(value)
        if (value, encoding) in self.values or (home is not None and home == encoding):
            return 0.0
        key = (value, encoding)
        found = memo.get(key)
        if found is not None:
            return found
        info = type_info(value.type)
        assert info.shape is not None
        convert = float("inf")
        if home is not None:
            convert = conversion_cost(info.shape, info.bits, home, encoding) * self.weight(value)
        memo[key] = convert if home is not None else 0.0  # for cycles
        if convert > 0:
            convert = min(convert, self._repeat_cost(value, encoding, memo, depth))
        memo[key] = 0.0 if convert == float("inf") else convert
        return memo[key]

    def repeatable(self, value: Any) -> Node | None:
        """The op of ``value`` where it may be computed once more."""
        found = self.f.defs.get(value)
        if found is None:
            return None
        node = found[0]
        name = node.name
        if name in rules.SOURCES or name in _SHAPE_OPS:
            return node
        if name in rules.MEMORY_OPS or not rules.is_elementwise(name) or not is_removable(node):
            return None
        return node

    def _repeat_cost(self, value: Any, encoding: Any, memo: dict[tuple[Any, Any], float], depth: int) -> float:
        node = self.repeatable(value)
        if node is None or depth > _MAX_DEPTH:
            return float("inf")
        wanted = rules.backward(node, encoding)
        if wanted is None:
            return float("inf")
        shape = type_info(value.type).shape or ()
        total = op_cost(node.name) * registers(shape, encoding) * self.weight(value)
        for v, e in zip(self.operands[id(node)], wanted):
            if e is not None:
                total += self.cost(v, e, memo, depth + 1)
        return total

    def _cheap(self, value: Any, encoding: Any, convert: float) -> bool:
        """Whether a free value is computed once more although converting it would cost less: addresses, masks and constants
        are, since that needs no barrier and leaves loads free to be moved; what takes long to compute (random numbers) is not."""
        if self.repeatable(value) is None:  # what a while loop carries
            return False
        weight = self.weight(value)
        limit = 2 * convert + _FREE_OPS * registers(type_info(value.type).shape or (), encoding) * weight
        total, seen, todo = 0.0, {(value, encoding)}, [(value, encoding)]
        while todo and total <= limit:
            v, e = todo.pop()
            node = self.repeatable(v)
            if node is None:
                continue
            wanted = rules.backward(node, e)
            if wanted is None:
                return False
            total += op_cost(node.name) * registers(type_info(v.type).shape or (), e) * self.weight(v)
            for key in zip(self.operands[id(node)], wanted):
                if key[1] is not None and key not in seen and key not in self.values:
                    seen.add(key)
                    todo.append(key)
        return total <= limit

    # -------------------------------------------------------------------------------------------- 2. demand
    def get(self, value: Any, encoding: Any) -> Any:
        """The value that holds ``value`` under ``encoding``, made where there is none yet. What it needs in turn is queued."""
        key = (value, encoding)
        found = self.values.get(key)
        if found is not None:
            return found
        group = self.group_of.get(value)
        home = self.lay.get(value)
        if home is None:  # free: the first demand decides in place
            if group is not None:
                self._set_group(group, encoding)
            else:
                node, _ = self.f.defs[value]
                self._set(node, encoding)
            home = encoding
            self._fixed_now(value, group)
        if home == encoding:
            self.realise(value)
            return self.values[key]
        if group is not None and value in self.free_homes and group.node.name == "scf.for":
            self._carry_too(group, encoding)
        else:
            made = self._other_version(value, home, encoding)
            self.values.setdefault(key, made)
        return self.values[key]

    def _fixed_now(self, value: Any, group: Group | None) -> None:
        self.free_homes.update(group.members if group is not None else self.f.defs[value][0].results)

    def _other_version(self, value: Any, home: Any, encoding: Any) -> Any:
        """A copy of the op of ``value`` on other operands, or a conversion."""
        info = type_info(value.type)
        assert info.shape is not None
        memo: dict[tuple[Any, Any], float] = {}
        convert = conversion_cost(info.shape, info.bits, home, encoding) * self.weight(value)
        if convert > 0:
            repeat = self._repeat_cost(value, encoding, memo, 0)
            worth = repeat <= convert or (value in self.free_homes and self._cheap(value, encoding, convert))
            # an op that cannot give this layout (a broadcast along a dim whose source is gone, say) is converted after all
            if worth and rules.backward(self.f.defs[value][0], encoding) is not None:
                return self._copy(value, encoding)
        self.realise(value)
        node = self._convert(value, encoding)
        return node.results[0]

    def _carry_too(self, group: Group, encoding: Any) -> None:
        """Let the loop carry a free value in another layout as well. Conversions stand for it until the loop is made anew."""
        self.realise(group.members[0])
        stands = group.others[encoding] = []
        for m in group.members:
            stands.append(self._convert(m, encoding))
            self.values[(m, encoding)] = stands[-1].results[0]
        (end, i), (loop, j) = group.feeds
        # what flows in is kept by a conversion without effect, whose operand is set like any other
        for node, k in ((end, i), (loop, j)):
            value = self.operands[id(node)][k]
            type_ = with_encoding(value.type, encoding)
            keep = self.f.insert_before(node, _CONVERT, [type_], [value])
            stands.append(keep)
            self.done.add(id(keep))
            self.todo.append((keep, [(0, value, encoding)]))

    def _carry_others(self) -> None:
        """Make the loops anew that carry values in more than one layout."""
        for groups in self.groups.values():
            found = [stands for g in groups for stands in g.others.values()]
            if not found:
                continue
            yielded, inits = [s[2].operands[0] for s in found], [s[3].operands[0] for s in found]
            args, results = add_carried(self.f, groups[0].node, inits, yielded)
            for stands, arg, result in zip(found, args, results):
                self.f.replace_uses(stands[0].results[0], arg)
                self.f.replace_uses(stands[1].results[0], result)

    def _convert(self, value: Any, encoding: Any) -> Node:
        type_ = with_encoding(value.type, encoding)
        found = self.f.defs.get(value)
        if found is not None:
            node = self.f.insert_after(found[0], _CONVERT, [type_], [value])
        else:
            node = self.f.insert_at_start(self.f.arg_of[value][0], _CONVERT, [type_], [value])
        self.converts.append(node)
        return node

    def _copy(self, value: Any, encoding: Any) -> Any:
        node, number = self.f.defs[value]
        types = [with_encoding(r.type, encoding) for r in node.results]
        attributes = {name: node.op.attributes[name] for name in attribute_names(node.op)}
        copy = self.f.insert_after(node, node.name, types, node.operands, attributes, node.op.location)
        if node.name == "arith.constant":
            set_constant_type(copy, types[0])
        self.done.add(id(copy))
        for original, new in zip(node.results, copy.results):
            self.values[(original, encoding)] = new
        wanted = rules.backward(node, encoding)
        assert wanted is not None
        self._queue(copy, self.operands[id(node)], wanted)
        return copy.results[number]

    def _queue(self, node: Node, originals: list[Any], encodings: list[Any]) -> None:
        self.todo.append((node, [(i, v, e) for i, (v, e) in enumerate(zip(originals, encodings)) if e is not None]))

    def realise(self, value: Any) -> None:
        """Give ``value``'s op (or its group) the decided types, and ask for its operands."""
        group = self.group_of.get(value)
        if group is not None:
            if not group.realised:
                group.realised = True
                for m in group.members:
                    m.set_type(with_encoding(m.type, group.home))
                    self.values[(m, group.home)] = m
                for node, i in group.feeds:
                    self.todo.append((node, [(i, self.operands[id(node)][i], group.home)]))
            return
        found = self.f.defs.get(value)
        if found is not None:  # else a function's argument
            self.realise_node(found[0])

    def realise_node(self, node: Node) -> None:
        """Types of an op's results by the decision, its operands as they have to be."""
        if id(node) in self.done:
            return
        self.done.add(id(node))
        encoding = None
        for r in node.results:
            if type_info(r.type).shape is None:
                continue
            encoding = self.lay.get(r)
            if encoding is None:
                encoding = self.lay[r] = self.given[r]
            self.values[(r, encoding)] = r
            type_ = with_encoding(r.type, encoding)
            if type_ != r.type:
                if node.name == "arith.constant":
                    set_constant_type(node, type_)
                else:
                    r.set_type(type_)
        operands = self.operands[id(node)]
        self._queue(node, operands, self._needs(node, operands, encoding))

    def _needs(self, node: Node, operands: list[Any], encoding: Any) -> list[Any]:
        """The encodings in which ``node``, whose results have ``encoding``, wants its operands (None for no tensor)."""
        name = node.name
        tensors = [type_info(v.type).shape is not None for v in operands]
        if not any(tensors):
            return [None] * len(operands)
        given = [self.given.get(v) for v in node.operands]  # types of values may have been changed since
        if is_dot(name) or name in _FIXED and name != "tt.cat":
            return given
        if name == "tt.store" or (name.startswith(("tt.", "arith.", "math.")) and not node.results and rules.is_elementwise(name)):
            one = given[0]
            stored = self.lay.get(operands[1]) if name == "tt.store" else None
            if stored is not None and self.is_small(node):
                one = stored
            return [one if t else None for t in tensors]
        if name in _TAKES_ANY:
            return [(self.lay.get(v) or g) if t else None for v, g, t in zip(operands, given, tensors)]
        if name == "tt.reduce" or name == "tt.scan":
            if name == "tt.scan":
                return [encoding if t else None for t in tensors]
            return [self._reduced(node, operands, given)] * len(operands)
        wanted = rules.backward(node, encoding) if encoding is not None else None
        return wanted if wanted is not None else given

    def _reduced(self, node: Node, operands: list[Any], given: list[Any]) -> Any:
        """The operand layout of a reduction whose result layout is decided."""
        results = [self.lay.get(r) for r in node.results if type_info(r.type).shape is not None]
        if results and results[0] is not None:
            parent = rules.parent_of_slice(results[0], node.int_attr("axis"))
            if parent is not None:
                return parent
        for v in operands:
            if v in self.lay:
                return self.lay[v]
        return given[0]

    def drain(self) -> None:
        while self.todo:
            node, wanted = self.todo.pop()
            for i, value, encoding in wanted:
                new = self.get(value, encoding)
                if node.operands[i] != new:
                    node.set_operand(i, new)

    def run(self) -> None:
        self.decide_region(self.f.body)
        nodes = list(self.f.nodes())
        for node in nodes:
            if node.name == _CONVERT or node.name in ("scf.yield", "tt.reduce_return", "tt.scan_return", "tt.map_elementwise_return", "scf.condition"):
                continue
            if node.name in _LOOPS or node.name == "scf.if":
                continue
            takes, gives = (any(type_info(v.type).shape is not None for v in values) for values in (node.operands, node.results))
            # demand goes by layouts, which scalars have none of: what makes a scalar of a tensor asks for itself
            if (takes or gives) and (not is_removable(node) or (takes and not gives)):
                self.realise_node(node)
                self.drain()
        # carried values that nothing asked for still have to be of one type
        for groups in self.groups.values():
            for g in groups:
                if not g.realised:
                    if g.home is None:
                        self._set_group(g, self.given[g.members[0]])
                    self.realise(g.members[0])
                    self.drain()
        self.f._uses = None
        self._carry_others()
        erase_dead(self.f)
        for convert in self.converts:
            if convert.region is not None and convert.results[0] in self.f.defs:
                sink(self.f, convert)


def sink(function: Function, node: Node) -> None:
    """Move a pure op down to just before its first use; into a branch of an if when all uses are there, never into a loop."""
    users = [u for u, _ in function.uses(node.results[0])]
    region = node.region
    assert region is not None
    while True:
        ancestors = [_ancestor_in(user, region) for user in users]
        first = min(ancestors, key=lambda pair: position(pair[0]))[0]
        inner = {id(pair[1]): pair[1] for pair in ancestors}
        if first.name == "scf.if" and len(inner) == 1 and all(a is first for a, _ in ancestors):
            (only,) = inner.values()
            if only is not None:
                region = only
                continue
        break
    assert node.region is not None
    if region is node.region and position(first) == position(node) + 1:
        return
    node.op.move_before(first.op)
    del node.region.ops[position(node)]
    region.ops.insert(position(first), node)
    node.region = region


def _ancestor_in(node: Node, region: Region) -> tuple[Node, Region | None]:
    """(the op of ``region`` that is or contains ``node``, its region on the way; None where it is ``node`` itself)."""
    below = None
    while node.region is not region:
        below = node.region
        assert below is not None
        node = below.parent
    return node, below


def run(module: Any, ctx: Any) -> None:
    """Before: ttg with conversions around anchors. After: few conversions; see the module's text."""
    attributes = (module.operation if hasattr(module, "operation") else module).attributes
    threads = 1
    for name in ("ttg.num-warps", "ttg.threads-per-warp"):
        threads *= int(ir.IntegerAttr(attributes[name]).value)
    for function in functions(module):
        erase_dead(function)
        _Assigner(function, threads).run()

