"""Let warp-group products run on while the program goes on, and wait for each where its result or its operands' memory is needed.

Before: ``ttng.warp_group_dot`` with ``is_async = false``: done when the next op runs. After: all of them are asynchronous, and
``ttng.warp_group_dot_wait {pendings}`` stands as late as is right. Products of a warp group end in the order in which they began
(PTX ISA manual, "wgmma.commit_group" and "wgmma.wait_group"; each product is one group), so ``pendings`` is the number of those begun
after the one that is waited for. A wait hands on, so that every later use uses what it gives, the results of the products that it
ends; and A where that is in registers, which are not to be written before. (Buffers in shared memory live until the wait, see
dialects/analysis/liveness.py; waits for values of several types are several ops.)

A product is waited for before

- an op that uses its result, other than as the C of a further product that is the only use;
- an op that may write a buffer that it reads. A copy of pipeline_loops says with ``ttg.slot_age`` how many iterations ago the
  stage that it fills was last read: what reads a later one does not mind;
- an op that computes what a further product reads from registers (A, or C), since registers of one product written while another
  runs make the assembler end each before the next begins (ptxas' warning C7510). The wait passes on that op's operands too, so that
  it cannot move up;
- an op with regions, and the end of a region; except that

in a loop, products of the body whose results go nowhere but into the next iteration, and that read A from memory which lies outside
the loop, stay in flight over its back edge::

    for … iter_args(%c = %c0):
      %d = warp_group_dot %a[i], %b[i], %c {is_async}
      %w = warp_group_dot_wait %d {pendings = 1}                 the product of iteration i - 1 has ended: its stage is free
      yield %w
    warp_group_dot_wait {pendings = 0}                           right after the loop
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.aliases import ALLOC, ASYNC_COPY, SLOT_AGE, Aliases, carries_buffers, is_memdesc
from tilewright.dialects.analysis.structure import Function, Node, Region, functions, type_info
from tilewright.targets.nvidia.dialect.effects import DOT, DOT_WAIT

_COMBINERS = ("tt.reduce", "tt.scan", "tt.map_elementwise")
# take a buffer and write nothing to it
_ONLY_READ = frozenset((DOT, DOT_WAIT, "ttg.local_load", "ttg.memdesc_index", "ttg.memdesc_subslice", "ttg.memdesc_trans",
                        "ttg.async_commit_group", "ttg.async_wait"))
# give registers of a product's operand without an instruction of their own, or with one where they stand
_PASSED_ON = ("ttg.convert_layout",)


@dataclass(frozen=True)
class Flying:
    """A product in flight. ``value``: its result, None where a further product took it over as C (or nothing uses it);
    ``roots``: the buffers that it reads; ``registers``: A where that is a tensor; ``age``: iterations since it began."""

    node: Node
    value: Any
    roots: tuple[Node, ...]
    registers: Any
    age: int = 0


class _Scheduler:
    """One function."""

    def __init__(self, function: Function):
        self.function = function
        self.aliases = Aliases(function)
        self.i32 = ir.IntegerType.get_signless(32)
        self.number = {id(node): i for i, node in enumerate(function.nodes())}
        self.sensitive: set[int] = set()  # ids of the ops that nothing may be in flight beside
        for node in function.nodes():
            if node.name == DOT:
                for value in self._read_registers(node):
                    self._mark(value, node)

    # -- what is not to be computed while a product runs
    def _read_registers(self, dot: Node) -> list[Any]:
        """The tensors that a product reads: A, and C unless that is known not to be read."""
        a, _, c, *use = dot.operands
        values = [] if is_memdesc(a.type) else [a]
        if use:
            known = self.function.def_node(use[0])
            if known is not None and known.name == "arith.constant" and not bool(ir.BoolAttr(known.attr("value")).value):
                return values
        return [*values, c]

    def _mark(self, value: Any, dot: Node) -> None:
        """Note the ops that write the registers of ``value``, through loops and branches."""
        first = self.function.def_node(value)
        if first is not None and first.name == "arith.constant":
            self.sensitive.add(id(dot))  # its registers are written right before the product
        work, seen = [value], set()
        while work:
            v = work.pop()
            if v in seen:
                continue
            seen.add(v)
            node = self.function.def_node(v)
            if node is None:
                region, index = self.function.arg_of[v]
                if region.parent.name == "scf.for" and index:
                    work += [region.parent.operands[index + 2], region.ops[-1].operands[index - 1]]
            elif node.name in ("scf.for", "scf.if"):
                number = node.results.index(v)
                work += [r.ops[-1].operands[number] for r in node.regions]
                if node.name == "scf.for":
                    work.append(node.operands[3 + number])
            elif node.name not in (DOT, DOT_WAIT, "arith.constant"):
                self.sensitive.add(id(node))
                if node.name in _PASSED_ON:
                    work += node.operands

    # -- the walk
    def region(self, region: Region, flying: Sequence[Flying] = ()) -> list[Flying]:
        """Place the waits of a region that is entered with ``flying``; what is in flight at its terminator."""
        now = list(flying)
        for node in list(region.ops[:-1]):
            if node.name == DOT_WAIT:
                now = self._met(node, now)
                continue
            if node.name.startswith(("arith.", "math.")) and not now:
                continue
            now = self._before(node, now)
            if node.name == DOT:
                now = self._begin(node, now)
            elif node.name == "scf.for":
                self._loop(node)
            elif node.regions and node.name not in _COMBINERS:
                for inner in node.regions:
                    self._end(inner, self.region(inner))
        return now

    def _met(self, wait: Node, flying: list[Flying]) -> list[Flying]:
        """A wait that stands there already, placed when nothing flew in from the round before: it ends that too, and hands on what it ended."""
        ended = max(0, len(flying) - wait.int_attr("pendings"))
        missing = [f if f.value not in wait.operands else replace(f, value=None) for f in flying[:ended]]
        if any(f.value is not None for f in missing):
            self._wait(wait, [*missing, *flying[ended:]], ended)
        return flying[ended:]

    def run(self) -> None:
        self._end(self.function.body, self.region(self.function.body))

    def _end(self, region: Region, flying: list[Flying]) -> None:
        self._wait(region.ops[-1], flying, len(flying))

    def _begin(self, node: Node, flying: list[Flying]) -> list[Flying]:
        """A product begins; one whose result it adds to hands its registers over."""
        node.op.attributes["is_async"] = ir.BoolAttr.get(True)
        c = node.operands[2]
        flying = [replace(f, value=None) if f.value is not None and f.value == c else f for f in flying]
        roots = sorted(self.aliases.roots(node.operands[0]) | self.aliases.roots(node.operands[1]), key=lambda n: self.number[id(n)])
        a = node.operands[0]
        result = node.results[0]
        return [*flying, Flying(node, result if self.function.uses(result) else None, tuple(roots), None if is_memdesc(a.type) else a)]

    def _before(self, node: Node, flying: list[Flying]) -> list[Flying]:
        """Wait for what must have ended when ``node`` runs."""
        if not flying:
            return flying
        if (node.regions and node.name not in _COMBINERS) or id(node) in self.sensitive:
            tied = [v for v in node.operands if type_info(v.type).shape is not None] if not node.regions else []
            return self._wait(node, flying, len(flying), tied)
        ended = 0
        for i, f in enumerate(flying):
            if self._uses(node, f) or self._overwrites(node, f):
                ended = i + 1
        return self._wait(node, flying, ended)

    def _uses(self, node: Node, f: Flying) -> bool:
        if f.value is None or f.value not in node.operands:
            return False
        return not (node.name == DOT and node.operands.index(f.value) == 2 and len(self.function.uses(f.value)) == 1)

    def _overwrites(self, node: Node, f: Flying) -> bool:
        if node.name in _ONLY_READ:
            return False
        roots = set().union(*(self.aliases.roots(v) for v in node.operands if carries_buffers(v.type)))
        if node.name == ALLOC:
            roots = {node}
        if not roots & set(f.roots):
            return False
        if node.name == ASYNC_COPY and SLOT_AGE in node.op.attributes:
            return f.age >= node.int_attr(SLOT_AGE)
        return True

    def _wait(self, node: Node, flying: list[Flying], ended: int, tied: Iterable[Any] = (), also: Iterable[Any] = ()) -> list[Flying]:
        """Wait before ``node`` for the first ``ended`` of what is in flight; the rest. ``tied``: operands of ``node`` that go through
        the wait; ``also``: results still in flight that do."""
        if not ended:
            return flying
        done, left = flying[:ended], flying[ended:]
        function = self.function
        results = [f.value for f in done if f.value is not None] + list(also)
        constants = [v for v in tied if (d := function.def_node(v)) is not None and d.name == "arith.constant"]
        operands = [v for v in tied if v not in results and v not in constants]
        registers = [f.registers for f in done if f.registers is not None]
        by_type: dict[Any, list[Any]] = {}
        for v in dict.fromkeys([*results, *operands, *registers]):
            by_type.setdefault(v.type, []).append(v)
        given: dict[Any, Any] = {}
        for inputs in by_type.values() or [[]]:
            wait = function.insert_before(node, DOT_WAIT, [v.type for v in inputs], inputs,
                                          {"pendings": ir.IntegerAttr.get(self.i32, len(left))}, done[-1].node.op.location)
            given.update(zip(inputs, wait.results))
            for v in inputs:
                if v in results:
                    function.replace_uses(v, given[v], keep=wait)
        for v in operands:
            for i, o in enumerate(node.operands):
                if o == v:
                    function.set_operand(node, i, given[v])
        return [replace(f, value=given.get(f.value)) if f.value in given else f for f in left]

    # -- loops
    def _loop(self, loop: Node) -> None:
        (body,) = loop.regions
        end = body.ops[-1]
        flying = self.region(body)
        stays = len(flying)
        while stays and self._may_stay(flying[stays - 1], loop):
            stays -= 1
        flying = self._wait(end, flying, stays)
        if not flying:
            return
        numbers = [end.operands.index(f.value) if f.value is not None else None for f in flying]
        before = [replace(f, age=1, value=None if j is None else body.args[1 + j]) for f, j in zip(flying, numbers)]
        again = self.region(body, before)
        assert [f.node for f in again if not f.age] == [f.node for f in flying]
        old = sum(1 for f in again if f.age)
        self._wait(end, again, old, also=[f.value for f in again[old:] if f.value is not None])
        # what flew in the last iteration ends right after the loop
        after = [replace(f, value=None if j is None or not self.function.uses(loop.results[j]) else loop.results[j], age=0)
                 for f, j in zip(flying, numbers)]
        region = loop.region
        assert region is not None
        following = region.ops[region.ops.index(loop) + 1]
        self._wait(following, after, len(after))

    def _may_stay(self, f: Flying, loop: Node) -> bool:
        """Whether a product of the loop's body may go on in the next iteration."""
        if f.registers is not None or any(self._within(root, loop) for root in f.roots):
            return False
        if f.value is None:
            return True
        return [user for user, _ in self.function.uses(f.value)] == [loop.regions[0].ops[-1]]

    @staticmethod
    def _within(node: Node, loop: Node) -> bool:
        parent = node.parent
        while parent is not None and parent is not loop:
            parent = parent.parent
        return parent is loop


def run(module: Any, ctx: Any) -> None:
    """Before: products that are done when the next op runs. After: asynchronous ones, with waits; see the module's text."""
    for function in functions(module):
        if any(n.name == DOT and not n.bool_attr("is_async") for n in function.nodes()):
            _Scheduler(function).run()
