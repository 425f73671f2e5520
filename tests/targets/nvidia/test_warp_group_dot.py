"""ttng.warp_group_dot and its wait: values by the simulator's own reading of wgmma (or, with TILEWRIGHT_TEST_DEVICE=cuda, by an sm_90
device), instruction text, and what ptxas makes of it."""

import re

import numpy as np
import pytest
from device_run import ON_DEVICE, run_on_device
from hopper_texts import blocked, lower, memdesc, module, panels
from test_matrix_ops import memory_and_values

from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import InternalCompilerError, UnsupportedOnTargetError, VariantNeeded
from tilewright.dialects.matrix_ops import lookup, register_rows
from tilewright.targets.nvidia.emit import _run_ptxas, assemble, check_products, count_products, ptxas
from tilewright.targets.nvidia.simulate import simulate
from tilewright.targets.nvidia.target import TARGET
from tilewright.targets.nvidia.warp_group_ops import WARP_GROUP_OPS

register_rows(TARGET.matrix_ops())

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="no ptxas")
BITS = {"f16": 16, "bf16": 16, "f32": 32, "i8": 8, "i32": 32, "f8E4M3FN": 8, "f8E5M2": 8}
F16, BF16 = "nvidia.wgmma_m64n{}k16_f16", "nvidia.wgmma_m64n{}k16_bf16"


def element_type(kind):
    return "f32" if kind == "tf32" else kind


def panel(element, order, swizzle):
    """#ttg.panel_shared of a swizzle in bytes."""
    bits, row = BITS[element], swizzle or 16
    return panels(row * 8 // bits, 128 // bits, 128 // row if swizzle else 1, max(1, swizzle // 16), order)


class Text:
    """Lines of a kernel; methods give names of values."""

    def __init__(self, num_warps):
        self.num_warps, self.lines, self.count = num_warps, [], 0
        self.false, self.zero = self("arith.constant false", "i1"), self("arith.constant 0 : i32", "i32")

    def __call__(self, text, type=None):
        if type is None:
            self.lines.append(f"  {text}")
            return None
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}", type

    def op(self, name, operands, result=None, attrs=""):
        values, types = ", ".join(v for v, _ in operands), ", ".join(t for _, t in operands)
        return self(f'"{name}"({values}) {{{attrs}}} : ({types}) -> {result or "()"}', result)

    def plain(self, shape, order=(1, 0)):
        """A blocked layout of one element a thread."""
        fast = min(32, shape[order[0]])
        threads, warps = [1, 1], [1, 1]
        threads[order[0]], threads[order[1]], warps[order[1]] = fast, 32 // fast, self.num_warps
        return blocked((1, 1), threads, warps, order)

    def pointers(self, argument, shape, element, layout):
        rows, columns = shape
        row, column = (f"#ttg.slice<{d} : i32, {layout}>" for d in (1, 0))
        i32 = f"tensor<{rows}x{columns}xi32, {layout}>"
        r = self.op("tt.make_range", [], f"tensor<{rows}xi32, {row}>", f"start = 0 : i32, end = {rows} : i32")
        c = self.op("tt.make_range", [], f"tensor<{columns}xi32, {column}>", f"start = 0 : i32, end = {columns} : i32")
        r = self.op("tt.expand_dims", [r], f"tensor<{rows}x1xi32, {layout}>", "axis = 1 : i32")
        c = self.op("tt.expand_dims", [c], f"tensor<1x{columns}xi32, {layout}>", "axis = 0 : i32")
        width = self(f"arith.constant dense<{columns}> : {r[1]}", r[1])
        r = self(f"arith.muli {r[0]}, {width[0]} : {r[1]}", r[1])
        r, c = self.op("tt.broadcast", [r], i32), self.op("tt.broadcast", [c], i32)
        offsets = self(f"arith.addi {r[0]}, {c[0]} : {i32}", i32)
        pointers = f"tensor<{rows}x{columns}x!tt.ptr<{element}, 1 : i32>, {layout}>"
        base = self.op("tt.splat", [(argument, f"!tt.ptr<{element}, 1 : i32>")], pointers)
        return self.op("tt.addptr", [base, offsets], pointers)

    def load(self, argument, shape, element, layout):
        return self.op("tt.load", [self.pointers(argument, shape, element, layout)],
                       f"tensor<{shape[0]}x{shape[1]}x{element}, {layout}>",
                       'cache = "none", evict = "normal", is_volatile = false, operandSegmentSizes = array<i32: 1, 0, 0>')

    def store(self, argument, shape, element, layout, value):
        self.op("tt.store", [self.pointers(argument, shape, element, layout), value], None,
                'cache = "none", evict = "normal", operandSegmentSizes = array<i32: 1, 1, 0>')

    def shared(self, argument, shape, element, order, swizzle):
        """A buffer that holds the argument's matrix."""
        return self.op("ttg.local_alloc", [self.load(argument, shape, element, self.plain(shape))],
                       memdesc(shape, element, panel(element, order, swizzle)))

    def transposed(self, buffer, shape, element, order, swizzle):
        return self.op("ttg.memdesc_trans", [buffer], memdesc(shape[::-1], element, panel(element, order[::-1], swizzle)),
                       "order = array<i32: 1, 0>")

    def fence(self):
        self.op("ttng.fence_async_shared", [], None, "b_cluster = false")

    def dot(self, a, b, c, *use_c, is_async="true"):
        return self.op("ttng.warp_group_dot", [a, b, c, *use_c], c[1],
                       f'input_precision = "tf32", max_num_imprecise_acc = 0 : i32, is_async = {is_async}')

    def wait(self, pendings, *values):
        """Through the wait's results, in order."""
        types = ", ".join(t for _, t in values)
        self.count += 1
        many = f":{len(values)}" if len(values) > 1 else ""
        left = f"%v{self.count}{many} = " if values else ""
        self(f'{left}"ttng.warp_group_dot_wait"({", ".join(v for v, _ in values)}) {{pendings = {pendings} : i32}} : ({types}) -> ({types})')
        return [(f"%v{self.count}" + (f"#{i}" if many else ""), t) for i, (_, t) in enumerate(values)]

    def text(self, *arguments):
        parts = [f"%{n}: !tt.ptr<{t}, 1 : i32> {{tt.divisibility = 16 : i32}}" if n != "n" else f"%n: {t}" for n, t in arguments]
        return module("\n".join(self.lines), ", ".join(parts), self.num_warps)


def mma(row, warps):
    return f'#ttg.mma<"{row}", array<i32: {warps[0]}, {warps[1]}>, false>'


def accumulator(row, warps, shape):
    return f"tensor<{shape[0]}x{shape[1]}x{lookup(row).c_type}, {mma(row, warps)}>"


def run(text, num_warps, *args):
    lowered = lower(text, num_warps, assembled=False)
    if ON_DEVICE:
        run_on_device(lowered.ptx, "sm_90a", lowered.metadata, args)
        return lowered
    with mlir_context():
        simulate(lowered.llvm, "k", num_warps, lowered.metadata["shared"], (1,), list(args), check_uninitialised=True)
    return lowered


def product_kernel(row_name, shape, warps=(4, 1), a_order=(1, 0), b_order=None, swizzle=None, a_registers=False, c="loaded"):
    """out = a @ b + c. a_order, b_order: which dim is fastest in memory (a is given as [k, m] where m is, b as [n, k] where k is).
    c: "loaded", "zero", or "use" and a text for the i1 (%n is an i32 argument)."""
    row = lookup(row_name)
    m, n, k = shape
    num_warps = warps[0] * warps[1]
    t = Text(num_warps)
    types = element_type(row.a_type), element_type(row.b_type)
    swizzles = swizzle if isinstance(swizzle, tuple) else (swizzle, swizzle)
    widths = [128 if s is None else s for s in swizzles]
    if swizzle is None:  # as wide as a step of the operands' fastest dims allows
        widths = [min(128, f * BITS[e] // 8) for f, e in zip((k if a_order == (1, 0) else 64, k if b_order != (1, 0) else row.n), types)]
    layout = mma(row_name, warps)
    if a_registers:
        operand = f"tensor<{m}x{k}x{types[0]}, #ttg.dot_op<0 : i32, {layout}, 0 : i32>>"
        a = t.op("ttg.convert_layout", [t.load("%a", (m, k), types[0], t.plain((m, k)))], operand)
    elif a_order == (1, 0):
        a = t.shared("%a", (m, k), types[0], (1, 0), widths[0])
    else:
        a = t.transposed(t.shared("%a", (k, m), types[0], (1, 0), widths[0]), (k, m), types[0], (1, 0), widths[0])
    if b_order == (1, 0):
        b = t.shared("%b", (k, n), types[1], (1, 0), widths[1])
    else:
        b = t.transposed(t.shared("%b", (n, k), types[1], (1, 0), widths[1]), (n, k), types[1], (1, 0), widths[1])
    t.fence()
    type_ = accumulator(row_name, warps, (m, n))
    use = []
    if c == "zero":
        acc = t(f"arith.constant dense<{0.0 if row.c_type != 'i32' else 0}> : {type_}", type_)
    else:
        acc = t.load("%c", (m, n), row.c_type, layout)
        if c.startswith("use"):
            use = [t(c[4:], "i1")]
    (d,) = t.wait(0, t.dot(a, b, acc, *use))
    t.store("%o", (m, n), row.c_type, layout, d)
    return t.text(("a", types[0]), ("b", types[1]), ("c", row.c_type), ("o", row.c_type), ("n", "i32"))


def check_product(row_name, shape, warps=(4, 1), a_order=(1, 0), b_order=None, c="loaded", number=0, reads_c=True, **options):
    row = lookup(row_name)
    m, n, k = shape
    rng = np.random.default_rng(sum(shape))
    a, av = memory_and_values(row.a_type, (m, k), rng)
    b, bv = memory_and_values(row.b_type, (k, n), rng)
    start, cv = memory_and_values(row.c_type, (m, n), rng)
    out = np.full((m, n), 77, start.dtype)
    text = product_kernel(row_name, shape, warps, a_order, b_order, c=c, **options)
    given = a if a_order == (1, 0) else np.ascontiguousarray(a.T), b if b_order == (1, 0) else np.ascontiguousarray(b.T)
    lowered = run(text, warps[0] * warps[1], *given, start, out, number)
    np.testing.assert_array_equal(out.astype(np.float64), av @ bv + (cv if reads_c else 0))
    return lowered


TYPES = [r.name for r in WARP_GROUP_OPS if r.n == 32]


@pytest.mark.parametrize("row", TYPES)
def test_every_type(row):
    """A and B with k fastest, two steps of k."""
    check_product(row, (64, 32, 2 * lookup(row).k))


@pytest.mark.parametrize("row", TYPES)
def test_a_in_registers(row):
    check_product(row, (128, 32, 2 * lookup(row).k), (4, 1) if "f16" in row else (8, 1), a_registers=True)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("a_order, b_order", [((1, 0), (0, 1)), ((1, 0), (1, 0)), ((0, 1), (0, 1)), ((0, 1), (1, 0))])
def test_either_order_and_every_swizzle(a_order, b_order, swizzle):
    lowered = check_product(BF16.format(64), (64, 64, 64), a_order=a_order, b_order=b_order, swizzle=swizzle)
    texts = re.findall(r"wgmma.mma_async.*?;", lowered.llir.replace("\\0A", "\n"))
    assert len(texts) == 4 and all(x.endswith(f", 1, 1, {int(a_order == (0, 1))}, {int(b_order == (1, 0))};") for x in texts)


@pytest.mark.parametrize("n, shape, warps", [
    (64, (128, 64, 32), (8, 1)), (32, (64, 64, 32), (4, 2)), (32, (128, 64, 32), (4, 1)), (32, (256, 64, 32), (8, 1)),
    (64, (256, 64, 16), (4, 1)), (32, (64, 32, 32), (8, 1)), (128, (128, 256, 32), (8, 2)), (8, (64, 8, 32), (4, 1)), (16, (64, 32, 32), (4, 1))])
def test_warp_groups_and_repetition(n, shape, warps):
    """Groups along M and N, several blocks of M and of N a group, and groups that repeat others' work."""
    check_product(F16.format(n), shape, warps)
    if n >= 32:
        check_product(F16.format(n), shape, warps, (0, 1), (1, 0), swizzle=(128, min(128, 2 * n)))


@pytest.mark.parametrize("c, number, reads_c", [
    ("zero", 0, False), ("use arith.constant false", 0, False), ("use arith.constant true", 0, True),
    ("use arith.cmpi eq, %n, %v2 : i32", 0, True), ("use arith.cmpi eq, %n, %v2 : i32", 1, False)])
def test_whether_c_is_read(c, number, reads_c):
    lowered = check_product(F16.format(32), (128, 32, 32), (4, 1), c=c, number=number, reads_c=reads_c)
    text = lowered.llir.split("wgmma.fence")[1].split("call")[0]
    tied = "=f,0," in text or re.search(r'"=f,.*=f,0,1,', text) is not None
    assert tied == (reads_c or "cmpi" in c)
    scale = re.findall(r"wgmma.mma_async[^;]*\}, d\d+, d\d+, (\w+),", text)
    assert scale == (["1"] * 4 if "true" in c else ["p", "p", "1", "1"])  # the first of each of the two sums


def test_slices_stages_and_groups_in_flight():
    """Two dots over slices of k of ring stages, one waited for after the other; the index is known when it runs."""
    t = Text(4)
    plain, shape = t.plain((64, 64)), (64, 64)
    ring = memdesc((3, *shape), "f16", panel("f16", (1, 0), 128))
    one, half = memdesc(shape, "f16", panel("f16", (1, 0), 128)), memdesc((64, 32), "f16", panel("f16", (1, 0), 128))
    across = memdesc((32, 64), "f16", panel("f16", (1, 0), 128))
    rings = [t.op("ttg.local_alloc", [], ring) for _ in range(2)]
    stages = [t.op("ttg.memdesc_index", [r, ("%n", "i32")], one) for r in rings]
    for name, stage in zip("ab", stages):
        t.op("ttg.local_store", [t.load(f"%{name}", shape, "f16", plain), stage])
    t.fence()
    row = F16.format(64)
    type_ = accumulator(row, (4, 1), shape)
    zero = t(f"arith.constant dense<0.0> : {type_}", type_)
    parts = []
    for start in (0, 32):
        a = t.op("ttg.memdesc_subslice", [stages[0]], half, f"offsets = array<i32: 0, {start}>")
        b = t.op("ttg.memdesc_subslice", [stages[1]], across, f"offsets = array<i32: {start}, 0>")
        parts.append(t.dot(a, b, zero))
    (first,) = t.wait(1, parts[0])
    t.store("%c", shape, "f32", mma(row, (4, 1)), first)
    (second,) = t.wait(0, parts[1])
    t.wait(0, *stages)  # memdescs pass through as they are
    t.store("%o", shape, "f32", mma(row, (4, 1)), second)
    text = t.text(("a", "f16"), ("b", "f16"), ("c", "f32"), ("o", "f32"), ("n", "i32"))
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for _ in range(2))
    c, o = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    run(text, 4, a, b, c, o, 2)
    np.testing.assert_array_equal(c, a[:, :32].astype(np.float32) @ b[:32].astype(np.float32))
    np.testing.assert_array_equal(o, a[:, 32:].astype(np.float32) @ b[32:].astype(np.float32))


@pytest.mark.parametrize("element, dtype", [("f16", np.float16), ("bf16", np.uint16), ("i8", np.int8), ("f32", np.float32), ("i32", np.int32),
                                            ("f64", np.float64), ("i64", np.int64)])
def test_anything_may_pass_through_a_wait(element, dtype):
    t = Text(4)
    plain = t.plain((32, 32))
    x, y = t.load("%a", (32, 32), element, plain), t.load("%b", (32, 32), element, plain)
    x, y, again = t.wait(2, x, y, x)
    for name, value in zip("cod", (x, y, again)):
        t.store(f"%{name}", (32, 32), element, plain, value)
    text = t.text(*((name, element) for name in "abcod"))
    a, b = np.random.default_rng(0).integers(0, 100, (2, 32, 32)).astype(dtype)
    outs = [np.zeros_like(a) for _ in range(3)]
    lowered = run(text, 4, a, b, *outs)
    for out, want in zip(outs, (a, b, a)):
        np.testing.assert_array_equal(out, want)
    assert lowered.llir.count("wgmma.wait_group.sync.aligned 2;") == 1
    constraints = re.search(r'wait_group.sync.aligned 2;", "([^"]*)"', lowered.llir).group(1).split(",")
    words = 8 * min(4, a.itemsize) // 4  # 32-bit (or 64-bit) words that the 8 registers of one tensor fill
    assert sum(x.startswith("=") for x in constraints) == 2 * words


# ------------------------------------------------------------------------------------------------------ text, ptxas
PTX = {"f16": "f16", "bf16": "bf16", "tf32": "tf32", "i8": "s8", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2", "f32": "f32", "i32": "s32"}


@needs_ptxas
@pytest.mark.parametrize("n", [8, 16, 32, 64, 128, 256])
def test_every_row_assembles(n):
    """One kernel with a product by each row of that n; ptxas keeps them asynchronous and spills nothing."""
    rows = [r for r in WARP_GROUP_OPS if r.n == n]
    t = Text(4)
    for row in rows:
        kinds = [element_type(x) for x in (row.a_type, row.b_type)]
        k_panel = [panel(e, (1, 0), 32) for e in kinds]
        a = t.op("ttg.local_alloc", [], memdesc((64, row.k), kinds[0], k_panel[0]))
        b = t.op("ttg.memdesc_trans", [t.op("ttg.local_alloc", [], memdesc((n, row.k), kinds[1], k_panel[1]))],
                 memdesc((row.k, n), kinds[1], panel(kinds[1], (0, 1), 32)), "order = array<i32: 1, 0>")
        type_ = accumulator(row.name, (4, 1), (64, n))
        acc = t(f"arith.constant dense<{0 if row.c_type == 'i32' else 0.0}> : {type_}", type_)
        (d,) = t.wait(0, t.dot(a, b, acc))
        t.op("ttg.local_alloc", [d], memdesc((64, n), row.c_type, panel(row.c_type, (1, 0), min(128, n * BITS[row.c_type] // 8))))
    lowered = lower(t.text(), 4)
    assert lowered.usage["spills"] == 0 and "wgmma_serialized" not in lowered.usage
    for row in rows:
        registers = n // 2 if row.c_type != "f16" else n // 4
        types = f"{PTX[row.c_type]}.{PTX[row.a_type]}.{PTX[row.b_type]}"
        tail = {"s8": "", "f16": ", 1, 1, 0, 0", "bf16": ", 1, 1, 0, 0"}.get(PTX[row.a_type], ", 1, 1")
        pattern = rf"wgmma\.mma_async\.sync\.aligned\.m64n{n}k{row.k}\.{re.escape(types)} \{{([^}}]*)\}}, d\d+, d\d+, p{tail};"
        found = re.findall(pattern, lowered.ptx)
        assert len(found) == 1 and len(found[0].split(",")) == registers


@needs_ptxas
@pytest.mark.parametrize("row, shape, warps, options", [
    (F16.format(256), (128, 256, 64), (8, 1), {"b_order": (1, 0)}), (F16.format(256), (64, 256, 64), (4, 1), {"a_registers": True}),
    (BF16.format(128), (128, 128, 64), (4, 1), {"b_order": (1, 0)}), (BF16.format(128), (64, 128, 128), (4, 1), {"a_registers": True, "c": "zero"}),
    ("nvidia.wgmma_m64n256k32_f8E4M3FN", (128, 256, 64), (8, 1), {}), ("nvidia.wgmma_m64n256k8_tf32", (64, 256, 32), (4, 1), {}),
    ("nvidia.wgmma_m64n256k32_i8", (128, 256, 64), (8, 1), {}), (F16.format(256) + "_acc_f16", (128, 256, 64), (8, 1), {"b_order": (1, 0)})])
def test_large_tiles_assemble_without_spills(row, shape, warps, options):
    lowered = lower(product_kernel(row, shape, warps, **options), warps[0] * warps[1])
    assert lowered.usage["spills"] == 0 and "wgmma_serialized" not in lowered.usage
    steps = shape[2] // lookup(row).k
    assert lowered.ptx.count("wgmma.mma_async") == steps * max(1, shape[0] // (16 * warps[0]))
    assert lowered.ptx.count("wgmma.fence") == lowered.ptx.count("wgmma.commit_group") == 1
    assert lowered.ptx.count("wgmma.wait_group") == 1 + row.endswith("acc_f16")  # such sums are waited for at once


@needs_ptxas
def test_a_loop_keeps_a_group_in_flight():
    """A ring's loop as the passes make it: one group in flight, dynamic stages; descriptors cost a shift and no 64-bit sums."""
    t = Text(8)
    shapes = (128, 64), (64, 256)
    encodings_ = [panel("f16", (1, 0), 128)] * 2
    rings = [t.op("ttg.local_alloc", [], memdesc((3, *s), "f16", e)) for s, e in zip(shapes, encodings_)]
    type_ = accumulator(F16.format(256), (8, 1), (128, 256))
    zero = t(f"arith.constant dense<0.0> : {type_}", type_)
    one = t("arith.constant 1 : i32", "i32")
    body = Text.__new__(Text)
    body.num_warps, body.lines, body.count = 8, [], 100
    stages = [body.op("ttg.memdesc_index", [r, ("%i", "i32")], memdesc(s, "f16", e)) for r, s, e in zip(rings, shapes, encodings_)]
    d = body.dot(*stages, ("%acc", type_))
    (d,) = body.wait(1, d)
    inner = "\n".join(body.lines)
    t(f"%r = scf.for %i = {t.zero[0]} to %n step {one[0]} iter_args(%acc = {zero[0]}) -> {type_} : i32 {{\n{inner}\n  scf.yield {d[0]} : {type_}\n}}")
    (r,) = t.wait(0, ("%r", type_))
    half = type_.replace("xf32", "xf16")
    h = t(f"arith.truncf {r[0]} : {type_} to {half}", half)
    out = t.op("ttg.local_alloc", [h], memdesc((128, 256), "f16", encodings_[0]))
    t.store("%o", (128, 256), "f16", t.plain((128, 256)), t.op("ttg.local_load", [out], f"tensor<128x256xf16, {t.plain((128, 256))}>"))
    lowered = lower(t.text(("o", "f16"), ("n", "i32")), 8)
    assert "wgmma_serialized" not in lowered.usage and lowered.usage["spills"] == 0
    assert lowered.ptx.count("stmatrix.sync.aligned.m8n8.x4") == 16
    loop = lowered.ptx.split("wgmma.fence")[1].split("wgmma.wait_group.sync.aligned 1")[0]
    assert loop.count("mma_async") == 4 and ".s64" not in loop and loop.count("add.s32") == 6


@needs_ptxas
def test_touching_a_group_in_flight_is_noticed():
    """Without a wait between them, ptxas has to serialise or to wait: what it says is kept."""
    t = Text(4)
    a, b = (t.op("ttg.local_alloc", [], memdesc((64, 64), "f16", panel("f16", (1, 0), 128))) for _ in range(2))
    type_ = accumulator(F16.format(64), (4, 1), (64, 64))
    acc = t(f"arith.constant dense<1.0> : {type_}", type_)
    first = t.dot(a, b, acc)
    touched = t(f"arith.mulf {first[0]}, {first[0]} : {type_}", type_)
    (d,) = t.wait(0, t.dot(a, b, touched))
    t.store("%o", (64, 64), "f32", mma(F16.format(64), (4, 1)), d)
    usage = lower(t.text(("o", "f32")), 4).usage
    assert re.search(r"C7510|C7517", usage.get("wgmma_serialized", "") + usage.get("wgmma_injected", ""))


@needs_ptxas
def test_every_instruction_reaches_the_cubin():
    """ptxas 13.5 dropped some where a descriptor's register was written twice; the lowering writes each once, and they are counted."""
    lowered = lower(product_kernel(F16.format(64), (64, 64, 64), b_order=(1, 0)), 4)
    cubin, _ = assemble(lowered.ptx, "sm_90a")
    assert count_products(cubin) == lowered.ptx.count("wgmma.mma_async") == 4
    with pytest.raises(VariantNeeded, match="left 4 of 5 wgmma instructions.*warp_group_dots=False"):
        check_products(lowered.ptx + "// wgmma.mma_async", cubin)


@needs_ptxas
def test_unrolled_loops_hide_no_missing_instruction():
    """ptxas makes six instructions of one in a loop of six rounds: so many that one that it left out elsewhere would not be missed."""
    ptx = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 o)
.reqntid 128
{
	.reg .pred %p;
	.reg .b32 %n, %f<4>;
	.reg .b64 %d;
	ld.param.u64 %d, [o];
	mov.b32 %n, 0;
	mov.b32 %f0, 0; mov.b32 %f1, 0; mov.b32 %f2, 0; mov.b32 %f3, 0;
$L__BB0_1:                              // a loop
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d, %d, 1, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	add.s32 %n, %n, 1;
	setp.ne.s32 %p, %n, 6;
	@%p bra $L__BB0_1;
	st.global.v4.b32 [%d], {%f0, %f1, %f2, %f3};
	ret;
}
"""
    assert count_products(_run_ptxas(ptx, "sm_90a", False, False)[0]) == 6
    cubin, usage = assemble(ptx, "sm_90a")
    assert count_products(cubin) == 1 and usage["registers"]


# ---------------------------------------------------------------------------------------------------------- mistakes
def one_dot(row, a_type, b_type, acc_type, warps=4):
    t = Text(warps)
    operands = [t.op("ttg.local_alloc", [], x) for x in (a_type, b_type)]
    acc = t(f"arith.constant dense<0.0> : {acc_type}", acc_type)
    t.wait(0, t.dot(*operands, acc))
    return t.text(("o", "f32"))


def test_what_cannot_be_lowered():
    k_fastest, f16 = panel("f16", (1, 0), 128), memdesc((64, 64), "f16", panel("f16", (1, 0), 128))
    type_ = accumulator(F16.format(64), (4, 1), (64, 64))
    with pytest.raises(UnsupportedOnTargetError, match="sm_80 has no wgmma"):
        lower(one_dot(F16.format(64), f16, f16, type_), 4, arch="sm_80", assembled=False)
    with pytest.raises(InternalCompilerError, match="is of no warp-group instruction"):
        warp = 'tensor<64x64xf32, #ttg.mma<"nvidia.mma_m16n8k16_f16", array<i32: 4, 1>, false>>'
        lower(one_dot(F16.format(64), f16, f16, warp), 4, assembled=False)
    with pytest.raises(InternalCompilerError, match=r"operands of \['bf16', 'f16', 'f32'\]"):
        lower(one_dot(F16.format(64), memdesc((64, 64), "bf16", k_fastest), f16, type_), 4, assembled=False)
    with pytest.raises(InternalCompilerError, match="is not made of whole"):
        lower(one_dot(F16.format(128), f16, f16, type_.replace("n64k", "n128k")), 4, assembled=False)
    with pytest.raises(UnsupportedOnTargetError, match="operands of 8 bits must have k as the fastest dim"):
        byte = memdesc((64, 64), "i8", panel("i8", (1, 0), 64))
        text = one_dot("nvidia.wgmma_m64n64k32_i8", byte, byte, accumulator("nvidia.wgmma_m64n64k32_i8", (4, 1), (64, 64)))
        lower(text.replace("dense<0.0>", "dense<0>"), 4, assembled=False)


