"""Writes promotion_table.json: what Triton 3.6 answers for each operator and pair of operand types. Run by hand with a Python that has Triton:
``python tests/frontend/make_promotion_table.py``. test_promotion.py compares the language with it.

A cell is the result's type and the operation, "int32 divsi" or "int1 cmpi ult", or "error". Rows are left operands, columns right ones:
types for run-time tensors, numbers for Python's numbers (constexprs are the same to Triton).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

TYPES = ["int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15",
         "fp16", "bf16", "fp32", "fp64"]
NUMBERS = ["True", "3", "-3", "200", "70000", "2**31", "2**40", "2**63", "0.5", "1e-42", "1e300"]
OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift", "lt", "eq", "minimum", "where"]
UNARY = ["neg", "invert", "not", "abs"]


def main() -> None:
    import triton.language as tl
    from triton._C.libtriton import ir
    from triton.backends.nvidia.compiler import CUDAOptions
    from triton.language.semantic import TritonSemantic

    dtypes = {d.name: d for d in vars(tl).values() if isinstance(d, tl.dtype)}  # Triton compares some of them by identity
    context = ir.context()
    ir.load_dialects(context)
    block = [16]
    propagate = tl.core.PropagateNan.NONE

    def cell(operator: str, *names: str) -> str:
        builder = ir.builder(context)
        builder.options = CUDAOptions(arch="sm90", supported_fp8_dtypes=tuple(t for t in TYPES if t.startswith("fp8")))
        module = builder.create_module()
        types = [tl.block_type(dtypes[n], block) for n in names if n in TYPES]
        if operator == "where":
            types.append(tl.block_type(tl.int1, block))
        function = builder.get_or_insert_function(module, "f", builder.get_function_ty([t.to_ir(builder) for t in types], []), "public", False)
        module.push_back(function)
        entry = function.add_entry_block()
        builder.set_insertion_point_to_start(entry)
        arguments = [tl.tensor(function.args(i), t) for i, t in enumerate(types)]
        source = iter(arguments)
        operands = [next(source) if n in TYPES else eval(n) for n in names]  # the numbers above
        semantic = TritonSemantic(builder)
        try:
            if operator == "minimum":
                out = tl.minimum(*operands, propagate, _semantic=semantic)
            elif operator == "where":
                out = semantic.where(arguments[-1], *operands)
            elif operator == "abs":
                out = tl.abs(*operands, _semantic=semantic)
            elif isinstance(operands[0], tl.tensor):  # as its code generator finds the method
                out = getattr(operands[0], f"__{operator}__")(*operands[1:], _semantic=semantic)
            else:
                out = getattr(operands[1], f"__r{operator}__")(operands[0], _semantic=semantic)
        except Exception:  # Triton raises many kinds
            return "error"
        builder.ret([])
        found = re.findall(r"= (?:arith|math|tt)\.(\w+)(?: (\w+),)?", str(module))
        casts = {"constant", "splat", "broadcast", "extsi", "extui", "extf", "trunci", "truncf", "sitofp", "uitofp", "fptosi", "fptoui", "bitcast", "fp_to_fp"}
        last = [f"{op} {predicate}".strip() for op, predicate in found if op not in casts]
        return f"{out.dtype.name} {last[-1] if last else '-'}"

    codes: dict[str, int] = {}
    table = {}
    operands = TYPES + NUMBERS
    for operator in OPERATORS:
        table[operator] = [[codes.setdefault(cell(operator, a, b), len(codes)) if a in TYPES or b in TYPES else -1 for b in operands] for a in operands]
    for operator in UNARY:
        table[operator] = [codes.setdefault(cell(operator, a), len(codes)) for a in TYPES]
    lines = [f'"{name}": {json.dumps(rows, separators=(",", ":"))}' for name, rows in table.items()]
    text = f'{{"operands": {json.dumps(operands)},\n"cells": {json.dumps(list(codes))},\n' + ",\n".join(lines) + "}\n"
    Path(__file__).with_name("promotion_table.json").write_text(text)


if __name__ == "__main__":
    main()
