"""LLVM IR text as the assembling LLVM reads it: constants keep their bits, lines are those of the source, intrinsics exist."""

import re
import struct

import llvmlite.binding as binding
import numpy as np
import pytest

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import InternalCompilerError
from tilewright.dialects.lowering.translate import rewrite_literals, translate_to_llvm_ir

VALUES = [0.1, 1e30, 1.42860677e-6, 3.0, 1e-40, -0.0, 65504.0, 1e-7, 123456.789, 1 / 3, 2.5e-8, float("inf"), float("-inf")]


def _bits(value: float, type: str) -> int:
    if type == "f16":
        with np.errstate(over="ignore"):
            return int(np.float64(value).astype(np.float16).view(np.uint16))
    if type == "f64":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    word = int(np.float64(value).astype(np.float32).view(np.uint32))
    if type == "bf16":
        return word >> 16 if np.isinf(value) else (word + 0x7FFF + (word >> 16 & 1)) >> 16
    return word


@pytest.mark.parametrize("type", ["f16", "bf16", "f32", "f64"])
def test_constants_keep_their_bits(type):
    width = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}[type]
    # an addition of a constant in the dialect, constant-folded to bits by the assembling LLVM
    with mlir_context():
        lines = []
        for i, v in enumerate(VALUES):
            attr = ir.FloatAttr.get(ir.Type.parse(type), v)
            lines.append(f"%c{i} = llvm.mlir.constant({attr}) : {type}\n %p{i} = llvm.getelementptr %p[{i}] : (!llvm.ptr) -> !llvm.ptr, "
                         f"i{width}\n llvm.store %c{i}, %p{i} : {type}, !llvm.ptr")
        module = ir.Module.parse("llvm.func @k(%p: !llvm.ptr) {" + "\n".join(lines) + "\n llvm.return }")
        text = translate_to_llvm_ir(module)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    m = binding.parse_assembly(text)
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(m, machine)
    engine.finalize_object()
    import ctypes

    out = np.zeros(len(VALUES), f"uint{width}")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address("k"))(out.ctypes.data)
    assert [int(v) for v in out] == [_bits(v, type) for v in VALUES]


def test_literals_in_every_kind_of_line():
    text = ('%7 = fmul contract float %2, +qnan\n%8 = fcmp oeq half %3, -inf\n%9 = phi double [ %1, %2 ], [ 1.000000e-01, %3 ]\n'
            'call void asm "mov 1.0e-1 float", "r"(float f0x35BFBE8E)\nstore <2 x float> <float 1.0e+00, float 2.000000e-01>, ptr %p')
    lines = rewrite_literals(text).split("\n")
    assert lines[0].endswith("%2, 0x7FF8000000000000") and lines[1].endswith("%3, 0xHFC00")
    assert "[ 0x3FB999999999999A, %3 ]" in lines[2] and '"mov 1.0e-1 float"' in lines[3] and "0x3EB7F7D1C0000000" in lines[3]
    assert lines[4] == "store <2 x float> <float 0x3FF0000000000000, float 0x3FC99999A0000000>, ptr %p"
    with pytest.raises(InternalCompilerError, match="without a type"):
        rewrite_literals("ret +inf")


def test_unknown_intrinsics_are_an_error():
    with mlir_context():
        module = ir.Module.parse("""llvm.func @llvm.nvvm.no.such.thing(f32) -> f32
          llvm.func @k(%x: f32) -> f32 { %y = llvm.call @llvm.nvvm.no.such.thing(%x) : (f32) -> f32
            llvm.return %y : f32 }""")
        with pytest.raises(InternalCompilerError, match=r"no intrinsic llvm\.nvvm\.no\.such\.thing"):
            translate_to_llvm_ir(module)
        good = ir.Module.parse("""llvm.func @llvm.nvvm.ex2.approx.ftz.f32(f32) -> f32
          llvm.func @k(%x: f32) -> f32 { %y = llvm.call @llvm.nvvm.ex2.approx.ftz.f32(%x) : (f32) -> f32
            llvm.return %y : f32 }""")
        assert "ex2.approx" in translate_to_llvm_ir(good)


def test_lines_of_the_kernel_and_of_inlined_helpers():
    with mlir_context():
        module = ir.Module.parse("""
          #k = loc("/src/kernel.py":10:3)
          #helper = loc("/src/helper.py":77:9)
          module { llvm.func @k(%x: f32, %p: !llvm.ptr<1>) {
            %a = llvm.fmul %x, %x : f32 loc(callsite(#helper at #k))
            llvm.store %a, %p : f32, !llvm.ptr<1> loc("/src/kernel.py":12:5)
            llvm.return loc("/src/kernel.py":12:5) } loc("/src/kernel.py":8:1) }""")
        text = translate_to_llvm_ir(module)
    binding.parse_assembly(text).verify()
    number = re.search(r"fmul float .*!dbg (!\d+)", text).group(1)
    place = re.search(rf"^{number} = !DILocation\(line: 77, column: 9, scope: (!\d+), inlinedAt: (!\d+)\)", text, re.M)
    assert place, text
    assert re.search(rf"^{place.group(2)} = !DILocation\(line: 10, column: 3", text, re.M)
    scope = re.search(rf"^{place.group(1)} = .*file: (!\d+)", text, re.M).group(1)
    assert re.search(rf'^{scope} = !DIFile\(filename: "helper.py", directory: "/src"\)', text, re.M)
    assert "!DILocation(line: 12, column: 5" in text and "emissionKind: LineTablesOnly" in text


def test_uniform_work_group_size_keeps_its_value():
    with mlir_context():
        module = ir.Module.parse('llvm.func @k() attributes {passthrough = ["uniform-work-group-size"]} { llvm.return }')
        assert '"uniform-work-group-size"="true"' in translate_to_llvm_ir(module)
