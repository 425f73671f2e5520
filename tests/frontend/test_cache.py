"""The disk cache: hits without MLIR, damage, edits, processes at once."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tilewright as triton
from tilewright.runtime.cache import Cache, CacheEntryError, FileCacheManager, LazyAsm, folder_stamp

HERE = Path(__file__).parent

RUNNER = """
    import os, sys
    sys.path[:0] = [{here!r}, {folder!r}]
    import fake_target
    from tilewright.compiler.source import ASTSource
    from tilewright.runtime import cache
    from tilewright.targets import registry
    assert len(cache.compiler_stamp()) > 64
    cache._stamp = "as it is now"  # somebody may be editing the compiler while this runs
    ASTSource.make_module = fake_target.stand_in_module
    fake = fake_target.Fake({options})
    registry.register(fake.plugin)
    os.environ["TILEWRIGHT_TARGET"] = "fake"
    import kernels

    class Array:
        dtype, device = "float32", "cpu"
        def data_ptr(self): return 4096

    compiled = kernels.kernel[(2,)](Array(), 3, BLOCK=16)
    heavy = [m for m in ("torch_mlir", "mlir", "llvmlite", "numpy", "torch") if m in sys.modules]
    import json
    print(json.dumps({{"hash": compiled.hash, "compiled": len(fake.contexts), "launches": len(fake.driver.launches), "heavy": heavy,
                      "text": compiled.asm["text"], "bin": compiled.asm["bin"].hex(), "shared": compiled.metadata.shared}}))
"""

KERNELS = """
    import tilewright as triton
    import tilewright.language as tl
    import helpers
    from helpers import twice

    LIMIT = tl.constexpr(8)

    @triton.jit
    def kernel(x, n, BLOCK: tl.constexpr):
        tl.store(x, twice(n) + LIMIT + helpers.OFFSET)
"""

HELPERS = """
    import tilewright as triton
    import tilewright.language as tl

    OFFSET = tl.constexpr(1)
    INNER = tl.constexpr(2)

    @triton.jit
    def twice(x):
        return x * INNER
"""


@pytest.fixture
def world(tmp_path):
    """run(options) → what a new process says; files are in world.folder, the cache in world.cache."""

    class World:
        folder, cache = tmp_path / "src", tmp_path / "cache"

        def write(self, name: str, text: str) -> None:
            (self.folder / name).write_text(textwrap.dedent(text))

        def start(self, options: str = "") -> subprocess.Popen:
            script = textwrap.dedent(RUNNER).format(here=str(HERE), folder=str(self.folder), options=options)
            env = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(self.cache), "PYTHONDONTWRITEBYTECODE": "1"}
            return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

        def end(self, process: subprocess.Popen) -> dict:
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            return json.loads(out)

        def run(self, options: str = "") -> dict:
            return self.end(self.start(options))

    World.folder.mkdir()
    w = World()
    w.write("kernels.py", KERNELS)
    w.write("helpers.py", HELPERS)
    return w


def test_a_hit_compiles_nothing_and_imports_no_compiler(world):
    cold = world.run()
    assert cold["compiled"] == 1 and "torch_mlir" in cold["heavy"] or "mlir" in cold["heavy"]
    warm = world.run()
    assert warm["compiled"] == 0 and warm["heavy"] == [] and warm["launches"] == 1
    assert {k: warm[k] for k in ("hash", "text", "bin", "shared")} == {k: cold[k] for k in ("hash", "text", "bin", "shared")}


def test_what_recompiles(world):
    hashes = [world.run()["hash"]]

    def changed(options: str = "") -> None:
        result = world.run(options)
        assert result["compiled"] == 1, "the entry of other code was used"
        assert result["hash"] not in hashes
        hashes.append(result["hash"])

    world.write("kernels.py", KERNELS.replace("LIMIT = tl.constexpr(8)", "LIMIT = tl.constexpr(9)"))
    changed()  # a global of the kernel
    world.write("helpers.py", HELPERS.replace("INNER = tl.constexpr(2)", "INNER = tl.constexpr(3)"))
    changed()  # a global of its helper
    world.write("helpers.py", HELPERS.replace("x * INNER", "x + INNER"))
    changed()  # the helper's source
    world.write("helpers.py", HELPERS.replace("OFFSET = tl.constexpr(1)", "OFFSET = tl.constexpr(7)"))
    changed()  # a global read through a module
    changed("fingerprint='tools 2'")  # the target's tools
    world.write("kernels.py", KERNELS)
    world.write("helpers.py", HELPERS)
    assert world.run()["compiled"] == 0  # as it was at first


def damage_bin(entry: Path, change) -> None:
    file = next(entry.glob("*.bin"))
    file.write_bytes(change(file.read_bytes()))


DAMAGE = {
    "truncated": lambda entry: damage_bin(entry, lambda data: data[:-3]),
    "flipped bit": lambda entry: damage_bin(entry, lambda data: bytes([data[0] ^ 1]) + data[1:]),
    "missing file": lambda entry: next(entry.glob("*.bin")).unlink(),
    "half an index": lambda entry: (entry / "entry.json").write_text((entry / "entry.json").read_text()[:40]),
    "not an index": lambda entry: (entry / "entry.json").write_text("[]"),
    "no index": lambda entry: (entry / "entry.json").unlink(),
    "other metadata": lambda entry: (entry / "entry.json").write_text((entry / "entry.json").read_text().replace('"shared": 64', '"shared": 65')),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_removed(tmp_path, damage):
    cache = Cache(str(tmp_path))
    cache.put("ab" * 32, {"text": "code", "bin": b"1234"}, {"name": "k", "shared": 64}, "k")
    assert cache.get("ab" * 32) is not None
    DAMAGE[damage](tmp_path / ("ab" * 32))
    assert cache.get("ab" * 32) is None
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_entry_is_compiled_again(world):
    entry = world.cache / world.run()["hash"]
    DAMAGE["truncated"](entry)
    again = world.run()
    assert again["compiled"] == 1 and again["launches"] == 1
    assert world.run()["compiled"] == 0
    assert [p.name for p in world.cache.iterdir()] == [entry.name]  # nothing temporary is left


def test_four_processes_at_once(world):
    results = [world.end(p) for p in [world.start() for _ in range(4)]]
    assert len({r["hash"] for r in results}) == 1 and all(r["launches"] == 1 for r in results)
    assert len({r["bin"] for r in results}) == 1
    assert [p.name for p in world.cache.iterdir()] == [results[0]["hash"]]
    assert world.run()["compiled"] == 0


def test_a_folder_that_cannot_be_written_still_compiles(world):
    world.cache.write_text("a file, not a folder")
    assert world.run()["launches"] == 1


def test_put_get_and_races(tmp_path):
    cache = Cache(str(tmp_path))
    assert cache.get("ab" * 32) is None
    asm = cache.put("ab" * 32, {"text": "é\n", "bin": b"\x00\r\n"}, {"name": "k", "shared": 3}, "a kernel/with ~ signs")
    assert dict(asm) == {"text": "é\n", "bin": b"\x00\r\n"}
    other = cache.put("ab" * 32, {"text": "é\n", "bin": b"\x00\r\n"}, {"name": "k", "shared": 3}, "k")  # the second of two processes
    assert dict(other)["bin"] == b"\x00\r\n"
    read, metadata = cache.get("ab" * 32)
    assert dict(read) == dict(asm) and metadata == {"name": "k", "shared": 3}
    cache.remove("ab" * 32)
    assert cache.get("ab" * 32) is None and list(tmp_path.iterdir()) == []


def test_lazy_asm_is_read_when_asked(tmp_path):
    path = tmp_path / "x.text"
    asm = LazyAsm(files={"text": (str(path), False)})
    assert list(asm) == ["text"] and "text" in asm and len(asm) == 1
    path.write_text("late")
    assert asm["text"] == "late"
    asm["sass"] = "more"
    assert list(asm) == ["text", "sass"]
    del asm["text"]
    assert "text" not in asm


def test_file_cache_manager(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    manager = FileCacheManager("KEY")
    assert not manager.has_file("a.so") and manager.get_file("a.so") is None
    path = manager.put(b"bytes", "a.so")
    assert Path(path).read_bytes() == b"bytes" and manager.get_file("a.so") == path
    manager.put_group("g.json", {"a.so": path, "b.so": str(tmp_path / "absent")})
    assert manager.get_group("g.json") == {"a.so": path}


def test_the_compilers_own_files_are_part_of_the_key(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").write_text("1")
    (tmp_path / "a" / "notes.txt").write_text("1")
    first = folder_stamp(str(tmp_path))
    (tmp_path / "a" / "notes.txt").write_text("22")
    assert folder_stamp(str(tmp_path)) == first
    (tmp_path / "a" / "b.py").write_text("22")
    second = folder_stamp(str(tmp_path))
    (tmp_path / "c.py").write_text("")
    assert len({first, second, folder_stamp(str(tmp_path))}) == 3


def test_cache_dir_names(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", "/somewhere")
    assert triton.knobs.cache.dir == "/somewhere"
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "/elsewhere")
    assert triton.knobs.cache.dir == "/elsewhere"
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = "/third"
        assert triton.knobs.cache.dir == "/third"
    assert triton.knobs.cache.dir == "/elsewhere"


def test_kernels_outlive_their_entries(tmp_path):
    """What was read from a folder that is gone is made again where it would be the same; else that is said."""
    cache = Cache(str(tmp_path / "c"))
    cache.put("ab" * 32, {"text": "a", "bin": b"b"}, {"name": "k"}, "k")
    asm, _ = cache.get("ab" * 32)
    for other in (cache.get("ab" * 32)[0], cache.get("ab" * 32)[0]):
        assert pickle.loads(pickle.dumps(other))["text"] == "a"
    shutil.rmtree(tmp_path / "c")
    assert asm["bin"] == b"b"  # what is loaded needs no file
    with pytest.raises(CacheEntryError, match=r"stage 'text' of a compiled kernel lay in .*k.text, which cannot be read any more \(No such file"):
        asm["text"]
    asm.again = lambda: {"text": "anew", "bin": b"other", "more": ""}
    assert dict(asm) == {"text": "anew", "bin": b"b"}
