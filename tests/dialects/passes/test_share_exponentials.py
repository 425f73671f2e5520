"""A running sum of exponentials takes one of two; sums of another form, and values used elsewhere, stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import tilewright.language as tl
from tilewright import jit
from tilewright.compiler import ASTSource
from tilewright.compiler.compiler import load_target, pass_context
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import ensure_dialects, mlir_context
from tilewright.dialects.pass_runner import run_passes
from tilewright.dialects.passes import share_exponentials
from tilewright.dialects.pipeline import Pipeline
from tilewright.targets import registry
from tilewright.targets.nvidia.simulate import simulate
from tilewright.targets.protocol import GPUTarget

KERNEL = """
func.func public @k(%a: {t}, %b: {t}, %c: {t}, %s: {t}, %p: {t}) -> ({t}, {t}) {{
  %m = arith.{max} {operands} : {t}
  %da = arith.subf {left}, %m : {t}
  %db = arith.subf {right}, %m : {t}
  %ea = math.{exp} %da : {t}
  %eb = math.{other} %db : {t}
  {sum}
  func.return %m, {result} : {t}, {t}
}}
"""
USUAL = {"t": "tensor<8xf32>", "max": "maxnumf", "operands": "%a, %b", "left": "%a", "right": "%b", "exp": "exp2", "other": "exp2",
         "sum": "%f = arith.mulf %s, %ea : {t}\n  %r = arith.addf %f, %eb : {t}", "result": "%r"}


def after(**changes: str) -> str:
    values = {**USUAL, **changes}
    values["sum"] = values["sum"].replace("{t}", values["t"])
    with mlir_context():
        ensure_dialects()
        module = ir.Module.parse(KERNEL.format(**values))
        share_exponentials.run(module, None)
        module.operation.verify()
        list(functions(module))
        return str(module)


def exponentials(text: str) -> int:
    return len(re.findall(r"math\.exp2? ", text))


def test_one_exponential_is_left():
    text = after()
    body = [line.split(" : ")[0].strip() for line in text.splitlines() if "=" in line]
    expected = ["arith.maxnumf %arg0, %arg1", "arith.subf %arg1, %arg0", "math.absf", "arith.negf", "math.exp2", "math.fma", "arith.cmpf ugt, %arg1, %arg0",
                "arith.select", "arith.select", "arith.mulf %arg3", "arith.addf"]
    at = -1
    for part in expected:
        at = next(i for i, line in enumerate(body) if i > at and part in line)
    assert exponentials(text) == 1


@pytest.mark.parametrize("changes", [
    {"exp": "exp", "other": "exp"}, {"max": "maximumf"}, {"operands": "%b, %a"}, {"t": "tensor<4x8xf32>"},
    {"sum": "%f = arith.mulf %ea, %s : {t}\n  %r = arith.addf %eb, %f : {t}"},
    {"sum": "%f = arith.mulf %s, %ea : {t}\n  %g = arith.mulf %p, %eb : {t}\n  %r = arith.addf %f, %g : {t}"},
    {"sum": "%r = math.fma %s, %ea, %eb : {t}"}, {"sum": "%r = arith.addf %ea, %eb : {t}"},
    {"sum": "%g = arith.mulf %p, %eb : {t}\n  %r = math.fma %s, %ea, %g : {t}"},
], ids=str)
def test_other_ways_to_write_it(changes):
    assert exponentials(after(**changes)) == 1


@pytest.mark.parametrize("changes", [
    {"other": "exp"},  # of one base each
    {"left": "%c"},  # not the maximum's
    {"left": "%b"},  # both of one
    {"t": "f32"}, {"t": "tensor<8xf16>"}, {"t": "tensor<8xf64>"},
    {"sum": "%f = arith.mulf %s, %ea : {t}\n  %r = arith.addf %f, %s : {t}", "result": "%eb"},  # one of them does not go into the sum
    {"sum": "%f = arith.mulf %s, %ea : {t}\n  %g = arith.addf %f, %eb : {t}\n  %r = arith.addf %g, %ea : {t}"},  # used in another way too
    {"sum": "%f = arith.mulf %s, %ea : {t}\n  %r = arith.subf %f, %eb : {t}"},
    {"sum": "%f = arith.mulf %ea, %s : {t}\n  %r = math.fma %f, %p, %eb : {t}"},  # behind two factors
], ids=str)
def test_what_is_left_alone(changes):
    text = after(**changes)
    assert exponentials(text) == 2 and "arith.select" not in text


@jit
def running_sums(x, y, N: tl.constexpr):
    """Each of 20 values, and then each of them beside it, without contraction."""
    i = tl.arange(0, N)
    m = tl.load(x + i // 32)
    s = tl.full((N,), 0.7, tl.float32)
    v = tl.load(x + i % 32)
    new = tl.maximum(m, v)
    s = s * tl.exp(m - new) + tl.exp(v - new)
    tl.store(y + i, s)


def _bits(change: Callable[[Pipeline], Pipeline], fusion: bool) -> tuple[np.ndarray, int]:
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-40, -1e-40, 88.0, -88.0, 0.3, 1.5, -0.7] * 2, np.float32)
    selection = registry.select(GPUTarget("cuda", 80, 32))
    options = selection.plugin.options(enable_fp_fusion=fusion)
    y = np.full(1024, 7.0, np.float32)
    with mlir_context():
        load_target(selection.plugin)
        ctx = pass_context(selection, options, "running_sums")
        module = ASTSource(running_sums, {"x": "*fp32", "y": "*fp32"}, {"N": 1024}).make_module(selection, options)
        stages = change(selection.plugin.pipeline(selection.arch, options)).stages[:3]
        for stage in stages[:2]:
            run_passes(module, stage.passes, ctx)
        left = exponentials(str(module))
        run_passes(module, stages[2].passes, ctx)
        simulate(module, "running_sums", 4, ctx.metadata.get("shared", 0), (1,), (values, y))
    return y, left


def test_the_bits_are_the_same_without_contraction():
    (new, one), (old, two) = _bits(lambda p: p, False), _bits(lambda p: p.remove("share_exponentials"), False)
    assert (one, two) == (1, 2) and np.isnan(old).any() and not np.isnan(old).all()
    assert np.array_equal(np.isnan(new), np.isnan(old)) and np.array_equal(new[~np.isnan(new)].view(np.uint32), old[~np.isnan(old)].view(np.uint32))


@pytest.mark.parametrize("target", ["nvidia:sm_90a", "cpu"])
def test_what_targets_make_of_a_running_sum(target):
    selection = registry.parse(target)
    options = selection.plugin.options()
    with mlir_context():
        load_target(selection.plugin)
        ctx = pass_context(selection, options, "running_sums")
        module = ASTSource(running_sums, {"x": "*fp32", "y": "*fp32"}, {"N": 1024}).make_module(selection, options)
        run_passes(module, selection.plugin.pipeline(selection.arch, options).stages[0].passes, ctx)
        assert exponentials(str(module)) == 1
