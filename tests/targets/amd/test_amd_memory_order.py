"""What a release writes back is waited for, and what an acquire empties is emptied for every wave: read in the emitted code."""

from __future__ import annotations

import re

import pytest

import tilewright
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.targets import registry


@tilewright.jit
def lock_one(flag, x, SCOPE: tl.constexpr, SEM: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    while tl.atomic_cas(flag, 0, 1, sem=SEM, scope=SCOPE) == 1:
        pass
    tl.store(x + i, tl.load(x + i) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(flag, 0, sem=SEM, scope=SCOPE)


@tilewright.jit
def lock_tile(flag, x, SCOPE: tl.constexpr, SEM: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    old = tl.atomic_add(flag + i, 1, sem=SEM, scope=SCOPE)
    tl.store(x + i, tl.load(x + tl.sum(old)).to(tl.float32))


@tilewright.jit
def count_one(flag, x, SCOPE: tl.constexpr, SEM: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    old = tl.atomic_add(flag, 1, sem=SEM, scope=SCOPE)
    tl.store(x + i, tl.load(x + i + old))


def code(kernel, arch, scope="gpu", sem="acq_rel", warps=4, **options):
    source = ASTSource(kernel, {"flag": "*i32", "x": "*fp32"}, {"SCOPE": scope, "SEM": sem, "B": 256})
    text = tilewright.compile(source, target=registry.parse(f"amd:{arch}"), options={"num_warps": warps, **options}).asm["amdgcn"]
    return [line.split(";")[0].strip() for line in text.splitlines() if re.match(r"\s+[sbvgd][a-z]*_", line)]


@pytest.mark.parametrize("kernel, options", [(lock_one, {}), (lock_tile, {}), (lock_tile, {"buffer_ops": False})])
@pytest.mark.parametrize("arch, scope, back", [("gfx942", "gpu", True), ("gfx950", "sys", True), ("gfx942", "cta", False), ("gfx90a", "gpu", False), ("gfx90a", "sys", True)])
def test_atomics_wait_for_what_they_release(kernel, options, arch, scope, back):
    lines = code(kernel, arch, scope, **options)
    at = [k for k, line in enumerate(lines) if line.startswith("buffer_wbl2")]
    assert bool(at) is back
    for k in at:
        atomic = next(j for j in range(k, len(lines)) if "_atomic_" in lines[j])
        assert any(re.search(r"s_waitcnt.* vmcnt\(0\)", line) for line in lines[k:atomic]), lines[k:atomic + 1]
    assert not any(line.startswith("buffer_wbl2") for line in code(kernel, arch, scope, "acquire", **options))


@pytest.mark.parametrize("kernel", [count_one, lock_tile])
@pytest.mark.parametrize("arch, empties", [("gfx1030", "buffer_gl0_inv"), ("gfx1100", "buffer_gl0_inv"), ("gfx1201", "global_inv")])
def test_every_wave_empties_its_cache_after_an_acquire(kernel, arch, empties):
    for sem in ("acquire", "acq_rel"):
        lines = code(kernel, arch, "gpu", sem)
        emptied = [k for k, line in enumerate(lines) if line.startswith(empties)]
        barriers = [k for k, line in enumerate(lines) if line.startswith("s_barrier")]
        between = [k for k in barriers if emptied[0] < k < emptied[-1]]  # the acting wave's is before the barrier, all waves' after it
        assert between and not any("s_cbranch" in line for line in lines[between[-1]:emptied[-1]])
        assert len([line for line in code(kernel, arch, "gpu", sem, 1) if line.startswith(empties)]) < len(emptied)
    assert not any(line.startswith(empties) for line in code(kernel, arch, "gpu", "relaxed"))
