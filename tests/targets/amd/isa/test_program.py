"""The reader of AMDGCN text: operands, modifiers, descriptors, arguments, lines, constant data."""

import pytest
from snippets import kernel_text

from tilewright.targets.amd.isa.errors import UnknownInstruction
from tilewright.targets.amd.isa.program import (
    Expr,
    Imm,
    Reg,
    Special,
    float_bits,
    parse,
    parse_instruction,
    parse_operand,
)


@pytest.mark.parametrize("text, expected", [
    ("v5", Reg(kind="v", first=5)), ("s[4:7]", Reg(kind="s", first=4, count=4)), ("a[0:15]", Reg(kind="a", first=0, count=16)), ("ttmp9", Reg(kind="ttmp", first=9)), ("a16", Reg(kind="a", first=16)),
    ("v3.h", Reg(kind="v", first=3, hi=True)), ("v3.l", Reg(kind="v", first=3, hi=False)), ("-v1", Reg(kind="v", first=1, neg=True)),
    ("|v1|", Reg(kind="v", first=1, abs=True)), ("-|s2|", Reg(kind="s", first=2, neg=True, abs=True)), ("sext(v9)", Reg(kind="v", first=9, sext=True)),
    ("neg(v1)", Reg(kind="v", first=1, neg=True)), ("v[7]", Reg(kind="v", first=7)), ("vcc_lo", Special(name="vcc_lo")), ("-vcc_lo", Special(name="vcc_lo", neg=True)),
    ("null", Special(name="null")), ("off", Special(name="off")), ("64", Imm(value=64)), ("-16", Imm(value=-16)), ("65", Imm(value=65, literal=True)),
    ("0x3f", Imm(value=63, literal=True)), ("-0.5", Imm(value=-0.5)), ("0.15915494", Imm(value=0.15915494)), ("hwreg(HW_REG_MODE, 4, 2)", Expr()),
])
def test_operands(text, expected):
    assert parse_operand(text) == expected


def test_modifiers():
    ins = parse_instruction("global_load_dwordx4 v[0:3], v[8:9], off offset:4096 sc0 nt")
    assert [o.text for o in ins.operands] == ["v[0:3]", "v[8:9]", "off"] and ins.modifiers == {"offset": 4096, "sc0": True, "nt": True}
    ins = parse_instruction("v_mov_b32_dpp v23, v22 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1")
    assert ins.base == "v_mov_b32" and ins.modifiers["quad_perm"] == (1, 0, 3, 2) and ins.modifiers["row_mask"] == 15
    ins = parse_instruction("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7] op_sel_hi:[0,1,1] neg_lo:[1,0,0]")
    assert len(ins.operands) == 4 and ins.modifiers == {"op_sel_hi": (0, 1, 1), "neg_lo": (1, 0, 0)}
    ins = parse_instruction("buffer_load_dword v1, v2, s[0:3], 0 offen offset:8 lds")
    assert len(ins.operands) == 4 and ins.modifiers == {"offen": True, "offset": 8, "lds": True}
    ins = parse_instruction("ds_swizzle_b32 v1, v2 offset:swizzle(SWAP,16)")
    assert ins.modifiers == {"offset": "swizzle(SWAP,16)"}
    ins = parse_instruction("s_waitcnt vmcnt(0) & lgkmcnt(3)")
    assert ins.modifiers == {"vmcnt": 0, "lgkmcnt": 3} and not ins.operands
    ins = parse_instruction("global_load_b32 v0, v[0:1], off scope:SCOPE_SYS th:TH_LOAD_NT")
    assert ins.modifiers == {"scope": "SCOPE_SYS", "th": "TH_LOAD_NT"}
    ins = parse_instruction("s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_1)")
    assert ins.modifiers["instskip"] == "NEXT"
    ins = parse_instruction("v_add_f32_e64 v0, |v1|, -|v2| clamp mul:2")
    assert [(o.neg, o.abs) for o in ins.operands] == [(False, False), (False, True), (True, True)] and ins.modifiers == {"clamp": True, "mul": 2}
    ins = parse_instruction("s_cselect_b32 s0, src_scc, scc")
    assert [o.text for o in ins.operands] == ["s0", "src_scc", "scc"]


def test_vopd_has_two_halves():
    ins = parse_instruction("v_dual_mov_b32 v15, 0 :: v_dual_lshlrev_b32 v0, 4, v0")
    assert (ins.name, ins.base, ins.dual.base, len(ins.dual.operands)) == ("v_dual_mov_b32", "v_mov_b32", "v_lshlrev_b32", 3)


@pytest.mark.parametrize("name, base", [("v_add_f32_e32", "v_add_f32"), ("v_add_f32_e64_dpp", "v_add_f32"), ("v_add_f32_sdwa", "v_add_f32"),
                                        ("s_mov_b32", "s_mov_b32"), ("v_cvt_f32_f16_e32", "v_cvt_f32_f16")])
def test_base_names(name, base):
    assert parse_instruction(f"{name} v0, v1").base == base


def test_kernel():
    text = kernel_text("gfx942", "s_branch .L\n.L:\ns_nop 0", args=[(0, 8, "global_buffer"), (8, 4, "by_value"), (12, 4, "hidden_block_count_x")], kernarg=16)
    kernel = parse(text).kernel()
    assert [i.name for i in kernel.instructions] == ["s_branch", "s_nop", "s_endpgm"] and kernel.labels == {".L": 1}
    assert [(i.file, i.line) for i in kernel.instructions] == [("/src/k.py", 1), ("/src/k.py", 3), ("/src/k.py", 3)]
    assert [(a.offset, a.size, a.hidden) for a in kernel.args] == [(0, 8, False), (8, 4, False), (12, 4, True)]
    assert kernel.descriptor["accum_offset"] == 256 and kernel.lanes == 64 and parse(kernel_text("gfx1201", "s_nop 0")).kernel().lanes == 32


def test_data():
    text = kernel_text("gfx942", "s_nop 0") + '\t.section\t.rodata.cst,"aM",@progbits,8\ntable:\n\t.long\t1\n\t.short\t-2\n\t.p2align\t3\nmore:\n\t.asciz\t"a\\n\\001"\n'
    program = parse(text)
    assert program.data == b"\x01\0\0\0\xfe\xff\0\0a\n\x01\0" and program.symbols == {"table": 0, "more": 8}


def test_not_a_program():
    with pytest.raises(UnknownInstruction, match="the text is not for one of .* but for gfx801"):
        parse('\t.amdgcn_target "amdgcn-amd-amdhsa--gfx801"\n')
    with pytest.raises(UnknownInstruction, match="no kernel"):
        parse('\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n')

    with pytest.raises(UnknownInstruction, match="as a number is not simulated: .long 5"):
        parse(kernel_text("gfx942", "s_nop 0\n.long 5"))
    with pytest.raises(UnknownInstruction, match="values are no numbers.*max"):
        parse(kernel_text("gfx942", "s_nop 0", descriptor={"next_free_sgpr": "max(a, b)"}))


def test_float_constants():
    assert [float_bits(1.0, k) for k in ("f16", "bf16", "f32", "f64")] == [0x3C00, 0x3F80, 0x3F800000, 0x3FF0000000000000]
    assert float_bits(0.15915494, "f32") == 0x3E22F983  # 1/(2π), which no decimal in the text gives exactly


def test_registers_are_no_modifiers():
    ins = parse_instruction("v_accvgpr_write_b32 a16, v97")
    assert [o.text for o in ins.operands] == ["a16", "v97"] and not ins.modifiers
