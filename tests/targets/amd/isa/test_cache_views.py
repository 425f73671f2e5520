"""Work-groups with caches of their own: what is not written back, or not emptied, is a race, though an atomic lies between."""

import functools
import re

import numpy as np
import pytest
from race_kernels import last_adds

import tilewright
from tilewright.compiler import ASTSource
from tilewright.targets import registry
from tilewright.targets.amd.isa.errors import GlobalRace
from tilewright.targets.amd.simulate import simulate

ARCHS = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
B, G = 256, 3


@functools.cache
def text_of(arch, sem, volatile=False):
    source = ASTSource(last_adds, {"x": "*fp32", "parts": "*fp32", "counter": "*i32", "out": "*fp32", "n": "i32"}, {"B": B, "G": G, "BARRIER": True, "SEM": sem, "VOLATILE": volatile})
    compiled = tilewright.compile(source, target=registry.parse(f"amd:{arch}"), options={"num_warps": 4})
    return compiled.asm["amdgcn"], compiled.metadata.shared


def run(arch, sem="acq_rel", pattern=None, by="", count=0, volatile=False):
    text, shared = text_of(arch, sem, volatile)
    if pattern:
        changed = re.sub(pattern, by, text, count=count)
        assert changed != text, "nothing was changed"
        text = changed
    x, out = np.arange(G * B, dtype=np.float32), np.zeros(B, np.float32)
    simulate(text, (G,), [x, np.full(G * B, np.nan, np.float32), np.zeros(1, np.int32), out, G], num_warps=4, shared=shared)
    assert (out == x.reshape(G, B).sum(0) * 2).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_release_and_acquire_order_programs(arch):
    run(arch)
    with pytest.raises(GlobalRace, match="reads what .*release .*acquire"):
        run(arch, "relaxed")


@pytest.mark.parametrize("arch", ARCHS)
def test_caches_are_emptied(arch):
    emptied = {"gfx90a": r"\n\tbuffer_wbinvl1[a-z_]*", "gfx942": r"\n\tbuffer_inv sc1", "gfx950": r"\n\tbuffer_inv sc1"}.get(arch, r"\n\t(global_inv|buffer_gl0_inv)[^\n]*")
    with pytest.raises(GlobalRace):
        run(arch, pattern=emptied)
    if not arch.startswith("gfx9"):  # by each wave, after the barrier
        with pytest.raises(GlobalRace):
            run(arch, pattern=emptied + r"(?=(?:\n[^\n]*){0,4}\n\tds_(load|read))")
        run(arch, pattern=emptied + r"(?=(?:\n[^\n]*){0,4}\n\tds_(load|read))" + r"|\.amdhsa_workgroup_processor_mode 1", by=lambda m: ".amdhsa_workgroup_processor_mode 0" if m[0][0] == "." else "")
    if arch == "gfx1201":  # of the instruction that writes back as well
        run(arch, pattern=r"\n\tglobal_inv ", by="\n\tglobal_wbinv ")
    if arch == "gfx1100":
        with pytest.raises(GlobalRace):
            run(arch, pattern=r"\n\tbuffer_gl1_inv")


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_the_second_cache_is_written_back_and_waited_for(arch):
    with pytest.raises(GlobalRace):
        run(arch, pattern=r"\n\tbuffer_wbl2 sc1")
    with pytest.raises(GlobalRace):
        run(arch, pattern=r"(\n\tbuffer_wbl2 sc1)\n\ts_waitcnt [^\n]*", by=r"\1\n\ts_waitcnt lgkmcnt(0)")


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_loads_that_pass_the_caches_need_none_emptied(arch):
    emptied = r"\n\t(buffer_inv|global_inv|buffer_gl0_inv)[^\n]*"
    run(arch, pattern=emptied, volatile=True)
