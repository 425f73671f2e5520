"""Comparisons and classes into VCC, scalar registers and EXEC."""

import operator

import numpy as np
import pytest
from snippets import run_snippet
from valu_cases import floats, integers, lane_values, to_register

from tilewright.targets.amd.isa.errors import UnknownInstruction

FLOAT = {"lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "lg": lambda a, b: a < b or a > b,
         "ge": lambda a, b: a >= b, "o": lambda a, b: a == a and b == b, "u": lambda a, b: a != a or b != b, "nge": lambda a, b: not a >= b,
         "nlg": lambda a, b: not (a < b or a > b), "ngt": lambda a, b: not a > b, "nle": lambda a, b: not a <= b, "neq": lambda a, b: not a == b,
         "nlt": lambda a, b: not a < b, "f": lambda a, b: False, "tru": lambda a, b: True}
INTEGER = {"lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ne": operator.ne, "ge": operator.ge, "f": lambda a, b: False, "t": lambda a, b: True}
ACTIVE = 0xFFFFFFFF0FFFFFF5


def masks(f, a, b, active):
    return [sum(1 << i for i, (x, y) in enumerate(zip(p.tolist(), q.tolist())) if f(x, y)) & active for p, q in zip(a, b)]


def pair(make):
    a, b = make(1), make(2)
    b[:, ::3] = a[:, ::3]  # some are equal
    return a, b


@pytest.mark.parametrize("kind", ["f16", "f32", "f64", "i16", "u16", "i32", "u32", "i64", "u64"])
def test_each_comparison(kind):
    table = FLOAT if kind[0] == "f" else INTEGER
    bits = int(kind[1:])
    if kind[0] == "f":
        a, b = pair(lambda i: lane_values("gfx942", lambda n: floats(kind, n, i), waves=2))
    else:
        a, b = pair(lambda i: lane_values("gfx942", lambda n: integers(n, i, bits), waves=2))
        if kind[0] == "i":
            a, b = a.view(kind.replace("i", "int")), b.view(kind.replace("i", "int"))
    x, y = ("v[2:3]", "v[4:5]") if bits == 64 else ("v2", "v4")
    values = {2: to_register(a), 4: to_register(b)}
    for name, f in table.items():
        r = run_snippet("gfx942", f"v_cmp_{name}_{kind}_e32 vcc, {x}, {y}\nv_cmp_{name}_{kind}_e64 s[10:11], {y}, {x}", values, waves=2, exec=ACTIVE)
        assert r.vcc.tolist() == masks(f, a, b, ACTIVE), name
        assert r.sgpr(10, np.uint64).tolist() == masks(f, b, a, ACTIVE), name


def test_into_exec():
    x = np.arange(32, dtype=np.uint32)
    r = run_snippet("gfx1100", "v_cmpx_lt_u32_e64 5, v2\nv_mov_b32_e32 v3, 1", {2: x, 3: 0}, exec=0xFFFF0FFF, vcc=7)
    assert int(r.exec[0]) == 0xFFFF0FFF & ~0x3F and int(r.vcc[0]) == 7
    assert r.vgpr(3)[0].tolist() == [(0xFFFF0FFF & ~0x3F) >> i & 1 for i in range(32)]
    x = np.arange(64, dtype=np.uint32)
    r = run_snippet("gfx942", "v_cmpx_lt_u32_e32 vcc, 5, v2", {2: x}, exec=0xFF0FFF)
    assert int(r.exec[0]) == int(r.vcc[0]) == 0xFF0FFF & ~0x3F
    for arch, text in (("gfx942", "v_cmpx_lt_u32_e32 5, v2"), ("gfx1100", "v_cmpx_lt_u32_e32 vcc_lo, 5, v2"), ("gfx1100", "v_cmp_lt_u32_e32 5, v2")):
        with pytest.raises(UnknownInstruction):
            run_snippet(arch, text)


def test_signs_of_what_is_compared():
    a, b = (lane_values("gfx1201", lambda n, i=i: floats("f32", n, i), waves=1) for i in (1, 2))
    r = run_snippet("gfx1201", "v_cmp_lt_f32_e64 s4, |v2|, -v4\nv_cmp_gt_f32_e32 vcc_lo, 0, v2\nv_cmp_nge_f32_e64 s5, s6, |v2|", {2: a, 4: b}, {6: np.float32(1.5)})
    assert int(r.sgpr(4)[0]) == masks(lambda x, y: abs(x) < -y, a, b, 0xFFFFFFFF)[0]
    assert int(r.vcc[0]) == masks(lambda x, y: 0 > x, a, b, 0xFFFFFFFF)[0]
    assert int(r.sgpr(5)[0]) == masks(lambda x, y: not 1.5 >= abs(x), a, b, 0xFFFFFFFF)[0]


@pytest.mark.parametrize("kind, snan, qnan", [("f16", 0x7D01, 0xFE00), ("f32", 0xFF800001, 0x7FC00000), ("f64", 0x7FF0000000000001, 0xFFF8000000000000)])
def test_classes(kind, snan, qnan):
    type = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
    uint = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}[kind]
    info = np.finfo(type)
    values = np.array([0, 0, -np.inf, -info.max, -info.tiny / 2, -0.0, 0.0, info.smallest_subnormal, info.tiny, np.inf, 1, -1], type)
    values.view(uint)[:2] = snan, qnan
    classes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 3]
    a = np.resize(values, (1, 32))
    for bit in range(10):
        source = "v[2:3]" if kind == "f64" else "v2"
        r = run_snippet("gfx1100", f"v_cmp_class_{kind}_e64 s4, {source}, v4\nv_cmp_class_{kind}_e64 s5, -{source}, v4", {2: to_register(a), 4: np.uint32(1 << bit)},
                        descriptor={"float_denorm_mode_32": 0, "float_denorm_mode_16_64": 0})
        assert int(r.sgpr(4)[0]) == sum(1 << i for i in range(32) if classes[i % 12] == bit), bit
        other = {2: 9, 3: 8, 4: 7, 5: 6, 6: 5, 7: 4, 8: 3, 9: 2}.get(bit, bit)
        assert int(r.sgpr(5)[0]) == sum(1 << i for i in range(32) if classes[i % 12] == other), bit
