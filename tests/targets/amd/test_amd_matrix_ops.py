"""Every row of the table, lane by lane: an instruction that follows the manuals' formulas computes numpy's product when its
operands are laid out by the row's bases. The formulas here are written from the ISA manuals, not from the table."""

from __future__ import annotations

import re

import numpy as np
import pytest
from amd_harness import coordinates

from tilewright.dialects.matrix_ops import lookup, register_rows
from tilewright.targets.amd.matrix_ops import MATRIX_OPS, fed_rows, rows_for

register_rows(MATRIX_OPS)


def manual_instruction(name: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, m: int, k: int) -> np.ndarray:
    """D of (lanes, registers) operands, by the manuals' lane formulas."""
    lanes, per_lane = a.shape
    big_a, big_b = np.full((m, k), np.nan), np.full((k, m), np.nan)
    big_c = np.full((m, m), np.nan)
    mfma, gfx11 = "mfma" in name, name.endswith("gfx11")
    for lane in range(lanes):
        for j in range(per_lane):
            if mfma:  # CDNA: row l % M, k = e·(l // M) + j
                row, kk = lane % m, per_lane * (lane // m) + j
            elif gfx11:  # RDNA 3: lanes 16–31 repeat lanes 0–15
                row, kk = lane % 16, j
            else:  # RDNA 4: k = 8·(l // 16) + j
                row, kk = lane % 16, 8 * (lane // 16) + j
            for big, value, where in ((big_a, a[lane, j], (row, kk)), (big_b, b[lane, j], (kk, row))):
                assert np.isnan(big[where]) or big[where] == value, "lanes that repeat an element disagree"
                big[where] = value

    def place(lane: int, r: int) -> tuple[int, int]:
        if "f64" in name:
            return lane // 16 + 4 * r, lane % 16
        if mfma and m == 32:
            return 8 * (r // 4) + 4 * (lane // 32) + r % 4, lane % 32
        if mfma:
            return 4 * (lane // 16) + r, lane % 16
        return (2 * r + lane // 16, lane % 16) if gfx11 else (8 * (lane // 16) + r, lane % 16)

    for lane in range(lanes):
        for r in range(c.shape[1]):
            big_c[place(lane, r)] = c[lane, r]
    assert not np.isnan(big_a).any() and not np.isnan(big_b).any() and not np.isnan(big_c).any()
    big_d = big_a @ big_b + big_c
    return np.array([[big_d[place(lane, r)] for r in range(c.shape[1])] for lane in range(lanes)])


@pytest.mark.parametrize("row", MATRIX_OPS, ids=lambda r: r.name)
def test_row_is_the_instruction(row):
    rng = np.random.default_rng()
    a, b, c = rng.standard_normal((row.m, row.k)), rng.standard_normal((row.k, row.n)), rng.standard_normal((row.m, row.n))
    at, bt, ct = (coordinates(x) for x in (row.a, row.b, row.c))
    assert at.shape[0] == bt.shape[0] == ct.shape[0] == row.warp_size
    d = manual_instruction(row.name, a[at[..., 0], at[..., 1]], b[bt[..., 0], bt[..., 1]], c[ct[..., 0], ct[..., 1]], row.m, row.k)
    expected = a @ b + c
    np.testing.assert_allclose(d, expected[ct[..., 0], ct[..., 1]], rtol=1e-12, atol=1e-12)


_LLVM = {"f16": "half", "bf16": "bfloat", "f32": "float", "i8": "i8", "i16": "i16", "tf32": "float", "i32": "i32", "f64": "double"}


@pytest.mark.parametrize("row", MATRIX_OPS, ids=lambda r: r.name)
def test_row_selects_its_instruction_on_every_arch(row):
    """The intrinsic is known to LLVM with these types, and becomes the matrix instruction of the row's shape."""
    from tilewright.targets.amd.emit import emit_amdgcn

    n, nc, how = 1 << len(row.a.register), 1 << len(row.c.register), row.extra["operands"]
    operand = {"vector": f"<{n} x {_LLVM.get(row.extra['element'] or row.a_type, '')}>", "scalar": _LLVM.get(row.a_type, ""),
               "i32": "i32", "i64": "i64", "v2i32": "<2 x i32>", "v4i32": "<4 x i32>", "v8i32": "<8 x i32>"}[how]
    acc = f"<{nc} x {_LLVM[row.c_type]}>"
    zero = ("i32", "0")
    form = {"mfma": [(operand, "%a"), (operand, "%b"), (acc, "%c"), zero, zero, zero],
            "mfma_scale": [(operand, "%a"), (operand, "%b"), (acc, "%c"), *(("i32", str(f)) for f in row.extra["formats"]), *[zero] * 4],
            "wmma": [(operand, "%a"), (operand, "%b"), (acc, "%c")],
            "wmma_signed": [("i1", "true"), (operand, "%a"), ("i1", "true"), (operand, "%b"), (acc, "%c"), ("i1", "false")]}[row.extra["form"]]
    ir = f"""
define amdgpu_kernel void @k({operand} %a, {operand} %b, {acc} %c, ptr addrspace(1) %p) {{
  %r = call {acc} @{row.intrinsic}({', '.join(f'{t} {v}' for t, v in form)})
  store {acc} %r, ptr addrspace(1) %p
  ret void
}}
declare {acc} @{row.intrinsic}({', '.join(t for t, _ in form)})
"""
    for arch in row.extra["archs"]:
        text = emit_amdgcn(ir, arch)
        found = re.search(r"v_(?:mfma|wmma)_\w+", text)
        assert found and f"{row.m}x{row.n}x{row.k}" in found.group(0), (arch, found)
        assert "v_mfma_scale" not in text  # a scale that is not given is 1, and costs nothing


def test_fed_rows_take_accumulators_as_they_lie():
    """The transposed accumulator's registers and lanes along n are the operand's along k, in one or two instructions' tiles."""
    for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"):
        fed = fed_rows(arch)
        assert set(fed) <= {r.name for r in rows_for(arch)} and not set(fed.values()) & {r.name for r in rows_for(arch)}
        for name, other in fed.items():
            row, new = lookup(name), lookup(other)
            assert (row.intrinsic, row.c) == (new.intrinsic, new.c) and row.a != new.a
            rows = [r for r, _ in new.c.register]
            assert [k for _, k in new.a.register][:len(rows)] == rows[:len(new.a.register)]
            assert [k for _, k in new.a.lane if k] == [r for r, _ in new.c.lane if r]
    assert fed_rows("gfx950")["amd.mfma_32x32x16_f16_gfx950"] == "amd.mfma_32x32x16_f16_gfx950_fed"
    assert fed_rows("gfx1201") == fed_rows("gfx1100") == {}


def test_every_dot_arch_has_rows_for_half_types():
    for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"):
        assert {"f16", "bf16", "i8"} <= {r.a_type for r in rows_for(arch)}
    assert rows_for("gfx1030") == ()
