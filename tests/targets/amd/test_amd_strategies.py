"""How often a kernel that spills is emitted: other strategies and addresses computed anew are tried where they may help, and not where nothing does."""

import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.targets.amd import emit


@tilewright.jit
def dot_kernel(a, b, c, M: tl.constexpr):
    i, k = tl.arange(0, M), tl.arange(0, 16)
    tl.store(c + i[:, None] * M + i[None, :], tl.dot(tl.load(a + i[:, None] * 16 + k[None, :]), tl.load(b + k[:, None] * M + i[None, :])))


@pytest.mark.parametrize("spills, emissions, variants", [(0, 1, None), (40, 6, [{"addresses_anew": True}]), (256, 6, [{"addresses_anew": True}]), (257, 1, None)])
def test_emissions(monkeypatch, tmp_path, spills, emissions, variants):
    """Each emission is said to spill so much."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    usage, emitted = emit.resource_usage, []
    emit_amdgcn = emit.emit_amdgcn
    monkeypatch.setattr(emit, "resource_usage", lambda text: {**usage(text), "spills": spills})
    monkeypatch.setattr(emit, "emit_amdgcn", lambda ir, arch: emitted.append(arch) or emit_amdgcn(ir, arch))
    source = tilewright.compiler.ASTSource(fn=dot_kernel, signature={"a": "*fp16", "b": "*fp16", "c": "*fp32", "M": "constexpr"}, constexprs={"M": 16})
    made = tilewright.compile(source, target=GPUTarget("hip", "gfx942", 64), options={"num_warps": 1})
    found = getattr(made.metadata, "variants", None)
    assert (len(emitted), [v["options"] for v in found] if found else None) == (emissions, variants)
    assert (f"{spills} of a lane's are kept in scratch memory" in made.explain()) == bool(spills)
