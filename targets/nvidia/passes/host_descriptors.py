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

from typing import Any

from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.affine import Affine, Fact, NotAffine, pointer_base
from tilewright.dialects.analysis.polynomial import Poly
from tilewright.dialects.analysis.structure import Function, Node, functions
from tilewright.dialects.encodings import element_bits
from tilewright.dialects.errors import InternalCompilerError
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.passes.host_arguments import append_argument
from tilewright.targets.nvidia.passes.host_recipe import ALIGNMENT, Host
from tilewright.targets.nvidia.passes.promote_to_descriptors import NO_ALIAS, WHAT, Refused, memory_of

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
        self.made: dict[Any, tuple[int, Any]] = {}  # recipe → (number, argument)

    def run(self) -> None:
        makes = [n for n in self.function.nodes() if n.name == "tt.make_tensor_descriptor"]
        if not makes:
            return
        memory = memory_of(self.function)
        own: dict[int, tuple[set[str], int]] = {}
        for node in makes:
            promoted = NO_ALIAS in node.op.attributes
            mark = self.host.mark()
            try:
                base, recipe, facts = self._recipe(node)
                if not promoted:
                    if memory.unknown_write:
                        raise Refused(memory.unknown_write)
                    if base in memory.reads and base in memory.writes:
                        raise Refused("the kernel both reads and writes that memory")
                    for fact in facts:
                        if not fact.poly.known or not self.host.fact(fact, f"{recipe['name']}: "):
                            raise Refused("its shape or strides depend on arithmetic that may wrap")
            except (NotAffine, Refused) as e:
                self.host.forget(mark)
                if promoted:
                    raise InternalCompilerError(f"a promoted access has a descriptor that the host cannot make: {e}") from e
                self.host.choose(node.op, self._name(node, None), "pointer", str(e))
                continue
            number, argument = self._argument(node, recipe)
            if promoted:
                others = set(ir.DenseI32ArrayAttr(node.op.attributes[NO_ALIAS]))
            else:
                self.host.choose(node.op, recipe["name"], "tma", "a descriptor that the host makes")
                others = set(memory.writes) if base not in memory.writes else set(memory.reads) | set(memory.writes)
            own[id(node)] = (others - {base}, number)
            self.function.replace_uses(node.results[0], argument)
            self.function.erase(node)
        for others, number in own.values():
            for other in sorted(others):
                self.host.guard("no_alias", f"{self.host.data['descriptors'][number]['name']}: its memory must lie apart from that of argument {other}",
                                descriptor=number, arg=other)

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

    def _recipe(self, node: Node) -> tuple[int, dict[str, Any], list[Fact]]:
        """(base argument, recipe, facts). Raises NotAffine or Refused."""
        for user, index in self.function.uses(node.results[0]):
            if user.name not in _READS + _WRITES or index != 0:
                raise Refused(f"it is used by {user.name}, which the host's descriptors do not serve")
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
        facts = {f for v in (address, *sizes, *steps) for f in v.facts}
        # a shape is 32 bits wide
        facts |= {Fact("fits", v.poly, 32) for v in sizes}
        pointer_bytes = host.node("arg", base)
        if offset:
            pointer_bytes = host.node("add", pointer_bytes, host.poly(offset * itemsize))
        recipe = {"base": pointer_bytes, "dtype": dtype, "itemsize": itemsize, "shape": [host.poly(v.poly) for v in sizes],
                  "strides": [host.poly(v.poly) for v in steps], "box": box, "swizzle": 0, "padding": node.str_attr("padding"),
                  "name": self._name(node, base)}
        return base, recipe, sorted(facts, key=repr)

    @staticmethod
    def _require_uniform(poly: Poly) -> None:
        for a in poly.atoms():
            if not a.uniform:
                raise Refused("its base, shape or strides change between programs, or are not known to the host")
