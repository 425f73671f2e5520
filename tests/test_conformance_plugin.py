"""The conformance plugin (tests/conformance/plugin.py): what it records, adds up, reports and tabulates. A small suite of its own is run in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.conformance import names, plugin, record, table
from tilewright.conformance.harness import interpret, kernel_of, poisoned, random_array, rng_of
from tilewright.conformance.plugin import add_up, missing_names

HERE = Path(__file__).parent / "conformance"

_SUITE = '''
import os, numpy as np, pytest, torch
from tilewright.conformance.harness import compare, expressions, poisoned
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.conformance import harness

ADD = """
    @triton.jit
    def kernel(p, o):
        i = tl.arange(0, 16)
        tl.store(o + i, tl.load(p + i) + 1)
    """

def test_target_is_the_one_asked_for():
    assert harness.TARGET == os.environ["EXPECTED_TARGET"]

@pytest.mark.parametrize("dtype", ["int32", "fp32", "int8"])
def test_add(dtype):
    x = torch.zeros(16, dtype=harness.TORCH[dtype])
    compare(ADD, {"p": x, "o": poisoned(dtype, 16)}, expected={"o": x + 1}, num_warps=1)

def test_refused():
    compare(ADD.replace("+ 1", "* 3"), {"p": torch.zeros(16), "o": poisoned("fp32", 16)}, num_warps=1)
    raise UnsupportedOnTargetError("no threes here")

def test_wrong():
    compare(ADD.replace("+ 1", "- 1"), {"p": torch.zeros(16), "o": poisoned("fp32", 16)}, expected={"o": torch.ones(16)}, num_warps=1)

def test_skipped():
    pytest.skip("not today")

@pytest.mark.nightly
def test_long():
    assert False
'''


def _run(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], dict]:
    report = folder / "report.json"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TILEWRIGHT_CONFORMANCE")} | {"PYTEST_ADDOPTS": "", "TILEWRIGHT_INTERPRET": "0"}
    environment |= {"EXPECTED_TARGET": options[options.index("--tilewright-target") + 1], "TILEWRIGHT_TARGET": ""}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "tilewright.conformance.plugin", "-p", "no:cacheprovider", "--tilewright-report", str(report), *options,
                           str(folder / "conformance")], capture_output=True, text=True, env=environment, cwd=folder)
    return done, json.loads(report.read_text())


def _here(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict, str]:
    """The same in this process, which has imported torch already: exit status, report, output."""
    monkeypatch.setattr(plugin, "_current", None)  # the outer session's
    for name, value in (("TILEWRIGHT_TARGET", "cpu"), ("PYTEST_ADDOPTS", ""), ("TILEWRIGHT_INTERPRET", "0"), ("EXPECTED_TARGET", "cpu")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TILEWRIGHT_CONFORMANCE_SAMPLE", raising=False)
    monkeypatch.chdir(folder)
    capfd.readouterr()
    status = pytest.main(["-q", "-n", "0", "--rootdir", str(folder), "-c", os.devnull, "--import-mode=importlib", "-p", "no:cacheprovider", "-p", "tilewright.conformance.plugin",
                          "--tilewright-target", "cpu", "--tilewright-report", str(folder / "report.json"), *options, str(folder / "conformance")])
    out = capfd.readouterr()
    return int(status), json.loads((folder / "report.json").read_text()), out.out + out.err


def _suite(tmp_path: Path) -> Path:
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance" / "names.json").write_text((HERE / "names.json").read_text())
    (tmp_path / "conformance" / "conftest.py").write_text((HERE / "conftest.py").read_text())
    (tmp_path / "conformance" / "test_small.py").write_text(_SUITE)
    return tmp_path


def test_report(tmp_path, monkeypatch, capfd):
    """Passed, failed, refused (of a target that ships: failed), skipped; nightly ones left out."""
    status, report, out = _here(_suite(tmp_path), monkeypatch, capfd)
    assert status == 1, out
    _check_report(report, out)


@pytest.mark.nightly
def test_report_of_several_workers(tmp_path):
    done, report = _run(_suite(tmp_path), "-n", "2", "--tilewright-target", "cpu")
    assert done.returncode == 1, done.stdout + done.stderr
    _check_report(report, done.stdout)


def _check_report(report, out):
    outcomes = {n.rpartition("::")[2]: t["outcome"] for n, t in report["tests"].items()}
    assert outcomes == {"test_target_is_the_one_asked_for": "passed", "test_add[int32]": "passed", "test_add[fp32]": "passed", "test_add[int8]": "passed", "test_refused": "failed", "test_wrong": "failed", "test_skipped": "skipped"}
    used = report["names"]
    assert {k: v["passed"] for k, v in used["operator add"].items()} == {"pointers": 3, "int32": 1, "fp32": 1, "int8": 1}
    assert used["operator sub"]["fp32"]["failed"] == 1 and "fp32" in used["load"] and used["load"]["fp32"]["failed"] == 0
    assert "cpu refuses what it has to run" in out and "target cpu: 4 tests passed, 2 tests failed, 1 tests skipped" in out
    page = table.table([report])
    assert "| `load` | P0 | int8, int32, fp32 | ✓ |" in page and "| `operator sub` | P0 |  | ✗" in page and "| `cumsum` | P0 |  | – |" in page


def test_sample_and_the_oracle(tmp_path):
    done, report = _run(_suite(tmp_path), "-n", "0", "--tilewright-target", "interpreter", "--tilewright-sample", "1:7", "-k", "add or skipped or target")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(n.rpartition("::")[2].partition("[")[0] for n in report["tests"]) == ["test_add", "test_skipped", "test_target_is_the_one_asked_for"] and report["sample"] == "1:7"
    wrong = subprocess.run([sys.executable, "-m", "pytest", "-p", "tilewright.conformance.plugin", "--tilewright-target", "nothing", str(tmp_path)], capture_output=True, text=True)
    assert wrong.returncode == 4 and "nothing" in wrong.stderr


def test_a_whole_run_has_to_use_every_name(tmp_path, monkeypatch, capfd):
    """Nothing deselected, all passed, and yet an error: the suite has gaps. With -k (the test above) it is no whole run."""
    suite = _suite(tmp_path)
    (suite / "conformance" / "test_small.py").unlink()  # in this process a module of that name is there already
    (suite / "conformance" / "test_three.py").write_text(_SUITE.partition("def test_refused")[0])
    status, _, out = _here(suite, monkeypatch, capfd)
    assert status == 1 and "4 passed" in out and "no passing test uses these names of the usage list: program_id, " in out, out


def test_what_is_recorded():
    with record.Recorder() as recorder:
        kernel = kernel_of("""
            @triton.jit
            def kernel(p, o):
                i = tl.arange(0, 16)
                for k in tl.range(0, 2, num_stages=2):
                    tl.store(o + i, tl.sum(tl.load(p + i, mask=i < 8), axis=0).to(tl.float16))
            """)
        interpret(kernel, {"p": random_array("fp32", 16, rng_of("r")), "o": poisoned("fp16", 16)})
    run = recorder.runs[-1]
    assert run["uses"]["load"] == {"fp32"} and run["uses"]["load(mask=)"] == {"fp32"} and run["uses"]["store"] == {"fp16"}
    assert run["uses"]["sum(axis=)"] == {"fp32"} and "max" not in run["uses"] and {"range", "range(num_stages=)", "float16", ".to"} <= set(run["uses"])
    assert record.Recorder.current is None


def test_failures_are_held_against_the_rare():
    def test(outcome, **uses):
        return {"outcome": outcome, "reason": "", "seconds": 0, "runs": [{"uses": {k: [v] for k, v in uses.items()}, "outcome": outcome, "reason": ""}]}

    found = add_up({"a": test("passed", load="fp32", sum="fp32"), "b": test("passed", load="fp32", max="fp32"), "c": test("failed", load="fp32", sum="fp32")})
    assert found["load"]["fp32"] == {"passed": 2, "refused": 0, "failed": 0} and found["sum"]["fp32"]["failed"] == 1
    found = add_up({"a": test("passed", load="fp32"), "c": test("refused", load="fp32", sort="bf16")})
    assert found["sort"]["bf16"]["refused"] == 1 and found["load"]["fp32"]["refused"] == 0
    refused, failed = test("refused", sort="bf16"), test("failed", sort="bf16")
    refused["runs"][0]["reason"], failed["runs"][0]["reason"] = "no sorting here", "wrong"
    for tests in ({"a": refused, "b": failed}, {"b": failed, "a": refused}):
        assert add_up(tests)["sort"]["bf16"] == {"passed": 0, "refused": 1, "failed": 1, "reason": "b: wrong"}


def test_files_of_the_suite_can_be_installed():
    """They import each other under the package's name (``conformance`` alone exists in a checkout only)."""
    for file in HERE.glob("*.py"):
        assert not [line for line in file.read_text().splitlines() if line.startswith(("from conformance", "import conformance"))], f"{file.name}: say tilewright.conformance"
        siblings = {f.stem for f in HERE.glob("*.py")} & {line.split()[1] for line in file.read_text().splitlines() if line.startswith(("from ", "import "))}
        assert not siblings, f"{file.name}: say tilewright.conformance.{siblings.pop()}"


def test_a_gap_is_found():
    """What ends a whole run with an error: names that no passing run used."""
    run_of_all = {"uses": {n: ["fp32"] for n in names.wanted()}, "outcome": "passed", "reason": ""}
    tests = {"t": {"outcome": "passed", "reason": "", "seconds": 0, "runs": [run_of_all]}}
    assert missing_names(add_up(tests), "cpu") == []
    del run_of_all["uses"]["cumsum"]
    assert missing_names(add_up(tests), "cpu") == ["cumsum"]
    tests["u"] = {"outcome": "failed", "reason": "wrong", "seconds": 0, "runs": [{"uses": {"cumsum": ["fp32"]}, "outcome": "failed", "reason": "wrong"}]}
    assert missing_names(add_up(tests), "cpu") == ["cumsum"]
    tests["u"]["runs"][0]["outcome"] = "refused"
    assert missing_names(add_up(tests), "cpu") == [] and missing_names(add_up(tests), "interpreter") == ["cumsum"]
