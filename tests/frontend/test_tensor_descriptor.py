"""Tensor descriptors in the frontend: arguments and their specialisation, the IR that is made, and what stays of a launch."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tt_execution import compile_tt, define, text_of

import tilewright as triton
import tilewright.language as tl
from tilewright.cli import parse_signature
from tilewright.compiler.compiled import flat_types
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import ArgumentError, TypeMismatchError, UnsupportedOnTargetError
from tilewright.language.dtypes import str_to_ty
from tilewright.runtime.explain import run_time_names
from tilewright.runtime.interpreter import InterpretedFunction
from tilewright.runtime.jit import MockTensor
from tilewright.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def double(x, y, BLOCK: tl.constexpr = 0):
    for row in range(0, x.shape[0], x.block_shape[0]):
        for column in range(0, x.shape[1], x.block_shape[1]):
            y.store([row, column], x.load([row, column]) * 2)


@triton.jit
def double_pair(pair, scale, k: tl.constexpr):
    x, y = pair
    y.store([0, 0], x.load([0, 0]) * scale * k)


@triton.jit
def three_sizes(p, q, n, u, w):
    i = tl.arange(0, 4)
    tl.store(q + i, tl.make_tensor_descriptor(p, [n], [1], [4]).load([2]))
    tl.store(q + 4 + i, tl.make_tensor_descriptor(p, [u], [1], [4]).load([2]))
    tl.store(q + 8 + i, tl.make_tensor_descriptor(p, [w], [1], [4]).load([2]))


@pytest.fixture
def cpu(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    for kernel in (double, double_pair):
        kernel._entries.clear()
        kernel._kernels.clear()


def aligned(shape, dtype=np.float32, fill=None):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    out = raw[start:start + size].view(dtype).reshape(shape)
    out[...] = np.arange(out.size).reshape(shape) % 100 if fill is None else fill
    return out


def test_signatures():
    for text, element, shape, padding in (("tensordesc<fp16[128,64]>", tl.float16, (128, 64), "zero"), ("tensordesc<u8[1,16]>", tl.uint8, (1, 16), "zero"),
                                          ("tensordesc<bf16[8, 8, 64] nan>", tl.bfloat16, (8, 8, 64), "nan")):
        t = str_to_ty(text)
        assert (t.element_ty, t.block_shape, t.padding) == (element, shape, padding)
        assert str_to_ty(t.signature_name) == t and t == tl.tensor_descriptor_type(tl.block_type(element, shape), padding)
    assert str_to_ty("tensordesc<fp16[128,64]>") != str_to_ty("tensordesc<fp16[128,64] nan>")
    assert flat_types(["*fp32", "tensordesc<u16[8,64]>", "constexpr", ("i32", "tensordesc<fp32[8]>")]) == [
        "*fp32", "*u16", "i32", "i32", "i64", "i32", "*fp32", "i32"]
    for wrong in ("tensordesc<fp16>", "tensordesc<fp16[128,64>", "tensordesc<fp16[8] one>"):
        with pytest.raises(TypeMismatchError, match="descriptors are written"):
            str_to_ty(wrong)


def test_names_of_the_parts():
    signature = {"x": "*fp32", "d": "tensordesc<fp16[1,8,64]>", "C": "constexpr", "t": ("i32", "tensordesc<fp32[8]>")}
    names = run_time_names(signature)
    assert names == ["x", "d", "d.shape[0]", "d.shape[1]", "d.shape[2]", "d.strides[0]", "d.strides[1]", "t[0]", "t[1]", "t[1].shape[0]"]
    assert len(names) == len(flat_types(list(signature.values())))


def test_the_command_line_takes_descriptors():
    signature, constants, attrs = parse_signature(double, "tensordesc<fp16[8,64] nan>:16, tensordesc<fp32[8,64]>, 16")
    assert signature == {"x": "tensordesc<fp16[8,64] nan>", "y": "tensordesc<fp32[8,64]>"} and attrs == {(0,): [["tt.divisibility", 16]]}
    assert constants == {"BLOCK": 16}


def test_an_argument_is_made_at_the_top_from_its_parts():
    text = text_of(double, {"x": "tensordesc<fp16[8,64] nan>", "y": "tensordesc<fp32[8,64]>"}, attrs={"x": [["tt.divisibility", 16]]})
    header = re.search(r"func.func .*", text).group()
    arguments = [a.strip() for a in re.findall(r"%arg\d+: ([^%]*?)(?:, (?=%arg)|\) attributes)", header)]
    pointer, i32, i64 = "!tt.ptr<{}, 1 : i32> {{tt.divisibility = 16 : i32}}", "i32", "i64 {{tt.divisibility = {} : i32}}"
    assert arguments == [pointer.format("f16"), i32, "i32 {tt.divisibility = 16 : i32}", i64.format(8), pointer.format("f32"), i32, i32, i64.format(4)]
    made = [line for line in text.splitlines() if '"tt.make_tensor_descriptor"' in line]
    assert len(made) == 2 and 'padding = "nan"' in made[0] and 'padding = "zero"' in made[1]
    assert re.search(r"\(%arg0, %arg1, %arg2, %arg3, %c1_i64\w*\)", made[0]) and "array<i64: 8, 64>, f16" in made[0]
    assert text.index(made[1]) < text.index("scf.for")


def test_a_descriptor_is_made_once_where_nothing_changes_it():
    kernel = define("""
        @triton.jit
        def kernel(p, n):
            d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [8, 8])
            for i in range(n):
                if i > 3:
                    d.store([i, 0], d.load([0, i]))
        """)
    assert text_of(kernel, {"p": "*fp32", "n": "i32"}).count('"tt.make_tensor_descriptor"') == 1


def test_large_sizes_become_the_greatest_int32(cpu):
    p = aligned(16)
    for run in (InterpretedFunction(three_sizes), three_sizes):
        q = aligned(12, fill=np.nan)
        run[(1,)](p, q, 2**33 + 3, 2**63 + 3, 5)
        np.testing.assert_array_equal(q, [2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4, 0])


def test_launch_and_specialisation(cpu):
    entries = []
    for shape in ((24, 40), (9, 20), (1, 72)):  # the last size is no multiple of 16: one code, and no new entry once it was launched again
        a, b = aligned(shape), aligned(shape, fill=np.nan)
        double[(1,)](TensorDescriptor.from_tensor(a, [8, 16]), TensorDescriptor.from_tensor(b, [8, 16]))
        np.testing.assert_array_equal(b, a * 2)
        entries.append(len(double._entries))
    assert len(double._kernels) == 1 and entries[1] == entries[2]
    for count, (shape, dtype, block, padding) in enumerate((
            ((24, 48), np.float32, [8, 16], "zero"), ((24, 40), np.float32, [8, 32], "zero"), ((24, 40), np.float32, [8, 16], "nan"),
            ((24, 40), np.float16, [8, 16], "zero")), 2):
        a, b = aligned(shape, dtype), aligned(shape, dtype, fill=np.nan)
        double[(1,)](TensorDescriptor.from_tensor(a, block, padding), TensorDescriptor.from_tensor(b, block, padding))
        np.testing.assert_array_equal(b, a * 2)
        assert len(double._kernels) == count


def test_fields_may_be_assigned(cpu):
    a, b = aligned((24, 40)), aligned((24, 40), fill=np.nan)
    x, y = TensorDescriptor.from_tensor(a, [1, 4]), TensorDescriptor.from_tensor(b, [1, 4])
    for block in ([8, 16], [16, 64]):
        x.block_shape = y.block_shape = block
        b[...] = np.nan
        kernel = double[(1,)](x, y)
        np.testing.assert_array_equal(b, a * 2)
        assert kernel.types[0] == f"tensordesc<fp32[{block[0]},{block[1]}]>"
    x.base, x.shape, x.strides = aligned((8, 20)), [8, 20], [20, 1]
    y.base, y.shape, y.strides = (c := aligned((8, 20), fill=np.nan)), [8, 20], [20, 1]
    double[(1,)](x, y)
    np.testing.assert_array_equal(c, x.base * 2)


@pytest.mark.parametrize("field, value, message", [
    ("block_shape", [8, 12], "powers of two"), ("block_shape", [8], "one entry a dim"), ("block_shape", [8, 2], "at least 16 bytes"),
    ("strides", [41, 1], "multiples of 16 bytes"), ("strides", [40, 2], "last stride"), ("shape", [-1, 40], "0 to 2.31 - 1"),
    ("shape", [2**31, 40], "0 to 2.31 - 1"), ("shape", [24], "one entry a dim"), ("padding", "one", "padding is"),
    ("base", aligned(24 * 40 + 1)[1:], "multiple of 16 bytes"), ("base", object(), "no kernel argument|no data_ptr"),
])
def test_what_a_launch_checks(cpu, field, value, message):
    a, b = aligned((24, 40)), aligned((24, 40))
    x, y = TensorDescriptor.from_tensor(a, [8, 16]), TensorDescriptor.from_tensor(b, [8, 16])
    double[(1,)](x, y)
    setattr(y, field, value)
    with pytest.raises(ArgumentError, match=f"argument 'y' of double: .*({message})"):
        double[(1,)](x, y)
    with pytest.raises(ArgumentError, match=f"argument 'y'.*({message})"):
        InterpretedFunction(double)[(1,)](x, y)


def test_a_block_of_one_element_until_the_launch(cpu):
    """As programs that are tuned have: a pre_hook sets the block."""
    x, y = (TensorDescriptor.from_tensor(aligned((24, 40)), [1, 1]) for _ in range(2))
    with pytest.raises(ArgumentError, match="argument 'x' of double: a row of the block has at least 16 bytes; found 1 elements of 4 bytes"):
        double[(1,)](x, y)
    x.block_shape = y.block_shape = [8, 16]
    double[(1,)](x, y)
    np.testing.assert_array_equal(y.base[:8, :16], x.base[:8, :16] * 2)


def test_of_a_tensor_that_torch_traces_with():
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        d = TensorDescriptor.from_tensor(torch.empty(64, 64), [16, 16])
        with pytest.raises(ArgumentError, match="last stride"):
            TensorDescriptor.from_tensor(torch.empty(64, 64).t(), [16, 16])
    assert d.shape == [64, 64] and d.strides == [64, 1]


def test_in_a_tuple_and_through_the_compiled_kernel(cpu):
    a, b = aligned((8, 16)), aligned((8, 16), fill=np.nan)
    pair = (TensorDescriptor.from_tensor(a, [8, 16]), TensorDescriptor.from_tensor(b, [8, 16]))
    kernel = double_pair[(1,)](pair, 3, k=2)
    np.testing.assert_array_equal(b, a * 6)
    b[...] = np.nan
    kernel[(1,)](pair, 5, 2)
    np.testing.assert_array_equal(b, a * 10)
    b[...] = np.nan
    InterpretedFunction(double_pair)[(1,)](pair, 3, k=2)
    np.testing.assert_array_equal(b, a * 6)


def test_warmup_without_memory(cpu):
    d = TensorDescriptor(MockTensor("fp32", [64, 64]), [64, 64], [64, 1], [8, 16])
    assert "ttir" in double.warmup(d, d, grid=(1,)).asm


def test_torch_and_the_disk_cache(cpu):
    torch = pytest.importorskip("torch")
    a, b = torch.randn(24, 40, dtype=torch.bfloat16), torch.full((24, 40), float("nan"), dtype=torch.bfloat16)
    for _ in range(2):
        double[(1,)](TensorDescriptor.from_tensor(a, [8, 16]), TensorDescriptor.from_tensor(b, [8, 16]))
        assert torch.equal(b, a * 2)
        b.fill_(float("nan"))
        double._entries.clear()
        double._kernels.clear()
    with pytest.raises(ArgumentError, match="does not tell its strides"):
        TensorDescriptor.from_tensor(object(), [8, 16])


def test_autotuned(cpu):
    calls = []

    def set_block(nargs):
        nargs["x"].block_shape = nargs["y"].block_shape = [8, nargs["BLOCK"]]
        calls.append((nargs["BLOCK"], tuple(nargs["x"].block_shape)))

    tuned = triton.autotune([triton.Config({"BLOCK": b}, pre_hook=set_block) for b in (16, 32)], key=[], warmup=1, rep=1)(double)
    for dtype, count in ((np.float32, 1), (np.float16, 2)):
        a, b = aligned((24, 40), dtype), aligned((24, 40), dtype, fill=np.nan)
        tuned[(1,)](TensorDescriptor.from_tensor(a, [1, 8]), TensorDescriptor.from_tensor(b, [1, 8]))
        np.testing.assert_array_equal(b, a * 2)
        assert len(tuned.cache) == count
    assert {c[0] for c in calls} == {16, 32} and all(block[1] == wanted for wanted, block in calls)


def test_the_module_has_no_descriptor_after_the_pass():
    from tilewright.dialects.passes import rewrite_tensor_descriptors

    module = compile_tt(double, {"x": "tensordesc<fp16[8,64] nan>", "y": "tensordesc<fp32[8,64]>"})
    with mlir_context():
        rewrite_tensor_descriptors.run(module, None)
        assert module.operation.verify()
        names = {n.name for f in functions(module) for n in f.nodes()}
    assert not any("descriptor" in n for n in names) and {"tt.load", "tt.store"} <= names


@triton.jit
def largest(x, y):
    y.atomic_max([0], x.load([0]))


def test_what_pointers_cannot_do_is_said_with_the_line(cpu):
    a, b = aligned((40,), np.float16), aligned((40,), np.float16)
    x, y = (TensorDescriptor.from_tensor(t, [16]) for t in (a, b))
    with pytest.raises(UnsupportedOnTargetError, match=r"atomic_max of f16 through a tensor descriptor.*use fp32\n +y.atomic_max") as info:
        largest[(1,)](x, y)
    assert info.value.file == __file__
    b[...] = 7
    InterpretedFunction(largest)[(1,)](x, y)
    np.testing.assert_array_equal(b, np.concatenate([np.maximum(a[:16], 7), np.full(24, 7)]))
