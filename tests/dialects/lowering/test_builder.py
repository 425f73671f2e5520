"""LLVMBuilder: what it prints as LLVM IR, and that flags arrive there."""

import pytest

from tilewright.dialects._mlir import ir, llvm
from tilewright.dialects.context import mlir_context
from tilewright.dialects.lowering.builder import LLVMBuilder


@pytest.fixture
def built():
    with mlir_context():
        module = ir.Module.parse("llvm.func @k(%a: i32, %p: !llvm.ptr<1>, %f: f32) { llvm.return }")
        func = module.body.operations[0].operation
        func.regions[0].blocks[0].operations[0].erase()
        b = LLVMBuilder(func, module.operation)

        def finish() -> str:
            b.ret()
            module.operation.verify()
            return llvm.translate_module_to_llvmir(module.operation)

        yield b, finish, list(b.entry.arguments)


def test_flags_reach_llvm_ir(built):
    b, finish, (a, p, f) = built
    v = b.add(a, b.i32(3), nsw=True)
    v = b.mul(v, a, nsw=True, nuw=True)
    v = b.or_(v, a, disjoint=True)
    wide = b.zext(v, b.t_i64, nneg=True)
    b.contract = True
    x = b.fadd(f, f)
    with b.no_contract():
        x = b.fmul(x, f)
    b.store(x, b.gep(p, wide, b.t_f32), align=4, volatile=True)
    loaded = b.load(p, b.vec(2, b.t_f32), align=8, volatile=True)
    b.store(loaded, b.gep(p, 4, b.t_f32), align=8)
    text = finish()
    for part in ("add nsw i32 %0, 3", "mul nuw nsw i32", "or disjoint i32", "zext nneg i32", "fadd contract float",
                 "fmul float", "store volatile float", "align 4", "load volatile <2 x float>", "getelementptr float, ptr addrspace(1) %1, i32 4"):
        assert part in text, (part, text)


def test_constants_are_made_once_and_wrap(built):
    b, finish, (a, p, f) = built
    assert b.i32(7) == b.i32(7) and b.i8(255) == b.const(b.t_i8, 255)
    assert b.const(b.t_f32, 0.0) != b.const(b.t_f32, -0.0)
    assert b.constant_of(b.i32(7)) == 7 and b.constant_of(a) is None
    inner = b.block()
    b.br(inner)
    b.set_block(inner)
    c = b.i8(255)
    assert c.owner.operation.block == b.entry
    b.store(c, p)
    b.store(b.const(b.vec(2, b.t_f16), 1.5), p)
    text = finish()
    assert "store i8 -1" in text and "splat (half" in text


def test_branches_merge_values(built):
    b, finish, (a, p, f) = built
    r = b.if_then_else(b.icmp("slt", a, b.i32(4)), lambda: [b.fneg(f), a], lambda: (f, b.i32(0)))
    b.if_then(b.fcmp("olt", r[0], f), lambda: b.store(r[1], p))
    text = finish()
    assert text.count("phi") == 2 and "phi float" in text


def test_branches_must_give_the_same_number_of_values(built):
    b, finish, (a, p, f) = built
    with pytest.raises(ValueError, match="1 and 0 values"):
        b.if_then_else(b.icmp("slt", a, a), lambda: f, lambda: None)


def test_atomics_calls_and_assembly(built):
    b, finish, (a, p, f) = built
    b.store(b.atomicrmw("fadd", p, f, syncscope="agent"), p)
    b.store(b.cmpxchg(p, a, b.i32(1)), p)
    b.store(b.call("helper", b.t_f32, [f]), p)
    b.call("helper", b.t_f32, [f])
    b.store(b.call_intrinsic("llvm.exp2.f32", b.t_f32, [f]), p)
    pair = b.inline_asm("foo $0, $1, $2", "=r,=f,r", b.struct([b.t_i32, b.t_f32]), [a])
    for v in b.unpack_struct(pair):
        b.store(v, p)
    vector = b.pack_vector([f, f])
    for v in b.unpack_vector(vector, 2):
        b.store(v, p)
    text = finish()
    assert 'atomicrmw fadd ptr addrspace(1) %1, float %2 syncscope("agent") monotonic' in text
    assert "cmpxchg ptr addrspace(1) %1, i32 %0, i32 1 acq_rel acquire" in text
    assert text.count("declare float @helper(float)") == 1
    assert 'asm sideeffect "foo $0, $1, $2", "=r,=f,r"(i32 %0)' in text
