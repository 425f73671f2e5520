"""Compile a kernel to tt, promote its pointers to host descriptors, and run both forms with numpy: the results must be equal bit for bit.

A descriptor is executed here by its definition (base, shape, strides; what lies outside reads as 0 and is not written), from the tensor map
that the host makes of the recipe in the metadata. So analysis, rewriting, recipe and guards are tested together.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
from tt_execution import _Runner, _type, compile_tt, signature_of

from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.encodings import element_bits
from tilewright.dialects.passes import canonicalize_tt, dce_cse
from tilewright.dialects.pipeline import PassContext
from tilewright.runtime.interpreter_builder import Cell, NumpyBuilder
from tilewright.runtime.interpreter_memory import InterpreterError, Memory
from tilewright.targets.nvidia.capabilities import capabilities
from tilewright.targets.nvidia.host_plan import HostPlan
from tilewright.targets.nvidia.passes import host_descriptors, promote_to_descriptors
from tilewright.targets.nvidia.passes.host_recipe import ALIGNED_END, ALIGNED_START


class KernelOutOfBounds(Exception):
    """The kernel as written reads outside its arguments: nothing can be compared."""


def context(**options: Any) -> PassContext:
    return PassContext(target=None, arch="sm_90a", capabilities=capabilities("sm_90a"), options=SimpleNamespace(tma=True, **options))


class Compiled:
    """A kernel specialised to ``args`` (by name; arrays, ints, floats) as a launch does it: ints of 1 become constants, multiples of
    16 are known. ``before`` and ``after``: its modules; ``host``: the metadata; ``choices``: of each access, by line."""

    def __init__(self, fn: Any, args: dict[str, Any], constexprs: dict[str, Any], passes: Any = (promote_to_descriptors, host_descriptors)):
        ones = {n: 1 for n, a in args.items() if isinstance(a, int) and not isinstance(a, bool) and a == 1}
        self.names = [n for n in fn.arg_names if n in args and n not in ones]
        self.args = [args[n] for n in self.names]
        self.signature = {n: signature_of(args[n]) for n in self.names}
        attrs = {(fn.arg_names.index(n),): [("tt.divisibility", 16)] for n in self.names if _divisible(args[n])}
        self.before = compile_tt(fn, self.signature, {**constexprs, **ones}, attrs)
        self.after = compile_tt(fn, self.signature, {**constexprs, **ones}, attrs)
        ctx = context()
        with mlir_context():
            for p in (canonicalize_tt, dce_cse, *passes):
                p.run(self.after, ctx)
                assert self.after.operation.verify()
            self.text = str(self.after)
        self.host = ctx.metadata["host"]
        self.choices = self.host["choices"]

    def chosen(self, verb: str = "tl.load") -> list[str]:
        """"tma" or "pointer" of each access in the order of the decisions; the reason of a refusal."""
        return [c["chosen"] if c["chosen"] == "tma" else c["why"] for c in self.choices if c["what"].startswith(verb)]

    def boxes(self) -> list[list[int]]:
        return [d["box"] for d in self.host["descriptors"]]

    @property
    def guards(self) -> list[dict[str, Any]]:
        """All but those for what the hardware does at edges (host_recipe.py), which no definition has."""
        return [g for g in self.host["guards"] if not g["why"].endswith((ALIGNED_START, ALIGNED_END))]

    def answer(self, grid: tuple[int, ...], args: list[Any] | None = None, edges: bool = False) -> Any:
        """What the host says; ``edges``: with the guards for edges."""
        args = self.args if args is None else args
        memory = {_address(a): (_address(a), _address(a) + a.nbytes) for a in args if isinstance(a, np.ndarray)}
        plan = HostPlan(self.host if edges else {**self.host, "guards": self.guards}, [self.signature[n] for n in self.names])
        values = [_address(a) if isinstance(a, np.ndarray) else a for a in args]
        return plan.evaluate(values, (*grid, 1, 1)[:3], memory)

    def check(self, grid: tuple[int, ...]) -> None:
        """Run both; raises where a guard does not hold, or an array differs in a bit."""
        results = []
        for module in (self.before, self.after):
            args = [a.copy() if isinstance(a, np.ndarray) else a for a in self.args]
            maps: Any = ()
            if module is self.after:
                answer = self.answer(grid, args)
                assert not answer.reasons, answer.reasons
                maps = answer.maps
            try:
                execute(module, args, maps, grid)
            except InterpreterError as e:
                if module is self.before:
                    raise KernelOutOfBounds from e
                raise
            results.append(args)
        for name, a, b in zip(self.names, *results):
            if isinstance(a, np.ndarray):
                np.testing.assert_array_equal(b, a, err_msg=name)


def _divisible(value: Any) -> bool:
    return _address(value) % 16 == 0 if isinstance(value, np.ndarray) else isinstance(value, int) and value % 16 == 0


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


class _Descriptors(_Runner):
    """Executes descriptor ops by their definition. A descriptor's cell holds its tensor map."""

    def step(self, op: Any, operands: list[Any]) -> list[Any]:
        if op.name == "tt.make_tensor_descriptor":
            desc = tt.TensorDescType(op.results[0].type)
            base, *rest = (int(o.data) for o in operands)
            rank = len(desc.shape)
            return [SimpleNamespace(base=base, shape=rest[:rank], strides=rest[rank:], box=desc.shape, itemsize=element_bits(desc.element_type) // 8)]
        if op.name == "tt.descriptor_load":
            type_ = _type(op.results[0].type)
            addresses, inside = self.box(operands[0], operands[1:], type_.shape)
            return [Cell(self.builder.memory.load(addresses, inside, _name(type_)), type_)]
        if op.name == "tt.descriptor_store":
            value = operands[1]
            addresses, inside = self.box(operands[0], operands[2:], value.data.shape)
            self.builder.memory.store(addresses, value.data, inside, _name(value.type))
            return []
        return super().step(op, operands)

    @staticmethod
    def box(tensor_map: Any, coordinates: list[Any], shape: Any) -> tuple[np.ndarray, np.ndarray]:
        """(addresses, whether inside the tensor) of the box's elements."""
        address, inside = np.asarray(tensor_map.base, np.int64), np.asarray(True)
        rank = len(tensor_map.box)
        for d, (start, extent) in enumerate(zip(coordinates, tensor_map.box)):
            index = int(start.data) + np.arange(extent).reshape([extent if i == d else 1 for i in range(rank)])
            address = address + index * (tensor_map.strides[d] * tensor_map.itemsize)
            inside = inside & (index >= 0) & (index < tensor_map.shape[d])
        return address.reshape(shape), np.broadcast_to(inside, tensor_map.box).reshape(shape)


def _name(type_: Any) -> str:
    from tilewright.runtime.interpreter_builder import scalar_name

    return scalar_name(type_)


def execute(module: Any, args: list[Any], maps: Any, grid: tuple[int, ...]) -> None:
    """Run the module's one function over the grid; the last arguments are tensor maps."""
    memory, cells = Memory(), []
    with mlir_context():
        entry = module.body.operations[0].regions[0].blocks[0]
        for argument, value in zip(list(entry.arguments), [*args, *maps], strict=True):
            if tt.is_descriptor(argument.type):
                assert tt.TensorDescType(argument.type).shape == list(value.box)
                cells.append(value)
            elif isinstance(value, np.ndarray):
                memory.add(_address(value), value.nbytes)
                cells.append(Cell(np.uint64(_address(value)), _type(argument.type)))
            else:
                cells.append(NumpyBuilder(memory).constant(value, _type(argument.type)))
        runner = _Descriptors(memory)
        full = (*grid, 1, 1)[:3]
        runner.builder.grid = full  # type: ignore[assignment]
        for z, y, x in itertools.product(range(full[2]), range(full[1]), range(full[0])):
            runner.builder.program = (x, y, z)
            runner.run(entry, cells)


def operations(module: Any, name: str) -> list[Any]:
    """The ops of that name, in order."""
    found: list[Any] = []
    with mlir_context():
        def collect(op: Any) -> Any:
            if op.name == name:
                found.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(collect, ir.WalkOrder.PRE_ORDER)
    return found
