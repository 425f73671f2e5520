"""Take any one pass out of a GPU's pipeline and something that this file names is lost.

The kernel is the matmul of the examples for sm_80, and for sm_90a with its warp-group products, from @jit to PTX, and run in the
simulator. A pass that is added to the pipeline needs an entry here: what would be lost without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import attention as example_of_attention
import matmul as example
import matmul_descriptors as example_of_descriptors
import numpy as np
import pytest
from crowded_kernel import crowded

import tilewright.language as tl
from tilewright import jit
from tilewright.compiler import ASTSource
from tilewright.compiler.compiler import load_target, pass_context
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import VariantNeeded
from tilewright.dialects.pass_runner import run_passes
from tilewright.dialects.pipeline import Pipeline
from tilewright.dialects.printer import print_module
from tilewright.targets import registry
from tilewright.targets.nvidia.simulate import simulate
from tilewright.targets.protocol import GPUTarget

M, N, K, BLOCK = 70, 80, 96, (64, 64, 32)


class Compiled:
    """What comes out of a pipeline: ``text`` after the ttgir stage, ``ttg`` (names of the ops in its loops), ``carried`` (values that the loop
    carries), ``ptx``, and the PTX's loop. Passes and translations run until one raises."""

    def __init__(self, pipeline: Callable[[Pipeline], Pipeline], element: str = "fp16", precision: str = "tf32",
                 arch: int = 80, **options: Any):
        self.pipeline = pipeline
        kernel = example.matmul_kernel
        signature = {f"{p}_ptr": f"*{element}" for p in "xwby"} | {n: "i32" for n in ("M", "N", "K", "stride_xm", "stride_wk", "stride_ym")}
        constants = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), BLOCK), GROUP_M=8, RELU=True, PRECISION=precision, stride_xk=1, stride_wn=1,
                         stride_yn=1)
        names = [n for n in kernel.arg_names if n in signature]
        divisible = {(kernel.arg_names.index(n),): [["tt.divisibility", 16]] for n in names if n != "M"}
        selection = registry.select(GPUTarget("cuda", arch, 32))
        self.options = selection.plugin.options(num_warps=4, num_stages=3, **options)
        stages = {s.name: s for s in pipeline(selection.plugin.pipeline(selection.arch, self.options)).stages}
        with mlir_context():
            load_target(selection.plugin)
            ctx = pass_context(selection, self.options, "matmul_kernel")
            self.module = ASTSource(kernel, signature, constants, divisible).make_module(selection, self.options)
            for name in ("ttir", "ttgir"):
                run_passes(self.module, stages[name].passes, ctx)
            (function,) = functions(self.module)
            self.ttg = [n.name for n in function.nodes() if n.depth and n.parent.name not in ("tt.reduce", "tt.scan")]
            self.text = print_module(self.module)
            self.carried = sum(len(n.results) for n in function.nodes() if n.name == "scf.for")
            self.shared = ctx.metadata.get("shared", 0)
            run_passes(self.module, stages["llir"].passes, ctx)
            llir = stages["llir"].translate(self.module, ctx)
            self.ptx = stages["ptx"].translate(llir, ctx)
            self.lines = ctx.metadata.get("lines", {"files": []})

    def run(self) -> float:
        """Relative error of a run in the simulator, which raises on races and on reads of what was not written."""
        rng = np.random.default_rng(0)
        x, w, b = (rng.standard_normal(s).astype(np.float16) for s in ((M, K), (K, N), (N,)))
        y = np.full((M, N), np.nan, np.float16)
        grid = (-(-M // BLOCK[0]) * -(-N // BLOCK[1]),)
        with mlir_context():
            simulate(self.module, "matmul_kernel", 4, self.shared, grid, (x, w, b, y, M, N, K, K, N, N))
        expected = example.reference(x, w, b)
        return float(np.linalg.norm(y - expected) / np.linalg.norm(expected))


def _writes_a_block(pipeline: Callable[[Pipeline], Pipeline]) -> bool:
    """Whether a kernel that stores through a descriptor compiles to PTX that stores."""
    kernel = example_of_descriptors.matmul_device_descriptors_kernel
    constants = dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP_M=8, NUM_PROGRAMS=1, RELU=True, FLATTEN=False, WARP_SPECIALIZE=False, PRECISION="tf32")
    signature = {n: "*fp16" if n.endswith("_ptr") else "i32" for n in kernel.arg_names if n not in constants}
    selection = registry.select(GPUTarget("cuda", 80, 32))
    options = selection.plugin.options()
    with mlir_context():
        load_target(selection.plugin)
        ctx = pass_context(selection, options, "matmul_device_descriptors_kernel")
        module = ASTSource(kernel, signature, constants).make_module(selection, options)
        code: Any = module
        for stage in pipeline(selection.plugin.pipeline(selection.arch, options)).stages[:4]:
            run_passes(module, stage.passes, ctx) if stage.passes else None
            code = stage.translate(code, ctx) if stage.translate else code
    return "st.global" in code


def _tt_of(kernel: Any, constants: dict[str, Any], pipeline: Callable[[Pipeline], Pipeline], arch: int = 80) -> str:
    """The text of a small kernel of one pointer after the ttir stage."""
    selection = registry.select(GPUTarget("cuda", arch, 32))
    options = selection.plugin.options()
    with mlir_context():
        load_target(selection.plugin)
        ctx = pass_context(selection, options, kernel.__name__)
        module = ASTSource(kernel, {"p": "*fp32"}, constants).make_module(selection, options)
        run_passes(module, pipeline(selection.plugin.pipeline(selection.arch, options)).stages[0].passes, ctx)
        return print_module(module)


@jit(noinline=True)
def doubled(x):
    return x * 2


@jit
def calling(p):
    tl.store(p, doubled(tl.load(p)))


@jit
def unrolled(p, F: tl.constexpr):
    for i in tl.range(0, 8, loop_unroll_factor=F):
        tl.store(p + i, i)


@jit
def running_sum(p):
    i = tl.arange(0, 64)
    top, total = tl.load(p + i), tl.load(p + 64 + i)
    x = tl.load(p + 128 + i)
    new = tl.maximum(top, x)
    tl.store(p + i, total * tl.exp2(top - new) + tl.exp2(x - new))


@jit
def scaled_product(p):
    i, k = tl.arange(0, 16), tl.arange(0, 32)
    x = tl.load(p + i[:, None] * 32 + k[None, :]).to(tl.float8e5)
    tl.store(p + i[:, None] * 16 + i[None, :], tl.dot_scaled(x, i[:, None].to(tl.uint8), "e5m2", tl.trans(x), None, "e5m2"))


def _asks_for_a_variant(pipeline: Callable[[Pipeline], Pipeline]) -> bool:
    """Whether a kernel with a call is to be compiled without what has to see all code in one function."""
    try:
        _tt_of(calling, {}, pipeline, 90)
    except VariantNeeded as needed:
        return needed.options == {"tma": False, "warp_group_dots": False}
    return False


def _attention(pipeline: Callable[[Pipeline], Pipeline], look: Callable[[Any], bool]) -> bool:
    """What ``look`` says of attention's ttg."""
    kernel = example_of_attention.attention_kernel
    constants = dict(HEAD_DIM=64, BLOCK_M=64, BLOCK_N=64, CAUSAL=False, PRECISION="tf32")
    signature = {n: "*fp16" if n.endswith("_ptr") else "fp32" if n == "qk_scale" else "i32" for n in kernel.arg_names if n not in constants}
    divisible = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(kernel.arg_names) if signature.get(n) in ("*fp16", "i32")}
    selection = registry.select(GPUTarget("cuda", 90, 32))
    options = selection.plugin.options()
    with mlir_context():
        load_target(selection.plugin)
        ctx = pass_context(selection, options, "attention_kernel")
        module = ASTSource(kernel, signature, constants, divisible).make_module(selection, options)
        for stage in pipeline(selection.plugin.pipeline(selection.arch, options)).stages[:2]:
            run_passes(module, stage.passes, ctx)
        (function,) = functions(module)
        return look(function)


def _loads_late(pipeline: Callable[[Pipeline], Pipeline]) -> bool:
    """Whether a kernel short of registers loads each vector after the product that it is combined with."""
    selection = registry.select(GPUTarget("cuda", 90, 32))
    options = selection.plugin.options(num_warps=8, num_stages=2)
    pointers = [n for n in crowded.arg_names if n.endswith("_ptr")]
    signature = {**{n: "*fp16" if n[0] in "qkvg" else "*fp32" for n in pointers}, "steps": "i32"}
    divisible = {(i,): [["tt.divisibility", 16]] for i in range(len(pointers))}
    with mlir_context():
        load_target(selection.plugin)
        ctx = pass_context(selection, options, "crowded")
        module = ASTSource(crowded, signature, {"M": 128, "N": 128, "D": 64}, divisible).make_module(selection, options)
        for stage in pipeline(selection.plugin.pipeline(selection.arch, options)).stages[:2]:
            run_passes(module, stage.passes, ctx)
        (function,) = functions(module)
        order = [n.name for n in function.nodes() if n.name in ("tt.load", "ttng.warp_group_dot") and n.depth > 1]
    return order[0] == "ttng.warp_group_dot"


def _loads_fit(pipeline: Callable[[Pipeline], Pipeline]) -> bool:
    """Whether a loop of products whose tiles' rows begin anywhere holds no tile of pointers."""
    kernel = example.matmul_kernel
    constants = dict(stride_xk=1, stride_wn=1, stride_yn=1, BLOCK_M=128, BLOCK_N=128, BLOCK_K=32, GROUP_M=8, RELU=True, PRECISION="tf32")
    signature = {n: "*fp16" if n.endswith("_ptr") else "i32" for n in kernel.arg_names if n not in constants}
    selection = registry.select(GPUTarget("cuda", 80, 32))
    options = selection.plugin.options()
    with mlir_context():
        load_target(selection.plugin)
        ctx = pass_context(selection, options, "matmul_kernel")
        module = ASTSource(kernel, signature, constants).make_module(selection, options)
        for stage in pipeline(selection.plugin.pipeline(selection.arch, options)).stages[:2]:
            run_passes(module, stage.passes, ctx)
        (function,) = functions(module)
        (loop,) = [n for n in function.nodes() if n.name == "scf.for"]
        return not any("tensor" in str(v.type) and "tt.ptr" in str(v.type) for v in loop.results)


def _runs_products_side_by_side(function: Any) -> bool:
    """Whether attention's second product is issued while the first one of the next block runs."""
    return any(n.name == "ttng.warp_group_dot_wait" and n.depth and n.int_attr("pendings") == 1 for n in function.nodes())


def _counts_once(function: Any) -> bool:
    """Whether the loops carry one stage and one phase, though they walk two rings."""
    return all([str(v.type) for v in n.results].count("i32") == 2 for n in function.nodes() if n.name == "scf.for" and n.depth)


def _fails(compiled: Any) -> bool:
    return isinstance(compiled, Exception)


# pass → (what is lost without it, whether it is there in what was compiled, or in the exception that came instead)
LOSSES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "rewrite_tensor_descriptors": ("tensor descriptors read and write memory", lambda c: _writes_a_block(c.pipeline)),
    "decompose_dot_scaled": ("microscaled products become products of bf16",
                             lambda c: all(t in _tt_of(scaled_product, {}, c.pipeline) for t in ('"tt.dot"', "tensor<16x32xbf16>"))),
    "canonicalize_tt": ("nothing is multiplied by the strides known to be 1", lambda c: "dense<1> : tensor" not in c.text),
    "unroll_loops": ("a loop takes as many iterations a round as it was asked to",
                     lambda c: _tt_of(unrolled, {"F": 4}, c.pipeline).count('"tt.store"') == 4),
    "dce_cse": ("the loop carries the accumulator, the two pointers ahead and the stage, nothing dead", lambda c: c.carried == 4),
    "share_exponentials": ("a running sum takes one exponential of two", lambda c: _tt_of(running_sum, {}, c.pipeline).count("math.exp2") == 1),
    "convert_tt_to_ttg": ("tensors have layouts, without which nothing can be lowered", lambda c: not _fails(c)),
    "coalesce": ("global memory is read 16 bytes at a time", lambda c: "cp.async.cg.shared.global" in c.ptx),
    "accelerate_dot": ("products are matrix instructions", lambda c: "mma.sync" in c.ptx),
    "remove_layout_conversions": ("no layout is converted in the loop", lambda c: "ttg.convert_layout" not in c.ttg),
    "optimize_dot_operands": ("operands are read from swizzled shared memory by ldmatrix", lambda c: "ldmatrix" in c.ptx),
    "fit_loads": ("addresses of narrow loads fit beside the accumulators", lambda c: _loads_fit(c.pipeline)),
    "pipeline_loops": ("copies are in flight while the loop multiplies",
                       lambda c: any(int(n) > 0 for n in re.findall(r"cp\.async\.wait_group (\d+)", c.ptx))),
    "slice_fma_dots": ("exact fp32 products hold a few k of their operands in registers at a time",
                       lambda c: Compiled(c.pipeline, "fp32", "ieee").ttg.count("tt.dot") > 1),
    "allocate_shared_memory": ("buffers have places in shared memory", lambda c: not _fails(c)),
    "insert_barriers": ("threads wait for each other's data", lambda c: c.run() < 1e-3),
    "note_lines": ("the simulator knows the kernel's lines", lambda c: any(f.endswith("matmul.py") for f in c.lines["files"])),
    "lower_to_llvm": ("LLVM IR", lambda c: not _fails(c)),
}


# of sm_90a, beside the passes above
WARP_GROUPS: dict[str, Any] = {"arch": 90, "warp_group_dots": True, "tma": False}
WARP_GROUP_LOSSES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "refuse_calls": ("kernels with calls are compiled as those of older archs", lambda c: _asks_for_a_variant(c.pipeline)),
    "use_warp_group_dots": ("products are wgmma", lambda c: "wgmma.mma_async" in c.ptx and "mma.sync" not in c.ptx),
    "schedule_warp_group_dots": ("a product runs on in the next iteration", lambda c: "wgmma.wait_group.sync.aligned 1" in c.ptx),
    "fence_async_proxy": ("products see what cp.async wrote", lambda c: c.run() < 1e-3),
}


# and of sm_90a as it is, beside those but what only products that read cp.async's tiles need
BULK_COPIES: dict[str, Any] = {"arch": 90}
BULK_COPY_LOSSES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "promote_to_descriptors": ("tiles are loaded by bulk copies", lambda c: "cp.async.bulk.tensor" in c.ptx),
    "host_descriptors": ("the launcher makes the tensor maps", lambda c: ".param .align 64 .b8" in c.ptx),
    "rotate_chained_dots": ("attention's two products run side by side", lambda c: _attention(c.pipeline, _runs_products_side_by_side)),
    "sink_arithmetic": ("addresses of the result are made after the products", lambda c: "%tid.x" in c.ptx.rsplit("wgmma.mma_async", 1)[1]),
    "make_persistent": ("a block runs one program after another", lambda c: "%nctaid.x" in c.ptx),
    "share_counters": ("K's and V's rings, in step, are counted once",
                       lambda c: _attention(lambda p: c.pipeline(p).remove("rotate_chained_dots"), _counts_once)),
    "load_late": ("vectors that do not fit beside the tiles are loaded after the product", lambda c: _loads_late(c.pipeline)),
    "warp_specialize": ("copies have warps of their own", lambda c: "setmaxnreg" in c.ptx),
}


def attempt(change: Callable[[Pipeline], Pipeline], **how: Any) -> Any:
    try:
        return Compiled(change, **how)
    except Exception as e:  # which error it is, is the business of other tests
        return e


def holds(check: Callable[[Any], bool], compiled: Any) -> bool:
    """False also where the question cannot be asked, since nothing was compiled, or the run fails."""
    try:
        return check(compiled)
    except Exception:
        return False


@pytest.fixture(scope="module")
def whole() -> Compiled:
    return Compiled(lambda p: p)


def test_every_pass_of_the_pipeline_is_listed():
    selection = registry.select(GPUTarget("cuda", 80, 32))
    pipeline = selection.plugin.pipeline(selection.arch, selection.plugin.options())
    assert {p.name for _, p in pipeline.passes()} == set(LOSSES)


@pytest.mark.parametrize("name", LOSSES)
def test_something_is_lost_without(name, whole, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")  # what is asked is what comes out
    what, check = LOSSES[name]
    assert check(whole), f"lost with every pass in place: {what}"
    assert not holds(check, attempt(lambda p: p.remove(name))), f"without {name} it still holds that {what}"


def test_the_whole_pipeline_is_right(whole):
    assert whole.run() < 1e-3


@pytest.fixture(scope="module")
def warp_groups() -> Compiled:
    return Compiled(lambda p: p, **WARP_GROUPS)


def test_every_pass_of_the_warp_groups_is_listed():
    selection = registry.select(GPUTarget("cuda", 90, 32))
    options = selection.plugin.options(**{k: v for k, v in WARP_GROUPS.items() if k != "arch"})
    assert {p.name for _, p in selection.plugin.pipeline(selection.arch, options).passes()} == set(LOSSES) | set(WARP_GROUP_LOSSES)


@pytest.mark.parametrize("name", WARP_GROUP_LOSSES)
def test_something_is_lost_of_warp_groups_without(name, warp_groups, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    what, check = WARP_GROUP_LOSSES[name]
    assert check(warp_groups), f"lost with every pass in place: {what}"
    assert not holds(check, attempt(lambda p: p.remove(name), **WARP_GROUPS)), f"without {name} it still holds that {what}"


@pytest.fixture(scope="module")
def bulk_copies() -> Compiled:
    return Compiled(lambda p: p, **BULK_COPIES)


def test_every_pass_with_bulk_copies_is_listed():
    selection = registry.select(GPUTarget("cuda", 90, 32))
    pipeline = selection.plugin.pipeline(selection.arch, selection.plugin.options())
    assert {p.name for _, p in pipeline.passes()} == set(LOSSES) | set(WARP_GROUP_LOSSES) | set(BULK_COPY_LOSSES)


@pytest.mark.parametrize("name", BULK_COPY_LOSSES)
def test_something_is_lost_of_bulk_copies_without(name, bulk_copies, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    what, check = BULK_COPY_LOSSES[name]
    assert check(bulk_copies), f"lost with every pass in place: {what}"
    assert not holds(check, attempt(lambda p: p.remove(name), **BULK_COPIES)), f"without {name} it still holds that {what}"
