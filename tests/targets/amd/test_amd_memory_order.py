"""What a release writes back is waited for, and what an acquire empties is emptied for every wave: read in the emitted code."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.targets import registry
from tilewright.targets.amd.isa.errors import GlobalRace


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


def code(kernel, arch, scope="gpu", sem="acq_rel", warps=4, TILE=None, **options):
    source = ASTSource(kernel, {"flag": "*i32", "x": "*fp32"}, {"SCOPE": scope, "SEM": sem, "B": 256, **({} if TILE is None else {"TILE": TILE})})
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


@tilewright.jit
def follow(flag, x, out, n, SEM: tl.constexpr, B: tl.constexpr):
    """Program 0 tells in each round of what it stored in the one before; program 1 waits for it."""
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        for k in range(n):
            tl.atomic_add(flag, 1, sem=SEM)
            tl.store(x + k * B + i, k + 1)
    else:
        total = tl.zeros((B,), tl.int32)
        for k in range(n - 1):
            while tl.atomic_add(flag, 0) < k + 2:
                pass
            total += tl.load(x + k * B + i)
        tl.store(out + i, total)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_program_follows_another(arch, monkeypatch):
    """Of program 1's atomics, which change nothing, LLVM makes loads that pass the caches."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{arch}:sim")
    x, out = np.zeros(4 * 64, np.int32), np.zeros(64, np.int32)
    follow[(2,)](np.zeros(1, np.int32), x, out, 4, "acq_rel", B=64, num_warps=1)
    assert (out == 1 + 2 + 3).all()
    with pytest.raises(GlobalRace):
        follow[(2,)](np.zeros(1, np.int32), np.zeros(256, np.int32), np.zeros(64, np.int32), 4, "relaxed", B=64, num_warps=1)


@tilewright.jit
def tell_in_rounds(flag, x, SCOPE: tl.constexpr, SEM: tl.constexpr, B: tl.constexpr, TILE: tl.constexpr):
    i = tl.arange(0, 32)
    for k in range(tl.load(flag + 1)):
        if TILE:
            tl.atomic_add(flag + i, 1, sem=SEM, scope=SCOPE)
        else:
            tl.atomic_add(flag, 1, sem=SEM, scope=SCOPE)
        tl.store(x + k * 32 + i, k.to(tl.float32))


@pytest.mark.parametrize("tile, options", [(False, {}), (True, {}), (True, {"buffer_ops": False})])
@pytest.mark.parametrize("arch, wait", [("gfx90a", r"vmcnt\(0\)"), ("gfx942", r"vmcnt\(0\)"), ("gfx1030", "_vscnt null, 0x0"), ("gfx1100", "_vscnt null, 0x0"),
                                        ("gfx1201", "s_wait_storecnt(_dscnt)? 0x0")])
def test_stores_of_the_round_before_are_released(arch, wait, tile, options):
    """LLVM 22 drops a release's waits in a loop whose first round has nothing to wait for."""
    lines = code(tell_in_rounds, arch, warps=1, TILE=tile, **options)
    atomic = next(k for k, line in enumerate(lines) if "_atomic_add" in line)
    store = max((k for k, line in enumerate(lines[:atomic]) if re.match("(buffer|global)_store_(b32|dword)", line)), default=-1)
    assert any(re.search(wait, line) for line in lines[store + 1:atomic]), lines
