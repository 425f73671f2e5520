"""Bulk tensor copies: where their boxes go, the text of each form, that ptxas takes them, and what is refused."""

import re

import numpy as np
import pytest
from hopper_texts import BAR, desc, lower, memdesc, module, panels

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.context import ensure_dialects, mlir_context
from tilewright.dialects.errors import InternalCompilerError, UnsupportedOnTargetError
from tilewright.targets.nvidia.lower_bulk_copies import plan
from tilewright.targets.nvidia.target import TARGET

PLAIN = {r: f"#ttg.swizzled_shared<1 : i32, 1 : i32, 1 : i32, array<i32: {', '.join(map(str, reversed(range(r))))}>>" for r in range(1, 6)}
SWIZZLED = {16: {128: panels(64, 8, 1, 8), 64: panels(32, 8, 2, 4), 32: panels(16, 8, 4, 2), 0: panels(8, 8, 1, 1)},
            32: {128: panels(32, 4, 1, 8), 64: panels(16, 4, 2, 4), 32: panels(8, 4, 4, 2)},
            8: {128: panels(128, 16, 1, 8), 64: panels(64, 16, 2, 4), 32: panels(32, 16, 4, 2)}}


# ------------------------------------------------------------------------------------------------- where boxes go
def written(shape, size, rank, found):
    """tile coordinates → byte, as the copy engine writes: rows of a box one after another; where it swizzles, the 16-byte units of a
    128-byte line change places by the line's number, lines counted from an address that is a multiple of the pattern."""
    tile = [1] * (rank - len(shape)) + list(shape)
    out = np.full(tile, -1)
    for start, first in found.copies:
        byte = start + np.arange(np.prod(found.box)).reshape(found.box) * size
        unit, line = byte // 16, byte // 128
        unit ^= line % {0: 1, 32: 2, 64: 4, 128: 8}[found.swizzle]
        where = tuple(slice(a, a + n) for a, n in zip(first, found.box))
        assert (out[where] == -1).all(), "an element is copied twice"
        out[where] = unit * 16 + byte % 16
    assert (out >= 0).all(), "an element is not copied"
    return out.reshape(shape)


def columns_of(shape, encoding):
    """What lower_bulk_copies takes from a whole buffer, and each element's place by its layout alone."""
    with mlir_context():
        layout = encodings.to_linear_layout(tuple(shape), ir.Attribute.parse(encoding))
    inverse = layout.pseudo_invert()
    places = np.zeros(shape, int)
    places[tuple(layout.apply_array({"offset": np.arange(np.prod(shape))})[d] for d in layout.out_dims)] = np.arange(np.prod(shape))
    return [inverse.columns(d) for d in layout.out_dims], places


@pytest.mark.parametrize("bits, swizzle", [(b, s) for b in SWIZZLED for s in SWIZZLED[b]])
@pytest.mark.parametrize("shape", [(64, 64), (128, 256), (8, 128), (512, 128)])
def test_panels_are_what_the_engine_writes(bits, swizzle, shape):
    size = bits // 8
    shape = (shape[0], max(shape[1], swizzle // size))
    columns, elements = columns_of(shape, SWIZZLED[bits][swizzle])
    found = plan(shape, columns, 0, size, 2, ([min(shape[0], 256), (swizzle or 16) // size], swizzle))
    np.testing.assert_array_equal(written(shape, size, 2, found), elements * size)
    own = plan(shape, columns, 0, size, 3)  # found without being told, for a descriptor of one more dim
    assert own.box == (1, *found.box) and own.swizzle == swizzle


@pytest.mark.parametrize("shape, rank, box, copies", [
    ((128,), 1, (128,), 1), ((512,), 1, (256,), 2), ((64,), 4, (1, 1, 1, 64), 1), ((16, 32), 2, (16, 32), 1), ((512, 32), 3, (1, 256, 32), 2),
    ((2, 4, 64), 3, (2, 4, 64), 1), ((2, 2, 4, 8), 5, (1, 2, 2, 4, 8), 1), ((2, 2, 2, 4, 8), 5, (2, 2, 2, 4, 8), 1)])
def test_plain_buffers(shape, rank, box, copies):
    columns, elements = columns_of(shape, PLAIN[len(shape)])
    found = plan(shape, columns, 0, 4, rank)
    assert found.box == box and len(found.copies) == copies and found.swizzle == 0
    np.testing.assert_array_equal(written(shape, 4, rank, found), elements * 4)


@pytest.mark.parametrize("shape, encoding, size, host, message", [
    ((64, 64), panels(64, 8, 1, 4), 2, None, "does not fit"),  # half of the phases
    ((64, 64), panels(64, 8, 2, 8), 2, None, "does not fit"),
    ((64, 64), panels(64, 8, 1, 8), 2, ([64, 64], 64), "64-byte swizzle"),
    ((64, 64), panels(64, 8, 1, 8), 2, ([64, 32], 64), "lies at byte|begins at byte"),
    ((64, 64), panels(64, 8, 1, 8), 2, ([64, 64], 0), "lies at byte"),
    ((64, 64), panels(64, 8, 1, 8), 2, ([128, 64], 128), "no multiple of the box's 128"),
    ((64, 64), panels(64, 8, 1, 8), 2, ([64], 128), "box of 1 dims"),
    ((64, 4), PLAIN[2], 2, None, "cannot be copied"),  # rows of 8 bytes
    ((64, 64), PLAIN[2].replace("1, 0", "0, 1"), 2, None, "lies at byte|cannot be copied"),  # columns are the fast dim
])
def test_layouts_that_no_copy_writes(shape, encoding, size, host, message):
    columns, _ = columns_of(shape, encoding)
    with pytest.raises(InternalCompilerError, match=message):
        plan(shape, columns, 0, size, 2, host)


def test_a_tile_must_begin_with_the_pattern():
    columns, _ = columns_of((64, 64), panels(64, 8, 1, 8))
    assert plan((8, 64), columns[:1] + columns[1:], 512, 2, 2).copies[0][0] == 1024  # from row 8 on
    with pytest.raises(InternalCompilerError, match="no multiple of 1024"):
        plan((4, 64), [columns[0][:2], columns[1]], 256, 2, 2)  # from row 4 on


# ------------------------------------------------------------------------------------------------------ the text
T2 = memdesc((64, 128), "f16", SWIZZLED[16][128])
D2, D3 = desc((64, 128), "f16"), desc((1, 64, 128), "f16")
ONE = memdesc((64,), "f32", PLAIN[1])
TI, DI = memdesc((64, 32), "i32", SWIZZLED[32][128]), desc((64, 32), "i32")
D1, D5 = desc((64,), "f32"), desc((1, 1, 1, 1, 64), "f32")
ARGS = f"%i: i32, %j: i32, %p: i1, %d: {D2}, %d3: {D3}, %d1: {D1}, %d5: {D5}, %di: {DI}"
SETUP = f'''  %true = arith.constant true
  %bar = "ttg.local_alloc"() : () -> {BAR}
  %t = "ttg.local_alloc"() : () -> {T2}
  %ti = "ttg.local_alloc"() : () -> {TI}
  %v = "ttg.local_alloc"() : () -> {ONE}
  %w = "ttg.local_alloc"() : () -> {memdesc((128, 64), "f16", SWIZZLED[16][128])}
  %half = "ttg.memdesc_subslice"(%w) {{offsets = array<i32: 64, 0>}} : ({memdesc((128, 64), "f16", SWIZZLED[16][128])}) -> {memdesc((64, 64), "f16", SWIZZLED[16][128])}
'''
HALF = memdesc((64, 64), "f16", SWIZZLED[16][128])


def load(d, dt, dst, mt, coords, attributes='cache = "none", evict = "normal"', pred="%true"):
    return f'"ttng.async_tma_copy_global_to_local"({d}, %bar, {dst}, {pred}, {", ".join(coords)}) {{{attributes}}} : ({dt}, {BAR}, {mt}, i1, {", ".join(["i32"] * len(coords))}) -> ()'


def store(d, dt, src, mt, coords, name="async_tma_copy_local_to_global", attributes=""):
    return f'"ttng.{name}"({d}, {src}, {", ".join(coords)}) {{{attributes}}} : ({dt}, {mt}, {", ".join(["i32"] * len(coords))}) -> ()'


LOAD = r"cp\.async\.bulk\.tensor\.{}d\.shared::cluster\.global\.mbarrier::complete_tx::bytes{} \[%r\d+\], \[%rd\d+, {}\], \[%r\d+\]{};"
STORE = r"{}\.{}d\.global\.shared::cta{}\.bulk_group{} \[%rd\d+, {}\], \[%r\d+\]{};.*cp\.async\.bulk\.commit_group;"
R2, R3, R5 = (r"{" + ", ".join([r"%r\d+"] * n) + "}" for n in (2, 3, 5))
REDUCED = {"f16": ("%d", D2, "%t", T2), "i32": ("%di", DI, "%ti", TI)}
FORMS = [
    ("load_2d", load("%d", D2, "%t", T2, ("%i", "%j")), LOAD.format(2, "", R2, ""), 2),
    ("load_3d", load("%d3", D3, "%t", T2, ("%i", "%j", "%i")), LOAD.format(3, "", R3, ""), 2),
    ("load_1d", load("%d1", D1, "%v", ONE, ("%i",)), LOAD.format(1, "", r"{%r\d+}", ""), 1),
    ("load_5d", load("%d5", D5, "%v", ONE, ("%i", "%j", "%i", "%j", "%i")), LOAD.format(5, "", R5, ""), 1),
    ("load_evict_first", load("%d", D2, "%t", T2, ("%i", "%j"), 'cache = "none", evict = "evict_first"'), LOAD.format(2, r"\.L2::cache_hint", R2, r", %rd\d+"), 2),
    ("load_evict_last", load("%d", D2, "%t", T2, ("%i", "%j"), 'cache = "none", evict = "evict_last"'), r"createpolicy\.fractional\.L2::evict_last\.b64 %rd\d+, 1\.0;", 1),
    ("load_multicast", load("%d", D2, "%t", T2, ("%i", "%j"), 'cache = "none", evict = "normal", multicast = 3 : i32'),
     LOAD.format(2, r"\.multicast::cluster", R2, r", %rs\d+"), 2),
    ("load_multicast_evict", load("%d", D2, "%t", T2, ("%i", "%j"), 'cache = "none", evict = "evict_last", multicast = 3 : i32'),
     LOAD.format(2, r"\.multicast::cluster\.L2::cache_hint", R2, r", %rs\d+, %rd\d+"), 2),
    # where the tensor is read once, and where it is not: a policy that says "normal" made loads slower than none
    ("load_streamed", load("%d", D2, "%t", T2, ("%i", "%j", "%i"), 'cache = "none", evict = "normal", streamed'),
     r"createpolicy\.fractional\.L2::evict_first\.b64 %rd\d+, 1\.0;.*" + LOAD.format(2, r"\.L2::cache_hint", R2, r", %rd\d+") + ".*" + LOAD.format(2, "", R2, ""), 1),
    ("store_2d", store("%d", D2, "%t", T2, ("%i", "%j")), STORE.format(r"cp\.async\.bulk\.tensor", 2, "", "", R2, ""), 1),
    ("store_slice", store("%d", D2, "%half", HALF, ("%i", "%j")), STORE.format(r"cp\.async\.bulk\.tensor", 2, "", "", R2, ""), 1),
    ("store_evict", store("%d", D2, "%t", T2, ("%i", "%j"), attributes='evict = "evict_first"'), STORE.format(r"cp\.async\.bulk\.tensor", 2, "", r"\.L2::cache_hint", R2, r", %rd\d+"), 1),
    *((f"reduce_{kind}_{e}", store(*REDUCED[e], ("%i", "%j"), "async_tma_reduce", f'kind = "{kind}"'),
       STORE.format(r"cp\.reduce\.async\.bulk\.tensor", 2, rf"\.{ptx}", "", R2, ""), 1) for e, kind, ptx in (
        ("f16", "fadd", "add"), ("f16", "fmin", "min"), ("f16", "fmax", "max"), ("i32", "add", "add"), ("i32", "min", "min"), ("i32", "umin", "min"),
        ("i32", "max", "max"), ("i32", "umax", "max"), ("i32", "and", "and"), ("i32", "or", "or"), ("i32", "xor", "xor"))),
    ("store_wait", '"ttng.tma_store_wait"() {pendings = 1 : i32} : () -> ()', r"cp\.async\.bulk\.wait_group\.read 1;", 1),
    ("store_complete", '"ttng.tma_store_wait"() {pendings = 0 : i32, complete} : () -> ()', r"cp\.async\.bulk\.wait_group 0;", 1),
    ("prefetch", f'"ttng.prefetch_tensormap"(%d) : ({D2}) -> ()', r"prefetch\.tensormap \[%rd\d+\];", 1),
]


@pytest.mark.parametrize("name, op, has, times", FORMS, ids=[f[0] for f in FORMS])
def test_form(name, op, has, times):
    ptx = lower(module(SETUP + op, ARGS), assembled=False).ptx
    assert len(re.findall(has, ptx, re.S)) == times, ptx


def test_ptxas_takes_all_forms():
    lower(module(SETUP + "\n".join(f[1] for f in FORMS), ARGS))


def test_panels_addresses_and_coordinates():
    """The second panel lies 64 rows of 128 bytes on, and its fastest coordinate, which comes first, 64 elements on."""
    found = lower(module(SETUP + load("%d", D2, "%t", T2, ("%i", "%j")), ARGS), assembled=False).llir
    calls = re.findall(r'asm sideeffect "cp\.async[^"]*", "[^"]*"\(i32 (.*), ptr (%\d+), i32 (%\d+), i32 (%\d+), i32 (.*)\), !dbg', found)
    (dst0, desc0, x0, y0, bar0), (dst1, desc1, x1, y1, bar1) = calls
    assert (desc0, y0, bar0) == (desc1, y1, bar1) and dst1 == f"add (i32 {dst0}, i32 8192)"
    assert re.search(rf"{x1} = add i32 {x0}, 64", found) and (x0, y0) == ("%1", "%0")


def test_descriptors_are_grid_constants():
    found = lower(module(SETUP + load("%d", D2, "%t", T2, ("%i", "%j")), ARGS))
    assert found.llir.count('byval([128 x i8]) align 64 "nvvm.grid_constant"') == 5
    assert found.ptx.count(".param .align 64 .b8 k_param_") == 5 and ".local" not in found.ptx
    assert re.search(r"mov\.b64\s+(%rd\d+), k_param_3;.*cvta\.param\.u64\s+%rd\d+, \1;", found.ptx, re.S)
    assert found.usage["stack"] == 0


def test_one_thread_issues_where_the_predicate_holds():
    found = lower(module(SETUP + load("%d", D2, "%t", T2, ("%i", "%j"), pred="%p"), ARGS), assembled=False)
    assert re.search(r"and i1 %\d+, %2", found.llir) and re.search(r"icmp eq i32 %\d+, 0", found.llir)


def test_a_copy_waits_for_readers_but_nobody_waits_for_it():
    reg = f"tensor<64x128xf16, {'#ttg.blocked<array<i32: 1, 8>, array<i32: 2, 16>, array<i32: 4, 1>, array<i32: 1, 0>>'}>"
    read = f'"ttg.local_load"(%t) : ({T2}) -> {reg}'
    use = f'"ttg.local_store"(%x, %t) : ({reg}, {T2}) -> ()'
    body = (f'{SETUP}  "ttng.init_barrier"(%bar) {{count = 1 : i32}} : ({BAR}) -> ()\n  %x0 = {read}\n  "ttg.local_store"(%x0, %w2) : ({reg}, {T2}) -> ()\n'
            + load("%d", D2, "%t", T2, ("%i", "%j")) + f'\n  %x = {read}\n  {use}\n' + store("%d", D2, "%t", T2, ("%i", "%j"))
            + f'\n  "ttng.tma_store_wait"() {{pendings = 0 : i32}} : () -> ()\n  {use}').replace(
        '  %v =', f'  %w2 = "ttg.local_alloc"() : () -> {T2}\n  %v =')
    ops = re.findall(r'"(tt[a-z]*\.(?:barrier|init_barrier|local_load|local_store|async\w+|tma_store_wait))"', lower(module(body, ARGS), assembled=False).ttgir)
    load_, store_ = "ttng.async_tma_copy_global_to_local", "ttng.async_tma_copy_local_to_global"
    assert ops == ["ttng.init_barrier", "ttg.local_load", "ttg.local_store", "ttg.barrier", load_, "ttg.local_load", "ttg.barrier", "ttg.local_store",
                   "ttg.barrier", store_, "ttng.tma_store_wait", "ttg.barrier", "ttg.local_store"]


def test_metadata_decides_the_box():
    host = {"descriptors": [{"box": [64, 64], "swizzle": 128}]}
    text = module(SETUP + load("%d", D2, "%t", T2, ("%i", "%j")), ARGS)
    assert lower(text, host=host, assembled=False).ptx.count("cp.async.bulk.tensor") == 2
    host = {"descriptors": [{"box": [32, 64], "swizzle": 128}]}
    assert lower(text, host=host, assembled=False).ptx.count("cp.async.bulk.tensor") == 4
    with pytest.raises(InternalCompilerError, match="32-byte swizzle"):
        lower(text, host={"descriptors": [{"box": [64, 64], "swizzle": 32}]}, assembled=False)


# ------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize("body, error, message", [
    (f'%r = arith.constant dense<0> : tensor<8xi32, #ttg.blocked<array<i32: 1>, array<i32: 32>, array<i32: 4>, array<i32: 0>>>\n'
     f'"ttng.async_tma_gather"(%d, %bar, %t, %r, %j) : ({D2}, {BAR}, {T2}, tensor<8xi32, #ttg.blocked<array<i32: 1>, array<i32: 32>, array<i32: 4>, array<i32: 0>>>, i32) -> ()',
     UnsupportedOnTargetError, "gathers rows"),
    (f'%a = "ttg.local_alloc"() : () -> {memdesc((8,), "f32", PLAIN[1])}\n' + load("%d1", D1, "%a", memdesc((8,), "f32", PLAIN[1]), ("%i",)),
     InternalCompilerError, "multiples of 128"),
    (load("%d", D2, "%t", T2, ("%i",)), Exception, "needs 2 i32 coordinates"),
    (load("%d", D2, "%t", T2, ("%i", "%j"), 'cache = "none", evict = "normal", streamed'), Exception, "needs 2 i32 coordinates .* and whether it is streamed, an i32"),
    (store("%d", D2, "%t", T2, ("%i", "%j"), "async_tma_reduce", 'kind = "mul"'), Exception, "kind must be one of"),
    (store("%d", D2, "%t", T2, ("%i", "%j"), "async_tma_reduce", 'kind = "add"'), UnsupportedOnTargetError, "allowed: fadd, fmin, fmax"),
    (store("%di", DI, "%ti", TI, ("%i", "%j"), "async_tma_reduce", 'kind = "fmax"'), UnsupportedOnTargetError, "no bulk tensor reduction fmax of i32"),
])
def test_refused(body, error, message):
    with pytest.raises(error, match=message):
        lower(module(SETUP + body, ARGS), assembled=False)


def test_older_architectures_have_no_descriptor_arguments():
    with mlir_context():
        ensure_dialects(*TARGET.dialects())
    with pytest.raises(UnsupportedOnTargetError, match="sm_80 has no bulk tensor copies"):
        lower(module("", f"%d: {D2}"), arch="sm_80", assembled=False)


def test_minima_go_by_the_descriptors_sign():
    text = module(SETUP + store("%di", DI, "%ti", TI, ("%i", "%j"), "async_tma_reduce", 'kind = "umin"'), ARGS)
    recipes = [{"box": [64, 32], "swizzle": 128, "dtype": t} for t in ("f16", "f16", "f16", "f16", "u32")]
    lower(text, host={"descriptors": recipes}, assembled=False)
    recipes[4]["dtype"] = "i32"
    with pytest.raises(InternalCompilerError, match="umin through a descriptor of i32"):
        lower(text, host={"descriptors": recipes}, assembled=False)
