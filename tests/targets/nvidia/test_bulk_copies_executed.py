"""Bulk tensor copies executed in the simulator: a tile read at any place, kept as it is, and written or added at another."""

import numpy as np
import pytest
from hopper_texts import BAR, blocked, desc, execute, lower, memdesc, module, panels, tensor_map

FLAT = "#ttg.swizzled_shared<1 : i32, 1 : i32, 1 : i32, array<i32: {}>>"
TYPES = {"f16": (np.float16, "fp16"), "f32": (np.float32, "fp32"), "i32": (np.int32, "i32"), "i8": (np.int8, "i8")}


def panel(width, size):
    """The encoding of rows of ``width`` bytes, swizzled by as much."""
    phases = width // 16
    return panels(width // size, 16 // size, 128 // width, phases)


def kernel(shape, element, encodings, ranks, kind="", slices=1, num_warps=4):
    """Read a tile of ``shape`` at (%i, %j) through %a into shared memory, through registers into another buffer, and write it through %c at
    (%k, %l). ``encodings``: of the two buffers. ``ranks``: of the two descriptors. ``slices``: parts of rows written one by one."""
    size = np.dtype(TYPES[element][0]).itemsize
    layout = blocked((1,), (32,), (num_warps,), (0,)) if len(shape) == 1 else blocked((1, 16 // size), (4, 8), (num_warps, 1))
    tile = f"tensor<{'x'.join(map(str, shape))}x{element}, {layout}>"
    ta, tc = (memdesc(shape, element, e) for e in encodings)
    part = (shape[0] // slices, *shape[1:])
    tp = memdesc(part, element, encodings[1])
    descs = [desc([1] * (r - len(shape)) + list(s), element) for r, s in zip(ranks, (shape, part))]
    reads, writes = (["%z"] * (r - len(shape)) + list(n) for r, n in zip(ranks, (("%i", "%j")[-len(shape):], ("%k", "%l")[-len(shape):])))
    name, attribute = ("async_tma_reduce", f'kind = "{kind}"') if kind else ("async_tma_copy_local_to_global", "")
    body = f'''  %z = arith.constant 0 : i32
  %true = arith.constant true
  %bar = "ttg.local_alloc"() : () -> {BAR}
  %s = "ttg.local_alloc"() : () -> {ta}
  %t = "ttg.local_alloc"() : () -> {tc}
  "ttng.init_barrier"(%bar) {{count = 1 : i32}} : ({BAR}) -> ()
  "ttng.barrier_expect"(%bar, %true) {{size = {int(np.prod(shape)) * size} : i32}} : ({BAR}, i1) -> ()
  "ttng.async_tma_copy_global_to_local"(%a, %bar, %s, %true, {", ".join(reads)}) {{cache = "none", evict = "normal"}}
      : ({descs[0]}, {BAR}, {ta}, i1, {", ".join(["i32"] * ranks[0])}) -> ()
  "ttng.wait_barrier"(%bar, %z) : ({BAR}, i32) -> ()
  %x = "ttg.local_load"(%s) : ({ta}) -> {tile}
  "ttg.local_store"(%x, %t) : ({tile}, {tc}) -> ()
  "ttng.fence_async_shared"() {{b_cluster = false}} : () -> ()
'''
    for n in range(slices):
        row = "%k" if len(shape) == 2 else "%l"
        body += f'''  %n{n} = arith.constant {n * part[0]} : i32
  %r{n} = arith.addi {row}, %n{n} : i32
  %p{n} = "ttg.memdesc_subslice"(%t) {{offsets = array<i32: {", ".join(map(str, [n * part[0]] + [0] * (len(shape) - 1)))}>}} : ({tc}) -> {tp}
  "ttng.{name}"(%c, %p{n}, {", ".join(f"%r{n}" if w == row else w for w in writes)}) {{{attribute}}} : ({descs[1]}, {tp}, {", ".join(["i32"] * ranks[1])}) -> ()
'''
    body += '  "ttng.tma_store_wait"() {pendings = 0 : i32, complete} : () -> ()'
    return module(body, f"%a: {descs[0]}, %c: {descs[1]}, %i: i32, %j: i32, %k: i32, %l: i32", num_warps)


COMBINE = {"": lambda old, new: new, "fadd": np.add, "fmax": np.maximum, "min": np.minimum, "xor": np.bitwise_xor}


def moved(a, out, shape, read, write, kind):
    """The expected array, element by element."""
    expected = out.copy()
    for at in np.ndindex(*shape):
        source, target = (tuple(x + o for x, o in zip(at, first)) for first in (read, write))
        if all(0 <= x < n for x, n in zip(target, out.shape)):
            value = a[source] if all(0 <= x < n for x, n in zip(source, a.shape)) else a.dtype.type(0)
            expected[target] = COMBINE[kind](out[target], value)
    return expected


CASES = {  # shape, element, (encoding, swizzle, box) of each side, ranks, reduction, slices
    "swizzle128": ((64, 64), "f16", (panel(128, 2), 128, (64, 64)), (panel(128, 2), 128, (64, 64)), (2, 2), "", 1),
    "swizzle64_to_128": ((32, 64), "f16", (panel(64, 2), 64, (32, 32)), (panel(128, 2), 128, (32, 64)), (2, 2), "", 1),
    "swizzle32_to_none": ((16, 64), "f16", (panel(32, 2), 32, (16, 16)), (panels(8, 8, 1, 1), 0, (16, 8)), (2, 2), "", 1),
    "panels": ((64, 256), "f16", (panel(128, 2), 128, (64, 64)), (panel(128, 2), 128, (64, 64)), (2, 2), "", 1),
    "slices": ((64, 64), "f16", (panel(128, 2), 128, (64, 64)), (panel(128, 2), 128, (16, 64)), (2, 2), "", 4),
    "slices_of_panels": ((64, 128), "f16", (panel(128, 2), 128, (64, 64)), (panel(128, 2), 128, (32, 64)), (2, 2), "", 2),
    "bytes": ((64, 128), "i8", (panel(128, 1), 128, (64, 128)), (panel(128, 1), 128, (64, 128)), (2, 2), "", 1),
    "plain": ((32, 32), "f32", (FLAT.format("1, 0"), 0, (32, 32)), (panel(128, 4), 128, (32, 32)), (2, 2), "", 1),
    "rows_above_256": ((512, 32), "i8", (panel(32, 1), 32, (256, 32)), (FLAT.format("1, 0"), 0, (256, 32)), (2, 2), "", 1),
    "vector": ((256,), "f32", (FLAT.format("0"), 0, (256,)), (FLAT.format("0"), 0, (128,)), (1, 1), "", 1),
    "higher_ranks": ((32, 64), "f16", (panel(128, 2), 128, (1, 32, 64)), (panel(128, 2), 128, (1, 1, 32, 64)), (3, 4), "", 1),
    "add": ((32, 32), "f32", (panel(128, 4), 128, (32, 32)), (panel(128, 4), 128, (32, 32)), (2, 2), "fadd", 1),
    "max": ((16, 64), "f16", (panel(128, 2), 128, (16, 64)), (panel(128, 2), 128, (16, 64)), (2, 2), "fmax", 1),
    "min": ((16, 32), "i32", (panel(128, 4), 128, (16, 32)), (panel(128, 4), 128, (16, 32)), (2, 2), "min", 1),
    "xor": ((16, 32), "i32", (panel(128, 4), 128, (16, 32)), (panel(128, 4), 128, (16, 32)), (2, 2), "xor", 1),
}


@pytest.mark.parametrize("read, write", [((16, 32), (7, 16)), ((-5, -16), (40, 304)), ((90, 304), (32, 64))], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_tile_moves(case, read, write):
    shape, element, (ea, sa, box_a), (ec, sc, box_c), ranks, kind, slices = CASES[case]
    dtype, name = TYPES[element]
    rank = len(shape)
    rng = np.random.default_rng(1)
    extents = ((104, 320), (96, 336)) if rank == 2 else ((320,), (336,))
    a, out = ((rng.standard_normal(e) * 40).astype(dtype) for e in extents)
    before = out.copy()
    host = {"descriptors": [{"box": list(box_a), "swizzle": sa, "dtype": name}, {"box": list(box_c), "swizzle": sc, "dtype": name}]}
    found = lower(kernel(shape, element, (ea, ec), ranks, kind, slices), host=host, assembled=False)
    maps = [tensor_map(x.reshape((1,) * (r - rank) + x.shape), box, swizzle, name) for x, r, box, swizzle in ((a, ranks[0], box_a, sa), (out, ranks[1], box_c, sc))]
    execute(found, [*maps, read[0], read[1], write[0], write[1]])
    np.testing.assert_array_equal(out, moved(a, before, shape, read[-rank:], write[-rank:], kind))
    assert not np.array_equal(out, before) or kind in ("fadd", "xor")  # to which what lies outside adds nothing


def test_the_kernels_assemble():
    for case in ("panels", "slices", "higher_ranks", "add"):
        shape, element, (ea, _, _), (ec, _, _), ranks, kind, slices = CASES[case]
        lower(kernel(shape, element, (ea, ec), ranks, kind, slices))
