"""Kernels over descriptors as they leave the tt stage on a target with bulk copies, for the tests of the passes that follow."""

from __future__ import annotations

from typing import Any

from tilewright.compiler.compiler import load_target, pass_context
from tilewright.compiler.options import make_options
from tilewright.dialects._mlir import ir
from tilewright.dialects.pass_runner import run_passes
from tilewright.dialects.passes import lazy_pass, shared_pass
from tilewright.targets import registry

_ONE = "array<i32: 1, 0, 0, 0, 0, 0, 0, 0>"

MATMUL = """
!A = !tt.tensordesc<array<i64: 128, 64>, f16>
!B = !tt.tensordesc<array<i64: 64, 256>, f16>
!C = !tt.tensordesc<array<i64: 128, 256>, f16>
module {
  "func.func"() <{function_type = (i32, i32, i32, !A, !B, !C) -> (), sym_name = "mm"}> ({
  ^bb0(%M: i32, %N: i32, %K: i32, %da: !A, %db: !B, %dc: !C):
    %pm = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
    %pn = "tt.get_program_id"() {axis = 1 : i32} : () -> i32
    %c128 = "arith.constant"() {value = 128 : i32} : () -> i32
    %c256 = "arith.constant"() {value = 256 : i32} : () -> i32
    %c64 = "arith.constant"() {value = 64 : i32} : () -> i32
    %c0 = "arith.constant"() {value = 0 : i32} : () -> i32
    %m = "arith.muli"(%pm, %c128) : (i32, i32) -> i32
    %n = "arith.muli"(%pn, %c256) : (i32, i32) -> i32
    %z = "arith.constant"() {value = dense<0.0> : tensor<128x256xf32>} : () -> tensor<128x256xf32>
    %acc = "scf.for"(%c0, %K, %c64, %z) ({
    ^bb1(%k: i32, %c: tensor<128x256xf32>):
      %a = "tt.descriptor_load"(%da, %m, %k) {cache = "", evict = ""} : (!A, i32, i32) -> tensor<128x64xf16>
      %b = "tt.descriptor_load"(%db, %k, %n) {cache = "", evict = ""} : (!B, i32, i32) -> tensor<64x256xf16>
      %d = "tt.dot"(%a, %b, %c) {input_precision = "tf32", max_num_imprecise_acc = 0 : i32} : (tensor<128x64xf16>, tensor<64x256xf16>, tensor<128x256xf32>) -> tensor<128x256xf32>
      "scf.yield"(%d) : (tensor<128x256xf32>) -> ()
    }) : (i32, i32, i32, tensor<128x256xf32>) -> tensor<128x256xf32>
    %h = "arith.truncf"(%acc) : (tensor<128x256xf32>) -> tensor<128x256xf16>
    "tt.descriptor_store"(%dc, %h, %m, %n) : (!C, tensor<128x256xf16>, i32, i32) -> ()
    "func.return"() : () -> ()
  }) : () -> ()
}
"""

ATTENTION = """
!T = !tt.tensordesc<array<i64: 128, 128>, bf16>
module {
  "func.func"() <{function_type = (i32, f32, !T, !T, !T, !T) -> (), sym_name = "fa"}> ({
  ^bb0(%N: i32, %scale: f32, %dq: !T, %dk: !T, %dv: !T, %do: !T):
    %pm = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
    %c128 = "arith.constant"() {value = 128 : i32} : () -> i32
    %c0 = "arith.constant"() {value = 0 : i32} : () -> i32
    %m = "arith.muli"(%pm, %c128) : (i32, i32) -> i32
    %q = "tt.descriptor_load"(%dq, %m, %c0) {cache = "", evict = ""} : (!T, i32, i32) -> tensor<128x128xbf16>
    %z = "arith.constant"() {value = dense<0.0> : tensor<128x128xf32>} : () -> tensor<128x128xf32>
    %mi0 = "arith.constant"() {value = dense<-1.0e30> : tensor<128xf32>} : () -> tensor<128xf32>
    %li0 = "arith.constant"() {value = dense<0.0> : tensor<128xf32>} : () -> tensor<128xf32>
    %st = "tt.splat"(%scale) : (f32) -> tensor<128x128xf32>
    %r:3 = "scf.for"(%c0, %N, %c128, %z, %mi0, %li0) ({
    ^bb1(%i: i32, %acc: tensor<128x128xf32>, %mi: tensor<128xf32>, %li: tensor<128xf32>):
      %k = "tt.descriptor_load"(%dk, %i, %c0) {cache = "", evict = ""} : (!T, i32, i32) -> tensor<128x128xbf16>
      %kt = "tt.trans"(%k) {order = array<i32: 1, 0>} : (tensor<128x128xbf16>) -> tensor<128x128xbf16>
      %s0 = "tt.dot"(%q, %kt, %z) {input_precision = "ieee", max_num_imprecise_acc = 0 : i32} : (tensor<128x128xbf16>, tensor<128x128xbf16>, tensor<128x128xf32>) -> tensor<128x128xf32>
      %s = "arith.mulf"(%s0, %st) : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
      %mx = "tt.reduce"(%s) ({
        ^bb2(%x: f32, %y: f32):
          %mm = "arith.maxnumf"(%x, %y) : (f32, f32) -> f32
          "tt.reduce_return"(%mm) {SEGMENTS} : (f32) -> ()
      }) {axis = 1 : i32, SEGMENTS, resultSegmentSizes = ONE} : (tensor<128x128xf32>) -> tensor<128xf32>
      %mn = "arith.maxnumf"(%mi, %mx) : (tensor<128xf32>, tensor<128xf32>) -> tensor<128xf32>
      %mne = "tt.expand_dims"(%mn) {axis = 1 : i32} : (tensor<128xf32>) -> tensor<128x1xf32>
      %mnb = "tt.broadcast"(%mne) : (tensor<128x1xf32>) -> tensor<128x128xf32>
      %sd = "arith.subf"(%s, %mnb) : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
      %p = "math.exp2"(%sd) : (tensor<128x128xf32>) -> tensor<128x128xf32>
      %ad = "arith.subf"(%mi, %mn) : (tensor<128xf32>, tensor<128xf32>) -> tensor<128xf32>
      %al = "math.exp2"(%ad) : (tensor<128xf32>) -> tensor<128xf32>
      %ps = "tt.reduce"(%p) ({
        ^bb2(%x: f32, %y: f32):
          %mm = "arith.addf"(%x, %y) : (f32, f32) -> f32
          "tt.reduce_return"(%mm) {SEGMENTS} : (f32) -> ()
      }) {axis = 1 : i32, SEGMENTS, resultSegmentSizes = ONE} : (tensor<128x128xf32>) -> tensor<128xf32>
      %l1 = "arith.mulf"(%li, %al) : (tensor<128xf32>, tensor<128xf32>) -> tensor<128xf32>
      %ln = "arith.addf"(%l1, %ps) : (tensor<128xf32>, tensor<128xf32>) -> tensor<128xf32>
      %ale = "tt.expand_dims"(%al) {axis = 1 : i32} : (tensor<128xf32>) -> tensor<128x1xf32>
      %alb = "tt.broadcast"(%ale) : (tensor<128x1xf32>) -> tensor<128x128xf32>
      %acc1 = "arith.mulf"(%acc, %alb) : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
      %v = "tt.descriptor_load"(%dv, %i, %c0) {cache = "", evict = ""} : (!T, i32, i32) -> tensor<128x128xbf16>
      %p16 = "arith.truncf"(%p) : (tensor<128x128xf32>) -> tensor<128x128xbf16>
      %acc2 = "tt.dot"(%p16, %v, %acc1) {input_precision = "ieee", max_num_imprecise_acc = 0 : i32} : (tensor<128x128xbf16>, tensor<128x128xbf16>, tensor<128x128xf32>) -> tensor<128x128xf32>
      "scf.yield"(%acc2, %mn, %ln) : (tensor<128x128xf32>, tensor<128xf32>, tensor<128xf32>) -> ()
    }) : (i32, i32, i32, tensor<128x128xf32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<128x128xf32>, tensor<128xf32>, tensor<128xf32>)
    %le = "tt.expand_dims"(%r#2) {axis = 1 : i32} : (tensor<128xf32>) -> tensor<128x1xf32>
    %lb = "tt.broadcast"(%le) : (tensor<128x1xf32>) -> tensor<128x128xf32>
    %o = "arith.divf"(%r#0, %lb) : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
    %h = "arith.truncf"(%o) : (tensor<128x128xf32>) -> tensor<128x128xbf16>
    "tt.descriptor_store"(%do, %h, %m, %c0) : (!T, tensor<128x128xbf16>, i32, i32) -> ()
    "func.return"() : () -> ()
  }) : () -> ()
}
""".replace("SEGMENTS", f"operandSegmentSizes = {_ONE}").replace("ONE", _ONE)

_NVIDIA = "tilewright.targets.nvidia.passes."
BEFORE = ("canonicalize_tt", "dce_cse", "convert_tt_to_ttg", "coalesce", "use_warp_group_dots", "accelerate_dot",
          "remove_layout_conversions")
SPECIALISE = (*BEFORE, "rotate_chained_dots", "sink_arithmetic", "make_persistent", "warp_specialize", "share_counters", "dce_cse")


def run(text: str, passes: tuple[str, ...], num_warps: int = 8, num_stages: int = 3) -> tuple[Any, Any]:
    """(module, context) after the passes. Call inside ``mlir_context()``."""
    selection = registry.select("nvidia:sm_90a")
    load_target(selection.plugin)
    ctx = pass_context(selection, make_options(selection, {"num_warps": num_warps, "num_stages": num_stages}), "kernel")
    module = ir.Module.parse(text)
    count = text.split("sym_name")[0].split("function_type")[1].count("!")
    ctx.metadata["host"] = {"expressions": [], "guards": [], "choices": [], "descriptors": [{"shape": [0, 0], "box": [], "swizzle": 0, "name": f"d{i}", "argument": i} for i in range(count)]}
    shared = set(BEFORE) - {"use_warp_group_dots"}
    for name in passes:
        run_passes(module, [shared_pass(name) if name in shared else lazy_pass(name, f"{_NVIDIA}{name}:run")], ctx)
    return module, ctx
