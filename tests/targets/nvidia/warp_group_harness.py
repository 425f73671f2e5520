"""Run the warp-group passes on IR text of the kernels of tests/dialects/passes, and evaluate what they make with numpy.

``WarpGroupMachine`` knows what is asynchronous: a product's result is NaN until a wait retires it, and (``late``) it reads its
operands only then; what ordinary writes put into shared memory is seen by a product only after a fence and then a barrier, where
``proxies`` asks for that.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
from test_pipeline_loops import Machine

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import ensure_dialects, mlir_context
from tilewright.dialects.matrix_ops import register_rows
from tilewright.dialects.passes import verify_layouts
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.capabilities import capabilities
from tilewright.targets.nvidia.dialect.ttng import TTNG
from tilewright.targets.nvidia.target import TARGET


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
                assert np.isfinite(a).any()
        return function
