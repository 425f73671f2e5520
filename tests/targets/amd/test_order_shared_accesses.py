"""The pass on IR text: buffers are written first and read last, and not where that would take too much LDS."""

import re

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import ensure_dialects, mlir_context
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.amd.capabilities import capabilities
from tilewright.targets.amd.options import AmdOptions
from tilewright.targets.amd.passes.order_shared_accesses import run
from tilewright.targets.amd.target import TARGET

BLOCKED = "#ttg.blocked<array<i32: 1, 1>, array<i32: 8, 8>, array<i32: 4, 1>, array<i32: 1, 0>>"
SHARED = "#ttg.swizzled_shared<1 : i32, 1 : i32, 1 : i32, array<i32: 1, 0>>"


def text_of(m, k):
    tile, memory = f"tensor<{m}x{k}xf32, {BLOCKED}>", f"!ttg.memdesc<array<i64: {m}, {k}>, f32, {SHARED}, false>"
    return f"""
func.func @k(%a: {tile}, %b: {tile}, %n: i32) attributes {{tt.kernel}} {{
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %r:2 = scf.for %i = %zero to %n step %one iter_args(%x = %a, %y = %b) -> ({tile}, {tile}) : i32 {{
    %sx = "ttg.local_alloc"(%x) : ({tile}) -> {memory}
    %dx = "ttg.local_load"(%sx) : ({memory}) -> {tile}
    %z = arith.addf %y, %y : {tile}
    %sz = "ttg.local_alloc"(%z) : ({tile}) -> {memory}
    %dz = "ttg.local_load"(%sz) : ({memory}) -> {tile}
    %sy = "ttg.local_alloc"(%y) : ({tile}) -> {memory}
    %dy = "ttg.local_load"(%sy) : ({memory}) -> {tile}
    %p = arith.mulf %dz, %dy : {tile}
    %q = arith.mulf %p, %dx : {tile}
    scf.yield %p, %q : {tile}, {tile}
  }}
  func.return
}}"""


def order(m, k):
    with mlir_context():
        ensure_dialects(*TARGET.dialects())
        module = ir.Module.parse(text_of(m, k))
        run(module, PassContext(TARGET, "gfx942", capabilities("gfx942"), AmdOptions()))
        assert module.operation.verify()
        text = str(module)
    body = text[text.index("scf.for"):text.index("scf.yield")]
    return re.findall(r"local_alloc|local_load|addf|mulf", body)


def test_writes_come_first_and_reads_last():
    # %x and %y are there from the start; %z is written as soon as it is known; each is read right before its product
    assert order(32, 32) == ["local_alloc", "local_alloc", "addf", "local_alloc", "local_load", "local_load", "mulf", "local_load", "mulf"]


def test_large_buffers_stay_apart():
    # three buffers of 16 KiB are more than half of 64 KiB
    assert order(64, 64) == ["local_alloc", "local_load", "addf", "local_alloc", "local_load", "local_alloc", "local_load", "mulf", "mulf"]
