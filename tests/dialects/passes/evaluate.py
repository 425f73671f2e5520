"""Evaluate tt and ttg functions with numpy, whole tensors at a time: layouts mean nothing, conversions are the identity.

For tests that a pass keeps what a kernel computes. A pointer is an integer: number of the argument times 2^32 plus elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, Region, type_info

_BINARY = {
    "arith.addi": np.add, "arith.addf": np.add, "arith.subi": np.subtract, "arith.subf": np.subtract, "arith.muli": np.multiply,
    "arith.mulf": np.multiply, "arith.divf": np.divide, "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or,
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
    "arith.divsi": lambda a, b: np.trunc(a / b).astype(np.int64), "arith.remsi": np.fmod,
}
_UNARY = {"math.exp": np.exp, "math.exp2": np.exp2, "math.absf": np.abs, "arith.negf": np.negative}
_COMPARE = [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
            lambda a, b: np.less(np.asarray(a, np.int64) & 0xFFFFFFFF, np.asarray(b, np.int64) & 0xFFFFFFFF)]  # 6: ult, of i32
_SAME = frozenset(("ttg.convert_layout", "ttg.local_alloc", "ttg.local_load", "arith.extf", "arith.extsi", "arith.sitofp"))


class Evaluator:
    """Runs a function's mirror on ``memory``: one float64 array an argument that is a pointer, else the scalar itself."""

    def __init__(self, function: Function, arguments: Sequence[Any], program_id: tuple[int, int, int] = (0, 0, 0)):
        self.memory = [a if isinstance(a, np.ndarray) else None for a in arguments]
        self.program_id = program_id
        self.env: dict[Any, Any] = {}
        for i, (value, a) in enumerate(zip(function.body.args, arguments, strict=True)):
            self.env[value] = np.int64(i << 32) if isinstance(a, np.ndarray) else a
        self.region(function.body)

    def region(self, region: Region) -> list[Any]:
        """Runs the ops; the terminator's operands."""
        for node in region.ops[:-1]:
            self.step(node)
        return [self.env[v] for v in region.ops[-1].operands]

    def step(self, node: Node) -> None:
        results = self.compute(node, [self.env[v] for v in node.operands])
        for v, r in zip(node.results, results, strict=True):
            shape = type_info(v.type).shape
            assert shape is None or np.shape(r) == shape, (node, np.shape(r), shape)
            self.env[v] = r

    def access(self, pointers: Any, mask: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        p = np.asarray(pointers)
        mask = np.broadcast_to(np.asarray(True if mask is None else mask), p.shape)
        which = np.unique(p[mask] >> 32)
        assert len(which) <= 1
        array = self.memory[int(which[0])] if len(which) else np.zeros(1)
        index = np.where(mask, p & 0xFFFFFFFF, 0)
        assert (index < array.size).all(), "out of bounds"
        return index, mask, array

    def compute(self, node: Node, x: list[Any]) -> Any:
        name = node.name
        shape = type_info(node.results[0].type).shape if node.results else None
        if name in _BINARY:
            return [_BINARY[name](x[0], x[1])]
        if name in _UNARY:
            return [_UNARY[name](x[0])]
        if name in _SAME:
            return [x[0]]
        if name in ("arith.truncf", "tt.fp_to_fp"):
            return [np.asarray(x[0]).astype(np.float32).astype(np.float16).astype(np.float64)
                    if type_info(node.results[0].type).bits == 16 else x[0]]
        return getattr(self, "_" + name.replace(".", "_"))(node, x, shape)

    def _arith_constant(self, node, x, shape):
        value = node.op.attributes["value"]
        if isinstance(value, ir.DenseElementsAttr):
            value = value.get_splat_value()
        number = value.value
        return [np.full(shape, number) if shape is not None else number]

    def _arith_cmpi(self, node, x, shape):
        return [_COMPARE[int(ir.IntegerAttr(node.attr("predicate")).value)](x[0], x[1])]

    def _arith_select(self, node, x, shape):
        return [np.where(*x)]

    def _tt_get_program_id(self, node, x, shape):
        return [self.program_id[node.int_attr("axis")]]

    def _tt_make_range(self, node, x, shape):
        return [np.arange(node.int_attr("start"), node.int_attr("end"))]

    def _tt_splat(self, node, x, shape):
        return [np.full(shape, x[0])]

    def _tt_broadcast(self, node, x, shape):
        return [np.broadcast_to(x[0], shape)]

    def _tt_expand_dims(self, node, x, shape):
        return [np.expand_dims(x[0], node.int_attr("axis"))]

    def _tt_trans(self, node, x, shape):
        return [np.transpose(x[0], node.ints_attr("order"))]

    _ttg_memdesc_trans = _tt_trans

    def _ttg_memdesc_subslice(self, node, x, shape):
        sizes = node.results[0].type.shape
        return [x[0][tuple(slice(o, o + n) for o, n in zip(node.ints_attr("offsets"), sizes))]]

    def _tt_reshape(self, node, x, shape):
        return [np.reshape(x[0], shape)]

    def _tt_join(self, node, x, shape):
        return [np.stack(x, -1)]

    def _tt_split(self, node, x, shape):
        return [x[0][..., 0], x[0][..., 1]]

    def _tt_cat(self, node, x, shape):
        return [np.concatenate(x)]

    def _tt_gather(self, node, x, shape):
        return [np.take_along_axis(x[0], x[1], axis=node.int_attr("axis"))]

    def _tt_addptr(self, node, x, shape):
        return [x[0] + x[1]]

    def _tt_load(self, node, x, shape):
        _, has_mask, has_other = node.ints_attr("operandSegmentSizes")
        index, mask, array = self.access(x[0], x[1] if has_mask else None)
        return [np.where(mask, array[index], x[2] if has_other else 0)]

    def _tt_store(self, node, x, shape):
        index, mask, array = self.access(x[0], x[2] if node.ints_attr("operandSegmentSizes")[2] else None)
        array[index[mask]] = np.broadcast_to(np.asarray(x[1]), mask.shape)[mask]
        return []

    def _tt_dot(self, node, x, shape):
        return [x[0] @ x[1] + x[2]]

    def _tt_reduce(self, node, x, shape):
        op = node.regions[0].ops[0].name
        f = {"arith.addf": np.sum, "arith.maxnumf": np.max}[op]
        return [f(x[0], axis=node.int_attr("axis"))]

    def _tt_scan(self, node, x, shape):
        assert node.regions[0].ops[0].name == "arith.addf" and not node.bool_attr("reverse")
        return [np.cumsum(x[0], axis=node.int_attr("axis"))]

    def _scf_for(self, node, x, shape):
        body = node.regions[0]
        values = x[3:]
        for i in range(int(x[0]), int(x[1]), int(x[2])):
            for arg, v in zip(body.args, [i, *values], strict=True):
                self.env[arg] = v
            values = self.region(body)
        return values

    def _scf_if(self, node, x, shape):
        return self.region(node.regions[0 if x[0] else 1]) if x[0] or len(node.regions) > 1 else []

    def _scf_while(self, node, x, shape):
        before, after = node.regions
        values = x
        while True:
            self.env.update(zip(before.args, values, strict=True))
            go, *passed = self.region(before)
            if not go:
                return passed
            self.env.update(zip(after.args, passed, strict=True))
            values = self.region(after)


def poisoned(n: int) -> np.ndarray:
    """Memory nothing has been written to."""
    return np.full(n, math.nan)
