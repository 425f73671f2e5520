"""coalesce: order, run length and validity of the layouts of memory ops."""

import pytest
from kernel_texts import KERNELS, Text, context, layer_norm, masked_add, matmul, ptr, run_passes, transpose_copy

from tilewright.dialects.analysis.structure import type_info
from tilewright.dialects.context import mlir_context
from tilewright.dialects.encodings import ints
from tilewright.dialects.passes import coalesce, convert_tt_to_ttg
from tilewright.dialects.shared_model import SharedModel


def memory_layouts(text, ctx=None):
    """(name, size_per_thread, threads_per_warp, warps, order) of each memory op."""
    with mlir_context():
        _, f = run_passes(text, ctx or context(), convert_tt_to_ttg, coalesce)
        return [(n.name, *(ints(p) for p in type_info(n.operands[0].type).encoding.params))
                for n in f.nodes() if n.name in ("tt.load", "tt.store") and type_info(n.operands[0].type).shape]


@pytest.mark.parametrize("name", KERNELS)
def test_result_is_valid(name):
    memory_layouts(KERNELS[name]())


@pytest.mark.parametrize("element,run", [("f32", 4), ("f16", 8), ("i8", 8), ("i64", 2)])
def test_vectors_of_128_bits_as_far_as_there_are_elements(element, run):
    text = masked_add(1024, element).replace("arith.addf", "arith.addf" if element[0] == "f" else "arith.addi")
    assert {tuple(x[1]) for x in memory_layouts(text)} == {(run,)}  # 1024 elements over 128 threads: at most 8


def test_bytes_take_sixteen_where_there_are_enough():
    assert memory_layouts(masked_add(4096, "i8").replace("arith.addf", "arith.addi"))[0][1] == [16]


def test_an_unaligned_mask_or_pointer_limits_the_run():
    text = masked_add()
    assert memory_layouts(text.replace("%n: i32 {tt.divisibility = 16 : i32}", "%n: i32"))[0][1] == [1]
    small = text.replace("%x: !tt.ptr<f32, 1 : i32> {tt.divisibility = 16", "%x: !tt.ptr<f32, 1 : i32> {tt.divisibility = 8")
    assert small != text
    # y and o still take 4, and x follows them so that no conversion is needed
    assert [x[1] for x in memory_layouts(small)] == [[4], [4], [4]]


def test_order_follows_the_pointers():
    load, store = memory_layouts(transpose_copy())
    assert load[4] == [1, 0] and load[1] == [1, 8] and load[2] == [4, 8]
    assert store[4] == [0, 1] and store[1] == [8, 1] and store[2] == [8, 4]


def test_the_two_operands_of_a_matmul_and_its_result():
    x, w, bias, y = memory_layouts(matmul())
    assert (x[1], x[2], x[4]) == ([1, 8], [8, 4], [1, 0])
    assert (w[1], w[2], w[4]) == ([1, 8], [2, 16], [1, 0])
    assert bias[1] == [1]  # 128 elements over 128 threads
    assert (y[1], y[4]) == ([1, 8], [1, 0])
    column_major = memory_layouts(matmul(w_column_major=True))[1]
    assert (column_major[1], column_major[4]) == ([8, 1], [0, 1])


def test_loads_agree_with_a_wider_store():
    assert {tuple(x[1]) for x in memory_layouts(layer_norm())} == {(8,)}
    t = Text([("x", ptr("f16"), 16), ("y", ptr("f32"), 16)])
    r = t.range(1024)
    t.store(t.addptr(t.args[1], r), t.cast("arith.extf", t.load(t.addptr(t.args[0], r)), "f32"))
    assert {tuple(x[1]) for x in memory_layouts(str(t))} == {(4,)}


def test_wave64_fills_lanes_along_the_order():
    load, _ = memory_layouts(transpose_copy(), context(64, 4))
    assert load[2] == [8, 8] and load[3] == [4, 1]


def test_scalar_memory_ops_are_left_alone():
    t = Text([("x", ptr("f32"), 16)])
    t.store(t.args[0], t.load(t.args[0]))
    with mlir_context():
        _, f = run_passes(str(t), context(), convert_tt_to_ttg, coalesce)
        assert [n.name for n in f.nodes()] == ["tt.load", "tt.store", "func.return"]


def test_operands_that_are_not_contiguous_along_k_get_runs_along_it_where_there_are_no_async_copies():
    x, w, *_ = memory_layouts(matmul(64, 64, 64), context(64))
    assert x[1] == [1, 8]  # along k already
    assert (w[1], w[4]) == ([4, 4], [1, 0])  # 8 bytes of each of 4 rows, so 8 bytes along k for the buffer
    x, w, *_ = memory_layouts(matmul(64, 64, 64, w_column_major=True), context(64))
    assert (w[1], w[4]) == ([8, 1], [0, 1])
    assert memory_layouts(matmul(64, 64, 32, "f32", out="f32"), context(64))[1][1] == [1, 4]  # whole words need no packing
    assert memory_layouts(matmul(64, 64, 64), context(32))[1][1] == [1, 8]  # async copies move what is contiguous
    # four elements a thread: 4 bytes along n and along k
    assert memory_layouts(matmul(64, 64, 16), context(64))[1][1] == [2, 2]


def test_runs_are_the_cheapest_for_memory_of_a_known_kind():
    """Loads and writes together as few as can be; nothing where the memory transposes elements of that size itself."""
    any_layout = SharedModel(32)
    for k, expected in ((16, [2, 2]), (32, [2, 4]), (64, [4, 4]), (128, [4, 8]), (256, [8, 8])):
        assert memory_layouts(matmul(64, 64, k), context(64, shared_model=any_layout))[1][1] == expected
    # instructions that want eight of k at once: longer runs along k where that costs no more
    for k, expected in ((64, [4, 4]), (128, [8, 4]), (256, [8, 8])):
        assert memory_layouts(matmul(64, 64, k), context(64, shared_model=any_layout, operand_run_bits=128))[1][1] == expected
    turning = SharedModel(64, transposing={16: 8})
    assert memory_layouts(matmul(64, 64, 64), context(64, shared_model=turning))[1][1] == [1, 8]
    assert memory_layouts(matmul(64, 64, 128, "f8E5M2"), context(64, shared_model=turning))[1][1] != [1, 16]


def test_narrow_accesses_say_what_they_lack():
    def told(text):
        ctx = context()
        with mlir_context():
            run_passes(text, ctx, convert_tt_to_ttg, coalesce)
        return [(c["what"], c["chosen"], c["why"]) for c in ctx.metadata.get("choices", ())]

    assert told(masked_add(4096)) == []
    mask = told(masked_add(4096).replace("%n: i32 {tt.divisibility = 16 : i32}", "%n: i32"))
    assert {(what, chosen) for what, chosen, _ in mask} == {("tl.load of 32-bit elements", "1 at a time, of 4"), ("tl.store of 32-bit elements", "1 at a time, of 4")}
    assert all(why.startswith("the mask is known to be one value for no more than 1") for *_, why in mask)
    aligned = told(masked_add(4096).replace("%x: !tt.ptr<f32, 1 : i32> {tt.divisibility = 16", "%x: !tt.ptr<f32, 1 : i32> {tt.divisibility = 8"))
    assert [(a[1], a[2].split(";")[0]) for a in aligned] == [("2 at a time, of 4", "they are known to start at multiples of 8 bytes")]
