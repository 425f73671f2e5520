"""Settings: where a value comes from, what assignments do and how they end, what warns, and the settings that change code."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import knobs
from tilewright.dialects import settings
from tilewright.dialects.errors import ArgumentError, CompilationError
from tilewright.runtime import cache
from tilewright.targets import registry

# Triton 3.6's groups and names (its knobs.py)
NAMES = {
    "build": "backend_dirs cc cudacrt_path cudart_path impl",
    "redis": "host key_format port",
    "cache": "dir dump_dir home_dir manager_class override_dir remote_manager_class",
    "compilation": "allow_non_constexpr_globals always_compile disable_line_info dump_ir dump_ir_extract_di_local_variables enable_asan "
                   "front_end_debugging instrumentation_mode listener override store_binary_only use_ir_loc",
    "autotuning": "cache print",
    "runtime": "add_stages_inspection_hook debug interpret jit_cache_hook jit_post_compile_hook kernel_load_start_hook kernel_load_end_hook "
               "launch_enter_hook launch_exit_hook override_arch",
    "language": "default_fp_fusion fp32_default",
    "nvidia": "cuobjdump disable_ptxas_opt dump_nvptx dump_ptxas_log libcuda_path libdevice_path mock_ptx_version nvdisasm ptxas ptxas_blackwell "
              "ptxas_options",
    "amd": "buffer_ops_analyze_small_tensor_range dump_amdgcn libhip_path scalarize_packed_fops use_async_copy use_block_pingpong use_buffer_atomics "
           "use_buffer_ops use_in_thread_transpose",
    "proton": "cupti_lib_dir disable enable_nvtx",
}


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def variables():
    return {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}


@pytest.fixture(autouse=True)
def undone():
    """Assignments of a test end with it."""
    groups = [getattr(knobs, name) for name in NAMES]
    before = variables()
    with warnings.catch_warnings():
        yield
    for group in groups:
        group.reset()
        group._told.clear()
    assert variables() == before


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    monkeypatch.setattr(add_one, "_entries", {})
    monkeypatch.setattr(add_one, "_kernels", {})
    return tmp_path


@pytest.mark.parametrize("group", NAMES)
def test_every_name_is_there_with_copy_reset_and_scope(group):
    found = getattr(knobs, group)
    for name in NAMES[group].split():
        getattr(found, name)
    assert found.copy().knobs == found.knobs and found.reset() is found
    with found.scope():
        pass
    assert set(found.knobs) == set(found.settings())


def test_where_a_value_comes_from(monkeypatch):
    monkeypatch.setenv("TRITON_DUMP_DIR", "/triton")
    assert knobs.cache.dump_dir == "/triton"
    monkeypatch.setenv("TILEWRIGHT_DUMP_DIR", "/own")
    assert knobs.cache.dump_dir == "/own"
    monkeypatch.setenv("TILEWRIGHT_HOME", "/home")
    assert knobs.cache.override_dir == "/home/.tilewright/override" == knobs.cache.get_triton_dir("override")
    monkeypatch.setenv("TRITON_DEBUG", "yes")
    monkeypatch.setenv("TRITON_REDIS_PORT", "77")
    assert knobs.runtime.debug is True and knobs.redis.port == 77
    monkeypatch.setenv("TRITON_REDIS_PORT", "a")
    with pytest.raises(ArgumentError, match="REDIS_PORT is an integer; found 'a'"):
        _ = knobs.redis.port
    monkeypatch.setenv("TRITON_REDIS_PORT", "6379")


def test_assignments_reach_child_processes_and_end(monkeypatch):
    monkeypatch.delenv("TRITON_DUMP_DIR", raising=False)
    knobs.cache.dump_dir = "/assigned"
    assert knobs.cache.dump_dir == "/assigned" == os.environ["TRITON_DUMP_DIR"]
    monkeypatch.setenv("TILEWRIGHT_DUMP_DIR", "/later")
    assert knobs.cache.dump_dir == "/assigned"
    knobs.cache.dump_dir = knobs.env
    assert knobs.cache.dump_dir == "/later" and "TRITON_DUMP_DIR" not in os.environ
    knobs.cache.dump_dir = "/both"  # a child looks at TILEWRIGHT's name first
    assert os.environ["TILEWRIGHT_DUMP_DIR"] == "/both"
    knobs.cache.reset()
    assert os.environ["TILEWRIGHT_DUMP_DIR"] == "/later"
    knobs.runtime.debug = True
    knobs.runtime.debug = False
    assert os.environ["TRITON_DEBUG"] == "0"
    del knobs.runtime.debug
    assert "TRITON_DEBUG" not in os.environ
    monkeypatch.setattr(settings, "propagate", True)
    knobs.propagate_env = False
    assert knobs.propagate_env is False
    knobs.cache.override_dir = "/here"
    assert "TRITON_OVERRIDE_DIR" not in os.environ and knobs.cache.copy().override_dir == "/here"


def test_scopes_undo_settings_hooks_and_variables(monkeypatch):
    def listener(**kw):
        pass

    monkeypatch.setenv("TRITON_KERNEL_DUMP", "1")
    with knobs.compilation.scope():
        knobs.compilation.listener = listener
        knobs.compilation.always_compile = True
        os.environ["TRITON_KERNEL_DUMP"] = "0"
        assert knobs.compilation.always_compile and os.environ["TRITON_ALWAYS_COMPILE"] == "1" and not knobs.compilation.dump_ir
    assert knobs.compilation.listener is None and not knobs.compilation.always_compile and knobs.compilation.dump_ir
    assert "TRITON_ALWAYS_COMPILE" not in os.environ


def test_mistakes():
    with pytest.raises(ArgumentError, match="no setting 'folder' here; there are home_dir, dir"):
        knobs.cache.folder = "/x"
    with pytest.raises(ArgumentError, match="setting debug is on or off: set it to True or False; found 'no'"):
        knobs.runtime.debug = "no"
    with pytest.raises(ArgumentError, match="can be run"):
        knobs.nvidia.ptxas = "/no/such/program"
    with pytest.raises(ArgumentError, match="registry.register"):
        knobs.runtime.add_stages_inspection_hook = lambda *a: None
    knobs.runtime.add_stages_inspection_hook = None
    with pytest.raises(AttributeError):
        _ = knobs.cache.folder


def test_what_changes_nothing_warns_once(fresh, monkeypatch):
    with pytest.warns(knobs.SettingWithoutEffectWarning, match=r"libdevice_path \(TRITON_LIBDEVICE_PATH\) has no effect: no bitcode"):
        knobs.nvidia.libdevice_path = "/x.bc"
    monkeypatch.setenv("TRITON_ENABLE_ASAN", "1")
    with pytest.warns(knobs.SettingWithoutEffectWarning, match="enable_asan .*INTERPRET"):
        add_one.warmup(np.zeros(8, np.float32), 8, BLOCK=8, grid=(1,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        knobs.nvidia.libdevice_path = "/y.bc"
        add_one.warmup(np.zeros(8, np.float32), 8, BLOCK=16, grid=(1,))


def test_a_function_assigned_to_a_chain_is_its_only_hook():
    def hook(*args, **kw):
        pass

    with knobs.runtime.scope():
        chain = knobs.runtime.launch_enter_hook
        chain.add(hook)
        chain.add(hook)
        assert chain.calls == [hook]
        knobs.runtime.launch_enter_hook = print
        assert knobs.runtime.launch_enter_hook is chain and chain.calls == [print]
        knobs.runtime.launch_enter_hook = None
        assert not chain
        with pytest.raises(ArgumentError, match="a hook is called"):
            chain.add(3)


def test_the_default_of_fusion_reaches_options(fresh):
    x = np.zeros(8, np.float32)
    assert knobs.language.default_fp_fusion is True
    knobs.language.default_fp_fusion = False
    assert add_one.warmup(x, 8, BLOCK=8, grid=(1,)).metadata.enable_fp_fusion is False


def test_line_tables_can_be_left_out(fresh):
    x = np.zeros(8, np.float32)
    with_lines = add_one.warmup(x, 8, BLOCK=8, grid=(1,))
    assert "!DILocation" in with_lines.asm["llir"]
    knobs.compilation.disable_line_info = True
    add_one._kernels.clear()
    without = add_one.warmup(x, 8, BLOCK=8, grid=(1,))
    assert "!DILocation" not in without.asm["llir"] and without.hash != with_lines.hash


def test_globals_that_are_no_constexprs_may_be_allowed(fresh, monkeypatch):
    with pytest.raises(CompilationError, match="not a constexpr"):
        reads_global.warmup(np.zeros(8, np.float32), grid=(1,))
    knobs.compilation.allow_non_constexpr_globals = True
    x = np.zeros(8, np.float32)
    reads_global[(1,)](x)
    assert x[0] == 5


FIVE = 5


@triton.jit
def reads_global(x):
    tl.store(x, FIVE)


def test_a_kernels_code_can_be_replaced(fresh, monkeypatch):
    x = np.zeros(8, np.float32)
    monkeypatch.setenv("TILEWRIGHT_OVERRIDE_DIR", str(fresh / "override"))
    monkeypatch.setenv("TILEWRIGHT_DUMP_DIR", str(fresh / "dump"))
    knobs.compilation.dump_ir = True
    kernel = add_one[(1,)](x, 8, BLOCK=8)
    text = (fresh / "dump" / kernel.hash / "add_one.ttir").read_text()
    assert text == kernel.asm["ttir"] and "1.000000e+00" in text
    changed = text.replace("1.000000e+00", "3.000000e+00")
    knobs.compilation.override = True
    (fresh / "override" / kernel.hash).mkdir(parents=True)
    (fresh / "override" / kernel.hash / "add_one.ttir").write_text(changed)
    for store in (add_one._entries, add_one._kernels):
        store.clear()
    x[:] = 0
    assert add_one[(1,)](x, 8, BLOCK=8).asm["ttir"] == changed
    assert (x == 3).all()
    knobs.compilation.override = False
    for store in (add_one._entries, add_one._kernels):
        store.clear()
    add_one[(1,)](x, 8, BLOCK=8)
    assert (x == 4).all()  # what was replaced is not what the cache holds
    mine = fresh / "mine.ttir"
    mine.write_text(text.replace("1.000000e+00", "5.000000e+00"))
    add_one[(1,)](x, 8, BLOCK=8, ir_override=str(mine))
    assert (x == 9).all()
    with pytest.raises(ArgumentError, match="ending names a stage of target cpu:native: ttir, loops"):
        add_one[(1,)](x, 8, BLOCK=8, ir_override="mine.ptx")
    with pytest.raises(ArgumentError, match="cannot be read"):
        add_one[(1,)](x, 8, BLOCK=8, ir_override="nowhere.ttir")
    (fresh / "mine.asm").write_text("nonsense")
    with pytest.raises(ArgumentError, match="stage asm cannot be replaced.*Replace one of ttir, loops, obj"):
        add_one[(1,)](x, 8, BLOCK=8, ir_override=str(fresh / "mine.asm"))
    other = fresh / "other.ttir"
    other.write_text("nonsense")
    with pytest.raises(CompilationError, match="in place of stage ttir does not parse"):
        add_one[(1,)](x, 8, BLOCK=8, ir_override=str(other))


def test_the_arch_can_be_overridden(fresh, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_80:sim")
    knobs.runtime.override_arch = "sm_89"
    kernel = add_one.warmup(np.zeros(8, np.float32), 8, BLOCK=32, grid=(1,))
    assert kernel.metadata.arch == "sm_89" and ".target sm_89" in kernel.asm["ptx"]


class Keeper(cache.FileCacheManager):
    made: list[str] = []

    def __init__(self, key, override=False, dump=False):
        super().__init__(key, override, dump)
        Keeper.made.append(key)


def test_a_cache_manager_of_ones_own(fresh, monkeypatch):
    knobs.cache.manager_class = Keeper
    assert os.environ["TRITON_CACHE_MANAGER"] == f"{__name__}:Keeper"
    Keeper.made.clear()
    hits = []
    x = np.zeros(8, np.float32)
    with knobs.compilation.scope():
        knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
        for expected in (1, 2):
            for store in (add_one._entries, add_one._kernels):
                store.clear()
            kernel = add_one[(1,)](x, 8, BLOCK=8)
            assert x[0] == expected
    assert hits == [False, True] and cache._base32(kernel.hash) in Keeper.made
    assert isinstance(cache.get_cache_manager(kernel.hash), Keeper)
    folder = os.path.join(knobs.cache.dir, cache._base32(kernel.hash))
    with open(os.path.join(folder, "add_one.obj"), "r+b") as f:
        f.truncate(10)  # damaged: compiled again
    for store in (add_one._entries, add_one._kernels):
        store.clear()
    add_one[(1,)](x, 8, BLOCK=8)
    assert x[0] == 3
    monkeypatch.setenv("TRITON_REMOTE_CACHE_BACKEND", "no.such:Class")
    with pytest.raises(ArgumentError, match="package.module:Class"):
        _ = knobs.cache.remote_manager_class


class Shelf(cache.RemoteCacheBackend):
    files: dict[tuple[str, str], bytes] = {}

    def get(self, filenames):
        return {f: self.files[self.key, f] for f in filenames if (self.key, f) in self.files}

    def put(self, filename, data):
        self.files[self.key, filename] = data


def test_a_remote_cache_serves_an_empty_folder(fresh, monkeypatch):
    with pytest.raises(cache.CacheBackendError, match="TRITON_REMOTE_CACHE_BACKEND"):
        cache.RemoteCacheManager("a")
    knobs.cache.manager_class, knobs.cache.remote_manager_class = cache.RemoteCacheManager, Shelf
    Shelf.files.clear()
    hits = []
    x = np.zeros(8, np.float32)
    with knobs.compilation.scope():
        knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
        for folder in ("one", "two"):
            knobs.cache.dir = str(fresh / folder)
            for store in (add_one._entries, add_one._kernels):
                store.clear()
            add_one[(1,)](x, 8, BLOCK=8)
    assert hits == [False, True] and x[0] == 2 and len(Shelf.files) > 4
    try:
        import redis  # noqa: F401
    except ImportError:
        with pytest.raises(cache.CacheBackendError, match="pip install redis"):
            cache.RedisRemoteCacheBackend("a")


def test_target_settings(monkeypatch, tmp_path, fresh):
    x = np.zeros(64, np.float32)
    amd = registry.parse("amd:gfx942")
    monkeypatch.setenv("TILEWRIGHT_TARGET", str(amd))
    assert triton.compile(add_one_source(), "amd:gfx942").metadata.buffer_ops is True
    knobs.amd.use_buffer_ops = False
    assert triton.compile(add_one_source(), "amd:gfx942").metadata.buffer_ops is False
    assert x.sum() == 0


def add_one_source():
    from tilewright.compiler import ASTSource

    return ASTSource(add_one, {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 64})


def test_assembler_settings(fresh, tmp_path, capfd):
    from tilewright.targets.nvidia import emit

    real = emit.ptxas()
    if real is None:
        pytest.skip("no ptxas")
    script = tmp_path / "assembler"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec {real} "$@"\n')
    script.chmod(0o755)
    plain = triton.compile(add_one_source(), "nvidia:sm_80")
    knobs.nvidia.ptxas = str(script)
    knobs.nvidia.disable_ptxas_opt = True
    knobs.nvidia.ptxas_options = "--maxrregcount 40"
    knobs.nvidia.dump_nvptx = knobs.nvidia.dump_ptxas_log = True
    assert knobs.nvidia.ptxas.path == str(script) and knobs.nvidia.ptxas.version.split(".")[0].isdigit()
    other = triton.compile(add_one_source(), "nvidia:sm_80")
    calls = (tmp_path / "calls").read_text()
    assert "-O0" in calls and "--maxrregcount 40" in calls and other.hash != plain.hash
    said = capfd.readouterr().err
    assert ".visible .entry add_one" in said and "registers" in said
    knobs.nvidia.ptxas_blackwell = real
    assert emit.ptxas("sm_100a") == real and emit.ptxas("sm_80") == str(script)


def test_settings_are_read_where_a_child_starts(tmp_path):
    code = """
    import tilewright.knobs as knobs
    print(knobs.cache.dir, knobs.compilation.always_compile)
    """
    knobs.cache.dir = str(tmp_path)
    knobs.compilation.always_compile = True
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(tmp_path), "True"], done.stderr


@triton.jit
def sums(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tile = tl.load(x + i[:, None] * N + i[None, :])
    tl.store(out + i, tl.sum(tl.trans(tile) + tile, axis=0))


@pytest.mark.parametrize("way", ["ir_override", "IRSource"])
def test_replaced_ir_of_a_gpu_keeps_its_shared_memory(fresh, monkeypatch, way):
    """What a user's text allocates is what is launched with."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_80:sim")
    n = 32
    x = np.arange(n * n, dtype=np.float32).reshape(n, n)
    out = np.zeros(n, np.float32)
    kernel = sums[(1,)](x, out, N=n, num_warps=8)
    expected = (x.T + x).sum(0)
    assert (out == expected).all() and kernel.metadata.shared > 0 and "allocation.offset" in kernel.asm["ttgir"]
    path = fresh / "sums.ttgir"
    path.write_text(kernel.asm["ttgir"])
    out[:] = 0
    if way == "ir_override":
        again = sums[(1,)](x, out, N=n, num_warps=8, ir_override=str(path))
    else:
        again = triton.compile(str(path), "nvidia:sm_80:sim")
        again[(1,)](x, out)
        with pytest.raises(ArgumentError, match="made for num_warps=8.*found num_warps=2"):
            triton.compile(str(path), "nvidia:sm_80", options={"num_warps": 2})
        with pytest.raises(ArgumentError, match="made for warps of 32 lanes.* have 64"):
            triton.compile(str(path), "amd:gfx942")
    assert again.metadata.num_warps == 8 and again.metadata.shared == kernel.metadata.shared and (out == expected).all()


def test_the_documentation_lists_what_changes_nothing():
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "launching.md").read_text(encoding="utf-8")
    for name in NAMES:
        for knob, setting in getattr(knobs, name).settings().items():
            listed = text.index("These of Triton's change nothing"), text.index("## Launch options")
            assert (f".{knob}`" in text[slice(*listed)]) == bool(setting.without_effect), (name, knob)
