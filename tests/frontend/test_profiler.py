"""The profiler of launches: what is counted where, its files, its command lines."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading

import fake_target
import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import knobs, profiler
from tilewright.dialects.errors import ArgumentError
from tilewright.profiler import viewer


def facts(grid, metadata, args):
    return {"name": f"kernel<{grid[0]}>", "flops8": 2.0 * args["n"], "bytes": args["n"], "what": "no number"}


@triton.jit(launch_metadata=facts)
def kernel(x, n, BLOCK: tl.constexpr = 1):
    pass


@triton.jit
def other(x):
    pass


@pytest.fixture
def fake(monkeypatch, tmp_path):
    with fake_target.selected(monkeypatch, tmp_path / "cache", kernel, other) as target:
        target.driver.next_ms = 2.0
        yield target
    for number in list(profiler._session.sessions):
        del profiler._session.sessions[number]
    profiler._session._listen()
    assert not knobs.runtime.launch_enter_hook and not knobs.runtime.launch_exit_hook


X = np.zeros(4, np.float32)


def read(path):
    with open(path) as f:
        root, devices = json.load(f)
    return root, devices


def flat(node, path=()):
    here = (*path, node["frame"]["name"])
    out = {here[1:]: node["metrics"]} if node["metrics"] and path else {}
    for child in node["children"]:
        out |= flat(child, here)
    return out


def test_scopes_and_kernels(fake, tmp_path):
    other[(1,)](X)
    session = profiler.start(str(tmp_path / "mine"))
    kernel[(2,)](X, 5)
    with profiler.scope("outer", {"flops": 3}):
        kernel[(2,)](X, 5)
        with profiler.scope("inner"):
            other[(1,)](X)
            other[(1,)](X)
        number = profiler.enter_scope("by hand", metrics={"bytes": 1})
        assert profiler.exit_scope("by hand", metrics={"bytes": 4}) == number
    with profiler.state("warm"), profiler.state("hot"):
        other[(1,)](X)
    profiler.deactivate(session)
    assert not knobs.runtime.launch_enter_hook
    other[(1,)](X)
    profiler.activate()
    other[(1,)](X)
    assert profiler.finalize(session) == [str(tmp_path / "mine.hatchet")]
    other[(1,)](X)
    root, devices = read(tmp_path / "mine.hatchet")
    once, twice = {"count": 1, "time (ns)": 2e6}, {"count": 2, "time (ns)": 4e6}
    assert flat(root) == {("kernel",): once, ("outer",): {"flops": 3}, ("outer", "kernel"): once, ("outer", "inner", "other"): twice,
                          ("outer", "by hand"): {"bytes": 5}, ("hot", "other"): once, ("other",): once}
    assert root["frame"] == {"name": "ROOT", "type": "function"} and root["metrics"] == {"count": 0, "time (ns)": 0}
    assert devices == {"FAKEBACKEND": {"0": {"arch": "1", "num_sms": 3, "clock_rate": 0, "memory_clock_rate": 0, "bus_width": 0}}}


def test_kernels_as_their_metadata_names_them(fake, tmp_path):
    profiler.start(str(tmp_path / "a"), hook="triton")
    profiler.start(str(tmp_path / "b"))
    kernel[(2,)](X, 5)
    kernel[(2,)](X, 5)
    paths = profiler.finalize()
    assert flat(read(paths[0])[0]) == {("kernel<2>",): {"count": 2, "time (ns)": 4e6, "flops8": 20.0, "bytes": 10}}
    assert flat(read(paths[1])[0]) == {("kernel",): {"count": 2, "time (ns)": 4e6}}
    assert profiler.finalize() == []


def test_the_python_context(fake, tmp_path):
    def launches():
        other[(1,)](X)

    profiler.start(str(tmp_path / "a"), context="python")
    launches()
    (path,) = flat(read(profiler.finalize()[0])[0])
    assert path[-1] == "other" and f"{__file__}:launches@" in path[-2] and f"{__file__}:test_the_python_context@" in path[-3]


def test_a_trace(fake, tmp_path):
    session = profiler.start(str(tmp_path / "a"), data="trace")
    with profiler.scope("s"):
        other[(1,)](X)
    kernel[(1,)](X, 5)
    with pytest.raises(ArgumentError, match="written as chrome_trace; found 'hatchet'"):
        profiler.finalize(session, "hatchet")
    (path,) = profiler.finalize(session, "chrome_trace")
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    assert [(e["name"], e["dur"], e["args"]["scopes"]) for e in events] == [("other", 2e3, ["s"]), ("kernel", 2e3, [])]
    assert 0 <= events[0]["ts"] < events[1]["ts"] and path.endswith("a.chrome_trace")


def test_decorators_and_threads(fake, tmp_path):
    @profiler.profile(name=str(tmp_path / "a"))
    @profiler.scope("work")
    def work():
        other[(1,)](X)
        return 7

    assert work() == 7
    other[(1,)](X)
    session = profiler.start(str(tmp_path / "b"))

    def thread(i):
        with profiler.scope(f"thread {i}"):
            for _ in range(10):
                other[(1,)](X)

    threads = [threading.Thread(target=thread, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    (b,) = profiler.finalize(session)
    (a,) = profiler.finalize()
    assert flat(read(a)[0]) == {("work", "other"): {"count": 1, "time (ns)": 2e6}}
    assert {k: v["count"] for k, v in flat(read(b)[0]).items()} == {(f"thread {i}", "other"): 10 for i in range(4)}


def test_host_time_of_a_scope(fake, tmp_path):
    profiler.start(str(tmp_path / "a"))
    with profiler.cpu_timed_scope("s", {"n": 1}):
        pass
    found = flat(read(profiler.finalize()[0])[0])[("s",)]
    assert found["n"] == 1 and 0 < found["cpu_time (ns)(exc)"] < 10e9
    with pytest.raises(ArgumentError, match="cpu_time is the scope's own"):
        profiler.cpu_timed_scope("s", {"cpu_time": 1})


def test_nothing_is_profiled(fake, monkeypatch, tmp_path):
    assert profiler.enter_scope("s") is None and profiler.exit_scope() is None
    monkeypatch.setenv("TRITON_PROTON_DISABLE", "1")
    assert profiler.start(str(tmp_path / "a")) is None
    with profiler.scope("s"):
        other[(1,)](X)
    assert profiler.finalize() == [] and list(tmp_path.glob("*.hatchet")) == []


def test_mistakes(fake, tmp_path):
    for given in ({"context": "c++"}, {"data": "table"}, {"backend": "instrumentation"}, {"mode": "pcsampling"}, {"hook": "mine"}):
        with pytest.raises(ArgumentError, match=f"start: {next(iter(given))} is .*nothing is instrumented"):
            profiler.start(str(tmp_path / "a"), **given)
    with pytest.raises(profiler.ProfilerError, match="no profiling session 77"):
        profiler.finalize(77)
    session = profiler.start(str(tmp_path / "a"))
    with pytest.raises(profiler.ProfilerError, match="without a scope"):
        profiler.exit_scope()
    profiler.enter_scope("a")
    with pytest.raises(profiler.ProfilerError, match="innermost scope is 'a', not 'b'"):
        profiler.exit_scope("b")
    with pytest.raises(ArgumentError, match="metric 'x' of a scope is a number; found 'y'"):
        profiler.exit_scope("a", metrics={"x": "y"})
    profiler.exit_scope("a")
    with pytest.raises(profiler.ProfilerError, match="without a state"):
        profiler.exit_state()
    with pytest.raises(AttributeError, match="nothing inside of them is instrumented"):
        _ = profiler.language
    profiler.finalize(session)


def test_the_viewer(fake, tmp_path, capsys):
    profiler.start(str(tmp_path / "a"), hook="triton")
    with profiler.scope("outer"):
        kernel[(1,)](X, 5)
        kernel[(3,)](X, 7)
    (path,) = profiler.finalize()
    assert viewer.main([path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "time (ns)" and [line.split() for line in lines[1:4]] == [["4e+06", "ROOT"], ["4e+06", "outer"], ["2e+06", "kernel<1>"]]
    assert viewer.tree(path, "flops8", depth=1).splitlines()[-1].split() == ["24", "outer"]
    assert viewer.main(["--list", path]) == 0 and capsys.readouterr().out.split("\n")[:2] == ["bytes", "count"]
    with pytest.raises(ArgumentError, match="no metric 'x'; it has bytes, count, flops8, time"):
        viewer.tree(path, "x")
    try:
        import hatchet  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install llnl-hatchet"):
            viewer.parse(["time"], path)


def test_a_whole_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import sys
        import numpy as np
        import tilewright as triton, tilewright.language as tl, tilewright.profiler as proton

        @triton.jit
        def set_one(x):
            tl.store(x, 1.0)

        if __name__ == "__main__":
            assert proton.start("own") is None
            x = np.zeros(1, np.float32)
            with proton.scope(sys.argv[1]):
                set_one[(1,)](x)
            assert x[0] == 1
            sys.exit(3)
    """))
    done = subprocess.run([sys.executable, "-m", "tilewright.profiler.proton", "-n", str(tmp_path / "p"), str(script), "named"], capture_output=True, text=True,
                          timeout=120, cwd=tmp_path)
    assert done.returncode == 3 and done.stderr.strip().endswith("p.hatchet"), done.stderr
    found = flat(read(tmp_path / "p.hatchet")[0])
    assert list(found) == [("named", "set_one")] and found["named", "set_one"]["count"] == 1 and found["named", "set_one"]["time (ns)"] > 0
    assert not (tmp_path / "own.hatchet").exists()
