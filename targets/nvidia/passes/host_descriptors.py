"""Hoist tensor descriptors that the host can make before the launch to kernel arguments.

A tt.make_tensor_descriptor whose operands are kernel arguments, constants and integer arithmetic on them, wherever it stands, becomes an
argument of type !tt.tensordesc: a tensor map in the kernel's parameters, which needs no work on the device. Its recipe is
``metadata["host"]["descriptors"][n]`` for the n-th such argument. These arguments stand after all others, in that order
(host_arguments.py; what is inserted later comes before them).

Bulk copies are not ordered with other accesses of the same memory (PTX ISA manual, "Memory Consistency Model", proxies). So a
descriptor whose memory the kernel both reads and writes is left to rewrite_tensor_descriptors, which makes loads and stores of it;
guards see to the memory of other arguments lying apart.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.affine import Affine, Fact, NotAffine, is_small, pointer_base
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.polynomial import Poly
from tilewright.dialects.analysis.structure import Function, Node, erase_dead, functions
from tilewright.dialects.encodings import element_bits
from tilewright.dialects.errors import InternalCompilerError
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.passes.host_arguments import append_argument, descriptor_number, is_descriptor
from tilewright.targets.nvidia.passes.host_recipe import (
    ALIGNED_END,
    ALIGNED_START,
    ALIGNMENT,
    INT32_MAX,
    NO_ALIAS,
    WHAT,
    Host,
    Refused,
)
from tilewright.targets.nvidia.passes.kernel_memory import Memory, memory_of

_READS = ("tt.descriptor_load",)
_WRITES = ("tt.descriptor_store", "tt.descriptor_reduce")
_DTYPES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "f8E4M3FN": "f8e4m3", "f8E5M2": "f8e5m2",
           "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64"}


def run(module: Any, ctx: PassContext) -> None:
    """Before: canonical tt. After: every descriptor that the host can make is a kernel argument; the others are unchanged."""
    if not ctx.options.tma:
        return
    for function in functions(module):
        if "tt.kernel" in function.root.op.attributes:
            Hoister(function, ctx).run()


class Hoister:
    """Hoists the descriptors of one kernel."""

    def __init__(self, function: Function, ctx: PassContext):
        self.function = function
        self.affine = Affine(function)
        self.host = Host(ctx)
        self.made: dict[str, tuple[int, Any]] = {}  # recipe → (number, argument)

    def run(self) -> None:
        makes = [n for n in self.function.nodes() if n.name == "tt.make_tensor_descriptor"]
        if not makes:
            return
        memory = memory_of(self.function, self.host)
        found: dict[Any, dict[str, Any]] = {}  # descriptor → recipe
        start = self.host.mark()
        for node in makes:
            mark = self.host.mark()
            try:
                found[node.results[0]] = self._recipe(node, memory)
            except (NotAffine, Refused) as e:
                self.host.forget(mark)
                self._keep(node, str(e))
        for node in makes:
            recipe = found.get(node.results[0])
            if recipe is not None and (reason := self._unordered(recipe["argument"], memory, found)):
                del found[node.results[0]]
                self._keep(node, reason)
        self.host.forget(start)  # and once more those of what is hoisted alone
        found = {node.results[0]: self._recipe(node, memory) for node in makes if node.results[0] in found}
        hoisted = [(self._hoist(node, found[node.results[0]]), node) for node in makes if node.results[0] in found]
        # accesses that are not the host's now: hoisted reads are guarded from their side
        left = memory_of(self.function, self.host)
        own = {n for n, _, _ in (h for h, _ in hoisted)}
        loads = {id(n) for nodes in left.reads.values() for n in nodes if n.name in _READS and descriptor_of(self.function, n) in own}
        readers = {a for a, nodes in left.reads.items() if any(id(n) not in loads for n in nodes)}
        for (number, argument, promoted), _ in hoisted:
            others = promoted if promoted is not None else set(memory.writes) | (readers if argument in memory.writes else set())
            name = self.host.data["descriptors"][number]["name"]
            for other in sorted(others - {argument}):
                self.host.guard("no_alias", f"{name}: its memory must lie apart from that of argument {other}", descriptor=number, arg=other)
        drop_leading_ones(self.function)
        erase_dead(self.function)

    def _keep(self, node: Node, reason: str) -> None:
        if NO_ALIAS in node.op.attributes:
            raise InternalCompilerError(f"a promoted access has a descriptor that the host cannot make: {reason}")
        self.host.choose(node.op, self._name(node, None), "pointer", reason)

    def _unordered(self, base: int, memory: Memory, found: dict[Any, dict[str, Any]]) -> str | None:
        """Why accesses of ``base`` would come out of order, were they bulk copies."""
        if base not in memory.writes:
            return None
        if base in memory.reads:
            return "the kernel both reads and writes that memory"
        writes = memory.writes[base]
        if len({n.name for n in writes}) > 1 or any(n.name not in _WRITES for n in writes):
            return "the kernel writes that memory in different ways"
        if any(n.operands[0] not in found for n in writes):
            return "the kernel writes that memory also through a descriptor that the host does not make"
        return None

    def _hoist(self, node: Node, recipe: dict[str, Any]) -> tuple[int, int, set[int] | None]:
        """(number of the descriptor, its pointer argument, what the promotion says must lie apart)."""
        promoted = None
        if NO_ALIAS in node.op.attributes:
            promoted = set(ir.DenseI32ArrayAttr(node.op.attributes[NO_ALIAS]))
        else:
            self.host.choose(node.op, recipe["name"], "tma", "a descriptor that the host makes")
        number, argument = self._argument(node, recipe)
        self.function.replace_uses(node.results[0], argument)
        self.function.erase(node)
        return number, recipe["argument"], promoted

    def _name(self, node: Node, base: int | None) -> str:
        if WHAT in node.op.attributes:
            return str(ir.StringAttr(node.op.attributes[WHAT]).value)
        return "tensor descriptor" + (f" of argument {base}" if base is not None else "")

    def _argument(self, node: Node, recipe: dict[str, Any]) -> tuple[int, Any]:
        key = repr({k: v for k, v in recipe.items() if k != "name"})
        if key not in self.made:
            number = len(self.host.data["descriptors"])
            self.host.data["descriptors"].append(recipe)
            self.made[key] = number, append_argument(self.function, node.results[0].type)
        return self.made[key]

    def _recipe(self, node: Node, memory: Memory) -> dict[str, Any]:
        """Raises NotAffine or Refused where the host cannot make the descriptor: the guards added until then are for nothing."""
        if memory.unknown_write and NO_ALIAS not in node.op.attributes:
            raise Refused(memory.unknown_write)
        for user, index in self.function.uses(node.results[0]):
            if user.name not in _READS + _WRITES or index != 0:
                raise Refused(f"it is used by {user.name}, which the host's descriptors do not serve")
            if id(user) in memory.in_place:
                raise Refused(memory.in_place[id(user)])
        desc = tt.TensorDescType(node.results[0].type)
        element, box = desc.element_type, list(desc.shape)
        itemsize = element_bits(element) // 8
        dtype = _DTYPES.get(str(element))
        if dtype is None:
            raise Refused(f"elements of type {element} cannot be copied")
        if box[-1] * itemsize < ALIGNMENT:
            raise Refused(f"its rows have {box[-1] * itemsize} bytes; copies move at least {ALIGNMENT}")
        pointer, shape, strides = tt.make_descriptor_operands(node.op)
        address = self.affine.value(pointer)
        base, offset = pointer_base(address.poly)
        sizes, steps = [self.affine.value(v) for v in shape], [self.affine.value(v) for v in strides]
        for value in (*sizes, *steps):
            self._require_uniform(value.poly)
        self._require_uniform(offset)
        if steps[-1].poly.constant != 1:
            raise Refused("its innermost stride is not known to be 1")
        for step in steps[:-1]:
            if step.poly.constant is not None and (step.poly.constant * itemsize % ALIGNMENT or step.poly.constant < 1):
                raise Refused(f"a stride is {step.poly.constant * itemsize} bytes; copies need positive multiples of {ALIGNMENT}")
        host = self.host
        name = self._name(node, base)
        if NO_ALIAS not in node.op.attributes:  # a promotion has seen to it
            facts = {f for v in (address, *sizes, *steps) for f in v.facts}
            facts |= {Fact("fits", v.poly, 32) for v in sizes if not is_small(v.poly, 32)}
            for fact in sorted(facts, key=repr):
                if not fact.poly.known or not host.fact(fact, f"{name}: "):
                    raise Refused("its shape or strides depend on arithmetic that may wrap")
        self._edges(node, sizes[-1].poly, ALIGNMENT // itemsize, name)
        pointer_bytes = host.node("arg", base)
        if offset:
            pointer_bytes = host.node("add", pointer_bytes, host.poly(offset * itemsize))
        return {"base": pointer_bytes, "dtype": dtype, "itemsize": itemsize, "shape": [host.poly(v.poly) for v in sizes],
                "strides": [host.poly(v.poly) for v in steps], "box": box, "swizzle": 0, "padding": node.str_attr("padding"),
                "name": name, "argument": base}

    def _edges(self, node: Node, end: Poly, unit: int, name: str) -> None:
        """Guards for what bulk copies do not do at edges (host_recipe.py), where the host knows the coordinates. Where it does not, the innermost one
        must be a multiple of 16 bytes in every program and round; that stores begin at 0 or above is left to the kernel. Raises Refused."""
        if NO_ALIAS in node.op.attributes:  # a promotion has seen to it
            return
        host = self.host

        def require(holds: bool, why: str) -> None:
            if not holds:
                raise Refused(why)

        for user, _ in self.function.uses(node.results[0]):
            stores = user.name in _WRITES
            if stores:
                require(host.multiple(end, unit, f"{name}: {ALIGNED_END}"), ALIGNED_END)
            coords = user.operands[2 if stores else 1:]
            for i, c in enumerate(coords):
                inner, poly = i == len(coords) - 1, self._coordinate(c)
                if poly is None:
                    require(not inner or self._axis.get(c).divisibility[0] % unit == 0, f"{ALIGNED_START}, and where one begins the device alone knows")
                    continue
                if inner:
                    require(host.multiple(poly, unit, f"{name}: {ALIGNED_START}"), ALIGNED_START)
                if stores:
                    require(host.in_range(poly, 0, INT32_MAX, f"{name}: stores must begin at 0 or above"), "it stores below 0")

    def _coordinate(self, value: Any) -> Poly | None:
        """A coordinate as the host computes it; None where it can't."""
        try:
            poly = self.affine.value(value).poly
        except NotAffine:
            return None
        return poly if poly.known else None

    @cached_property
    def _axis(self) -> AxisInfoAnalysis:
        return AxisInfoAnalysis(function=self.function)

    @staticmethod
    def _require_uniform(poly: Poly) -> None:
        for a in poly.atoms():
            if not a.uniform:
                raise Refused("its base, shape or strides change between programs, or are not known to the host")


def drop_leading_ones(function: Function) -> None:
    """Let reshapes that only drop or add leading dims of one element around descriptor ops be part of those ops."""
    for node in list(function.nodes()):
        if node.name == "tt.descriptor_load":
            uses = function.uses(node.results[0])
            types = {user.results[0].type if user.name == "tt.reshape" else None for user, _ in uses}
            smaller = types.pop() if len(types) == 1 else None
            if smaller is None or not _only_leading_ones(node.results[0].type, smaller):
                continue
            attributes = {n: node.attr(n) for n in ("cache", "evict")}
            loaded = function.insert_before(node, "tt.descriptor_load", [smaller], node.operands, attributes).results[0]
            for user, _ in list(uses):
                function.replace_uses(user.results[0], loaded)
                function.erase(user)
            function.erase(node)
        elif node.name == "tt.descriptor_store":
            source = function.def_node(node.operands[1])
            if source is not None and source.name == "tt.reshape" and _only_leading_ones(node.operands[1].type, source.operands[0].type):
                function.set_operand(node, 1, source.operands[0])


def _only_leading_ones(large: Any, small: Any) -> bool:
    shape, rest = list(large.shape), list(small.shape)
    more = len(shape) - len(rest)
    return more > 0 and shape == [1] * more + rest


def descriptor_of(function: Function, node: Node) -> int | None:
    """The number of the host's descriptor that an op works on; None of others."""
    desc = node.operands[0]
    return descriptor_number(function, desc) if is_descriptor(desc) and desc in function.body.args else None
