"""Compile kernels to tt and execute the IR with the interpreter's numpy operations: the oracle for the code generator.

The interpreter runs a kernel's Python; this runs what the code generator made of it. Both use the same arithmetic, so their
results agree bit for bit unless control flow, types, names or constants went wrong on the way.
"""

from __future__ import annotations

import itertools
import linecache
import textwrap
from typing import Any

import numpy as np

from tilewright.compiler.code_generator import ast_to_ttir
from tilewright.compiler.source import ASTSource
from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.language import dtypes as t
from tilewright.runtime.interpreter_builder import Cell, NumpyBuilder
from tilewright.runtime.interpreter_memory import Memory
from tilewright.runtime.jit import JITFunction

_count = itertools.count()
_SCALARS = {"i1": t.int1, "i8": t.int8, "i16": t.int16, "i32": t.int32, "i64": t.int64, "f16": t.float16, "bf16": t.bfloat16,
            "f32": t.float32, "f64": t.float64, "f8E4M3FN": t.float8e4nv, "f8E5M2": t.float8e5}
_CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CMPF = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")


def define(source: str, names: str = "kernel") -> Any:
    """The jit function(s) ``names`` of a module with that source; functions are decorated already."""
    source = "import tilewright as triton\nimport tilewright.language as tl\nfrom tilewright.language.extra import libdevice\n" + textwrap.dedent(source)
    file = f"<kernel {next(_count)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    scope: dict[str, Any] = {"__name__": "kernels"}
    exec(compile(source, file, "exec"), scope)
    found = [scope[n] for n in names.split()]
    return found[0] if len(found) == 1 else found


def signature_of(value: Any) -> str:
    """The signature's type of an argument."""
    if isinstance(value, np.ndarray):
        kinds = {"float32": "*fp32", "float16": "*fp16", "float64": "*fp64", "bool": "*i1"}
        name = value.dtype.name
        return kinds.get(name) or "*" + ("u" if name[0] == "u" else "i") + str(value.dtype.itemsize * 8)
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def compile_tt(fn: Any, signature: dict[str, Any], constexprs: dict[str, Any] | None = None, attrs: Any = None, options: Any = None) -> Any:
    """The verified module."""
    with mlir_context():
        module = ast_to_ttir(fn, ASTSource(fn=fn, signature=signature, constexprs=constexprs or {}, attrs=attrs or {}), options)
        assert module.operation.verify()
    return module


def text_of(fn: Any, signature: dict[str, Any], constexprs: dict[str, Any] | None = None, **kwargs: Any) -> str:
    module = compile_tt(fn, signature, constexprs, **kwargs)
    with mlir_context():
        return str(module)


def run_both(fn: JITFunction, *args: Any, grid: tuple[int, ...] = (1,), **constexprs: Any) -> None:
    """Run the kernel's IR and its Python on copies of the same arrays; raises where an array differs in a bit. Then the arrays
    of ``args`` hold the result."""
    from tilewright.runtime.interpreter import InterpretedFunction

    names = [n for n in fn.arg_names if n not in constexprs]
    module = compile_tt(fn, {n: signature_of(a) for n, a in zip(names, args)}, constexprs)
    compiled = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    execute(module, compiled, grid)
    InterpretedFunction(fn)[grid](**dict(zip(names, args)), **constexprs)
    for name, a, b in zip(names, args, compiled):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(b, a, err_msg=f"{name}: executed IR (actual) against interpreted Python (desired)")


def execute(module: Any, args: list[Any], grid: tuple[int, ...] = (1,)) -> None:
    """Run the module's one function over the grid."""
    memory = Memory()
    cells = []
    with mlir_context():
        function = module.body.operations[0]
        entry = function.regions[0].blocks[0]
        for argument, value in zip(entry.arguments, args):
            type = _type(argument.type)
            if isinstance(value, np.ndarray):
                address = value.__array_interface__["data"][0]
                memory.add(address, value.nbytes)
                cells.append(Cell(np.uint64(address), type))
            else:
                cells.append(NumpyBuilder(memory).constant(value, type))
        runner = _Runner(memory)
        full = (*grid, 1, 1)[:3]
        runner.builder.grid = full  # type: ignore[assignment]
        for z, y, x in itertools.product(range(full[2]), range(full[1]), range(full[0])):
            runner.builder.program = (x, y, z)
            runner.run(entry, cells)


_types: dict[str, Any] = {}


def _type(type: Any) -> Any:
    text = str(type)
    if text not in _types:
        if isinstance(type, ir.RankedTensorType) or text.startswith("tensor<"):
            ranked = ir.RankedTensorType(type)
            _types[text] = t.block_type(_type(ranked.element_type), ranked.shape)
        elif text.startswith("!tt.ptr"):
            _types[text] = t.pointer_type(_SCALARS[text[8:text.index(",")]])
        else:
            _types[text] = _SCALARS[text]
    return _types[text]


def _attribute(name: str, op: str, attr: Any) -> Any:
    if name == "predicate":
        return (_CMPI if op == "arith.cmpi" else _CMPF)[ir.IntegerAttr(attr).value]
    for kind in (ir.BoolAttr, ir.IntegerAttr, ir.StringAttr):
        if isinstance(attr, kind):
            return kind(attr).value
    return list(ir.DenseI32ArrayAttr(attr))


class _Runner:
    """Executes blocks; one environment, since every value is defined once and loops overwrite it."""

    def __init__(self, memory: Memory):
        self.builder = NumpyBuilder(memory)
        self.values: dict[Any, Cell] = {}

    def run(self, block: Any, arguments: list[Cell]) -> list[Cell]:
        """Run a block; the operands of its terminator."""
        for argument, cell in zip(block.arguments, arguments):
            self.values[argument] = cell
        for op in block.operations:
            op = op.operation
            operands = [self.values[o] for o in op.operands]
            if op.name in ("scf.yield", "scf.condition", "func.return", "tt.reduce_return", "tt.scan_return"):
                return operands
            for result, cell in zip(op.results, self.step(op, operands)):
                self.values[result] = cell
        return []

    def step(self, op: Any, operands: list[Cell]) -> list[Cell]:
        name = op.name
        if name == "scf.if":
            taken = 0 if bool(operands[0].data) else 1
            return self.run(op.regions[taken].blocks[0], []) if len(op.regions[taken].blocks) else []
        if name == "scf.for":
            low, high, step = (int(o.data) for o in operands[:3])
            assert step > 0
            state = operands[3:]
            block = op.regions[0].blocks[0]
            for i in range(low, high, step):
                state = self.run(block, [self.builder.constant(i, operands[0].type), *state])
            return state
        if name == "scf.while":
            state = operands
            while True:
                go, *state = self.run(op.regions[0].blocks[0], state)
                if not bool(go.data):
                    return state
                state = self.run(op.regions[1].blocks[0], state)
        types = [_type(r.type) for r in op.results]
        if name == "arith.constant":
            attr = op.attributes["value"]
            if types[0].is_block():
                attr = ir.DenseElementsAttr(attr).get_splat_value()
            value = ir.FloatAttr(attr).value if types[0].scalar.is_floating() else ir.IntegerAttr(attr).value
            return [self.builder.constant(value, types[0])]
        attrs = {a: _attribute(a, name, op.attributes[a]) for a in op.attributes if not a.startswith("tt.") and a not in ("overflowFlags", "fastmath")}
        if name in ("tt.reduce", "tt.scan"):
            attrs.pop("operandSegmentSizes", None)
            attrs.pop("resultSegmentSizes", None)
            return self.builder.region_op(name, operands, types, attrs, [o.type.scalar for o in operands],
                                          lambda cells: self.run(op.regions[0].blocks[0], cells))
        segments = attrs.pop("operandSegmentSizes", None)
        if segments is not None:
            source = iter(operands)
            operands = [next(source) if s else None for s in segments]  # type: ignore[misc]
        return self.builder.create(name, operands, types, attrs)
