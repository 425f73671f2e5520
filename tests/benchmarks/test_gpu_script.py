"""gpu.py's flow without a GPU: the host measured by its clock, tiny sizes, the peer a second Tilewright under Triton's name."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import write_performance
from cases import Add, Matmul
from frameworks import Framework

torch = pytest.importorskip("torch")
import gpu

SCRIPT = Path(gpu.__file__)
ROWS = [{"BLOCK": block, "num_warps": 4} for block in (256, 512)]


class Host:
    name = "cpu"

    def synchronize(self):
        pass

    def release(self):
        pass

    def samples(self, fn, n):
        times = []
        for _ in range(n):
            begin = time.perf_counter()
            fn()
            times.append((time.perf_counter() - begin) * 1e3)
        return times

    def copy_bandwidth(self):
        return 10.0

    def facts(self):
        return {"device": "a test", "driver": "0", "torch": torch.__version__, "cuda": None, "cudnn": 0}


def arguments(path, **more):
    return argparse.Namespace(**{"json": str(path), "candidates": 0, "time_budget": 60.0, "no_ahead": True, "deadline": time.monotonic() + 60, **more})


def sides():
    peer = Framework("tilewright")
    peer.name, peer.version = "triton", "0"
    return [Framework("tilewright"), peer]


class Fails(Add):
    """Its second candidate asks for an option that no target has."""

    def launches(self, b, c, framework):
        launch = super().launches(b, c, framework)[0]
        if c["BLOCK"] == 512:
            launch = replace(launch, options={**launch.options, "no_such_option": 1})
        return [launch]


class Wrong(Add):
    """A reference of something else."""

    def reference(self, b):
        return {"z": b["x"].double() - b["y"].double()}


def cases():
    listed = [Add("add", 3000), Fails("fails", 3000), Wrong("wrong", 3000),
              Matmul("matmul", 64, 64, 64, [{"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2, "WRAP": True}])]
    for case in listed[:3]:
        case.candidates = [dict(c) for c in ROWS]
    return {case.name: case for case in listed}


def test_measures_and_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    path = tmp_path / "out.json"
    gpu.measure(arguments(path), ["add", "fails", "wrong", "launch"], cases(), Host(), sides())
    data = json.loads(path.read_text())
    row = data["rows"]["add"]
    assert set(row["sides"]) == {"tilewright", "triton"} and list(row["libraries"]) == ["torch"]
    assert all("ms" in r for rs in row["tried"].values() for r in rs) and 0 < row["sides"]["triton"]["error"] < 1e-6
    assert row["sides"]["tilewright"]["ms"] == sorted(row["sides"]["tilewright"]["runs"])[2]
    failed = data["rows"]["fails"]
    assert "no_such_option" in failed["tried"]["tilewright"][1]["failed"] and failed["sides"]["tilewright"]["config"] == ROWS[0]
    assert not data["rows"]["wrong"]["sides"] and len(data["rows"]["wrong"]["notes"]) == 4
    assert data["launch"]["arguments_3"]["tilewright"] > 0 and data["launch"]["arguments_19"]["triton"] > 0
    text = write_performance.table(data)
    assert "| add fp32 3000 | GB/s |" in text and "**none**" in text and "left out because of their results" in text
    assert capsys.readouterr().out.count("WRONG z") == 4


def test_resumes_and_keeps_what_hung(tmp_path, monkeypatch):
    """A complete row is not measured again; a candidate known to hang is not run."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    path = tmp_path / "out.json"
    path.write_text(json.dumps({"rows": {"add": {"complete": True}, "matmul": {"complete": False}}, "bad": {"tilewright matmul 0": "hangs"}}))
    gpu.measure(arguments(path), ["add", "matmul"], cases(), Host(), sides())
    data = json.loads(path.read_text())
    assert data["rows"]["add"] == {"complete": True}
    assert set(data["rows"]["matmul"]["sides"]) == {"triton"} and data["rows"]["matmul"]["notes"] == ["tilewright: hangs"]


def test_checks_after_the_timing_too(tmp_path, monkeypatch):
    """A side that is right at first and wrong later has no number in the table."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    asked = []

    class Later(Add):
        def launches(self, b, c, framework):
            asked.append(framework.name)
            wrong = framework.name == "tilewright" and asked.count("tilewright") > 1
            return super().launches({**b, "y": b["x"]} if wrong else b, c, framework)

    case, path = Later("later", 3000), tmp_path / "out.json"
    case.candidates = [dict(ROWS[0])]
    gpu.measure(arguments(path), ["later"], {"later": case}, Host(), sides())
    data = json.loads(path.read_text())
    assert len(data["rows"]["later"]["notes"]) == 1 and data["rows"]["later"]["notes"][0].startswith("tilewright: after the timing WRONG z")
    assert "| **none** |" in write_performance.table(data) and data["rows"]["later"]["complete"]


def test_time_ends_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    path = tmp_path / "out.json"
    gpu.measure(arguments(path, deadline=0.0), ["add"], cases(), Host(), sides())
    assert not json.loads(path.read_text())["rows"]
    gpu.measure(arguments(path, time_budget=-1.0), ["add"], cases(), Host(), sides())
    assert json.loads(path.read_text())["rows"]["add"]["tried"]["tilewright"][0] == {"failed": "not tried: time"}


class Loses(Host):
    """Its context is lost by an error, as a GPU's is by an illegal access."""

    lost = False

    def synchronize(self):
        if self.lost:
            raise RuntimeError("an illegal memory access was encountered")


def test_starts_anew_when_the_context_is_lost(tmp_path, monkeypatch):
    """The candidate is noted and the process ends; the next one leaves the candidate out and keeps the other side's result."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")

    class Ended(BaseException):
        pass

    def end(status):
        raise Ended(status)

    class Illegal(Add):
        def launches(self, b, c, framework):
            if framework.name == "triton":
                device.lost = True
            return super().launches(b, c, framework)

    monkeypatch.setattr(gpu.os, "_exit", end)
    device, path = Loses(), tmp_path / "out.json"
    case = Illegal("illegal", 3000)
    case.candidates = [dict(ROWS[0])]
    with pytest.raises(Ended, match=str(gpu.BROKEN)):
        gpu.measure(arguments(path), ["illegal"], {"illegal": case}, device, sides())
    assert list(json.loads(path.read_text())["bad"]) == ["triton illegal 0"]
    gpu.measure(arguments(path), ["illegal"], {"illegal": case}, Loses(), sides())
    assert set(json.loads(path.read_text())["rows"]["illegal"]["sides"]) == {"tilewright"}
    gpu.forget(gpu.State(path), ["illegal"])
    assert json.loads(path.read_text())["rows"] == json.loads(path.read_text())["bad"] == {}


def test_watchdog_ends_a_hung_process(tmp_path):
    code = ("import sys, pathlib, time; sys.path.insert(0, sys.argv[1]); import gpu\n"
            "state = gpu.State(pathlib.Path(sys.argv[2])); dog = gpu.Watchdog(state)\n"
            "dog.begin('fine', 60); dog.end(); dog.begin('tilewright matmul 3', 0.1); time.sleep(30)")
    path = tmp_path / "out.json"
    done = subprocess.run([sys.executable, "-c", code, str(SCRIPT.parent), str(path)], capture_output=True, text=True)
    assert done.returncode == gpu.BROKEN and json.loads(path.read_text())["bad"] == {"tilewright matmul 3": "hangs"}, done.stderr


def test_compiles_ahead(monkeypatch, tmp_path):
    """A worker finds what is wrong with a candidate, and puts the others into the cache of this process."""
    from cases import all_cases
    from compile_ahead import Ahead
    from frameworks import compile_for, stand_in, warmup

    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_TARGET", "")
    tasks = [("tilewright", "add", 0), ("tilewright", "add", 99), ("no_such_compiler", "add", 0)]
    ahead = Ahead(tasks, 90, 1)
    try:
        assert ahead.wait(tasks[0], 120) == ""
        assert ahead.wait(tasks[1], 120).startswith("IndexError")
        assert ahead.wait(tasks[2], 120).startswith("ModuleNotFoundError")
        assert ahead.wait(("tilewright", "softmax", 0), 1) == ""  # was not handed out: it is compiled where it is run
    finally:
        ahead.close()
    hits = []
    from tilewright import knobs

    monkeypatch.setattr(knobs.compilation, "listener", lambda *, cache_hit, **_: hits.append(cache_hit))
    framework, case = Framework("tilewright"), all_cases()["add"]
    compile_for(framework, 90)
    warmup(framework, case.launches(case.buffers(stand_in), case.candidates[0], framework))
    assert hits == [True]


def test_lists_and_refuses():
    done = subprocess.run([sys.executable, str(SCRIPT), "--list"], capture_output=True, text=True)
    assert done.returncode == 0 and "matmul8192" in done.stdout and "fp8 e4m3" in done.stdout
    done = subprocess.run([sys.executable, str(SCRIPT), "--kernels", "matmul8191"], capture_output=True, text=True)
    assert done.returncode == 2 and "no kernel is called matmul8191" in done.stderr


def results(date):
    case = Add("add", 4096)
    side = {"ms": 1e-3, "error": 1e-8, "config": ROWS[0], "index": 0}
    row = {"case": "add", "title": case.title, "unit": case.unit, "work": case.work, "peak": None, "copy": 98.304, "libraries": {"torch": 2e-3},
           "sides": {"tilewright": side, "triton": {**side, "ms": 1.5e-3}}, "notes": [], "tried": {}, "date": date}
    return {"rows": {"add": row}, "bad": {}, "copy": 98.304, "date": date, "device": "D", "driver": "1", "torch": "2", "cudnn": 9,
            "versions": {"tilewright": "0.1", "triton": "3.6.0"}, "launch": {"arguments_3": {"tilewright": 5.0, "triton": 15.0}}}


def test_performance_page_keeps_history():
    page = "# What was measured\n\nIntroduction.\n\n## Compile time\n\nTable.\n"
    one = write_performance.merged(page, results("2026-01-01"))
    assert "| add fp32 2^12 | GB/s | 49 | 33 | 1.50 | 25 torch | 2.00 | 0.50 | 1.0e-08 | 256 w4; 256 w4 |" in one
    assert "| launch, 3 arguments | µs | 5.0 | 15.0 | 3.00 |" in one and one.count("2026-01-01") == 1
    assert one.index("Introduction.") < one.index("2026-01-01") < one.index("## Compile time") and one.endswith("Table.\n")
    two = write_performance.merged(one, results("2026-02-02"))
    three = write_performance.merged(two, results("2026-03-03"))
    order = [three.index(text) for text in ("2026-03-03", "## Compile time", write_performance.HISTORY, "2026-02-02", "2026-01-01")]
    assert order == sorted(order) and three.count("## Compile time") == 1 and three.count(write_performance.BEGIN) == 1
