"""fence_async_proxy: ordinary writes are fenced before wgmma or a bulk copy meets them, and nothing else is."""

import pytest
from kernel_texts import KERNELS, matmul
from test_pipeline_loops import matmul_arguments
from warp_group_harness import (
    ALL,
    SCHEDULED,
    after,
    check_values,
    named,
    nvidia_context,
    order,
    product,
    product_arguments,
    warp_context,
)

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.passes import allocate_shared_memory, insert_barriers
from tilewright.targets.nvidia.passes import fence_async_proxy

FENCE = "ttng.fence_async_shared"
WITHOUT = (*SCHEDULED, allocate_shared_memory, insert_barriers)


def test_write_fence_barrier_read():
    with nvidia_context():
        _, f = after(product(64, 64, 64), ALL, warp_context())
        assert order(f, 0)[:7] == ["alloc", "fence", "alloc", "fence", "barrier", "dot", "wait0"]


def test_what_no_product_reads_is_not_fenced():
    with nvidia_context():
        for name in ("transpose_copy", "softmax", "layer_norm"):
            _, f = after(KERNELS[name](), ALL, warp_context())
            assert not named(f, FENCE)
        # A is read by ordinary loads, since it is cast: only the write of B is fenced
        _, f = after(product(64, 64, 64, cast=("i8", None)), ALL, warp_context())
        assert len(named(f, FENCE)) == 1 and len(named(f, "ttg.local_alloc")) == 2


@pytest.mark.parametrize("text, arguments, stages", [
    (matmul(64, 64, 32), matmul_arguments(96, 64, 64), 3), (matmul(64, 64, 32), matmul_arguments(96, 64, 64), 1),
    (product(64, 64, 64), product_arguments(64, 64, 64), 1),
])
def test_without_the_pass_a_product_reads_what_it_may_not_see(text, arguments, stages):
    check_values(text, arguments, ALL, warp_context(4, stages), proxies=True)
    with pytest.raises(AssertionError, match="no fence and barrier"):
        check_values(text, arguments, WITHOUT, warp_context(4, stages), proxies=True)


PANELS = "#ttg.panel_shared<64 : i32, 8 : i32, 1 : i32, 8 : i32, array<i32: 1, 0>>"
BARRIER = "!ttg.memdesc<array<i64: 1>, i64, #ttg.swizzled_shared<1 : i32, 1 : i32, 1 : i32, array<i32: 0>>, true>"
BLOCKED = "#ttg.blocked<array<i32: 1, 8>, array<i32: 4, 8>, array<i32: 4, 1>, array<i32: 1, 0>>"
TILE = f"!ttg.memdesc<array<i64: 64, 64>, f16, {PANELS}, true>"
LOADED = f"tensor<64x64xf16, {BLOCKED}>"


def fences(body):
    """The ops of a function of that body, after the passes that end the ttgir stage."""
    text = f'''module attributes {{"ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 32 : i32}} {{
      func.func @k(%d: i64, %p: i1, %i: i32, %v: {LOADED}) attributes {{tt.kernel}} {{ {body} return }} }}'''
    with nvidia_context():
        module = ir.Module.parse(text)
        for p in (allocate_shared_memory, fence_async_proxy):
            p.run(module, warp_context())
            assert module.operation.verify()
        return [n.name.split(".")[1] for n in functions(module)[0].nodes() if n.name.startswith("tt")]


def test_a_bulk_store_sees_what_was_stored_for_it():
    names = fences(f'''
      %t = "ttg.local_alloc"() {{operandSegmentSizes = array<i32: 0>}} : () -> {TILE}
      "ttg.local_store"(%v, %t) : ({LOADED}, {TILE}) -> ()
      "ttng.async_tma_copy_local_to_global"(%d, %t, %i, %i) : (i64, {TILE}, i32, i32) -> ()
      "ttng.tma_store_wait"() {{pendings = 0 : i32}} : () -> ()''')
    assert names == ["local_alloc", "local_store", "fence_async_shared", "async_tma_copy_local_to_global", "tma_store_wait"]


def test_a_bulk_load_does_not_overtake_an_ordinary_write_to_the_same_bytes():
    """The first buffer is dead when the second comes, which gets its bytes."""
    names = fences(f'''
      %a = "ttg.local_alloc"(%v) : ({LOADED}) -> {TILE}
      %w = "ttg.local_load"(%a) {{operandSegmentSizes = array<i32: 1, 0>}} : ({TILE}) -> {LOADED}
      %t = "ttg.local_alloc"() {{operandSegmentSizes = array<i32: 0>}} : () -> {TILE}
      %b = "ttg.local_alloc"() {{operandSegmentSizes = array<i32: 0>}} : () -> {BARRIER}
      "ttng.async_tma_copy_global_to_local"(%d, %b, %t, %p, %i, %i) {{cache = "none", evict = "normal"}} : (i64, {BARRIER}, {TILE}, i1, i32, i32) -> ()
      %r = "ttg.local_load"(%t) {{operandSegmentSizes = array<i32: 1, 0>}} : ({TILE}) -> {LOADED}''')
    assert names[:3] == ["local_alloc", "fence_async_shared", "local_load"] and names.count("fence_async_shared") == 1
