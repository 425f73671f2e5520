"""Random kernels on the target, bit for bit as in the interpreter: a seeded sample; and that the runner finds, shrinks and reports.

Many more: ``python -m tilewright.conformance.random_kernels --count 20000`` (random_kernels.py).
"""

from __future__ import annotations

import ast
import collections
import json
import subprocess
import sys

import pytest
import torch

from tilewright.conformance.harness import SIMULATED, TARGET
from tilewright.conformance.random_kernels_base import PRODUCTIONS, VARIANTS, Case
from tilewright.conformance.random_kernels_control import generate
from tilewright.conformance.random_kernels_ops import MATH, math_margin
from tilewright.conformance.random_kernels_run import Outcome, Worker, check
from tilewright.conformance.random_kernels_shrink import reproducer, shrink

_QUICK, _SLOW = (12, 40) if SIMULATED else (60, 200)


@pytest.mark.parametrize("seed", [s if s < _QUICK else pytest.param(s, marks=pytest.mark.nightly) for s in range(_SLOW)])
def test_random_kernel(seed):
    case = generate(seed)
    outcome = check(case.source, case.args, case.grid, case.options)
    if outcome.kind == "refused" and TARGET.split(":")[0] != "cpu":
        pytest.skip(outcome.mark)
    assert outcome.kind == "ok", f"{outcome.text}\n{case.source}"


def test_the_grammar_is_used_whole():
    """Some hundred seeds write every rule and nearly every variant of it, and the same seed the same kernel."""
    used: collections.Counter = collections.Counter()
    for seed in range(250):
        case = generate(seed)
        ast.parse(case.source)
        used.update(case.used)
    assert not [name for name in PRODUCTIONS if not used["op", name]]
    variants = [f"{rule}.{v}" for rule, names in VARIANTS.items() for v in names]
    never = [v for v in variants if not used["variant", v]]
    assert len(never) < len(variants) // 20, never
    assert generate(7).source == generate(7).source
    assert all(torch.equal(a, b) for a, b in zip(generate(7).args.values(), generate(7).args.values()) if isinstance(a, torch.Tensor) and not a.is_floating_point())


@pytest.mark.parametrize("name", MATH)
def test_no_function_value_is_near_a_step(name):
    """floor(f(x) * scale + added) of the integers in question stays away from integers, so that a few ulp change nothing."""
    assert math_margin(name) > 1e-3


class _Broken:
    """Stands for a worker whose target gets every kernel wrong that takes a maximum along an axis."""

    def ask(self, job):
        source, args, grid, options = job
        try:
            names = {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}
            namespace = {n.arg for n in next(f for f in ast.parse(source).body if getattr(f, "name", "") == "kernel").args.args}
        except StopIteration:
            return Outcome("interpreter", "", "interpreter")
        if not names or not namespace >= set(args):
            return Outcome("interpreter", "", "interpreter")
        return Outcome("mismatch", "o", "mismatch") if "tl.max(" in source else Outcome("ok")


def test_failures_become_small():
    source = """import tilewright.language as tl
def unused(x):
    return x
def kernel(p, q, o, n, C: tl.constexpr):
    i = tl.arange(0, 16)
    v1 = tl.load(p + i)
    v2 = tl.load(q + i)
    v3 = v1 + v2
    for k in range(n):
        v4 = v3 * 2
        if n > 2:
            v5 = tl.max(v4, 0)
            v6 = unused(v5)
            tl.store(o, v6)
        v3 = v4
    tl.store(o + i, v3)
"""
    case = Case(1, source, {"p": torch.zeros(16), "q": torch.zeros(16), "o": torch.zeros(16), "n": 3, "C": 1}, (2, 2), {"num_warps": 8},
                {"v3": ("fp32", (16,))})
    small, outcome = shrink(case, Outcome("mismatch", "o", "mismatch"), _Broken(), 20)
    assert outcome.kind == "mismatch" and small.grid == (1,) and small.options == {"num_warps": 1}
    body = next(f for f in ast.parse(small.source).body if getattr(f, "name", "") == "kernel").body
    assert [ast.unparse(s) for s in body] == ["v5 = tl.max(v4, 0)"]
    assert case.source == source and "n" in case.args  # the case itself stays
    ast.parse(reproducer(small, outcome, "cpu"))


@pytest.mark.nightly
def test_the_run_goes_on_after_crashes_and_hangs(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", TARGET)
    worker = Worker(limit=60)
    assert worker.ask(("import ctypes\ndef kernel(): pass\nctypes.string_at(0)\n", {}, (1,), {})).kind == "crash"
    assert worker.ask(3).kind == "ok"
    worker.limit = 1
    assert worker.ask(("while True:\n    pass\n", {}, (1,), {})).kind == "hang"
    worker.limit = 60
    assert worker.ask(4).kind == "ok"
    worker.stop()


@pytest.mark.nightly
def test_command_line(tmp_path):
    found = subprocess.run([sys.executable, "-m", "tilewright.conformance.random_kernels", "--count", "3", "--jobs", "1", "--json", str(tmp_path / "r.json"),
                            "--out", str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["kinds"] == {"ok": 3} and "rule × type" in found.stdout and "never used" in found.stdout
