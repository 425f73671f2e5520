"""ttng.warp_specialize: the order of the code, what the shared analyses make of it, and that ptxas takes it without spilling."""

import re

import numpy as np
import pytest
from hopper_texts import (
    BAR,
    bars,
    blocked,
    execute,
    lower,
    memdesc,
    module,
    panels,
    ring_sum,
    ring_sum_host,
    ring_sum_reference,
    tensor_map,
)

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.liveness import Liveness
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import ensure_dialects, mlir_context
from tilewright.dialects.errors import InternalCompilerError
from tilewright.dialects.passes import canonicalize_tt, dce_cse, remove_layout_conversions
from tilewright.targets.nvidia.emit import assemble
from tilewright.targets.nvidia.target import TARGET

RETURN = '"ttng.warp_return"() : () -> ()'


def specialise(consumers, producer, registers=(0, 0), extra=""):
    return (f'  "ttng.warp_specialize"() ({{\n{consumers}\n    {RETURN}\n  }}, {{\n{producer}\n    {RETURN}\n  }}) '
            f"{{consumer_registers = {registers[0]} : i32, producer_registers = {registers[1]} : i32{extra}}} : () -> ()")


def in_order(text, *patterns):
    """Where each pattern is found, after the one before."""
    at, places = 0, []
    for p in patterns:
        found = re.compile(p, re.S).search(text, at)
        assert found, f"{p} is not found after {places}:\n{text}"
        places.append(found.start())
        at = found.end()
    return places


# ------------------------------------------------------------------------------------------------------ whole kernel
@pytest.mark.parametrize("arguments", [{}, {"num_warps": 8, "rows": 128}, {"columns": 32, "rows": 128}, {"element": "f32", "columns": 32},
                                       {"stages": 2, "registers": (0, 0)}], ids=str)
def test_ring_kernel(arguments):
    warps = arguments.get("num_warps", 4)
    itemsize = 4 if arguments.get("element") == "f32" else 2
    host = ring_sum_host(arguments.get("rows", 64), arguments.get("columns", 64), itemsize)
    found = lower(ring_sum(**arguments), num_warps=warps, host=host)
    assert found.metadata["total_warps"] == warps + 4 and found.metadata["num_warps"] == warps
    assert f".reqntid {32 * (warps + 4)}\n.minnctapersm 1\n" in found.ptx
    assert found.usage["spills"] == 0 and found.usage["stack"] == 0 and "setmaxnreg_ignored" not in found.usage
    ptx = found.ptx
    init = [r"mbarrier\.init", r"fence\.mbarrier_init\.release\.cluster", r"bar\.sync\s+0;", rf"setp\.(?:lt|ge|gt)\.u32\s+%p\d+, %r\d+, {32 * warps}"]
    produce = [rf"setp\.(?:ne|eq)\.b32\s+%p\d+, %r\d+, {32 * warps};", r"try_wait\.parity", r"mbarrier\.arrive\.expect_tx",
               r"cp\.async\.bulk\.tensor\.2d"]
    consume = [r"try_wait\.parity", r"ld\.shared", r"bar\.warp\.sync", r"mbarrier\.arrive\.shared::cta\.b64", r"st\.global\.v4"]
    if "registers" in arguments:
        assert "setmaxnreg" not in ptx
        in_order(ptx, *init[:3], *produce[1:])
        in_order(ptx, *init[:3], *consume)
    else:
        in_order(ptx, *init, r"setmaxnreg\.dec\.sync\.aligned\.u32\s+40", *produce)
        in_order(ptx, *init, r"setmaxnreg\.inc\.sync\.aligned\.u32\s+232", *consume)
    # nothing but registers and mbarriers orders the halves
    assert len(re.findall(r"bar\.sync", ptx)) == 1 and ('ttg.barrier' not in found.ttgir)


@pytest.mark.parametrize("arguments, tiles", [({}, 5), ({}, 0), ({"num_warps": 8, "rows": 128, "stages": 2}, 3), ({"element": "f32", "columns": 32}, 4)], ids=str)
def test_ring_kernel_executed(arguments, tiles):
    rows, columns = arguments.get("rows", 64), arguments.get("columns", 64)
    dtype, name = (np.float32, "fp32") if arguments.get("element") == "f32" else (np.float16, "fp16")
    a = np.random.default_rng(0).standard_normal((5 * rows, columns)).astype(dtype)
    inside = a.copy()
    inside[rows * 5 // 2:] = 0  # what the map leaves out reads as zero
    out = np.full((rows, columns), np.nan, np.float32)
    found = lower(ring_sum(**arguments), num_warps=arguments.get("num_warps", 4), assembled=False)
    a_map = tensor_map(a, (rows, columns), columns * a.itemsize, name, (rows * 5 // 2, columns))
    execute(found, [out, tiles, a_map])
    np.testing.assert_array_equal(out, ring_sum_reference(inside, tiles, rows))


def test_min_ctas_and_maxnreg():
    text = module(specialise("", "", (96, 40), ", min_ctas = 2 : i32"), "")
    assert ".minnctapersm 2\n" in lower(text).ptx
    capped = lower(text, maxnreg=168).ptx
    assert ".maxnreg 168\n" in capped and "minnctapersm" not in capped


def test_moving_registers_needs_their_number_at_entry():
    ptx = lower(ring_sum(), host=ring_sum_host()).ptx
    assert "setmaxnreg" in assemble(ptx.replace(".minnctapersm 1\n", ""), "sm_90a")[1]["setmaxnreg_ignored"]


def test_kernels_without_it_are_as_before():
    found = lower(module("", ""))
    assert ".reqntid 128\n" in found.ptx and "minnctapersm" not in found.ptx and "total_warps" not in found.metadata


# ----------------------------------------------------------------------------------------------------- its barriers
L = blocked((1, 1), (8, 4), (4, 1))
L2 = blocked((1, 1), (4, 8), (2, 2), (0, 1))
T, T2 = f"tensor<32x32xf32, {L}>", f"tensor<32x32xf32, {L2}>"
CONVERT = f'    %y = "ttg.convert_layout"(%x) : ({T}) -> {T2}\n    "tt.print"(%y) {{prefix = "y", hex = false, is_signed = array<i32: 0>, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>}} : ({T2}) -> ()'
BUFFER = memdesc((32, 32), "f32", panels(32, 4, 1, 8))


def test_block_barriers_inside_are_the_consumers():
    body = f'''  %m = "ttg.local_alloc"() : () -> {BUFFER}
{specialise(f"""    %x = arith.constant dense<1.0> : {T}
    "ttg.local_store"(%x, %m) : ({T}, {BUFFER}) -> ()
    %z = "ttg.local_load"(%m) : ({BUFFER}) -> {T2}
    "ttg.barrier"() : () -> ()
    "ttg.local_store"(%z, %m) : ({T2}, {BUFFER}) -> ()
""", "")}'''
    found = lower(module(body, ""))
    # one barrier inserted between store and load, one written
    assert found.ttgir.count('"ttg.barrier"') == 2
    assert re.findall(r"bar\.sync\s+(\d+(?:, \d+)?);", found.ptx) == ["0", "1, 128", "1, 128"]


def test_scratch_of_conversions_inside_waits_for_the_consumers_alone():
    body = specialise(f'    %a = "tt.get_program_id"() {{axis = 0 : i32}} : () -> i32\n    %b = arith.sitofp %a : i32 to f32\n'
                      f'    %x = "tt.splat"(%b) : (f32) -> {T}\n    %i = "tt.reduce"(%x) ({{\n ^bb0(%p: f32, %q: f32):\n %s = arith.addf %p, %q : f32\n'
                      f' "tt.reduce_return"(%s) {{operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>}} : (f32) -> ()\n }}) {{axis = 0 : i32, '
                      f"operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>}} : ({T}) -> "
                      f'tensor<32xf32, #ttg.slice<0 : i32, {L}>>\n    %o = "ttg.local_alloc"(%i) : (tensor<32xf32, #ttg.slice<0 : i32, {L}>>) -> '
                      f'{memdesc((32,), "f32", "#ttg.swizzled_shared<1 : i32, 1 : i32, 1 : i32, array<i32: 0>>")}', "")
    found = lower(module(body, ""))
    kinds = re.findall(r"bar\.sync\s+(\d+(?:, \d+)?);", found.ptx)
    assert kinds[0] == "0" and set(kinds[1:]) == {"1, 128"}


def test_a_barrier_in_the_producer_is_refused():
    with pytest.raises(InternalCompilerError, match="one thread alone"):
        lower(module(specialise("", '    "ttg.barrier"() : () -> ()'), ""), assembled=False)


# -------------------------------------------------------------------------------------------------- its place, its form
@pytest.mark.parametrize("body, message", [
    (specialise("", "") + '\n  "ttng.fence_async_shared"() {b_cluster = false} : () -> ()', "last op of the kernel"),
    (specialise("", "") + "\n" + specialise("", ""), "last op of the kernel"),
    ('  %c = arith.constant true\n  scf.if %c {\n' + specialise("", "") + "\n  }", "last op of the kernel"),
    ('  "ttng.named_barrier"() {id = 2 : i32, threads = 64 : i32, arrive = false} : () -> ()\n' + specialise("", ""), "producer's warps would do it too"),
    (specialise("", "", (240, 0)), "both or neither"),
    (specialise("", "", (244, 40)), "multiple of 8"),
    (specialise("", "").replace(RETURN, '"ttng.fence_async_shared"() {b_cluster = false} : () -> ()', 1), "must end in ttng.warp_return"),
])
def test_refused(body, message):
    with pytest.raises(Exception, match=message):
        lower(module(body, ""), assembled=False)


def test_producer_threads_repeat_the_programs_first_ones_before_they_part():
    """Addresses made of the thread's number stay within the program's tensors in the extra warps too."""
    ptr = f"tensor<32x32x!tt.ptr<f32, 1 : i32>, {L}>"
    body = f'''  %b = "tt.splat"(%p) : (!tt.ptr<f32, 1 : i32>) -> {ptr}
  %x = "tt.load"(%b) {{cache = "none", evict = "normal", is_volatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}} : ({ptr}) -> {T}
  %m = "ttg.local_alloc"(%x) : ({T}) -> {BUFFER}
{specialise("", "")}'''
    llir = lower(module(body, "%p: !tt.ptr<f32, 1 : i32>"), assembled=False).llir
    assert re.search(r"(%\d+) = call i32 @llvm\.nvvm\.read\.ptx\.sreg\.tid\.x\(\)\n\s+%\d+ = and i32 \1, 127", llir)


# ------------------------------------------------------------------------------------------------------- the analyses
def parsed(text):
    ensure_dialects(*TARGET.dialects())
    return ir.Module.parse(text)


def test_axis_info_inside():
    with mlir_context():
        root = parsed(ring_sum())
        axis = AxisInfoAnalysis(root)
        (function,) = functions(root)
        store = next(n for n in function.nodes() if n.name == "tt.store")
        info = axis.get(store.operands[0])
    assert info.contiguity[1] >= 64 and info.divisibility[1] >= 16


def test_buffers_of_both_sides_are_live_together():
    """A ring, mbarriers, the producer's own buffer and the consumers' share no bytes, though a buffer used before may."""
    small = memdesc((32, 32), "f32", panels(32, 4, 1, 8))
    body = f'''  %x = arith.constant dense<1.0> : {T}
  %before = "ttg.local_alloc"(%x) : ({T}) -> {small}
  %u = "ttg.local_load"(%before) : ({small}) -> {T}
  %ring = "ttg.local_alloc"() : () -> {small}
  %bar = "ttg.local_alloc"() : () -> {BAR}
  %c0 = arith.constant 0 : i32
{specialise(f"""    "ttng.wait_barrier"(%bar, %c0) : ({BAR}, i32) -> ()
    %r = "ttg.local_load"(%ring) : ({small}) -> {T}
    %mine = "ttg.local_alloc"(%r) : ({T}) -> {small}
    %w = "ttg.local_load"(%mine) : ({small}) -> {T}
    %mine2 = "ttg.local_alloc"(%w) : ({T}) -> {small}
    %w2 = "ttg.local_load"(%mine2) : ({small}) -> {T}""", f"""    %own = "ttg.local_alloc"() : () -> {BAR}
    "ttng.arrive_barrier"(%own) {{count = 1 : i32}} : ({BAR}) -> ()""")}'''
    with mlir_context():
        root = parsed(module(body, ""))
        (function,) = functions(root)
        live = Liveness(function)
        buffers = live.buffers()  # in the order of the text
        before, ring, bar, mine, mine2, own = buffers
        whole = len(live.order)
        assert [(b.start, b.end) for b in (ring, bar)] == [(0, whole), (0, whole)]
        assert not mine.overlaps(mine2) and not before.overlaps(mine)
        assert own.overlaps(mine) and own.overlaps(mine2) and not own.overlaps(before)


def test_dce_and_cse_inside():
    body = specialise('''    %a = arith.addi %i, %j : i32
    %b = arith.addi %i, %j : i32
    %dead = arith.muli %a, %b : i32
    %l, %unused = scf.for %k = %i to %j step %i iter_args(%s = %a, %t = %b) -> (i32, i32) : i32 {
      %s2 = arith.addi %s, %b : i32
      %t2 = arith.muli %t, %a : i32
      scf.yield %s2, %t2 : i32, i32
    }
    %v = "tt.splat"(%l) : (i32) -> tensor<32xi32>
    "tt.print"(%v) {prefix = "v", hex = false, is_signed = array<i32: 1>, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>} : (tensor<32xi32>) -> ()''',
                      "    %a = arith.addi %i, %j : i32\n    %p = arith.muli %a, %a : i32")
    with mlir_context():
        root = parsed(module(body, "%i: i32, %j: i32"))
        dce_cse.run(root, None)
        assert root.operation.verify()
        text = str(root)
    assert text.count("arith.addi") == 2 and "arith.muli" not in text and text.count("ttng.warp_return") == 2
    assert "iter_args(%arg3 = %0)" in text


def test_canonicalize_and_layout_conversions_inside():
    body = specialise(f'''    %zero = arith.constant 0 : i32
    %s = arith.addi %i, %zero : i32
    %x = "tt.splat"(%s) : (i32) -> tensor<32x32xi32, {L}>
    %y = "ttg.convert_layout"(%x) : (tensor<32x32xi32, {L}>) -> tensor<32x32xi32, {L2}>
    "tt.print"(%y) {{prefix = "y", hex = false, is_signed = array<i32: 1>, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>}} : (tensor<32x32xi32, {L2}>) -> ()''', "")
    with mlir_context():
        root = parsed(module(body, "%i: i32"))
        canonicalize_tt.run(root, None)
        remove_layout_conversions.run(root, None)
        dce_cse.run(root, None)
        assert root.operation.verify()
        text = str(root)
    assert "arith.addi" not in text and "convert_layout" not in text


def test_mbarriers_used_by_both_sides():
    """The barrier op of warp_specialize orders initialisation before every use inside, so none is inserted."""
    body = f'''  %c0 = arith.constant 0 : i32
  %arr = "ttg.local_alloc"() : () -> {bars(2)}
  %bar = "ttg.memdesc_index"(%arr, %c0) : ({bars(2)}, i32) -> {BAR}
  "ttng.init_barrier"(%bar) {{count = 1 : i32}} : ({BAR}) -> ()
{specialise(f'    "ttng.wait_barrier"(%bar, %c0) : ({BAR}, i32) -> ()', f'    "ttng.arrive_barrier"(%bar) {{count = 1 : i32}} : ({BAR}) -> ()')}'''
    found = lower(module(body, ""))
    assert "ttg.barrier" not in found.ttgir
    in_order(found.ptx, r"mbarrier\.init", r"bar\.sync\s+0;", r"try_wait|mbarrier\.arrive")
