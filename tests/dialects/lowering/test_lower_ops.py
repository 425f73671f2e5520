"""Elementwise ops, shapes, control flow, pointers, inline assembly: executed over all threads against numpy."""

import re

import numpy as np
import pytest
from lowering_harness import LAYOUTS, Hooks, Text, blocked, ptr, slice_of, tensor

from tilewright.dialects.errors import InternalCompilerError, TypeMismatchError, UnsupportedOnTargetError

E = blocked([4], [32], [4], [0])
N = 512
I32 = np.int32


def elementwise(op, operand_types, result_type, attrs="", scalar_mask=None):
    """Kernel: o = op(inputs); i1 results are stored as i8."""
    t = Text(*(ptr(f"x{i}", e) for i, e in enumerate(operand_types)), ptr("o", "i8" if result_type == "i1" else result_type))
    values = [t.load(f"%x{i}", e, [N], E) for i, e in enumerate(operand_types)]
    types = [tensor([N], e, E) for e in operand_types]
    r = t(op, ", ".join(values), ", ".join(types), tensor([N], result_type, E), attrs)
    if result_type == "i1":
        r = t("arith.extui", r, tensor([N], "i1", E), tensor([N], "i8", E))
    t.store("%o", r, "i8" if result_type == "i1" else result_type, [N], E)
    return t.kernel()


def ints(seed, dtype, low=None, high=None):
    info = np.iinfo(dtype)
    x = np.random.default_rng(seed).integers(info.min if low is None else low, info.max if high is None else high, N, dtype=dtype,
                                             endpoint=True)
    edges = np.array([info.min, info.max, 0, 1, -1 if info.min < 0 else 2, 7], dtype)
    x[:6] = edges if low is None else np.clip(edges, low, high)
    return x


def wrapped(f):
    with np.errstate(all="ignore"):
        return f()


INTEGER = {
    "addi": lambda a, b: a + b, "subi": lambda a, b: a - b, "muli": lambda a, b: a * b, "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b, "xori": lambda a, b: a ^ b, "maxsi": np.maximum, "minsi": np.minimum,
    "maxui": lambda a, b: np.maximum(a.view(f"u{a.dtype}"), b.view(f"u{b.dtype}")).view(a.dtype),
    "minui": lambda a, b: np.minimum(a.view(f"u{a.dtype}"), b.view(f"u{b.dtype}")).view(a.dtype),
}


@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integers(name, bits):
    dtype = np.dtype(f"int{bits}")
    a, b = ints(0, dtype), np.random.default_rng(5).permutation(ints(1, dtype))
    out = np.zeros(N, dtype)
    elementwise(f"arith.{name}", [f"i{bits}"] * 2, f"i{bits}").run(a, b, out)
    np.testing.assert_array_equal(out, wrapped(lambda: INTEGER[name](a, b)))


@pytest.mark.parametrize("bits", [8, 32, 64])
def test_division_truncates(bits):
    dtype = np.dtype(f"int{bits}")
    a, b = ints(0, dtype), ints(1, dtype)
    b[(b == 0) | (b == -1)] = 3
    ua, ub = a.view(f"u{dtype}"), b.view(f"u{dtype}")
    quotient = np.array([abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b)]).astype(dtype)
    want = {"divsi": quotient, "remsi": wrapped(lambda: a - quotient * b), "divui": (ua // ub).view(dtype), "remui": (ua % ub).view(dtype)}
    for name, w in want.items():
        out = np.zeros(N, dtype)
        elementwise(f"arith.{name}", [f"i{bits}"] * 2, f"i{bits}").run(a, b, out)
        np.testing.assert_array_equal(out, w, err_msg=name)


def test_shifts():
    a, s = ints(0, I32), ints(1, I32, 0, 31)
    for name, want in (("shli", wrapped(lambda: a << s)), ("shrsi", a >> s), ("shrui", (a.view(np.uint32) >> s.view(np.uint32)).view(I32))):
        out = np.zeros(N, I32)
        elementwise(f"arith.{name}", ["i32", "i32"], "i32").run(a, s, out)
        np.testing.assert_array_equal(out, want, err_msg=name)


def test_integer_comparisons():
    a, b = ints(0, I32, -3, 3), ints(1, I32, -3, 3)
    ua, ub = a.view(np.uint32), b.view(np.uint32)
    for i, want in enumerate((a == b, a != b, a < b, a <= b, a > b, a >= b, ua < ub, ua <= ub, ua > ub, ua >= ub)):
        out = np.full(N, 9, np.int8)
        elementwise("arith.cmpi", ["i32", "i32"], "i1", f"predicate = {i} : i64").run(a, b, out)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("bits", [32, 64])
def test_high_half_of_a_product(bits):
    dtype = np.dtype(f"int{bits}")
    a, b = ints(0, dtype), ints(1, dtype)
    ua, ub = a.view(f"u{dtype}"), b.view(f"u{dtype}")
    out = np.zeros(N, dtype)
    elementwise("tt.mulhiui", [f"i{bits}"] * 2, f"i{bits}").run(a, b, out)
    assert [int(v) for v in out.view(f"u{dtype}")] == [int(x) * int(y) >> bits for x, y in zip(ua, ub)]


def floats(seed, dtype):
    x = (np.random.default_rng(seed).standard_normal(N) * 4).astype(dtype)
    x[:8] = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, 2, -3]).astype(dtype)
    return x


def to_bf16(x):
    word = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return np.where(np.isnan(x), 0x7FC0, (word + 0x7FFF + (word >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


FLOAT = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide, "maxnumf": np.fmax, "minnumf": np.fmin,
    "maximumf": np.maximum, "minimumf": np.minimum,
}


@pytest.mark.parametrize("name", FLOAT)
@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_floats(name, element):
    """Each rounds once in its own type; bf16 is computed in f32. NaN: maxnum ignores it, maximum keeps it."""
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": np.float32}[element]
    a, b = floats(0, dtype), np.random.default_rng(5).permutation(floats(1, dtype))
    kernel = elementwise(f"arith.{name}", [element] * 2, element)
    with np.errstate(all="ignore"):
        if element == "bf16":
            a, b = to_bf16(a), to_bf16(b)
            out = np.zeros(N, np.uint16)
            kernel.run(a, b, out)
            np.testing.assert_array_equal(from_bf16(out), from_bf16(to_bf16(FLOAT[name](from_bf16(a), from_bf16(b)))))
        else:
            out = np.zeros(N, dtype)
            kernel.run(a, b, out)
            np.testing.assert_array_equal(out, FLOAT[name](a, b))


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_float_comparisons(element):
    a, b = floats(0, np.float32).round(), np.random.default_rng(5).permutation(floats(1, np.float32).round())
    un = np.isnan(a) | np.isnan(b)
    ordered = [a == b, a > b, a >= b, a < b, a <= b, (a != b) & ~un, ~un]
    unordered = [(a == b) | un, (a > b) | un, (a >= b) | un, (a < b) | un, (a <= b) | un, a != b, un]
    cases = [np.zeros(N, bool), *ordered, *unordered, np.ones(N, bool)]
    x, y = (to_bf16(a), to_bf16(b)) if element == "bf16" else (a, b)
    for i, want in enumerate(cases):
        out = np.full(N, 9, np.int8)
        elementwise("arith.cmpf", [element] * 2, "i1", f"predicate = {i} : i64").run(x, y, out)
        np.testing.assert_array_equal(out, want, err_msg=str(i))


@pytest.mark.parametrize("propagate", [False, True])
def test_clamp(propagate):
    x, lo, hi = floats(0, np.float32), np.full(N, -1, np.float32), np.full(N, 2, np.float32)
    out = np.zeros(N, np.float32)
    elementwise("tt.clampf", ["f32"] * 3, "f32", f"propagate_nan = {str(propagate).lower()}").run(x, lo, hi, out)
    want = np.clip(x, -1, 2) if propagate else np.fmin(np.fmax(x, np.float32(-1)), np.float32(2))
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_signs(element):
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": np.float32}[element]
    x = floats(0, dtype)
    x[4] = 5
    for op, fn in (("arith.negf", np.negative), ("math.absf", np.abs)):
        data = to_bf16(x) if element == "bf16" else x
        out = np.zeros_like(data)
        elementwise(op, [element], element).run(data, out)
        want = to_bf16(fn(from_bf16(data))) if element == "bf16" else fn(x)
        np.testing.assert_array_equal(out, want)
        assert (np.signbit(out) == np.signbit(want)).all()


def test_casts():
    for src, dst, op, fn in (
            ("i32", "i64", "extsi", lambda x: x.astype(np.int64)), ("i32", "i8", "trunci", lambda x: x.astype(np.int8)),
            ("i8", "i32", "extui", lambda x: x.view(np.uint8).astype(I32)), ("i32", "f32", "sitofp", lambda x: x.astype(np.float32)),
            ("i32", "f64", "uitofp", lambda x: x.view(np.uint32).astype(np.float64)),
            ("i16", "bf16", "sitofp", lambda x: to_bf16(x.astype(np.float32))),
            ("i64", "f32", "sitofp", lambda x: x.astype(np.float32)), ("i32", "f32", "bitcast", lambda x: x.view(np.float32))):
        dtype = np.dtype(f"int{src[1:]}")
        x = ints(0, dtype)
        want = wrapped(lambda fn=fn, x=x: fn(x))
        out = np.zeros(N, want.dtype)
        elementwise(f"arith.{op}", [src], dst).run(x, out)
        np.testing.assert_array_equal(out.view(np.uint8), want.view(np.uint8), err_msg=op)
    x = np.random.default_rng(0).uniform(-1000, 1000, N).astype(np.float32)
    out = np.zeros(N, I32)
    elementwise("arith.fptosi", ["f32"], "i32").run(x, out)
    np.testing.assert_array_equal(out, x.astype(I32))
    out8 = np.zeros(N, np.uint8)
    elementwise("arith.fptoui", ["f32"], "i8").run(np.abs(x) / 4, out8)
    np.testing.assert_array_equal(out8, (np.abs(x) / 4).astype(np.uint8))


def test_select_by_a_scalar_and_by_a_tensor():
    a, b = floats(0, np.float32), floats(1, np.float32)
    t = Text(ptr("x", "f32"), ptr("y", "f32"), ptr("o", "f32"), "%n: i32")
    v, m = tensor([N], "f32", E), tensor([N], "i1", E)
    x, y = t.load("%x", "f32", [N], E), t.load("%y", "f32", [N], E)
    first = t("arith.select", f"{t.below([N], E, '%n')}, {x}, {y}", f"{m}, {v}, {v}", v)
    c = t("arith.cmpi", f"%n, {t.constant('100', 'i32')}", "i32, i32", "i1", "predicate = 4 : i64")
    t.lines.append(f"%sel = arith.select {c}, {first}, {y} : {v}")
    t.store("%o", "%sel", "f32", [N], E)
    kernel = t.kernel()
    for n in (50, 300):
        out = np.zeros(N, np.float32)
        kernel.run(a, b, out, n)
        np.testing.assert_array_equal(out, np.where(np.arange(N) < n, a, b) if n > 100 else b)


# -------------------------------------------------------------------------------------------------------- math
@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("op,fn", [("math.exp", np.exp), ("math.sqrt", np.sqrt), ("math.sin", np.sin), ("math.floor", np.floor)])
def test_math(op, fn, element):
    x = np.random.default_rng(0).uniform(0.1, 4, N)
    data = to_bf16(x) if element == "bf16" else x.astype({"f16": "f2", "f32": "f4", "f64": "f8"}[element])
    out = np.zeros_like(data)
    elementwise(op, [element], element).run(data, out)
    if element == "bf16":
        np.testing.assert_allclose(from_bf16(out), fn(from_bf16(data).astype(np.float64)), rtol=2.0**-8)
    else:
        np.testing.assert_allclose(out, fn(data.astype(np.float64)), rtol={"f16": 2.0**-11, "f32": 2.0**-22, "f64": 2.0**-50}[element])


def test_libdevice_names():
    x, y = np.random.default_rng(0).uniform(0.5, 3, (2, N)).astype(np.float32)
    attrs = 'symbol = "{}", pure = true, operandSegmentSizes = array<i32: {}>'
    out = np.zeros(N, np.float32)
    elementwise("tt.extern_elementwise", ["f32", "f32"], "f32", attrs.format("pow", "1, 1, 0, 0, 0, 0, 0, 0")).run(x, y, out)
    np.testing.assert_allclose(out, x.astype(float) ** y, rtol=2.0**-22)
    flags = np.zeros(N, I32)
    x[5] = np.nan
    elementwise("tt.extern_elementwise", ["f32"], "i32", attrs.format("isnan", "1, 0, 0, 0, 0, 0, 0, 0")).run(x, flags)
    np.testing.assert_array_equal(flags, np.isnan(x))
    with pytest.raises(UnsupportedOnTargetError, match="no math function 'besselj0'"):
        elementwise("tt.extern_elementwise", ["f32"], "f32", attrs.format("besselj0", "1, 0, 0, 0, 0, 0, 0, 0"))


def test_a_target_overrides_a_function():
    from tilewright.dialects.lower_math import MathFunction

    own = MathFunction("exp", "f32", lambda b, x: b.fadd(x, x))
    t = Text(ptr("x", "f32"), ptr("o", "f32"))
    v = tensor([N], "f32", E)
    t.store("%o", t("math.exp", t.load("%x", "f32", [N], E), v, v), "f32", [N], E)
    x, out = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    t.kernel(math={("exp", "f32"): own}).run(x, out)
    np.testing.assert_array_equal(out, 2 * x)


# ------------------------------------------------------------------------------------------------------ shapes
def test_expand_and_broadcast_keep_registers():
    shape, encoding, warps, lanes = LAYOUTS["2d"]
    t = Text(ptr("o", "i32"))
    t.store("%o", t.index(shape, encoding), "i32", shape, encoding)
    out = np.full(shape, -1, I32)
    t.kernel(warps, lanes).run(out)
    np.testing.assert_array_equal(out.ravel(), np.arange(out.size))


def test_transpose_reshape_join_split():
    shape = [16, 32]
    src = blocked([1, 4], [4, 8], [4, 1], [1, 0])
    dst = blocked([4, 1], [8, 4], [1, 4], [0, 1])
    t = Text(ptr("x", "f32"), ptr("y", "f32"), ptr("o", "f32"), ptr("p", "f32"), ptr("q", "f32"))
    v = tensor(shape, "f32", src)
    x, y = t.load("%x", "f32", shape, src), t.load("%y", "f32", shape, src)
    flipped = t("tt.trans", x, v, tensor(shape[::-1], "f32", dst), "order = array<i32: 1, 0>")
    t.store("%o", flipped, "f32", shape[::-1], dst)
    pair = blocked([1, 4, 2], [4, 8, 1], [4, 1, 1], [2, 1, 0])
    joined = t("tt.join", f"{x}, {y}", f"{v}, {v}", tensor([*shape, 2], "f32", pair))
    t.store("%p", joined, "f32", [*shape, 2], pair)
    t.count += 1
    t.lines.append(f'%s:2 = "tt.split"({joined}) : ({tensor([*shape, 2], "f32", pair)}) -> ({v}, {v})')
    t.store("%q", t("arith.subf", "%s#0, %s#1", f"{v}, {v}", v), "f32", shape, src)
    x, y = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
    o, p, q = np.full(shape[::-1], np.nan, np.float32), np.full((*shape, 2), np.nan, np.float32), np.full(shape, np.nan, np.float32)
    t.kernel().run(x, y, o, p, q)
    np.testing.assert_array_equal(o, x.T)
    np.testing.assert_array_equal(p, np.stack([x, y], -1))
    np.testing.assert_array_equal(q, x - y)


def test_reshape():
    src = blocked([1, 4], [4, 8], [4, 1], [1, 0])
    dst = blocked([4], [32], [4], [0])
    t = Text(ptr("x", "f32"), ptr("o", "f32"))
    r = t("tt.reshape", t.load("%x", "f32", [16, 32], src), tensor([16, 32], "f32", src), tensor([512], "f32", dst), "allow_reorder = false")
    t.store("%o", r, "f32", [512], dst)
    x = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    out = np.full(512, np.nan, np.float32)
    t.kernel().run(x, out)
    np.testing.assert_array_equal(out, x.ravel())


def test_layouts_that_need_a_conversion_are_an_error():
    src, dst = blocked([1, 4], [4, 8], [4, 1], [1, 0]), blocked([2], [32], [4], [0])
    t = Text(ptr("x", "f32"), ptr("o", "f32"))
    r = t("tt.reshape", t.load("%x", "f32", [16, 32], src), tensor([16, 32], "f32", src), tensor([512], "f32", dst), "allow_reorder = false")
    t.store("%o", r, "f32", [512], dst)
    with pytest.raises(InternalCompilerError, match="tt.reshape: the layouts of .* a ttg.convert_layout is missing"):
        t.kernel()


# ------------------------------------------------------------------------------------------------- control flow
def test_loop_with_tensors_and_scalars():
    v = tensor([N], "f32", E)
    t = Text(ptr("x", "f32"), ptr("o", "f32"), "%n: i32", "%step: i32")
    x = t.load("%x", "f32", [N], E)
    zero = t.constant("0", "i32")
    t.lines.append(f"""%l:2 = scf.for %i = {zero} to %n step %step iter_args(%a = {x}, %s = {zero}) -> ({v}, i32) : i32 {{
      %d = arith.addf %a, {x} : {v}
      %u = arith.addi %s, %i : i32
      scf.yield %d, %u : {v}, i32
    }}
    %f = arith.sitofp %l#1 : i32 to f32
    %b = "tt.splat"(%f) : (f32) -> {v}
    %r = arith.addf %l#0, %b : {v}""")
    t.store("%o", "%r", "f32", [N], E)
    kernel = t.kernel()
    x = np.arange(N, dtype=np.float32)
    for n, step in ((0, 1), (1, 1), (7, 2), (-3, 1)):
        out = np.full(N, np.nan, np.float32)
        kernel.run(x, out, n, step)
        turns = list(range(0, n, step))
        np.testing.assert_array_equal(out, x * (1 + len(turns)) + sum(turns))


def test_branches():
    v = tensor([N], "f32", E)
    t = Text(ptr("x", "f32"), ptr("o", "f32"), "%n: i32")
    x = t.load("%x", "f32", [N], E)
    t.lines.append(f"""%z = arith.constant 0 : i32
    %c = arith.cmpi sgt, %n, %z : i32
    %r:2 = scf.if %c -> ({v}, i32) {{
      %y = arith.addf {x}, {x} : {v}
      %c2 = arith.cmpi sgt, %n, %z : i32
      %w = scf.if %c2 -> ({v}) {{ scf.yield %y : {v} }} else {{ scf.yield {x} : {v} }}
      scf.yield %w, %n : {v}, i32
    }} else {{
      scf.yield {x}, %z : {v}, i32
    }}
    %f = arith.sitofp %r#1 : i32 to f32
    %b = "tt.splat"(%f) : (f32) -> {v}
    %s = arith.addf %r#0, %b : {v}
    scf.if %c {{""")
    t.store("%o", "%s", "f32", [N], E)
    t.lines.append("}")
    kernel = t.kernel()
    x = np.arange(N, dtype=np.float32)
    for n in (3, 0):
        out = np.full(N, -1, np.float32)
        kernel.run(x, out, n)
        np.testing.assert_array_equal(out, 2 * x + n if n > 0 else np.full(N, -1))


def test_while():
    """Collatz steps: the condition region passes values on."""
    t = Text(ptr("o", "i32"), "%n: i32")
    t.lines.append("""%one = arith.constant 1 : i32
    %two = arith.constant 2 : i32
    %three = arith.constant 3 : i32
    %z = arith.constant 0 : i32
    %w:2 = scf.while (%a = %n, %k = %z) : (i32, i32) -> (i32, i32) {
      %c = arith.cmpi ne, %a, %one : i32
      scf.condition(%c) %a, %k : i32, i32
    } do {
    ^bb0(%a: i32, %k: i32):
      %odd = arith.andi %a, %one : i32
      %is = arith.cmpi eq, %odd, %one : i32
      %half = arith.divsi %a, %two : i32
      %m = arith.muli %a, %three : i32
      %p = arith.addi %m, %one : i32
      %next = arith.select %is, %p, %half : i32
      %k1 = arith.addi %k, %one : i32
      scf.yield %next, %k1 : i32, i32
    }
    "tt.store"(%o, %w#1) {cache = "none", evict = "normal", operandSegmentSizes = array<i32: 1, 1, 0>} : (!tt.ptr<i32, 1 : i32>, i32) -> ()""")
    kernel = t.kernel()
    for n, steps in ((1, 0), (6, 8), (27, 111)):
        out = np.full(1, -1, I32)
        kernel.run(out, n)
        assert out[0] == steps


def test_program_ids_and_pointer_arithmetic():
    t = Text(ptr("o", "i32"))
    t.lines.append("""%p0 = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
    %p1 = "tt.get_program_id"() {axis = 1 : i32} : () -> i32
    %n0 = "tt.get_num_programs"() {axis = 0 : i32} : () -> i32
    %r = arith.muli %p1, %n0 : i32
    %i = arith.addi %r, %p0 : i32
    %w = arith.extsi %i : i32 to i64
    %q = "tt.addptr"(%o, %w) : (!tt.ptr<i32, 1 : i32>, i64) -> !tt.ptr<i32, 1 : i32>
    %m = arith.constant -1 : i32
    %q1 = "tt.addptr"(%q, %m) : (!tt.ptr<i32, 1 : i32>, i32) -> !tt.ptr<i32, 1 : i32>
    %one = arith.constant 1 : i32
    %q2 = "tt.addptr"(%q1, %one) : (!tt.ptr<i32, 1 : i32>, i32) -> !tt.ptr<i32, 1 : i32>
    %a = "tt.ptr_to_int"(%q2) : (!tt.ptr<i32, 1 : i32>) -> i64
    %q3 = "tt.int_to_ptr"(%a) : (i64) -> !tt.ptr<i32, 1 : i32>
    "tt.store"(%q3, %i) {cache = "none", evict = "normal", operandSegmentSizes = array<i32: 1, 1, 0>} : (!tt.ptr<i32, 1 : i32>, i32) -> ()""")
    out = np.full(12, -1, I32)
    t.kernel().run(out, grid=(4, 3))
    np.testing.assert_array_equal(out, np.arange(12))


# --------------------------------------------------------------------------------------- the rest
def test_inline_assembly_packs_small_elements():
    t = Text(ptr("x", "i8"), ptr("o", "i8"))
    v = tensor([N], "i8", E)
    r = t("tt.elementwise_inline_asm", t.load("%x", "i8", [N], E), v, v,
          'asm_string = "op $0, $1;", constraints = "=r,r", pure = true, packed = 4 : i32, '
          'operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>')
    t.store("%o", r, "i8", [N], E)
    text = t.kernel().text()
    assert re.findall(r"llvm\.inline_asm.*", text) and all("(i32) -> i32" in line for line in re.findall(r"llvm\.inline_asm.*", text))
    assert "has_side_effects" not in text


def test_inline_assembly_of_more_elements_than_a_thread_has():
    t = Text(ptr("x", "i8"), ptr("o", "i8"))
    v = tensor([N], "i8", E)
    t("tt.elementwise_inline_asm", t.load("%x", "i8", [N], E), v, v,
      'asm_string = "op $0, $1;", constraints = "=r,=r,r,r", pure = true, packed = 8 : i32, '
      'operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>')
    text = t.kernel().text()
    assert text.count("op $0, $1;") == 1  # the thread's four, and four that nobody asks for


def _asserting():
    t = Text(ptr("x", "i32"))
    v = tensor([N], "i32", E)
    c = t("arith.cmpi", f"{t.load('%x', 'i32', [N], E)}, {t.constant('0', v)}", f"{v}, {v}", tensor([N], "i1", E), "predicate = 5 : i64")
    t("tt.assert", c, tensor([N], "i1", E), None, 'message = "not negative"')
    return t


def test_assertions_are_the_hooks(monkeypatch):
    said = []
    monkeypatch.setattr(Hooks, "assert_failed", lambda self, b, message: (said.append(message), b.op("llvm.intr.trap")))
    text = _asserting().kernel().text()
    assert "llvm.intr.trap" in text.split("llvm.cond_br")[-1] and said == ["not negative"]


def test_asserting_without_a_hook_is_refused():
    """A trap would end the process of a target that runs in it, as every target's without a device does."""
    with pytest.raises(UnsupportedOnTargetError, match="the class Hooks, do not define assert_failed"):
        _asserting().kernel()


@pytest.mark.parametrize("num_warps, warp_size", [(1, 1), (4, 32)])
def test_a_print_of_no_value_is_by_the_first_thread(monkeypatch, num_warps, warp_size):
    """Which needs no branch where there is one thread: that was a mistake of the compiler."""
    monkeypatch.setattr(Hooks, "print_values", lambda self, b, text, hex, printed: b.op("llvm.intr.trap"))
    t = Text("%n: i32")
    t("tt.print", "", "", None, 'prefix = "here", hex = false, is_signed = array<i32>, operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0>')
    text = t.kernel(num_warps, warp_size).text()
    assert "llvm.intr.trap" in text and ("llvm.cond_br" in text) == (num_warps > 1)


def test_printing_without_a_hook_is_refused():
    t = Text("%n: i32")
    t("tt.print", "%n", "i32", None, 'prefix = "n", hex = false, is_signed = array<i32: 1>, '
      "operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>")
    with pytest.raises(UnsupportedOnTargetError, match="device_print is not supported on this target"):
        t.kernel()


@pytest.mark.parametrize("element, as_hex", [("bf16", "false"), ("f16", "false"), ("f8E5M2", "false"), ("f32", "true")])
def test_floats_that_would_be_misprinted_are_refused(element, as_hex):
    t = Text(f"%n: {element}")
    t("tt.print", "%n", element, None, f'prefix = "n", hex = {as_hex}, is_signed = array<i32: 0>, '
      "operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>")
    with pytest.raises(TypeMismatchError, match=f"found {element}"):
        t.kernel()


def test_repeated_work_is_done_once():
    """A broadcast's copies and splats are computed once, not once a register."""
    shape, encoding = [16, 128], blocked([1, 8], [2, 16], [4, 1], [1, 0])
    row = slice_of(0, encoding)
    t = Text(ptr("x", "f32"), ptr("o", "f32"))
    x = t.load("%x", "f32", [128], row)
    one = tensor([1, 128], "f32", encoding)
    x = t("tt.expand_dims", x, tensor([128], "f32", row), one, "axis = 0 : i32")
    full = tensor(shape, "f32", encoding)
    x = t("tt.broadcast", x, one, full)
    t.store("%o", t("math.exp", x, full, full), "f32", shape, encoding)
    text = t.kernel().text()
    assert text.count("llvm.intr.rint") == 8  # eight columns a thread, whatever the rows
