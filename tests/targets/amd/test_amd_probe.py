"""Which GPUs there are: the kernel driver's files, and the environment that hides some of them."""

from __future__ import annotations

from tilewright.targets.amd import probe as probing
from tilewright.targets.protocol import Device

A, B, C = Device(0, "gfx A", "gfx942"), Device(1, "gfx B", "gfx90a"), Device(2, "gfx C", "gfx1100")


def test_the_drivers_files(tmp_path):
    for i, (version, name) in {0: ("0", "cpu"), 2: ("90402", "mi300x"), 10: ("110000", "navi31"), 3: ("90010", "mi210"), 4: ("what", "x")}.items():
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "properties").write_text(f"cpu_cores_count 0\ngfx_target_version {version}\nname {name}\n")
    (tmp_path / "5").mkdir()
    assert probing.by_files(str(tmp_path)) == [Device(0, "mi300x", "gfx942"), Device(1, "mi210", "gfx90a"), Device(2, "navi31", "gfx1100")]
    assert probing.by_files(str(tmp_path / "none")) == []


def test_hidden_devices_are_renumbered():
    def arches(**environment):
        return [(d.index, d.arch) for d in probing.visible([A, B, C], environment)]

    assert arches() == [(0, "gfx942"), (1, "gfx90a"), (2, "gfx1100")]
    assert arches(HIP_VISIBLE_DEVICES="2,0") == [(0, "gfx1100"), (1, "gfx942")]
    assert arches(ROCR_VISIBLE_DEVICES="1,2", HIP_VISIBLE_DEVICES="1") == [(0, "gfx1100")]
    assert arches(CUDA_VISIBLE_DEVICES="1") == [(0, "gfx90a")] and arches(HIP_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="1") == [(0, "gfx942")]
    assert arches(HIP_VISIBLE_DEVICES="") == [] and arches(HIP_VISIBLE_DEVICES="0,-1,1") == [(0, "gfx942")] and arches(ROCR_VISIBLE_DEVICES="7") == []
    assert len(arches(ROCR_VISIBLE_DEVICES="GPU-1234abcd")) == 3


def test_probe_never_raises(monkeypatch):
    def broken(folder):
        raise OSError("half installed")

    monkeypatch.setattr(probing, "by_files", broken)
    assert probing.probe() == []
