"""`tilewright matrix`: rows for what passes and for every way to fail; reports; exit status."""

from __future__ import annotations

import json
import os
import textwrap
from xml.etree import ElementTree

import pytest

from tilewright import cli, matrix, matrix_report, matrix_worker
from tilewright.dialects.errors import ArgumentError

HEAD = """
    import os
    import numpy as np
    import triton
    import triton.language as tl
    from tilewright.testing import Case

    @triton.jit
    def add(x, y, z, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(z + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

    X = np.arange(100, dtype=np.float32)

    def launch(n=100):
        z = np.empty_like(X)
        add[(triton.cdiv(n, 64),)](X, X, z, n, BLOCK=64)
        return z
"""
GOOD = """
    def tilewright_cases(device):
        assert device == "cpu"
        yield Case("doubled", launch, lambda: 2 * X.astype(float), 1e-6)
"""
BAD = GOOD + """
        yield Case("unwritten", lambda: launch(99), lambda: 2 * X.astype(float), 1e-6)
        yield Case("off", launch, lambda: 2.5 * X.astype(float), 1e-6)
        yield Case("raises", lambda: [][0], lambda: 0, 1e-6)
        yield Case("measured", launch, lambda: 2 * X.astype(float), 1e-6, measure=lambda out, ref: 0.5)
        yield Case("after", launch, lambda: 2 * X.astype(float), 1e-6)
"""
DIES = GOOD + """
        yield Case("dies", lambda: os.abort(), lambda: 0, 1)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    return tmp_path


def write(body: str, name: str = "mine.py") -> str:
    with open(name, "w") as f:
        f.write(textwrap.dedent(HEAD) + textwrap.dedent(body).lstrip(" "))
    return name


def row(body: str, target: str = "cpu", timeout: float = 60.0, **request) -> matrix.TargetResult:
    return matrix.run_target(target, {"file": os.path.abspath(write(body)), **request}, timeout)


def test_a_good_file_passes_everywhere_and_says_where_it_ran(folder, capsys):
    path = write(GOOD)
    args = ["matrix", path, "--targets", "cpu,interpreter,amd:gfx942,nvidia:sm_80", "--json", "o.json", "--junit", "o.xml", "--html", "o.html"]
    assert cli.main(args) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert "4 of 4 targets passed" in out and out.count("simulator") == 2 and out.count("1/1") == 4
    data = json.loads((folder / "o.json").read_text())
    assert data["passed"] is True and [(t["target"], t["ran"]) for t in data["targets"]] == [
        ("cpu", "device"), ("interpreter", "interpreter"), ("amd:gfx942", "simulator"), ("nvidia:sm_80", "simulator")]
    amd = data["targets"][2]
    assert amd["kernels"][0]["name"] == "add" and amd["kernels"][0]["registers"] > 0 and amd["kernels"][0]["spills"] == 0
    assert amd["cases"][0]["status"] == "passed" and amd["cases"][0]["error"] == 0.0 and amd["choices"]
    suites = ElementTree.parse(folder / "o.xml").getroot().findall("testsuite")
    assert [(s.get("name"), s.get("tests"), s.get("failures"), s.get("errors")) for s in suites] == [
        (t["target"], "1", "0", "0") for t in data["targets"]]
    page = (folder / "o.html").read_text()
    assert "4 of 4 targets passed" in page and "amd:gfx942" in page and "doubled" in page


def test_every_failure_is_a_row_and_the_others_go_on(folder, capsys):
    assert cli.main(["matrix", write(BAD), "--targets", "cpu,nowhere::,interpreter"]) == 1  # a wrong target is told before anything runs
    assert "nowhere" in capsys.readouterr().err
    assert cli.main(["matrix", write(BAD), "--targets", "cpu", "--json", "-"]) == 1
    data = json.loads(capsys.readouterr().out)
    cases = {c["name"]: c for c in data["targets"][0]["cases"]}
    assert {n: c["status"] for n, c in cases.items()} == {"doubled": "passed", "unwritten": "failed", "off": "failed", "raises": "failed", "measured": "failed",
                                                             "after": "passed"}
    assert cases["unwritten"]["error"] == "nan" and "was it written?" in cases["unwritten"]["message"]
    assert cases["off"]["error"] == pytest.approx(0.2) and "at most 1e-06" in cases["off"]["message"]
    assert cases["measured"]["error"] == 0.5
    assert cases["raises"]["message"].startswith("IndexError: list index out of range\nat mine.py:")


def test_a_crash_is_a_row_that_names_the_case(folder):
    result = row(DIES)
    assert not result.passed and [c["status"] for c in result.cases] == ["passed"]
    assert result.failure.startswith("the process was ended by SIGABRT in case dies")
    xml = matrix_report.as_junit("mine.py", [result])
    suite = ElementTree.fromstring(xml).find("testsuite")
    assert suite.get("errors") == "1" and "SIGABRT" in suite.find("testcase/error").get("message")


def test_a_hang_is_ended(folder):
    result = row("""
    def tilewright_cases(device):
        yield Case("quick", launch, lambda: 2 * X, 0)
        yield Case("hangs", lambda: __import__("time").sleep(600), lambda: 0, 1)
    """, timeout=8.0)
    assert result.failure == "it took longer than 8 s and was ended (--timeout) in case hangs" and result.cases[0]["status"] == "passed"


@pytest.mark.parametrize("body, text", [
    ("raise OSError('no such thing')", "OSError: no such thing\nat mine.py:"),
    ("import sys; sys.exit(3)", "exit status 3"),
    ("def tilewright_cases(device): return []", "no case was run"),
    ("def tilewright_cases(device): pass", "tilewright_cases returns NoneType; it has to yield Cases"),
    ("def tilewright_cases(device): yield launch", "it has to be a Case"),
    ("import sys\ndef tilewright_cases(device): sys.exit(4)", "the file ends the process (exit status 4) before its cases are made"),
    ("", "it is not said what to run: the file has no function tilewright_cases(device)"),
])
def test_files_that_cannot_be_used(folder, body, text):
    result = row(body)
    assert not result.passed and text in result.failure
    if not body:
        assert "yield Case(" in result.failure and "--kernel NAME --signature" in result.failure and "kernels: add" in result.failure


def test_what_is_no_check_is_no_pass(folder):
    result = row('''
    def host(make=np.empty):
        return X + X

    def warmed():
        z = np.empty_like(X)
        add.warmup(X, X, z, 100, BLOCK=64, grid=(2,))[2, 1, 1](X, X, z, 100, 64)
        return z

    def tilewright_cases(device):
        double = lambda: 2 * X.astype(float)
        yield Case("host", host, double, 1e-6)
        yield Case("only compiled", lambda: add.warmup(X, X, X, 100, BLOCK=64, grid=(2,)) and X, lambda: X, 1e-6)
        yield Case("nothing", lambda: launch() is X or None, lambda: None, 1e-6)
        yield Case("infinite", launch, double, float("inf"))
        yield Case("nan", launch, double, float("nan"))
        yield Case("text", launch, double, "1e-6")
        yield Case("exits", lambda: __import__("sys").exit(3), double, 1e-6)
        yield Case("empty", lambda: X[:0], lambda: X[:0], 0)
        yield Case("warmed", warmed, double, 1e-6)
    ''')
    cases = {c["name"]: c for c in result.cases}
    assert [n for n, c in cases.items() if c["status"] == "passed"] == ["empty", "warmed"] and not result.failure
    assert "run() launched no kernel" in cases["host"]["message"] and "run() launched no kernel" in cases["only compiled"]["message"]
    assert "the case returns None" in cases["nothing"]["message"] and cases["exits"]["message"] == "the case ends the process (exit status 3)"
    assert all("tolerance is a number of 0 or more" in cases[n]["message"] for n in ("infinite", "nan", "text"))


@pytest.mark.parametrize("target", ["interpreter", "nvidia:sm_80:sim"])
def test_a_launch_is_seen_wherever_it_runs(folder, target):
    result = row(GOOD + '''
        yield Case("host", lambda: X + X, lambda: 2 * X, 0)
    ''', target)
    assert [(c["name"], c["status"]) for c in result.cases] == [("doubled", "passed"), ("host", "failed")] and not result.failure


def test_wrong_usage(folder, capsys):
    path = write(GOOD)
    for args, text in ((["--max-spills", "-1"], "0 or more; found -1"), (["--jobs", "0"], "1 or more; found 0"), (["--timeout", "0"], "above 0; found 0"),
                       (["--timeout", "nan"], "above 0; found nan"), (["--jobs", "x"], "invalid")):
        with pytest.raises(SystemExit) as ended:
            cli.main(["matrix", path, "--targets", "cpu", *args])
        assert ended.value.code == 2 and text in capsys.readouterr().err
    os.mkdir("taken")
    for args, text in ((["--json", "taken"], "'taken' is a folder"), (["--html", "no/x"], "no folder for 'no/x'"), (["--junit", "-"], "--junit needs a file"),
                       (["--kernel", "add", "--cases", "a"], "leave --cases out")):
        assert cli.main(["matrix", path, "--targets", "cpu", *args]) == 1
        assert text in capsys.readouterr().err
    assert "name it with --kernel" in row(GOOD, options={"num_warps": 8}).failure  # it would change nothing
    assert "one entry for each of x, y, z, n, BLOCK" in row(GOOD, kernel="add").failure
    os.rename(path, "mine.txt")
    assert "is no Python file" in matrix.run_target("cpu", {"file": os.path.abspath("mine.txt")}, 60.0).failure
    assert cli.main(["compile", "mine.txt:add", "--target", "cpu", "--signature", "*fp32"]) == 1 and "is no Python file" in capsys.readouterr().err


def test_cases_are_chosen_by_name(folder):
    assert [c["name"] for c in row(BAD, cases="a*").cases] == ["after"]
    assert row(BAD, cases="nothing*").failure == "no case was run: none is named like 'nothing*'"


def test_compile_only(folder, capsys):
    assert cli.main(["matrix", write(BAD.replace("[][0]", "launch()")), "--targets", "amd:gfx90a,interpreter", "--compile-only", "--junit", "o.xml"]) == 0
    out = capsys.readouterr().out
    assert "compiled only" in out and "6/6" in out and "amd:gfx90a: --compile-only was given" in out
    assert "interpreter  not run" in out and "the interpreter compiles nothing" in out
    assert len(ElementTree.parse("o.xml").getroot().findall("testsuite/testcase/skipped")) == 6


def test_nothing_at_all_does_not_pass(folder, capsys):
    """Beside other targets the interpreter may be idle; alone it would pass whatever the file says."""
    assert cli.main(["matrix", write(GOOD), "--targets", "interpreter", "--compile-only"]) == 1
    out = capsys.readouterr().out
    assert "FAILED nothing was run or compiled" in out and "0 of 1 targets passed" in out
    assert cli.main(["matrix", write(""), "--targets", "interpreter", "--kernel", "add"]) == 1


def test_a_kernel_without_cases(folder):
    result = row("", target="amd:gfx1100", kernel="add", signature="*fp32:16,*fp32:16,*fp32:16,i32:16,256")
    assert result.passed and result.ran == matrix_worker.COMPILED and [c["name"] for c in result.cases] == ["add"]
    assert result.by_kernel()[0]["registers"] > 0
    assert "no kernel 'other'; it has add" in row("", kernel="other").failure
    wrong = row("", kernel="add", signature="*fp32:16,*fp32:16,*fp32:16,i32:16")
    assert "no type or constexpr value is given for BLOCK" in wrong.cases[0]["message"] and not wrong.passed


def test_annotations_and_configurations_say_what_to_compile(folder):
    result = row("""
        @triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128})], key=["n"])
        @triton.jit
        def scale(x: "*fp16:16", n: tl.int32, BLOCK: tl.constexpr):
            i = tl.arange(0, BLOCK)
            tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
    """)
    assert result.passed, (result.failure, result.cases)
    assert len(result.cases) == 2 and all(c["name"].startswith("scale [BLOCK: ") for c in result.cases)
    assert {k["num_warps"] for k in result.kernels} == {2, 4}


def test_an_autotuner_takes_the_first_configuration_where_time_says_nothing(folder):
    result = row("""
        COUNT = []
        @triton.autotune([triton.Config({"BLOCK": 64}, pre_hook=COUNT.append), triton.Config({"BLOCK": 128}, pre_hook=COUNT.append)], key=["n"])
        @triton.jit
        def scale(x, n, BLOCK: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(x + i, i, mask=i < n)
        def tune():
            z = np.empty_like(X)
            scale[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](z, 100)
            assert len(COUNT) == 1, len(COUNT)
            return z
        def tilewright_cases(device):
            yield Case("tuned", tune, lambda: X.astype(float), 0)
    """, target="amd:gfx1100")
    assert result.passed, (result.failure, result.cases)


def test_spills_can_be_a_failure():
    result = matrix.TargetResult("t", kernels=[{"name": "k", "spills": 3}, {"name": "k", "spills": 12}])
    matrix.spilled(result, 12)
    assert result.passed
    matrix.spilled(result, 11)
    assert not result.passed and result.failure == "k spills 12 registers; --max-spills is 11"


def test_cases_that_fail_alike_are_told_once():
    cases = [{"name": n, "status": "failed", "message": m} for n, m in (("a", "x"), ("b", "y"), ("c", "x"))]
    assert matrix_report.problems(matrix.TargetResult("t", failure="early", cases=cases)) == ["early", "a; c: x", "b: y"]


def test_all_targets_are_the_default():
    names = matrix.targets_of(None)
    assert names[:2] == ["cpu", "interpreter"] and {"amd:gfx942", "amd:gfx1201", "nvidia:sm_80", "nvidia:sm_90a"} <= set(names)
    assert matrix.targets_of("amd,cpu")[0].startswith("amd:") and matrix.targets_of("amd,cpu")[-1] == "cpu"
    with pytest.raises(ArgumentError):
        matrix.targets_of(" , ")


def test_reports_hold_hostile_text():
    bad = matrix.TargetResult("<t>", ran="device", cases=[{"name": "<&\x00>", "status": "failed", "error": float("nan"), "tolerance": 1.0,
                                                          "message": "]]>\x1b[0m <b>", "seconds": 0.0}])
    bad.cases[0]["name"] = "<&>"
    ElementTree.fromstring(matrix_report.as_junit("f.py", [bad]))
    assert "<b>" not in matrix_report.as_html("f.py", [bad]).split("</style>")[1].replace("<br>", "")
    json.loads(json.dumps(matrix_report.as_data("f.py", [bad]), allow_nan=False))
