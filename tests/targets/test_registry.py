"""The registry: lookup by name and alias, broken plugins, selection order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.compiler.options import make_options, options_dict
from tilewright.dialects.errors import ArgumentError, TargetNotFoundError, UnsupportedArchError
from tilewright.dialects.pipeline import Pipeline
from tilewright.targets import registry
from tilewright.targets.protocol import Capabilities, CommonOptions, Device, GPUTarget, TargetPlugin


def make(name: str, aliases: tuple[str, ...] = (), device_types: tuple[str, ...] = (), found: int = 0, simulator=None, probe=None) -> TargetPlugin:
    archs = ("a1", "a2")

    def resolve(arch: int | str) -> str:
        text = f"a{arch}" if isinstance(arch, int) else arch
        if text not in archs:
            raise UnsupportedArchError(f"{name} has no arch {arch!r}; it has {', '.join(archs)}")
        return text

    return TargetPlugin(
        api=1, name=name, aliases=aliases, device_types=device_types, archs=archs, default_arch="a1",
        probe=probe or (lambda: [Device(i, f"{name} {i}", "a2") for i in range(found)]), resolve_arch=resolve,
        capabilities=lambda arch: Capabilities(arch, 32, 1024, extra={"triton_arch": int(arch[1:])}), options=CommonOptions,
        pipeline=lambda arch, options: Pipeline(()), driver=lambda: None, fingerprint=lambda: "1",
        binary_stage="bin", source_stage="text", simulator=simulator)


class Point:
    """Stands in for importlib.metadata's EntryPoint."""

    def __init__(self, name: str, value: object):
        self.name, self.value, self._load = name, f"somewhere:{name}", value

    def load(self):
        if isinstance(self._load, Exception):
            raise self._load
        return self._load


@pytest.fixture
def world(monkeypatch):
    """A registry with the given entry points only."""

    def setup(*points: Point) -> None:
        monkeypatch.setattr(registry.metadata, "entry_points", lambda group: list(points) if group == registry.GROUP else [])
        registry.reload()

    monkeypatch.delenv("TILEWRIGHT_TARGET", raising=False)
    yield setup
    monkeypatch.undo()
    registry.reload()


def test_shipped_targets_are_entry_points():
    registry.reload()
    assert [n for n in registry.names() if n in ("nvidia", "amd", "cpu")] == ["nvidia", "amd", "cpu"]  # others may be installed


def test_loaded_lazily_and_by_alias(world):
    loads = []
    one, two = Point("one", make("one", ("uno",))), Point("two", make("two"))
    for point in (one, two):
        original = point.load
        point.load = lambda original=original, point=point: (loads.append(point.name), original())[1]
    world(one, two)
    assert registry.get("two").name == "two" and loads == ["two"]
    assert registry.get("uno").name == "one"
    assert registry.get("one") is registry.get("uno")
    assert loads == ["two", "one"]


def test_broken_plugins_keep_their_error_and_harm_nothing(world):
    from dataclasses import replace

    world(Point("good", make("good", found=1)), Point("bad", ImportError("no module named frobnicate")),
          Point("odd", object()), Point("future", replace(make("future"), api=99)), Point("cpu", make("cpu")))
    entries = {e.name: e for e in registry.entries()}
    assert entries["good"].error is None and entries["good"].plugin.name == "good"
    assert "frobnicate" in str(entries["bad"].error)
    assert "not a TargetPlugin" in str(entries["odd"].error)
    assert "version 99" in str(entries["future"].error)
    assert registry.detect().plugin.name == "good"
    with pytest.raises(TargetNotFoundError, match="frobnicate"):
        registry.get("bad")
    with pytest.raises(TargetNotFoundError, match=r"no target 'a2'; known: cpu, good; an arch is written \w+:a2 or \w+:a2; broken"):
        registry.get("a2")
    with pytest.raises(TargetNotFoundError, match="no target 'nothing'; known: cpu, good; broken: .*frobnicate"):
        registry.get("nothing")


def test_parse(world):
    world(Point("one", make("one", ("uno",), simulator=lambda arch: None)), Point("cpu", make("cpu")))
    assert str(registry.parse("one:a2")) == "one:a2"
    assert str(registry.parse("uno:2:sim")) == "one:a2:sim"
    assert str(registry.parse("one")) == "one:a1"
    assert str(registry.parse("one::sim")) == "one:a1:sim"
    with pytest.raises(UnsupportedArchError, match="it has a1, a2"):
        registry.parse("one:a3")
    with pytest.raises(UnsupportedArchError, match="no simulator"):
        registry.parse("cpu::sim")
    for text in ("", "one:a1:fast", "one:a1:sim:x"):
        with pytest.raises(TargetNotFoundError):
            registry.parse(text)


def test_default_arch_is_that_of_the_first_device(world):
    world(Point("one", make("one", found=2)))
    assert registry.parse("one").arch == "a2"


def test_selection_order(world, monkeypatch):
    def broken_probe():
        raise OSError("driver exploded")

    world(Point("cpu", make("cpu", device_types=("cpu",), found=1)), Point("zeta", make("zeta", device_types=("z",), found=1)),
          Point("amd", make("amd", ("hip",), ("cuda",), found=1)), Point("nvidia", make("nvidia", ("cuda",), ("cuda",), probe=broken_probe)))
    assert registry.names() == ["nvidia", "amd", "zeta", "cpu"]
    assert registry.select().plugin.name == "amd"  # the first that detects a device
    assert registry.select(device_types=["cpu"]).plugin.name == "cpu"
    assert registry.select(device_types=["z"]).plugin.name == "zeta"
    assert registry.select(device_types=["cuda"]).plugin.name == "amd"  # both claim it; only amd has a device
    assert registry.select(device_types=["nobody's"]).plugin.name == "amd"
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:a2")
    assert str(registry.select(device_types=["cpu"])) == "nvidia:a2"
    assert str(registry.select("zeta:a1")) == "zeta:a1"
    assert str(registry.select(GPUTarget("cuda", 1, 32))) == "nvidia:a1"
    with pytest.raises(TargetNotFoundError, match="text or a GPUTarget"):
        registry.select(42)


def test_nothing_detected_is_cpu(world):
    world(Point("nvidia", make("nvidia")), Point("cpu", make("cpu")))
    assert registry.select().plugin.name == "cpu"


def test_gpu_target_is_tritons_triple(world):
    plugin = make("one", ("uno",))
    world(Point("one", plugin))
    assert registry.gpu_target(plugin, "a2") == GPUTarget("uno", 2, 32)


def test_register_replaces_and_unregister_restores(world):
    shipped, edited = make("one"), make("one", found=3)
    world(Point("one", shipped))
    assert not registry.is_in_process(registry.get("one"))
    registry.register(edited)
    assert registry.get("one") is edited and registry.is_in_process(edited)
    registry.unregister("one")
    assert registry.get("one") is shipped


@pytest.mark.parametrize("name", ["cpu", "nvidia", "amd"])
def test_shipped_plugins_are_keys(name):
    """Caches of bundles and launchers are keyed by selections; a mapping among a plugin's fields must not make them unhashable."""
    selection = registry.parse(name)
    assert {selection: 1}[registry.parse(name)] == 1


def test_options_are_derived_from_those_that_every_target_has():
    class Own:
        num_warps = 4

    with pytest.raises(TypeError, match="options of target 'cpux', 'Own', are not a dataclass derived from tilewright.targets.api.CommonOptions"):
        replace(make("cpux"), options=Own)
    given = {"debug": True, "sanitize_overflow": False, "default_dot_input_precision": "tf32", "enable_fp_fusion": False, "num_warps": 2, "num_stages": 5, "num_ctas": 1}
    assert options_dict(make_options(registry.Selection(make("cpux"), "a1"), given)) == given
    with pytest.raises(ArgumentError, match="num_stages is 0; at least 1 is needed"):
        make_options(registry.Selection(make("cpux"), "a1"), {"num_stages": 0})


@pytest.mark.parametrize("name", ["cpu", "nvidia", "amd"])
def test_shipped_targets_take_the_common_options(name):
    assert issubclass(registry.get(name).options, CommonOptions)
