"""What surrounds a launch: grids, names, hooks, threads, forked and spawned processes, pickling."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import knobs
from tilewright.compiler.source import ASTSource
from tilewright.dialects.errors import ArgumentError
from tilewright.runtime.errors import GridError


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def count(x):
    tl.atomic_add(x, 1)


def by_its_arguments(specialization):
    return f"some.where.add_{specialization.constants['BLOCK']}_{specialization.signature['x'].strip('*')}"


def flops(grid, metadata, args):
    return {"flops": args["n"], "name": f"{metadata.name} of {grid}"}


@triton.jit(repr=by_its_arguments, launch_metadata=flops)
def named(x, n, BLOCK: tl.constexpr):
    tl.store(x, n + BLOCK)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    for kernel in (add_one, count, named):
        kernel.device_caches.clear()


# ------------------------------------------------------------------------------------------------------------------------- grids
@pytest.mark.parametrize("grid", [(0,), (3, 0), (1, 1, 0), [0], 0, lambda meta: (0, meta["n"])])
def test_a_grid_of_no_programs_runs_nothing(grid):
    x = np.zeros(8, np.float32)
    for _ in range(2):  # cold and warm
        assert add_one[grid](x, 8, BLOCK=8).metadata.name == "add_one"
    assert not x.any()


@pytest.mark.parametrize("grid, text", [
    ((-1,), r"not negative; found \(-1,\)"), ((1.5,), r"integers; found 1.5 \(float\): round with"), ((1, 2, 3, 4), "one to three sizes; found 4"),
    ((), "one to three sizes; found 0"), (None, r"integers; found None"), ("12", "integers; found '1'"), (lambda meta: (meta["n"] / 2,), "found 4.0"),
    (lambda meta: None, "found None"), ((1, -2, 1), "not negative")])
def test_grids_that_are_none(grid, text):
    x = np.zeros(8, np.float32)
    for _ in range(2):
        with pytest.raises(ArgumentError, match=text):
            add_one[grid](x, 8, BLOCK=8)
        add_one[(1,)](x, 8, BLOCK=8)  # the second time round, the launch is a warm one


def test_a_grid_function_that_asks_for_an_unknown_name():
    x = np.zeros(8, np.float32)
    for _ in range(2):
        with pytest.raises(GridError, match=r"asks for 'BLOCK_SIZE', which is no parameter of the kernel; it has x, n, BLOCK$") as found:
            add_one[lambda meta: (triton.cdiv(8, meta["BLOCK_SIZE"]),)](x, 8, BLOCK=8)
        assert isinstance(found.value, KeyError) and isinstance(found.value, ArgumentError)
        with pytest.raises(KeyError, match="^'mine'$"):  # a mistake of the user's own stays what it is
            add_one[lambda meta: ({}["mine"],)](x, 8, BLOCK=8)
        add_one[lambda meta: (triton.cdiv(meta.get("n"), meta["BLOCK"]),)](x, 8, BLOCK=8)
    assert (x == 2).all()


def test_sizes_of_numpy_and_torch_are_integers():
    x = np.zeros(1, np.int32)
    count[(np.int64(2), np.int32(3))](x)
    count[[2]](x)
    assert x[0] == 8


@pytest.mark.parametrize("target, grid, text", [
    ("cpu", (2**31,), "up to 2147483647 programs along each of x, y and z"), ("nvidia:sm_80:sim", (1, 65536), "1 to 65535 along y and z"),
    ("nvidia:sm_80:sim", (2**31,), "2147483647 programs along x"), ("amd:gfx942:sim", (1, 1, 65537), "at most 65536 programs along y and z"),
    ("amd:gfx942:sim", (2**24,), r"along x fewer than 2³² threads \(16777215 programs of 256\)")])
def test_grids_beyond_a_devices_limits(monkeypatch, target, grid, text):
    monkeypatch.setenv("TILEWRIGHT_TARGET", target)
    with pytest.raises(ArgumentError, match=text):
        count[grid](np.zeros(1, np.int32))


def test_an_unknown_option_names_those_there_are():
    with pytest.raises(ArgumentError, match="'num_warp' is neither a parameter of the kernel nor an option of target cpu:native, whose options are.*num_warps"):
        add_one[(1,)](np.zeros(8, np.float32), 8, BLOCK=8, num_warp=4)


# ------------------------------------------------------------------------------------------------------------------ names, hooks
def test_repr_names_the_kernel():
    x = np.zeros(8, np.int32)
    kernel = named[(1,)](x, 5, BLOCK=8)
    assert kernel.metadata.name == kernel.name == "add_8_i32" and "@add_8_i32" in kernel.asm["ttir"] and x[0] == 13
    assert named[(1,)](x, 5, BLOCK=16).name == "add_16_i32"
    plain = triton.jit(named.fn)
    assert plain.warmup(x, 5, BLOCK=8, grid=(1,)).name == "named"
    for odd in ("", "two words", None):
        with pytest.raises(ArgumentError, match="repr of named gives a kernel's name"):
            triton.jit(named.fn, repr=lambda _: odd).warmup(x, 5, BLOCK=8, grid=(1,))


def test_launch_hooks_get_the_kernels_own_facts():
    told = []
    with knobs.runtime.scope():
        knobs.runtime.launch_enter_hook.add(lambda record: told.append(record.get()))
        named[(2, 1)](np.zeros(8, np.int32), 5, BLOCK=8)
        knobs.runtime.launch_enter_hook = None
    assert told[0]["flops"] == 5 and told[0]["name"] == "add_8_i32 of (2, 1, 1)" and "stream" in told[0] and "function" in told[0]


def test_hooks_of_compilation():
    calls = []
    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = lambda **kw: calls.append(("before", kw))
        knobs.runtime.jit_post_compile_hook = lambda **kw: calls.append(("after", kw))
        x = np.zeros(8, np.float32)
        add_one.warmup(x, 7, BLOCK=8, grid=(1,), num_warps=2)
        add_one[(1,)](x, 7, BLOCK=8, num_warps=2)
        assert [what for what, _ in calls] == ["before", "after"]
        add_one[(1,)](x, 7, BLOCK=16)
    for _, kw in calls[:2]:
        facts = kw["compile"]
        assert facts["signature"] == {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"} and facts["constants"] == {(2,): 8}
        assert facts["num_warps"] == 2 and facts["is_warmup"] is kw["is_manual_warmup"] is True and kw["already_compiled"] is False
        assert kw["fn"].jit_function is add_one and kw["fn"].name == "add_one" and kw["key"] == facts["key"]
        assert kw["repr"].startswith("add_one[num_warps=2, num_ctas=1, num_stages=3, enable_fp_fusion=True") and "x: *fp32" in kw["repr"]
    assert calls[2][1]["is_manual_warmup"] is False
    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = lambda **kw: True  # it takes over: nothing is compiled or launched
        y = np.zeros(8, np.float32)
        assert add_one[(1,)](y, 7, BLOCK=32) is None and not y.any()
    add_one.device_caches.clear()
    kernel = add_one.preload(calls[0][1]["compile"]["specialization_data"])
    assert kernel.src.constants == {(2,): 8} and add_one.warmup(x, 7, BLOCK=8, grid=(1,), num_warps=2) is kernel


def test_device_caches_are_tritons():
    x = np.zeros(8, np.float32)
    kernel = add_one[(1,)](x, 8, BLOCK=8)
    kernels, _, target, backend, binder = add_one.device_caches[0]
    assert list(kernels.values()) == [kernel] and target.backend == "cpu" and backend.binary_ext == "obj"
    assert binder(x, 8, BLOCK=8)[2] == {} and add_one.ASTSource is ASTSource and add_one.compile is triton.compile
    add_one.device_caches.clear()
    assert add_one[(1,)](x, 8, BLOCK=8) is not kernel and x[0] == 2


# ------------------------------------------------------------------------------------------------------- threads and processes
def test_threads_compile_once_and_launch_at_once():
    compiled, errors = [], []
    x = np.zeros((16, 64), np.float32)
    start = threading.Barrier(16)

    def work(i):
        try:
            start.wait(30)
            for k in range(10):
                add_one[(1,)](x[i], 64, BLOCK=64)
                count[(3,)](counts)
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    counts = np.zeros(1, np.int32)
    with knobs.compilation.scope():
        knobs.compilation.listener = lambda *, src, **_: compiled.append(src.name)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert errors == [] and sorted(compiled) == ["add_one", "count"] and (x == 10).all() and counts[0] == 480


def _in_child(queue, block):
    try:
        x = np.zeros(100, np.float32)
        add_one[(triton.cdiv(100, block),)](x, 100, BLOCK=block)
        queue.put((os.getpid(), float(x.sum())))
    except BaseException as error:  # noqa: BLE001 - told to the parent
        queue.put((os.getpid(), repr(error)))


@pytest.mark.parametrize("way", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_processes_that_are_started_after_a_launch(way, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # a spawned process imports this module by its name
    if way not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {way}")
    context = multiprocessing.get_context(way)
    big = np.zeros(1 << 16, np.float32)
    add_one[(256,)](big, 1 << 16, BLOCK=256)  # the pool of threads exists
    queue = context.Queue()
    children = [context.Process(target=_in_child, args=(queue, block)) for block in (256, 32)]  # known here, and new
    for child in children:
        child.start()
    found = dict(queue.get(timeout=120) for _ in children)
    for child in children:
        child.join(60)
    assert list(found.values()) == [100.0, 100.0] and os.getpid() not in found and all(c.exitcode == 0 for c in children)
    add_one[(256,)](big, 1 << 16, BLOCK=256)
    assert (big == 2).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_waits_for_other_threads_compilations():
    """No lock may stay held in the child: it compiles at once what another thread was at."""
    inside, go_on = threading.Event(), threading.Event()

    def compile_slowly():
        with knobs.compilation.scope():
            knobs.compilation.listener = lambda **_: (inside.set(), go_on.wait(30))
            add_one.warmup(np.zeros(8, np.float32), 8, BLOCK=64, grid=(1,))

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    assert inside.wait(60)
    threading.Timer(0.2, go_on.set).start()
    assert not go_on.is_set()
    pid = os.fork()
    if pid == 0:
        knobs.compilation.listener = None
        x = np.zeros(64, np.float32)
        add_one[(1,)](x, 64, BLOCK=32)
        add_one[(1,)](x, 64, BLOCK=64)
        os._exit(0 if go_on.is_set() and x.sum() == 96 else 1)
    assert go_on.is_set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0


def test_a_hook_may_fork():
    """A thread that compiles does not wait for itself."""
    codes = []

    def fork(**_):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        codes.append(os.waitpid(pid, 0)[1])

    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = fork
        add_one.warmup(np.zeros(8, np.float32), 8, BLOCK=64, grid=(1,))
    assert codes == [0]


def test_what_pickles():
    x = np.zeros(8, np.float32)
    kernel = add_one[(1,)](x, 8, BLOCK=8)
    assert pickle.loads(pickle.dumps(add_one)) is add_one
    again = pickle.loads(pickle.dumps(kernel))
    again[(1,)](x, 8, 8)
    assert x[0] == 2 and again.metadata == kernel.metadata and again.asm["ttir"] == kernel.asm["ttir"]
    config = triton.Config({"BLOCK": 8}, num_warps=2)
    assert pickle.loads(pickle.dumps(config)) == config
    error = pickle.loads(pickle.dumps(triton.OutOfResources(9, 1, "registers", "Raise num_warps.")))
    assert (error.required, error.limit, error.name, error.hint) == (9, 1, "registers", "Raise num_warps.")
