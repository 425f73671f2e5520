"""Run the warp-group passes on IR text of the kernels of tests/dialects/passes, and evaluate what they make with numpy.

``WarpGroupMachine`` knows what is asynchronous: a product's result is NaN until a wait retires it, and (``late``) it reads its
operands only then; what ordinary writes put into shared memory is seen by a product only after a fence and then a barrier, where
``proxies`` asks for that.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
from kernel_texts import Text, ptr
from test_pipeline_loops import Machine, data, poisoned

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import ensure_dialects, mlir_context
from tilewright.dialects.matrix_ops import register_rows
from tilewright.dialects.passes import (
    accelerate_dot,
    allocate_shared_memory,
    coalesce,
    convert_tt_to_ttg,
    dce_cse,
    insert_barriers,
    optimize_dot_operands,
    pipeline_loops,
    remove_layout_conversions,
    verify_layouts,
)
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.capabilities import capabilities
from tilewright.targets.nvidia.dialect.ttng import TTNG
from tilewright.targets.nvidia.passes import fence_async_proxy, schedule_warp_group_dots, use_warp_group_dots
from tilewright.targets.nvidia.target import TARGET

DOT = "ttng.warp_group_dot"
WAIT = "ttng.warp_group_dot_wait"
PASSES = (convert_tt_to_ttg, coalesce, use_warp_group_dots, accelerate_dot, remove_layout_conversions, optimize_dot_operands)
SCHEDULED = (*PASSES, pipeline_loops, dce_cse, schedule_warp_group_dots)
ALL = (*SCHEDULED, allocate_shared_memory, fence_async_proxy, insert_barriers)


@contextmanager
def nvidia_context():
    """mlir_context() in which the target's dialect and rows are known."""
    with mlir_context():
        ensure_dialects(TTNG)
        register_rows(TARGET.matrix_ops())
        yield


def warp_context(num_warps=4, num_stages=3) -> PassContext:
    return PassContext(None, "sm_90a", capabilities("sm_90a"), SimpleNamespace(num_warps=num_warps, num_stages=num_stages))


def after(text, passes, ctx):
    """(module, function) after the passes, with the verifiers run after each. Inside nvidia_context()."""
    module = ir.Module.parse(str(text))
    for p in passes:
        p.run(module, ctx)
        module.operation.verify()
        verify_layouts.run(module, ctx)
    return module, functions(module)[0]


class WarpGroupMachine(Machine):
    def __init__(self, function, arguments, late=True, proxies=False):
        self.flying, self.unseen, self.proxies = [], [], proxies
        super().__init__(function, arguments, late)
        assert not self.flying, "products were left in flight"

    def compute(self, node, x):
        results = super().compute(node, x)
        if node.name == "ttg.local_alloc" and node.operands:
            self.unseen.append([results[0], "written"])
        elif node.name == "ttg.barrier":
            self.unseen = [w for w in self.unseen if w[1] == "written"]
        return results

    def _ttg_async_wait(self, node, x, shape):
        done = self.groups[:max(0, len(self.groups) - node.int_attr("num"))]
        self.unseen += [[target, "written"] for group in done for target, _ in group]
        return super()._ttg_async_wait(node, x, shape)

    def _ttg_async_copy_global_to_local(self, node, x, shape):
        for _, operands in self.flying:
            for o in operands[:2]:
                assert not np.shares_memory(o, x[1]), "a slot is overwritten while a product reads it"
        return super()._ttg_async_copy_global_to_local(node, x, shape)

    def _ttng_fence_async_shared(self, node, x, shape):
        for w in self.unseen:
            w[1] = "fenced"
        return []

    def _ttng_warp_group_dot(self, node, x, shape):
        a, b, c, *use = x
        c = c if not use or use[0] else np.zeros(shape)
        for operand, value in zip((a, b), node.operands):
            if str(value.type).startswith("!ttg.memdesc"):
                for target, _ in [w for g in self.groups for w in g] + self.open:
                    assert not np.shares_memory(target, operand), "a product reads a slot with a copy into it in flight"
                if self.proxies:
                    for target, _ in self.unseen:
                        assert not np.shares_memory(target, operand), "a product reads what no fence and barrier have shown it"
        result = np.full(shape, np.nan)
        self.flying.append((result, (a, b, c) if self.late else (np.array(a), np.array(b), c)))
        if not node.bool_attr("is_async"):
            self.retire(0)
        return [result]

    def retire(self, pendings):
        while len(self.flying) > pendings:
            result, (a, b, c) = self.flying.pop(0)
            result[...] = a @ b + c

    def _ttng_warp_group_dot_wait(self, node, x, shape):
        self.retire(node.int_attr("pendings"))
        return x


def check_values(text, make_arguments, passes, ctx, late=True, proxies=False):
    """The kernel after the passes against the text as it is: same memory after. Returns the function's mirror."""
    with nvidia_context():
        expected = make_arguments()
        Machine(functions(ir.Module.parse(str(text)))[0], expected, False)
        _, function = after(text, passes, ctx)
        got = make_arguments()
        WarpGroupMachine(function, got, late, proxies)
        for a, b in zip(expected, got, strict=True):
            if isinstance(a, np.ndarray):
                np.testing.assert_array_equal(a, b)
                assert not a.size or np.isfinite(a).any()
        return function


def named(function, name):
    return [n for n in function.nodes() if n.name == name]


def order(function, depth=1):
    """The ops at that depth that matter here, waits with what they leave going on."""
    short = {DOT: "dot", "ttg.async_copy_global_to_local": "copy", "ttg.barrier": "barrier", "ttg.local_alloc": "alloc",
             "ttng.fence_async_shared": "fence", "tt.reduce": "reduce", "arith.truncf": "truncf", "arith.addf": "addf"}
    found = []
    for n in function.nodes():
        if n.depth != depth or n.parent.name in ("tt.reduce", "tt.scan"):
            continue
        if n.name == WAIT:
            found.append(f"wait{n.int_attr('pendings')}")
        elif n.name == "ttg.async_wait":
            found.append("arrived")
        elif n.name in short and not (n.name == "ttg.local_alloc" and not n.operands):
            found.append(short[n.name])
    return found


def product(m, n, k, element="f16", trans=(False, False), cast=(None, None), init="0.0", acc="f32", imprecise=0, twice=False):
    """o = a @ b + init, loaded row by row, through a tt.trans and a cast where asked."""
    t = Text([("a", ptr(cast[0] or element), 16), ("b", ptr(cast[1] or element), 16), ("o", ptr(acc), 16)])
    a, b, o = t.args

    def load(p, shape, transposed, narrow):
        rows, cols = shape[::-1] if transposed else shape
        at = t.bin("arith.addi", t.bin("arith.muli", t.expand(t.range(rows), 1), t.const(cols, (), "i32")), t.expand(t.range(cols), 0))
        v = t.load(t.addptr(p, at))
        if narrow:
            v = t.cast("arith.extf" if narrow[0] == "f" else "arith.sitofp", v, element)
        return t.op("tt.trans", [v], shape, element, "order = array<i32: 1, 0>") if transposed else v

    x, y = load(a, (m, k), trans[0], cast[0]), load(b, (k, n), trans[1], cast[1])
    c = t.const(init, (m, n), acc)
    d = t.op("tt.dot", [x, y, c], (m, n), acc, f'input_precision = "ieee", max_num_imprecise_acc = {imprecise} : i32')
    if twice:
        d = t.dot(x, y, d)
    at = t.bin("arith.addi", t.bin("arith.muli", t.expand(t.range(m), 1), t.const(n, (), "i32")), t.expand(t.range(n), 0))
    t.store(t.addptr(o, at), d)
    return str(t)


def product_arguments(m, n, k):
    return lambda: [data(m * k, 1), data(k * n, 2), poisoned(m * n)]
