"""The ttng dialect loads, prints, parses again, and its verifiers say what is wrong."""

import pytest

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import ensure_dialects, mlir_context
from tilewright.targets.nvidia.dialect.ttng import TTNG

S = '#ttg.swizzled_shared<8 : i32, 1 : i32, 8 : i32, array<i32: 1, 0>>'
BAR = f"!ttg.memdesc<array<i64: 1>, i64, {S}, true>"
A = f"!ttg.memdesc<array<i64: 64, 64>, f16, {S}, true>"


def parse(body, args):
    with mlir_context():
        ensure_dialects(TTNG)
        module = ir.Module.parse(f"func.func @k({args}) {{ {body} return }}")
        assert module.operation.verify()
        return str(module)


GOOD = f'''
  "ttng.init_barrier"(%bar) {{count = 1 : i32}} : ({BAR}) -> ()
  "ttng.barrier_expect"(%bar, %p) {{size = 8192 : i32}} : ({BAR}, i1) -> ()
  "ttng.async_tma_copy_global_to_local"(%d, %bar, %a, %p, %i, %i) {{cache = "none", evict = "normal"}} : (i64, {BAR}, {A}, i1, i32, i32) -> ()
  "ttng.wait_barrier"(%bar, %i) : ({BAR}, i32) -> ()
  "ttng.fence_async_shared"() {{b_cluster = false}} : () -> ()
  %r = "ttng.warp_group_dot"(%a, %a, %c) {{input_precision = "tf32", max_num_imprecise_acc = 0 : i32, is_async = true}} : ({A}, {A}, tensor<64x64xf32>) -> tensor<64x64xf32>
  %w = "ttng.warp_group_dot_wait"(%r) {{pendings = 0 : i32}} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  "ttng.async_tma_copy_local_to_global"(%d, %a, %i, %i) : (i64, {A}, i32, i32) -> ()
  "ttng.tma_store_wait"() {{pendings = 0 : i32}} : () -> ()
  "ttng.arrive_barrier"(%bar) {{count = 1 : i32}} : ({BAR}) -> ()
  "ttng.inval_barrier"(%bar) : ({BAR}) -> ()
'''
ARGS = f"%bar: {BAR}, %a: {A}, %c: tensor<64x64xf32>, %d: i64, %i: i32, %p: i1"


def test_ops_parse_and_print():
    text = parse(GOOD, ARGS)
    for name in ("init_barrier", "warp_group_dot_wait", "async_tma_copy_global_to_local", "fence_async_shared"):
        assert f'"ttng.{name}"' in text


def test_f32_is_read_as_tf32_alone():
    text, args = (x.replace("f16", "f32").replace("8 : i32, 1 : i32, 8", "4 : i32, 1 : i32, 8") for x in (GOOD, ARGS))
    parse(text, args)
    for precision in ("ieee", "tf32x3"):
        with pytest.raises(Exception, match=f"reads f32 as tf32, which input_precision '{precision}' does not allow"):
            parse(text.replace('input_precision = "tf32"', f'input_precision = "{precision}"'), args)


@pytest.mark.parametrize("old, new, message", [
    ('count = 1 : i32}} : ({BAR}) -> ()\n  "ttng.barrier_expect"'.replace("{{", "{").replace("}}", "}").replace("{BAR}", BAR),
     f'count = 0 : i32}} : ({BAR}) -> ()\n  "ttng.barrier_expect"', "count must be 1 to"),
    ("size = 8192 : i32", "size = 0 : i32", "size must be positive"),
    ("(%d, %a, %i, %i) : (i64, " + A + ", i32, i32)", "(%d, %a, %i) : (i64, " + A + ", i32)", "needs 2 i32 coordinates"),
    ("pendings = 0 : i32} : (tensor", "pendings = -1 : i32} : (tensor", "pendings must be at least 0"),
    (f'"ttng.inval_barrier"(%bar) : ({BAR})', f'"ttng.inval_barrier"(%a) : ({A})', "must be a memdesc of one i64"),
    ("tensor<64x64xf32>) -> tensor<64x64xf32>\n  %w", "tensor<64x32xf32>) -> tensor<64x32xf32>\n  %w", "cannot give"),
])
def test_verifiers(old, new, message):
    assert old in GOOD
    text, args = GOOD.replace(old, new), ARGS
    if "64x32" in new:
        text = text.replace("(tensor<64x64xf32>) -> tensor<64x64xf32>", "(tensor<64x32xf32>) -> tensor<64x32xf32>")
        args = args.replace("64x64xf32", "64x32xf32")
    with pytest.raises(Exception, match=message):
        parse(text, args)
