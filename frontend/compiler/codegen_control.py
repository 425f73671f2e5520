"""Branches and loops: scf.if, scf.for and scf.while, or code chosen and unrolled while compiling.

Bodies are generated into the blocks of a holder op first, since only then is it known which variables they change; their blocks
then move into the op, which carries those variables and no others.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilewright.compiler.codegen_base import (
    Undefined,
    assigned,
    flatten,
    is_static,
    rebuild,
    same_static,
    static_value,
    type_text,
)
from tilewright.compiler.codegen_statements import StatementGenerator
from tilewright.compiler.names import NEVER_ENDS, NO_WALRUS, ONE_COUNTER, STATIC_ITEMS, no_else
from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.language import core
from tilewright.language import dtypes as t
from tilewright.language.block_pointer import block_pointer
from tilewright.language.const import constexpr
from tilewright.language.values import tensor


class ControlGenerator(StatementGenerator):
    """Visitors of if, for and while."""

    # -- blocks ----------------------------------------------------------------------------------------------------
    def holder(self, regions: int) -> Any:
        """An op whose regions own blocks until they move. It stands in the module, so that an error leaves nothing dangling."""
        return ir.Operation.create("scf.if", regions=regions, loc=self.builder.loc, ip=self.builder.ip)

    def block(self, region: Any, types: Sequence[Any] = ()) -> Any:
        return ir.Block.create_at_start(region, list(types), [self.builder.loc] * len(types))

    def inside(self, block: Any, body: Callable[[], Any]) -> Any:
        """Generate ``body`` at the end of a block."""
        saved, self.builder.ip = self.builder.ip, ir.InsertionPoint(block)
        try:
            return body()
        finally:
            self.builder.ip = saved

    def yield_(self, block: Any, handles: Sequence[Any]) -> None:
        ir.Operation.create("scf.yield", operands=list(handles), loc=self.builder.loc, ip=ir.InsertionPoint(block))

    # -- if --------------------------------------------------------------------------------------------------------
    def visit_If(self, node: ast.If) -> bool | None:
        condition = self.truth(node.test)
        if not isinstance(condition, tensor):
            return self.run(node.body if condition else node.orelse)
        location, before = self.builder.loc, self.frame.scope
        holder = self.holder(2)
        scopes, blocks = [], []
        for region, body in zip(holder.regions, (node.body, node.orelse)):
            self.frame.scope = dict(before)
            block = self.block(region)
            self.inside(block, partial(self.run, body))
            scopes.append(self.frame.scope)
            blocks.append(block)
        self.frame.scope = before
        self.builder.loc = location
        names = sorted(assigned([node]))
        pairs: list[tuple[str, Any, Any]] = []
        for name in names:
            then, other = scopes[0].get(name), scopes[1].get(name)
            if then is other:  # unchanged, or new and one value of before the `if` on both paths
                if then is not None:
                    before[name] = then
                continue
            if then is None or other is None or isinstance(then, Undefined) or isinstance(other, Undefined):
                before[name] = Undefined("is assigned on one path of an `if` only, and used after it; assign it before the `if`")
                continue
            pairs.append((name, then, other))
        merged = self.merge(holder, blocks, condition, pairs, lambda name, a, b: TypeMismatchError(
            f"{name} is {type_text(a)} after the then branch of this `if` and {type_text(b)} after the else branch (or before it); "
            "make the types equal"))
        for (name, _, _), value in zip(pairs, merged):
            before[name] = value
        return None

    def merge(self, holder: Any, blocks: Sequence[Any], condition: tensor, pairs: Sequence[tuple[str, Any, Any]],
              mismatch: Callable[[str, Any, Any], Exception]) -> list[Any]:
        """Make the scf.if of two generated blocks; the values that it gives for pairs of (name, then value, else value)."""
        thens: list[tensor] = []
        elses: list[tensor] = []
        templates = []
        for name, a, b in pairs:
            if is_static(a) and is_static(b) and same_static(a, b):
                templates.append(a)
                continue
            a2, b2 = self.to_tensor(a), self.to_tensor(b)
            if not self.alike(a2, b2):
                raise mismatch(name, a, b)
            flatten(a2, thens)
            flatten(b2, elses)
            templates.append(a2)
        keep = [i for i, (a, b) in enumerate(zip(thens, elses)) if a.handle != b.handle]
        self.yield_(blocks[0], [thens[i].handle for i in keep])
        self.yield_(blocks[1], [elses[i].handle for i in keep])
        made = ir.Operation.create("scf.if", results=[thens[i].handle.type for i in keep], operands=[condition.handle], regions=2,
                                   loc=self.builder.loc, ip=self.builder.ip)
        for block, region in zip(blocks, made.regions):
            block.append_to(region)
        holder.erase()
        values = list(thens)
        for i, result in zip(keep, made.results):
            values[i] = tensor(result, thens[i].type)
        source = iter(values)
        return [rebuild(template, source) for template in templates]

    def choose(self, node: ast.IfExp, condition: tensor) -> Any:
        """``a if c else b`` with a run-time c: a select where both exist already, else an scf.if."""
        location = self.builder.loc
        holder = self.holder(2)
        values, blocks = [], []
        for region, branch in zip(holder.regions, (node.body, node.orelse)):
            block = self.block(region)
            values.append(self.inside(block, partial(self.visit, branch)))
            blocks.append(block)
        self.builder.loc = location
        return self.merge(holder, blocks, condition, [("the value", *values)], lambda name, a, b: self.unlike(a, b))[0]

    # -- for -------------------------------------------------------------------------------------------------------
    def iterable(self, node: ast.expr) -> Any:
        """What a `for` runs over: a core.range with run-time bounds, or a list of compile-time items."""
        if isinstance(node, ast.Call):
            fn = static_value(self.visit(node.func))
            if fn is core.range or fn is range:
                args = self.elements(node.args)
                keywords = {k.arg: self.visit(k.value) for k in node.keywords if k.arg}
                if not 1 <= len(args) <= 3:
                    raise TypeMismatchError(f"range takes 1 to 3 bounds, not {len(args)}")
                return core.range(*args, **keywords)
        value = self.visit(node)
        raw = value.value if type(value) is constexpr else value
        if isinstance(raw, core.static_range):
            return [constexpr(i) for i in raw]
        if isinstance(raw, core.range):
            return raw
        if isinstance(raw, range):
            return core.range(raw.start, raw.stop, raw.step)
        return self.static_iterable(value, "for")

    def unrolled(self, node: ast.expr) -> list[Any]:
        items = self.iterable(node)
        if isinstance(items, core.range):
            bounds = (items.start, items.end, items.step)
            if not all(is_static(b) for b in bounds):
                raise UnsupportedLanguageConstruct(STATIC_ITEMS)
            return [constexpr(i) for i in items]
        return items

    def refuse_else(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            raise UnsupportedLanguageConstruct(no_else(node))

    def visit_For(self, node: ast.For) -> bool | None:
        self.refuse_else(node)
        items = self.iterable(node.iter)
        if not isinstance(items, core.range):
            for item in items:
                self.assign(node.target, item)
                self.run(node.body)
            return None
        self.at(node)
        self.run_time_for(node, items)
        return None

    def loop_bounds(self, node: ast.For, loop: Any) -> tuple[tensor, tensor, tensor, bool, Any]:
        """(start, end, distance of two steps, whether it counts down, type of the user's variable); the tensors have the type in which
        the loop counts."""
        if not isinstance(node.target, ast.Name):
            raise UnsupportedLanguageConstruct(ONE_COUNTER)
        s = self.semantic
        start, end, step, down, counter = self.range_bounds(loop)
        wide = t.int64 if counter.is_uint32() else counter  # scf.for compares as signed
        start, end, step = (s.cast(b, wide) for b in (start, end, step))
        if (step.const is None or step.const <= 0) and getattr(self.builder.options, "debug", False):
            s.device_assert(s.greater_than(step, 0), "the step of a loop, known at run time, is positive")
        return start, end, step, down, counter

    def run_body(self, node: Any) -> None:
        """One iteration of a loop's body."""
        self.run(node.body)

    def run_time_for(self, node: ast.For, loop: Any) -> None:
        self.signed_for(node, loop, self.loop_bounds(node, loop))

    def signed_for(self, node: ast.For, loop: Any, bounds: tuple[tensor, tensor, tensor, bool, Any]) -> None:
        """An scf.for, which compares as signed."""
        s = self.semantic
        location = self.builder.loc
        start, end, step, down, counter = bounds
        wide = start.type
        low, high = (end, start) if down else (start, end)
        target = node.target.id  # type: ignore[attr-defined]
        counter_type = self.builder.type(wide)

        def prologue(argument: Any) -> None:
            value = tensor(argument, wide)
            if down:  # counts up from `end`; the user's variable runs from start down
                value = s.sub(start, s.sub(value, end, False), False)
            self.frame.scope[target] = s.cast(value, counter)

        names = assigned(node.body) | {target}

        def body(block: Any) -> None:
            prologue(block.arguments[0])
            self.run_body(node)

        live, ends, holder, (block,) = self.loop_body(names, {target}, [([counter_type], body)])
        if target in live and not self.alike(live[target], ends[target]):
            ends[target] = None  # had another type before: its value after the loop is not needed, or an error where it is
        inits, yields, kept = self.close(live, ends, [block], 1, target)
        made = ir.Operation.create("scf.for", results=[v.handle.type for v in inits], operands=[low.handle, high.handle, step.handle,
                                   *[v.handle for v in inits]], attributes=self.loop_attributes(loop), regions=1, loc=location, ip=self.builder.ip)
        block.append_to(made.regions[0])
        self.yield_(block, yields)
        holder.erase()
        self.after_loop(live, kept, list(made.results))

    def loop_attributes(self, loop: Any) -> dict[str, Any]:
        """The hints of tl.range as attributes of the loop."""
        attrs = {}
        for name in ("num_stages", "loop_unroll_factor"):
            value = static_value(getattr(loop, name))
            if value is not None:
                attrs[f"tt.{name}"] = self.builder.attr("", name, int(value))
        for name in ("flatten", "warp_specialize", "disallow_acc_multi_buffer", "disable_licm"):
            if static_value(getattr(loop, name)):
                attrs[f"tt.{name}"] = self.builder.unit
        return attrs

    def loop_body(self, names: set[str], promoted: set[str], parts: Sequence[tuple[Sequence[Any], Callable[[Any], Any]]]) -> Any:
        """Generate a loop's blocks; again where the body turns out to change a compile-time number, which becomes a tensor first.

        ``parts``: for each block the types of its leading arguments and the function that fills it; the values of the names
        follow as arguments. Returns (values before by name, values after the last block by name, holder, blocks).
        """
        frame, before, location = self.frame, self.frame.scope, self.builder.loc
        promoted = set(promoted)
        while True:
            live: dict[str, Any] = {}
            for name in sorted(names):
                if name in before and not isinstance(before[name], Undefined):
                    live[name] = self.to_tensor(before[name]) if name in promoted else before[name]
            tensors: list[tensor] = []
            constant: list[bool] = []  # sizes and strides of block pointers are taken to stay what they are, and checked below
            for name, value in live.items():
                flatten(value, tensors)
                if isinstance(value, block_pointer) and name not in promoted:
                    n = len(value.block_shape)
                    constant += [False, *[True] * (2 * n), *[False] * n]
                constant += [False] * (len(tensors) - len(constant))
            given: dict[str, Any] = {}
            holder = self.holder(len(parts))
            blocks = []
            try:
                for region, (leading, fill) in zip(holder.regions, parts):
                    block = self.block(region, [*leading, *(v.handle.type for v in tensors)])
                    inner = [tensor(a, v.type) for a, v in zip(list(block.arguments)[len(leading):], tensors)]
                    for argument, initial, hopeful in zip(inner, tensors, constant):
                        argument.const = initial.const if hopeful else None
                    source = iter(inner)
                    frame.scope = dict(before)
                    for name, value in live.items():
                        frame.scope[name] = rebuild(value, source)
                    given = {name: frame.scope[name] for name in live}
                    self.inside(block, partial(fill, block))
                    blocks.append(block)
            except StaticTest as test:
                numbers = {n for n in live if n not in promoted and not isinstance(live[n], tensor) and flatten(self.to_tensor(live[n]), [])}
                frame.scope, self.builder.loc = before, location
                holder.erase()
                if not numbers or not test.value:
                    raise
                promoted |= numbers
                continue
            ends = {name: frame.scope.get(name) for name in live}
            frame.scope, self.builder.loc = before, location
            again = {n for n in live if n not in promoted and not isinstance(live[n], tensor) and not self.alike(live[n], ends[n])
                     and self.alike(self.to_tensor(live[n]), self.to_tensor(ends[n]))}
            again |= {n for n, value in given.items() if isinstance(value, block_pointer) and n not in promoted and isinstance(ends[n], block_pointer)
                      and any(x.const is not None and x.handle != y.handle for x, y in zip(flatten(value, []), flatten(ends[n], [])))}
            if not again:
                return live, ends, holder, blocks
            promoted |= again
            holder.erase()

    def close(self, live: dict[str, Any], ends: dict[str, Any], blocks: Sequence[Any], leading: int, counter: str | None = None,
              ) -> tuple[list[tensor], list[Any], dict[str, list[int | None] | None]]:
        """Match what the last block left with what it got, and drop the arguments that it did not change from all blocks.

        Returns the initial values and yielded handles of those that stay, and for each name the positions of its tensors
        among them (None: unchanged). The loop's counter may have had another type before; its list is then None.
        """
        inits: list[tensor] = []
        yields: list[Any] = []
        kept: dict[str, list[int | None] | None] = {}
        position = leading
        unchanged: list[tuple[int, Any]] = []  # positions of arguments that go, and what they always are

        for name, value in live.items():
            if name == counter and ends[name] is None:
                for old in flatten(value, []):
                    unchanged.append((position, old.handle))
                    position += 1
                kept[name] = None
                continue
            end = ends[name] if is_static(value) else self.to_tensor(ends[name])
            if not self.alike(value, end):
                if isinstance(end, Undefined) or end is None:
                    raise TypeMismatchError(f"{name} is {type_text(value)} before the loop and not assigned on every path through its body")
                raise TypeMismatchError(f"{name} is {type_text(value)} before the loop and {type_text(end)} after an iteration of it; a variable "
                                        "that a loop changes keeps its type")
            places: list[int | None] = []
            for old, new in zip(flatten(value, []), flatten(end, [])):
                if new.handle == blocks[-1].arguments[position]:
                    unchanged.append((position, old.handle))
                    places.append(None)
                else:
                    places.append(len(inits))
                    inits.append(old)
                    yields.append(new.handle)
                position += 1
            kept[name] = places
        # an unchanged variable may be the next value of another: x, y = y, y
        yields = [next((held for at, held in unchanged if handle == blocks[-1].arguments[at]), handle) for handle in yields]
        for at, held in reversed(unchanged):
            for block in blocks:
                block.arguments[at].replace_all_uses_with(held)
                block.erase_argument(at)
        return inits, yields, kept

    def after_loop(self, live: dict[str, Any], kept: dict[str, list[int | None] | None], results: Sequence[Any]) -> None:
        """Give the names their values after the loop."""
        scope = self.frame.scope
        for name, value in live.items():
            places = kept[name]
            if places is None:
                scope[name] = Undefined("counts a loop and had another type before it; use another name")
                continue
            tensors = [v if place is None else tensor(results[place], v.type) for v, place in zip(flatten(value, []), places)]
            scope[name] = rebuild(value, iter(tensors))

    # -- while -----------------------------------------------------------------------------------------------------
    def refuse_walrus(self, node: ast.While) -> None:
        if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)):
            raise UnsupportedLanguageConstruct(NO_WALRUS)

    def visit_While(self, node: ast.While) -> None:
        self.refuse_else(node)
        self.refuse_walrus(node)
        self.at(node)
        location = self.builder.loc
        tests: list[tensor] = []

        def test(block: Any) -> None:
            value = self.truth(node.test)
            if not isinstance(value, tensor):
                raise StaticTest(value)
            tests.append(value)

        try:
            live, ends, holder, blocks = self.loop_body(assigned(node.body), set(), [([], test), ([], lambda block: self.run(node.body))])
        except StaticTest as static:
            if static.value:
                raise UnsupportedLanguageConstruct(NEVER_ENDS) from None
            return
        inits, yields, kept = self.close(live, ends, blocks, 0)
        made = self.while_op(inits, yields, tests[-1], blocks, location)
        holder.erase()
        self.after_loop(live, kept, list(made.results))

    def while_op(self, inits: list[Any], yields: list[Any], test: Any, blocks: list[Any], location: Any) -> Any:
        """The scf.while of the two filled ``blocks``: the first ends by ``test``, the second by ``yields``."""
        made = ir.Operation.create("scf.while", results=[v.handle.type for v in inits], operands=[v.handle for v in inits], regions=2,
                                   loc=location, ip=self.builder.ip)
        ir.Operation.create("scf.condition", operands=[test.handle, *blocks[0].arguments], loc=location, ip=ir.InsertionPoint(blocks[0]))
        self.yield_(blocks[1], yields)
        for block, region in zip(blocks, made.regions):
            block.append_to(region)
        return made


class StaticTest(Exception):
    """The condition of a while is known while compiling."""

    def __init__(self, value: bool):
        self.value = value
        super().__init__(value)

