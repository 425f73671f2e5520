"""What tools read of a kernel through the names of Triton's C++ module: torch.compile, which arguments it writes."""

from __future__ import annotations

import collections
import subprocess
import sys
import textwrap

import pytest
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright._C.libtriton import ir
from tilewright.compiler import ASTSource
from tilewright.compiler.compiler import make_backend
from tilewright.dialects.errors import UnsupportedLanguageConstruct
from tilewright.removed import RemovedNameError
from tilewright.runtime.jit import mangle_type, native_specialize_impl
from tilewright.targets.registry import parse


@triton.jit(noinline=True)
def put(p, v):
    tl.store(p, v)


@triton.jit
def kernel(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    s = 0.0
    for j in range(n):
        if j > 2:
            s += tl.sum(tl.load(x + i))
    tl.store(y + i, s)
    put(z, s)


@triton.jit
def scattering(x, n, BLOCK: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [n, 64], [64, 1], [1, BLOCK])
    d.scatter(tl.zeros((BLOCK, BLOCK), tl.float32), tl.arange(0, BLOCK), 0)


def view(fn, **signature):
    target = parse("cpu").gpu_target
    backend = make_backend(target)
    source = ASTSource(fn, {**signature, "BLOCK": "constexpr"}, {"BLOCK": 16})
    return source.make_ir(target, backend.parse_options({}), backend.get_codegen_implementation(), backend.get_module_map(), ir.context())


def test_ops_are_visited_after_those_in_them():
    module = view(kernel, x="*fp32", y="*fp32", z="*fp32", n="i32")
    assert module.verify() and "tt.store" in str(module) == module.str()
    seen, names = {}, []

    def visit(op):
        names.append(op.get_name())
        for i in range(op.get_num_operands()):
            assert op.get_operand(i).id() in seen or op.get_block().get_parent() is not None
        for i in range(op.get_num_results()):
            seen[op.get_result(i).id()] = op
        if op.get_name() == "tt.func":
            block = op.get_region(0).blocks[0]
            seen[op.get_str_attr("sym_name")] = block.get_num_arguments()
            assert op.get_num_regions() == 1 and block.get_parent().id() == op.get_region(0).id()
        if op.get_name() == "tt.call":
            assert op.get_flat_symbol_ref_attr("callee").startswith("put") and op.get_int_attr("callee") is None and op.get_bool_attr("pure") is None

    module.walk(visit)
    count = collections.Counter(names)
    assert names[-1] == "builtin.module" and count["tt.func"] == 2 and count["tt.call"] == 1 and count["tt.store"] == 2 and count["tt.return"] == 2
    assert names.index("scf.if") < names.index("scf.for") < names.index("tt.func") and names.index("tt.reduce.return") < names.index("tt.reduce")
    assert list(v for k, v in seen.items() if isinstance(k, str))[0] == 4  # the kernel first


def test_what_readers_would_get_wrong_is_refused():
    with pytest.raises(UnsupportedLanguageConstruct, match="scatter"):
        view(scattering, x="*fp32", n="i32")
    with pytest.raises(UnsupportedLanguageConstruct, match="the parameters x are descriptors or tuples"):
        view(kernel, x="tensordesc<fp32[16]>", y="*fp32", z="*fp32", n="i32")
    with pytest.raises(RemovedNameError):
        from tilewright._C.libtriton import passes  # noqa: F401


def test_types_of_arguments():
    aligned = torch.zeros(64, dtype=torch.uint8)
    aligned = aligned[-aligned.data_ptr() % 16:]
    for arg, plain, found in ((2, "i32", ("i32", "")), (1, "i32", ("constexpr", 1)), (16, "i32", ("i32", "D")), (1 << 40, "i64", ("i64", "D")), (1.5, "fp32", ("fp32", "")),
                              (True, "i1", ("i1", "")), (None, "constexpr", ("constexpr", None)), (aligned[:4], "*u8", ("*u8", "D")), (aligned[1:4], "*u8", ("*u8", ""))):
        assert mangle_type(arg) == plain and native_specialize_impl(None, arg, False, True, True) == found
    assert native_specialize_impl(None, aligned, True, True, False) == ("*ku8", "") and mangle_type(1, True) == "constexpr"


SCRIPT = """
    import tilewright
    tilewright.install_as_triton()
    import logging
    import torch
    import triton
    import triton.language as tl
    import torch._inductor.config as config
    from torch._higher_order_ops import triton_kernel_wrap

    config.compile_threads, config.cpu_backend, config.fx_graph_cache = 1, "triton", False
    warned = []
    triton_kernel_wrap.log.warning = lambda *args, **_: warned.append(args)

    @triton.jit
    def combine(x, y, both, total, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        p = both + i
        for j in range(2):
            if j == 0:
                tl.store(p, tl.load(x + i, mask=i < n), mask=i < n)
            p += n
        tl.atomic_add(total, tl.sum(tl.load(y + i, mask=i < n, other=0.0)))

    found = triton_kernel_wrap.identify_accessed_tensors(
        combine, dict(x=torch.zeros(9), y=torch.zeros(9), both=torch.zeros(18), total=torch.zeros(1), n=9, BLOCK=8), {})
    assert {d.name for d in found.read_writes.writes} == {"both", "total"} and {d.name for d in found.read_writes.reads} == {"x", "y"}, found

    def f(x, y):
        both, total = torch.zeros(2 * x.numel()), torch.zeros(1)
        combine[(triton.cdiv(x.numel(), 8),)](x, y, both, total, x.numel(), BLOCK=8)
        return both * 2, total + 1

    x, y = torch.arange(9.0), torch.ones(9)
    for a, b in zip(torch.compile(f)(x, y), f(x, y)):
        torch.testing.assert_close(a, b)
    assert not warned, warned
    print("no warning")
"""


@pytest.mark.nightly
def test_torch_learns_what_a_kernel_writes(tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "no warning" in done.stdout, done.stdout + done.stderr
