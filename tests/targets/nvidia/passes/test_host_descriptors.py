"""host_descriptors: which descriptors become kernel arguments, why others do not, and that what is computed stays, by numpy."""

import attention_descriptors
import numpy as np
import pytest
from descriptor_oracle import Compiled, operations
from tt_execution import define

from tilewright.dialects import tt
from tilewright.dialects.context import mlir_context
from tilewright.dialects.passes import canonicalize_tt, dce_cse, rewrite_tensor_descriptors
from tilewright.targets.nvidia.passes import host_descriptors, promote_to_descriptors

PIPELINE = (host_descriptors, rewrite_tensor_descriptors, canonicalize_tt, dce_cse, promote_to_descriptors, host_descriptors)
BLOCKS = dict(BM=16, BN=16, BK=16)


def values(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


def compiled(source, passes=PIPELINE, m=40, n=24, k=48, blocks=BLOCKS, **more):
    kernel = define(source)
    args = dict(a_ptr=values(m, k), b_ptr=values(n, k, seed=1), c_ptr=np.zeros((m, n), np.float16), M=m, N=n, K=k, **more)
    args = {name: v for name, v in args.items() if name in kernel.arg_names}
    return Compiled(kernel, args, {name: v for name, v in blocks.items() if name in kernel.arg_names}, passes)


HEAD = """
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, {more}BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
"""
MAKE = """
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
"""
TILES = """
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * tl.cdiv(N, BN), tl.num_programs(0)):
        i = tile // tl.cdiv(N, BN) * BM
        j = tile % tl.cdiv(N, BN) * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a.load([i, k]), b.load([j, k]).T, acc)
        c.store([i, j], acc.to(tl.float16))
"""
MATMUL = HEAD.format(more="") + MAKE + TILES


def left(c):
    return len(operations(c.after, "tt.make_tensor_descriptor"))


def arguments(c):
    """Shapes of the blocks of the kernel's descriptor arguments, which are its last."""
    with mlir_context():
        types = [a.type for a in c.after.body.operations[0].regions[0].blocks[0].arguments]
        kinds = [tt.is_descriptor(t) for t in types]
        assert kinds == sorted(kinds)
        return [tt.TensorDescType(t).shape for t, k in zip(types, kinds) if k]


@pytest.mark.parametrize("m, n, k", [(40, 24, 48), (16, 16, 16), (17, 40, 24), (5, 8, 8)])
def test_persistent_matmul(m, n, k):
    c = compiled(MATMUL, m=m, n=n, k=k)
    assert left(c) == 0 and arguments(c) == c.boxes() == [[16, 16]] * 3
    assert [ch["chosen"] for ch in c.choices] == ["tma"] * 3
    c.check((3,))


def test_made_where_it_is_used():
    """In loops and branches too, and equal ones once."""
    source = HEAD.format(more="") + TILES.replace("a.load", "tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK]).load") \
        .replace("        c.store", "        if tile >= 0:\n            c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])\n            c.store") \
        .replace("        for k", "        b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])\n        for k")
    c = compiled(source)
    assert left(c) == 0 and len(arguments(c)) == 3
    c.check((2,))
    twice = compiled(MATMUL.replace("b.load", "tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK]).load"))
    assert len(arguments(twice)) == 3


def test_recipe():
    source = MATMUL.replace("(a_ptr, [M, K], [K, 1]", "(a_ptr + M * K // 2 * 0 + 8 * K, [tl.minimum(M - 8, 24), K], [K * 1, 1]")
    c = compiled(source, k=64)
    recipe = c.host["descriptors"][0]
    assert (recipe["dtype"], recipe["itemsize"], recipe["box"], recipe["padding"]) == ("fp16", 2, [16, 16], "zero")
    tensor_map = c.answer((2,)).maps[0]
    a = c.args[0]
    assert tensor_map.base == a.__array_interface__["data"][0] + 8 * 64 * 2
    assert (tuple(tensor_map.shape), tuple(tensor_map.strides)) == ((24, 64), (64, 1))
    c.check((2,))


def test_padding_and_element_types():
    source = """
@triton.jit
def kernel(x_ptr, y_ptr, M, N, B: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [B, B], padding_option="nan")
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [B, B])
    y.store([3, 0], x.load([0, 0]))
"""
    x = np.ones((8, 8), np.float32)
    c = Compiled(define(source), dict(x_ptr=x, y_ptr=x * 2, M=8, N=8), dict(B=16), PIPELINE)
    assert [(d["padding"], d["dtype"]) for d in c.host["descriptors"]] == [("nan", "fp32"), ("zero", "fp32")]


def test_atomics_are_kept_apart_from_stores():
    reduce = MATMUL.replace("c.store", "c.atomic_add")
    assert len(arguments(compiled(reduce))) == 3
    both = compiled(reduce + "        c.store([i, j], acc.to(tl.float16))\n", passes=(host_descriptors,))
    assert len(arguments(both)) == 2 and "in different ways" in both.choices[0]["why"]


@pytest.mark.parametrize("what, source, arguments_left, words", [
    ("a base from memory", MATMUL.replace("(a_ptr, [", "(tl.load(b_ptr.to(tl.pointer_type(tl.int64))).to(tl.pointer_type(tl.float16)), ["), 2, "is not affine"),
    ("a base that a program id moves", MATMUL.replace("(a_ptr, [", "(a_ptr + tl.program_id(0) * 8, ["), 2, "change between programs"),
    ("a shape from memory", MATMUL.replace("[M, K]", "[tl.load(b_ptr).to(tl.int32), K]"), 2, "change between programs, or are not known"),
    ("a stride that a program id changes", MATMUL.replace("[M, K], [K, 1]", "[M, K], [K * (1 + tl.program_id(1)), 1]"), 2, "change between programs"),
    ("an unaligned stride", MATMUL.replace("[M, K], [K, 1]", "[M, K], [12, 1]"), 2, "a stride is 24 bytes"),
    ("reads and writes", MATMUL.replace("acc.to", "(acc + c.load([i, j])).to"), 2, "both reads and writes"),
    ("writes through pointers too", MATMUL + "        tl.store(c_ptr, 0.0)\n", 2, "in different ways"),
    ("a store within 16 bytes", MATMUL.replace("[M, N], [N, 1]", "[M * N, N], [N, 1]").replace("c.store([i, j]", "c.store([i, 4]"), 2, "must begin at a multiple of 16 bytes"),
    ("a store below 0", MATMUL.replace("c.store([i, j]", "c.store([i, -8]"), 2, "stores below 0"),
    ("a store that begins at what is loaded", MATMUL.replace("c.store([i, j]", "c.store([i, j + tl.load(b_ptr).to(tl.int32)]"), 2, "the device alone knows"),
    ("a load that begins at what is not followed", MATMUL.replace("a.load([i, k]", "a.load([i, k ^ M]"), 2, "the device alone knows"),
    ("a load that begins at what a loop changes", MATMUL.replace("        acc = tl.zeros", "        q = 0\n        acc = tl.zeros").replace("a.load([i, k])", "a.load([i, q])").replace(
        "        c.store", "            q = tl.where(q == M, 8, q + 2)\n        c.store"), 2, "the device alone knows"),
    ("rows that end within 16 bytes", MATMUL.replace("[M, N], [N, 1]", "[M * N, 20], [N, 1]"), 2, "must end at a multiple of 16 bytes"),
    ("writes through anything", MATMUL + "        tl.store(tl.load(b_ptr.to(tl.pointer_type(tl.int64))).to(tl.pointer_type(tl.float16)), 0.0)\n", 0,
     "derived from no argument"),
])
def test_kept_from_the_host(what, source, arguments_left, words):
    c = compiled(source, passes=(host_descriptors,))
    assert len(arguments(c)) == arguments_left and left(c) == 3 - arguments_left
    assert any(words in ch["why"] for ch in c.choices if ch["chosen"] == "pointer"), c.choices
    assert {g["why"].split(":")[0] for g in c.host["guards"]} <= {d["name"] for d in c.host["descriptors"]}, "guards of what is not done"


def test_coordinates_of_the_device_in_whole_units():
    """Whole blocks, counted by what the host does not follow, and what the kernel says is a multiple of 16."""
    source = MATMUL.replace("        acc = tl.zeros", "        q = 0\n        acc = tl.zeros").replace("a.load([i, k])", "a.load([i, q * BK])").replace(
        "        c.store([i, j]", "            q = tl.where(q == 2, 0, q + 1)\n        c.store([i + tl.load(b_ptr).to(tl.int32), tl.multiple_of(j ^ M, 16)]")
    assert len(arguments(compiled(source, passes=(host_descriptors,)))) == 3


def test_gather_stays():
    source = """
@triton.jit
def kernel(x_ptr, y_ptr, M, N, B: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [1, B])
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [B, B])
    y.store([0, 0], x.gather(tl.arange(0, B), 0))
"""
    x = values(16, 16)
    c = Compiled(define(source), dict(x_ptr=x, y_ptr=x * 0, M=16, N=16), dict(B=16), (host_descriptors,))
    assert left(c) == 1 and len(arguments(c)) == 1 and "tt.descriptor_gather" in c.choices[0]["why"]


def test_a_base_that_a_program_id_moves_is_promoted_as_pointers_are():
    """Rewritten to pointers first: the head is a dim of the tensor then."""
    source = """
@triton.jit
def kernel(q_ptr, o_ptr, stride_h, stride_m, N, BM: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1)
    q = tl.make_tensor_descriptor(q_ptr + head.to(tl.int64) * stride_h, [N, D], [stride_m, 1], [BM, D])
    o = tl.make_tensor_descriptor(o_ptr + head.to(tl.int64) * stride_h, [N, D], [stride_m, 1], [BM, D])
    x = q.load([tl.program_id(0) * BM, 0])
    y = q.load([tl.program_id(0) * BM - 3, 0])
    o.store([tl.program_id(0) * BM, 0], tl.dot(x, tl.trans(y)).to(tl.float16))
"""
    q, o = values(3, 40, 16), np.zeros((3, 40, 16), np.float16)
    c = Compiled(define(source), dict(q_ptr=q, o_ptr=o, stride_h=640, stride_m=16, N=40), dict(BM=16, D=16), PIPELINE)
    assert c.boxes() == [[1, 16, 16]] * 2 and "tt.ptr" not in c.text[c.text.index("{\n    "):], c.choices
    c.check((3, 3))


def test_guards_of_overlapping_memory():
    c = compiled(MATMUL)
    assert not c.answer((2,)).reasons
    a, b, out, *rest = c.args
    shared = [out.reshape(-1)[:1], b, out, *rest]
    assert c.answer((2,), shared).reasons
    # two tensors that are only read may overlap
    assert not c.answer((2,), [a, a, out, *rest]).reasons


def test_guard_of_what_does_not_fit_32_bits():
    source = HEAD.format(more="L, ") + MAKE.replace("[M, K]", "[M * L, K]") + TILES
    c = compiled(source, L=3)
    values_ = dict(zip(c.names, c.args))
    assert not c.answer((2,)).reasons
    values_["L"] = 2**30
    assert any("32-bit arithmetic must not wrap" in r for r in c.answer((2,), [values_[n] for n in c.names]).reasons)


@pytest.mark.parametrize("causal", [False, True])
def test_example_attention_with_descriptors(causal):
    """Blocks of one head: the reshapes around loads and stores become part of them."""
    heads, n_ctx, dim = 2, 40, 16
    q, k, v, o = (np.random.default_rng(i).standard_normal((heads, n_ctx, dim)).astype(np.float16) for i in range(4))
    args = dict(q_in=q, k_in=k, v_in=v, o_in=o, heads=heads, n_ctx=n_ctx, qk_scale=0.3)
    c = Compiled(attention_descriptors.attention_descriptors_kernel, args,
                 dict(HEAD_DIM=dim, BLOCK_M=16, BLOCK_N=16, CAUSAL=causal, WARP_SPECIALIZE=False, PRECISION="ieee"), PIPELINE)
    assert arguments(c) == [[1, 16, 16]] * 4 and "tt.reshape" not in c.text
    c.check((3, heads))


def test_reshapes_that_do_more_stay():
    source = """
@triton.jit
def kernel(x_ptr, y_ptr, M, N, B: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [1, B * B])
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [1, B * B])
    a = x.load([1, 0])
    y.store([0, 0], tl.reshape(tl.trans(tl.reshape(a, [B, B])), [1, B * B]))
    y.store([1, 0], tl.reshape(tl.reshape(a, [B * B]), [1, B * B]) + a)
"""
    x = values(16, 64)
    c = Compiled(define(source), dict(x_ptr=x, y_ptr=x * 0, M=16, N=64), dict(B=8), PIPELINE)
    assert len(arguments(c)) == 2
    c.check((1,))
