"""AMD's code of the benchmark kernels beside Triton's committed figures; no GPU. No spills, 1.1 × Triton's instructions at most, 1.0 × its cycles.

A few (QUICK) run always, the rest as slow tests. ``python benchmarks/amd_static.py`` prints all the figures.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import amd_cycles
import amd_static
import pytest
from frameworks import Framework

DATA = json.loads(amd_static.PEER.read_text())
TRITON = DATA["kernels"]
ALL = {f"{arch} {kernel.name}": (arch, kernel) for arch, kernel in amd_static.chosen("", "")}
QUICK = {*(f"{arch} {name}" for arch in amd_static.ARCHS for name in ("add", "softmax")), "gfx942 matmul", "gfx1201 matmul"}
BOUNDS = {"loop": 1.1, "instructions": 1.1, "cycles": 1.005}

# The one list of what does not hold yet: label → the faults' first words. What is listed and holds fails, so that the list shrinks.
NOT_YET: dict[str, set[str]] = {}


@cache
def comparison(label: str) -> amd_static.Comparison:
    return amd_static.compare(Framework("tilewright"), *ALL[label], TRITON)


def faults(c: amd_static.Comparison) -> dict[str, str]:
    """First word → what is wrong."""
    found = {}
    if c.ours["spills"] or c.ours["scratch"]:
        found["spills"] = f"{c.ours['spills']} registers, {c.ours['scratch']} bytes of scratch; Triton {c.peer['spills'] if c.peer else '?'}"
    return found | {name: f"{c.ratios[name]:.3f} of Triton's, {bound} allowed" for name, bound in BOUNDS.items() if c.ratios.get(name, 0.0) > bound}


def labels() -> list:
    return [pytest.param(label, marks=[] if label in QUICK else [pytest.mark.slow]) for label in ALL]


@pytest.mark.parametrize("label", labels())
def test_no_spills_and_no_more_instructions_than_triton(label, monkeypatch, record_property):
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    found = faults(comparison(label))
    record_property("faults", json.dumps(found))
    known = NOT_YET.get(label, set())
    assert set(found) <= known, found
    assert known <= set(found), "it holds: take it off the list"
    if found:
        pytest.xfail(str(found))


@pytest.mark.slow
def test_no_more_instructions_than_triton_in_the_mean(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    found = [comparison(label).ratios for label in ALL]
    for name in BOUNDS:
        assert amd_static.geometric([r[name] for r in found if r]) <= 1.0, name


@pytest.mark.parametrize("label", [pytest.param(label, marks=[] if label == "gfx942 matmul_128x128x32" else [pytest.mark.nightly])
                                   for label, (_, kernel) in ALL.items() if kernel.flops])
def test_two_buffers_cost_no_wave(label, monkeypatch):
    """What num_stages of 3 and 4 make of a loop (targets/amd/passes/double_buffer.py): no wave less than 2 stages have, no spills, no more instructions."""
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    arch, kernel = ALL[label]
    rows = []
    for stages in (2, 3, 4):
        other = replace(kernel, config=replace(kernel.config, options={**kernel.config.options, "num_stages": stages}))
        made = amd_static.compiled(Framework("tilewright"), arch, other)
        rows.append(amd_static.figures(other, made["text"], made["shared"]))
    waves = [amd_cycles.occupancy(arch, r["vgprs"], r["shared"], kernel.warps) for r in rows]
    loops = [sum(r["loop"].values()) for r in rows]
    if arch != "gfx950":  # its ring of direct loads grows with num_stages as the user asks
        assert min(waves) == waves[0] and max(loops) <= (1.06 if kernel.name == "matmul_fp8" else 1.03) * loops[0]
    assert not any(r["spills"] for r in rows)
    if label == "gfx942 matmul_128x128x32":
        assert [r["unroll"] for r in rows] == [[1], [2], [2]] and [r["loop"]["s_barrier"] for r in rows] == [2, 1, 1]


def test_the_peer_file_is_of_these_kernels():
    """It is remade when the kernels change: ``amd_static.py --remake``."""
    assert set(TRITON) == set(ALL) and DATA["triton"] == "3.6.0"
    assert all(isinstance(row, dict) and row["loop"] for row in TRITON.values()), [k for k, v in TRITON.items() if isinstance(v, str)]
    assert set(NOT_YET) <= set(ALL)


LOOPS = """
	.text
k:
	s_load_b32 s0, s[0:1], 0x0
	v_mov_b32_e32 v0, 0                     ; a comment
.LBB0_0:
	v_nop
	s_branch .LBB0_2
.LBB0_1:
	s_or_b32 exec_lo, exec_lo, s3
	ds_load_b128 v[0:3], v9
	v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[8:15], v[0:7]
	v_dual_add_f32 v4, v4, v12 :: v_dual_add_f32 v5, v5, v13
	s_add_i32 s2, s2, -1
	s_cmp_lg_u32 s2, 0
	s_cbranch_scc0 .LBB0_4
.LBB0_2:
	s_and_saveexec_b32 s3, vcc_lo
	s_cbranch_execz .LBB0_1
	global_load_b128 v[0:3], v[4:5], off
	s_branch .LBB0_1
.LBB0_4:
	v_exp_f32_e32 v0, v0
	s_cbranch_scc1 .LBB0_4
	s_cbranch_scc1 .LBB0_0
	s_endpgm
	.section	.rodata
	.amdgpu_metadata
    .vgpr_count:     40
    .vgpr_spill_count: 3
    .wavefront_size: 32
"""


def test_loops_are_found():
    program = amd_cycles.parse(LOOPS)
    assert program.resources["vgprs"] == 40 and program.resources["spills"] == 3 and program.lanes == 32
    assert program.loops == (program.code[4:15], program.code[15:17])  # not the outer loop around both
    assert amd_cycles.by_kind(program.loops[0]) == {"matrix": 1, "valu": 1, "salu": 7, "lds": 1, "global": 1, "scratch": 0, "smem": 0, "wait": 0}


def test_steps_come_from_work():
    """A body that does two steps is halved; one that multiplies twice what it must, but loads once, is one step."""
    matmul = amd_static.KERNELS["matmul_64x64x32"]
    text = LOOPS.replace("	s_cbranch_scc1 .LBB0_4\n", "")
    multiply, load = "	v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[8:15], v[0:7]\n", "	global_load_b128 v[0:3], v[4:5], off\n"
    once = text.replace(multiply, multiply * 8).replace(load, load * 4)
    row = amd_static.figures(matmul, once, 8192)
    assert row["unroll"] == [1] and row["loop"]["v_wmma_f32_16x16x16_f16"] == 8
    row = amd_static.figures(matmul, text.replace(multiply, multiply * 16).replace(load, load * 8), 8192)
    assert row["unroll"] == [2] and row["loop"]["v_wmma_f32_16x16x16_f16"] == 8 and row["loop"]["s_add_i32"] == 0.5
    row = amd_static.figures(matmul, text.replace(multiply, multiply * 16).replace(load, load * 4), 8192)
    assert row["unroll"] == [1] and row["loop"]["v_wmma_f32_16x16x16_f16"] == 16
    with pytest.raises(ValueError, match="does 0.12 of a step"):
        amd_static.figures(matmul, text, 8192)


@pytest.mark.parametrize(("name", "kind", "size"), [
    ("v_mfma_f32_32x32x8_f16", "matrix", 0), ("ds_read2st64_b64", "lds", 16), ("ds_load_2addr_stride64_b64", "lds", 16), ("ds_store_b16_d16_hi", "lds", 2),
    ("global_load_dwordx4", "global", 16), ("buffer_load_d16_hi_b16", "global", 2), ("s_waitcnt", "wait", 0), ("buffer_gl0_inv", "wait", 0),
    ("s_buffer_load_dwordx2", "smem", 0), ("s_barrier", "wait", 0), ("scratch_load_b96", "scratch", 12), ("ds_bpermute_b32", "lds", 4),
    ("global_load_lds_dwordx4", "global", 16), ("ds_read_b64_tr_b16", "lds", 8), ("buffer_load_ubyte", "global", 1), ("ds_read_u16_d16", "lds", 2)])
def test_kinds_and_bytes(name, kind, size):
    assert amd_cycles.kind(name) == kind
    if size:
        assert amd_cycles.bytes_moved(name) == size


def test_the_model():
    """By hand: 128 × 128 × 64 in fp16 is 2^21 operations; MI300X does 2048 a cycle and compute unit."""
    code = {"v_mfma_f32_32x32x8_f16": 32, "v_add_f32_e32": 10, "v_exp_f32_e32": 2, "ds_read_b128": 4, "global_load_dwordx4": 2, "s_add_i32": 3}
    cost = amd_cycles.cost("gfx942", code, 4)
    assert cost.parts == {"matrix": 1024, "valu": 40 + 32, "salu": 12, "lds": 4 * 16 * 256 / 128, "memory": 2 * 16 * 256 / 64}
    assert (cost.cycles, cost.limit, cost.serial) == (1024, "matrix", sum(cost.parts.values()))
    assert amd_cycles.cost("gfx942", code, 4, lds_conflicts=2.0).parts["lds"] == 2 * cost.parts["lds"]
    assert amd_cycles.cost("gfx950", {"v_mfma_f32_32x32x16_f16": 1, "v_mfma_f32_32x32x16_fp8_fp8": 1}, 4).parts["matrix"] == 32 + 16
    assert amd_cycles.cost("gfx1201", {"v_wmma_f32_16x16x16_f16": 1, "v_dual_add_f32": 1}, 4).parts["valu"] == 16 + 1
    assert amd_cycles.cost("gfx1100", {"v_wmma_f32_16x16x16_f16": 1}, 4).parts["valu"] == 32
    assert amd_cycles.cost("gfx942", {"v_mfma_f32_32x32x2_f32": 1}, 4).parts["matrix"] == 64


@pytest.mark.parametrize("label", ["gfx942 matmul", "gfx942 softmax"])
def test_what_is_counted_is_executed(label, monkeypatch):
    """The simulator ran as many instructions a step as the text's loop has, ours and Triton's (whose rows branch past a few)."""
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    arch, kernel = ALL[label]
    c = amd_static.compare(Framework("tilewright"), arch, kernel, TRITON, measure=True)
    assert c.ours["memory"]["executed"] == sum(c.ours["loop"].values())
    assert 0.98 * sum(c.peer["loop"].values()) < c.peer["memory"]["executed"] <= sum(c.peer["loop"].values())
    assert c.ours["memory"]["lds"] == c.ours["memory"]["lds_least"] > 0
    assert c.ours["memory"]["lines"] == {"matmul": 2 * 128 * 64 * 2 / 128, "softmax": 2 * 4096 * 2 / 128}[kernel.name]


def test_occupancy():
    assert amd_cycles.occupancy("gfx942", 129, 0, 4) == 3
    assert amd_cycles.occupancy("gfx942", 64, 32768, 4) == 2
    assert amd_cycles.occupancy("gfx1100", 256, 0, 4) == 5
    assert amd_cycles.occupancy("gfx1100", 97, 0, 4) == 12
    assert amd_cycles.occupancy("gfx942", 10, 0, 4) == 8
