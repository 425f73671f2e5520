"""What the runtime asks of every installed target before it can look into the cache: nothing heavy may be imported for it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tilewright.dialects.errors import UnsupportedArchError
from tilewright.targets import registry
from tilewright.targets.protocol import GPUTarget

PLUGINS = registry.plugins()

LIGHT = """
import json, sys
from tilewright.targets import registry
plugin = registry.get({name!r})
plugin.probe()
arch = plugin.resolve_arch(plugin.default_arch)
plugin.options()
plugin.fingerprint()
print(json.dumps([m for m in ("torch_mlir", "mlir", "llvmlite", "numpy", "torch", "cuda", "hip") if m in sys.modules]))
"""


@pytest.mark.parametrize("name", [p.name for p in PLUGINS])
def test_looking_into_the_cache_imports_nothing_heavy(name):
    result = subprocess.run([sys.executable, "-c", LIGHT.format(name=name)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == []


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: p.name)
def test_protocol(plugin):
    assert plugin.default_arch in plugin.archs
    assert plugin.fingerprint() == plugin.fingerprint()
    options = plugin.options()
    assert hash(options) == hash(plugin.options())
    for arch in plugin.archs:
        assert plugin.resolve_arch(arch) == arch
        capabilities = plugin.capabilities(arch)
        assert capabilities.arch == arch and capabilities.warp_size >= 1 and capabilities.max_shared_bytes > 0
        triple = registry.gpu_target(plugin, arch)
        assert str(registry.select(triple)) == f"{plugin.name}:{arch}"  # Triton's triple leads back
        stages = [s.name for s in plugin.pipeline(arch, options).stages]
        assert stages[0] == "ttir" and plugin.binary_stage in stages and plugin.source_stage in stages
    with pytest.raises(UnsupportedArchError) as error:
        plugin.resolve_arch("frobnicate")
    assert plugin.archs[0] in str(error.value)


def test_tritons_triples_of_shipped_targets():
    for backend, arch, warp, expected in (("cuda", 80, 32, "nvidia:sm_80"), ("cuda", 90, 32, "nvidia:sm_90a"), ("hip", "gfx942", 64, "amd:gfx942"),
                                          ("hip", "gfx1100", 32, "amd:gfx1100"), ("cpu", "", 0, "cpu:")):
        selection = registry.select(GPUTarget(backend, arch, warp))
        assert str(selection).startswith(expected)
        if backend != "cpu":
            assert selection.gpu_target == GPUTarget(backend, arch, warp)
