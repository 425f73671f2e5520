"""Shapes, reductions, scans, dot and the other operations on whole tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects.errors import ShapeMismatchError, TypeMismatchError
from tilewright.language import dtypes as t
from tilewright.language.const import unwrap
from tilewright.language.dtypes import block_type
from tilewright.language.semantic_base import describe
from tilewright.language.semantic_memory import MemorySemantic
from tilewright.language.values import tensor
from tilewright.language.values import tuple as tl_tuple

INPUT_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


class TileSemantic(MemorySemantic):
    """Operations on tiles."""

    # -- shapes ----------------------------------------------------------------------------------------------------
    def arange(self, start: Any, end: Any) -> tensor:
        """``[start, end)`` as int32; the length is a power of two."""
        start, end = unwrap(start), unwrap(end)
        for v in (start, end):
            if isinstance(v, bool) or not isinstance(v, int):
                raise TypeMismatchError(f"arange takes compile-time integers (constexpr), not {describe(v)}")
        if not -(2**31) <= start < end <= 2**31:
            raise ShapeMismatchError(f"arange({start}, {end}): the end has to be above the start, both in 32 bits")
        length = end - start
        if length & (length - 1):
            raise ShapeMismatchError(f"arange({start}, {end}) has {length} elements; the number has to be a power of two "
                                     "(round up with triton.next_power_of_2 and mask the rest)")
        return self.new("tt.make_range", [], block_type(t.int32, [length]), {"start": start, "end": end})

    def _block(self, value: Any, what: str) -> tensor:
        value = self.to_tensor(value)
        if not value.type.is_block():
            raise ShapeMismatchError(f"{what} takes a tensor of at least one dim, not a scalar of type {value.type}")
        return value

    def axis(self, value: tensor, axis: Any, what: str) -> int:
        """A dim of ``value`` as a non-negative int; negative ones count from the end."""
        axis, rank = unwrap(axis), len(value.type.shape)
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise TypeMismatchError(f"the axis of {what} is a compile-time integer, not {describe(axis)}")
        if not -rank <= axis < rank:
            raise ShapeMismatchError(f"axis {axis} of {what} is outside a tensor of shape {list(value.type.shape)}")
        return axis % rank

    def getitem(self, value: tensor, slices: Any) -> tensor:
        """``x[:, None]``: full slices keep a dim, None adds one."""
        slices = unwrap(slices)
        entries = list(slices) if isinstance(slices, (tuple, tl_tuple, list)) else [slices]
        if not value.type.is_block():  # `:` keeps nothing of a scalar, as in Triton: x[:, None] is a tile of one element
            entries = [e for e in entries if not (isinstance(unwrap(e), slice) and all(unwrap(v) is None for v in (unwrap(e).start, unwrap(e).stop, unwrap(e).step)))]
        if not value.type.is_block() and not entries:
            return value
        out = value
        dim = 0
        for entry in entries:
            entry = unwrap(entry)
            if entry is None:
                out = self.expand_dims(out, dim) if out.type.is_block() else self.splat(out, [1])
                dim += 1
            elif isinstance(entry, slice) and all(unwrap(v) is None for v in (entry.start, entry.stop, entry.step)):
                if dim >= len(out.type.shape):
                    raise ShapeMismatchError(f"too many indices for a tensor of shape {list(value.shape)}")
                dim += 1
            elif entry is Ellipsis:
                dim += len(value.type.shape) - sum(1 for e in entries if isinstance(e, slice))
            else:
                if isinstance(entry, slice):
                    entry = slice(unwrap(entry.start), unwrap(entry.stop), unwrap(entry.step))
                raise TypeMismatchError(f"tensors are indexed by `:` and None only, not by {describe(entry)}; "
                                        "load takes elements from memory, tl.gather and reductions from a tensor")
        return out

    def reshape(self, value: Any, shape: Sequence[Any], can_reorder: bool = False) -> tensor:
        value, shape = self.to_tensor(value), self.shape_of(shape)
        numel = 1
        for s in shape:
            numel *= s
        if numel != value.numel:
            raise ShapeMismatchError(f"reshape of {list(value.shape)} ({value.numel} elements) to {shape} ({numel} elements)")
        if not value.type.is_block():
            return self.splat(value, shape)
        if not shape:
            return self.unsplat(value)
        if tuple(shape) == value.type.shape and not can_reorder:
            return value
        type = block_type(value.type.scalar, shape)
        if value.const is not None:
            return self.constant(value.const, type)
        return self.new("tt.reshape", [value], type, {"allow_reorder": bool(can_reorder)})

    def permute(self, value: Any, dims: Sequence[Any]) -> tensor:
        """Result dim i is source dim ``dims[i]``."""
        value = self._block(value, "permute")
        dims, rank = self.shape_of(dims), len(value.type.shape)
        dims = [d % rank if -rank <= d < rank else d for d in dims]
        if sorted(dims) != list(range(rank)):
            raise ShapeMismatchError(f"the order {dims} is no permutation of the {rank} dims of a tensor of shape {list(value.shape)}")
        if dims == list(range(rank)):
            return value
        return self.new("tt.trans", [value], block_type(value.type.scalar, [value.type.shape[d] for d in dims]), {"order": dims})

    def trans(self, value: Any, *dims: Any) -> tensor:
        """``permute``; without dims the last two are swapped."""
        value = self._block(value, "trans")
        if not dims:
            rank = len(value.type.shape)
            if rank < 2:
                raise ShapeMismatchError(f"trans without dims takes a tensor of at least 2 dims, not of shape {list(value.shape)}")
            return self.permute(value, [*range(rank - 2), rank - 1, rank - 2])
        first = unwrap(dims[0])
        return self.permute(value, first if len(dims) == 1 and hasattr(first, "__iter__") else dims)

    def join(self, a: Any, b: Any) -> tensor:
        """Two tensors along a new last dim of size 2."""
        a, b = self.binary_operands(a, b, "join", ptr_lhs=True, ptr_rhs=True)
        scalar = not a.type.is_block()
        if scalar:
            a, b = self.splat(a, [1]), self.splat(b, [1])
        joined = self.new("tt.join", [a, b], block_type(a.type.scalar, [*a.type.shape, 2]))
        return self.reshape(joined, [2]) if scalar else joined

    def split(self, value: Any) -> tuple[tensor, tensor]:
        """The two halves of a last dim of size 2, without that dim."""
        value = self._block(value, "split")
        shape = value.type.shape
        if shape[-1] != 2:
            raise ShapeMismatchError(f"split takes a tensor with a last dim of size 2, not of shape {list(shape)}")
        scalar = len(shape) == 1
        if scalar:
            value, shape = self.reshape(value, [1, 2]), (1, 2)
        type = block_type(value.type.scalar, shape[:-1])
        lo, hi = (tensor(h, type) for h in self.builder.create("tt.split", [value.handle], [type, type], {}))
        return (self.unsplat(lo), self.unsplat(hi)) if scalar else (lo, hi)

    def cat(self, a: Any, b: Any, can_reorder: bool, dim: int = 0) -> tensor:
        """Concatenation along ``dim``. With ``can_reorder`` (rank 1) the order of elements is not promised."""
        a, b = self._block(a, "cat"), self._block(b, "cat")
        if a.type != b.type:
            raise ShapeMismatchError(f"cat takes two tensors of one type, not {a.type} and {b.type}")
        if can_reorder and len(a.type.shape) == 1:
            return self.new("tt.cat", [a, b], block_type(a.type.scalar, [2 * a.type.shape[0]]))
        dim, rank = self.axis(a, dim, "cat"), len(a.type.shape)
        joined = self.join(a, b)  # new last dim, moved before `dim`, then merged with it
        joined = self.permute(joined, [*range(dim), rank, *range(dim, rank)])
        shape = list(a.type.shape)
        shape[dim] *= 2
        return self.reshape(joined, shape)

    # -- reductions and scans --------------------------------------------------------------------------------------
    def _in_combiner(self, function: Callable[..., Any], *args: Any) -> Any:
        was, self.in_combiner = self.in_combiner, True
        try:
            return function(*args)
        finally:
            self.in_combiner = was

    def _region(self, op: str, values: Sequence[tensor], result_types: Sequence[Any], attrs: dict[str, Any], combine: Callable[..., Any],
                what: str) -> list[tensor]:
        scalars = [v.type.scalar for v in values]
        n = len(values)

        def body(handles: list[Any]) -> list[Any]:
            args = [tensor(h, s) for h, s in zip(handles, [*scalars, *scalars])]
            out = self._in_combiner(combine, *args)
            outs = list(out) if isinstance(out, (tuple, list, tl_tuple)) else [out]
            if len(outs) != n:
                raise TypeMismatchError(f"the combiner of {what} returns {len(outs)} values for {n} inputs")
            outs = [self.to_tensor(o) for o in outs]
            for o, s in zip(outs, scalars):
                if o.type.scalar != s:
                    raise TypeMismatchError(f"the combiner of {what} returns {o.type} where its input is {s}")
            return [o.handle for o in outs]

        handles = self.builder.region_op(op, [v.handle for v in values], result_types, attrs, scalars, body)
        return [tensor(h, r) for h, r in zip(handles, result_types)]

    def reduce(self, values: Sequence[Any], axis: Any, combine: Callable[..., Any], keep_dims: bool = False, what: str = "reduce",
               ) -> list[tensor]:
        """Reduce tensors of one shape along ``axis`` (None: all of it) by ``combine``, a function of 2n scalars to n."""
        values = [self._block(v, what) for v in values]
        shape = values[0].type.shape
        for v in values[1:]:
            if v.type.shape != shape:
                raise ShapeMismatchError(f"{what} takes tensors of one shape, not {list(shape)} and {list(v.type.shape)}")
        axis = unwrap(axis)
        if axis is None:
            values = [self.reshape(v, [v.numel]) for v in values]
            at, kept = 0, [1] * len(shape)
        else:
            at = self.axis(values[0], axis, what)
            kept = [1 if i == at else s for i, s in enumerate(shape)]
        rest = [s for i, s in enumerate(values[0].type.shape) if i != at]
        results = self._region("tt.reduce", values, [block_type(v.type.scalar, rest) if rest else v.type.scalar for v in values],
                               {"axis": at}, combine, what)
        if not keep_dims:
            return results
        if axis is not None:
            return [self.expand_dims(r, at) if rest else self.splat(r, [1]) for r in results]
        return [self.reshape(r, kept) for r in results]

    def scan(self, values: Sequence[Any], axis: Any, combine: Callable[..., Any], reverse: bool = False, what: str = "associative_scan",
             ) -> list[tensor]:
        """Inclusive scan along ``axis``; ``reverse``: from the end."""
        values = [self._block(v, what) for v in values]
        shape = values[0].type.shape
        for v in values[1:]:
            if v.type.shape != shape:
                raise ShapeMismatchError(f"{what} takes tensors of one shape, not {list(shape)} and {list(v.type.shape)}")
        at = self.axis(values[0], axis, what)
        return self._region("tt.scan", values, [v.type for v in values], {"axis": at, "reverse": bool(unwrap(reverse))}, combine, what)

    def map_elementwise(self, function: Callable[..., Any], values: Sequence[Any], pack: int) -> tuple[list[tensor], bool]:
        """``function`` of scalars over tensors, which are broadcast; (results, whether it returned a tuple)."""
        pack = unwrap(pack)
        if not isinstance(pack, int) or isinstance(pack, bool) or pack < 1:
            raise TypeMismatchError(f"pack is how many elements the function of map_elementwise takes at a time, at least 1, not {describe(pack)}")
        if not values:
            raise TypeMismatchError("map_elementwise takes at least one tensor")
        values = [self.to_tensor(v) for v in values]
        for _ in range(2):  # the first takes every shape on, the others then take its
            for i in range(1, len(values)):
                values[0], values[i] = self.broadcast(values[0], values[i])
        many = False

        def body(handles: list[Any]) -> tuple[list[Any], list[Any]]:
            nonlocal many
            scalars = [v.type.scalar for v in values for _ in range(pack)]
            out = self._in_combiner(function, *(tensor(h, s) for h, s in zip(handles, scalars)))
            many = isinstance(out, (tuple, list, tl_tuple))
            outs = [self.to_tensor(o) for o in (out if many else [out])]
            if not outs or len(outs) % pack:
                raise TypeMismatchError(f"with pack={pack} the function of map_elementwise returns {pack} values of each result, not {len(outs)} "
                                        "in all")
            types = [o.type for o in outs[::pack]]
            for i, o in enumerate(outs):
                if o.type.is_block():
                    raise TypeMismatchError(f"the function of map_elementwise returns scalars, not {o.type}")
                if o.type != types[i // pack]:
                    raise TypeMismatchError(f"the function of map_elementwise returns {types[i // pack]} and {o.type} for the {pack} elements of "
                                            "one result; cast them to one type")
            return [o.handle for o in outs], types

        if not values[0].type.is_block():  # scalars: one call
            handles, types = body([v.handle for v in values for _ in range(pack)])
            return [tensor(h, type) for h, type in zip(handles[::pack], types)], many
        tile = values[0].type
        handles, types = self.builder.map_op([v.handle for v in values], tile, [v.type.scalar for v in values], pack, body)
        return [tensor(h, tile.with_element_ty(type)) for h, type in zip(handles, types)], many

    # -- dot -------------------------------------------------------------------------------------------------------
    def dot(self, a: Any, b: Any, acc: Any = None, input_precision: Any = None, allow_tf32: Any = None, max_num_imprecise_acc: Any = None,
            out_dtype: Any = t.float32) -> tensor:
        """Matrix product ``a[.., M, K] @ b[.., K, N] (+ acc)`` of 2 or, batched, more dims."""
        a, b = self._block(a, "dot"), self._block(b, "dot")
        acc, out_dtype = unwrap(acc), unwrap(out_dtype)
        sa, sb = a.type.shape, b.type.shape
        if len(sa) == len(sb) > 3 and sa[:-2] == sb[:-2] and sa[-1] == sb[-2]:  # all batch dims as one
            flat = [self.reshape(v, [v.numel // (v.type.shape[-1] * v.type.shape[-2]), *v.type.shape[-2:]]) for v in (a, b)]
            if acc is not None and (acc := self._block(acc, "dot")).type.shape == (*sa[:-1], sb[-1]):
                acc = self.reshape(acc, [flat[0].type.shape[0], sa[-2], sb[-1]])
            return self.reshape(self.dot(flat[0], flat[1], acc, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype), [*sa[:-1], sb[-1]])
        if len(sa) not in (2, 3) or len(sa) != len(sb):
            raise ShapeMismatchError(f"dot takes two tensors of 2, or both of 3, dims, not of shapes {list(sa)} and {list(sb)}")
        if sa[-1] != sb[-2]:
            raise ShapeMismatchError(f"dot of shapes {list(sa)} and {list(sb)}: the last dim of the first ({sa[-1]}) has to equal "
                                     f"the second-to-last of the second ({sb[-2]})")
        if sa[:-2] != sb[:-2]:
            raise ShapeMismatchError(f"dot of shapes {list(sa)} and {list(sb)}: the batch dims differ")
        ta, tb = a.type.scalar, b.type.scalar
        if ta.is_fp8() and tb.is_fp8() and (ta.is_fp8e4b15() or tb.is_fp8e4b15()):  # which no hardware has; fp16 holds all of fp8
            a, b = self.cast(a, t.float16), self.cast(b, t.float16)
            ta = tb = t.float16
        if ta != tb and not (ta.is_fp8() and tb.is_fp8()) and not (ta.is_int() and tb.is_int() and ta.int_bitwidth == tb.int_bitwidth == 8):
            raise TypeMismatchError(f"dot takes operands of one type, not {ta} and {tb}; cast one with .to()")
        if ta.is_int():
            if ta.int_bitwidth != 8:
                raise TypeMismatchError(f"dot takes int8, fp8, fp16, bf16, fp32 or fp64, not {ta}")
            if ta != tb or not ta.is_int_signed():
                raise TypeMismatchError(f"dot takes int8 for its integers, not {ta} and {tb}; cast uint8 values with .to(tl.float16), which "
                                        "holds them exactly")
            result = t.int32
        elif ta.is_fp64():
            result = t.float64
        elif ta.is_fp32() or ta.is_bf16():
            if out_dtype.is_bf16():
                raise TypeMismatchError("dot accumulates in fp32; cast its result with .to(tl.bfloat16) instead of out_dtype=tl.bfloat16")
            result = t.float32
        else:
            if out_dtype not in (t.float16, t.float32):
                raise TypeMismatchError(f"out_dtype of a dot of {ta} is tl.float32 or tl.float16, not {out_dtype}")
            result = out_dtype
        type = block_type(result, [*sa[:-2], sa[-2], sb[-1]])
        if acc is None:
            acc = self.constant(0, type)
        else:
            acc = self.to_tensor(acc)
            if acc.type != type:
                if acc.type.is_block() and acc.type.shape != type.shape:
                    raise ShapeMismatchError(f"the accumulator of a dot of {list(sa)} and {list(sb)} has shape {list(type.shape)}, "
                                             f"not {list(acc.type.shape)}")
                raise TypeMismatchError(f"the accumulator of this dot is {type}, not {acc.type}"
                                        + (" (set out_dtype=tl.float16)" if acc.type.scalar.is_fp16() else ""))
        precision = self._input_precision(input_precision, allow_tf32)
        imprecise = unwrap(max_num_imprecise_acc)
        if imprecise is None:
            imprecise = getattr(self.builder.options, "max_num_imprecise_acc_default", 0) if ta.is_fp8() else 0
        elif ta.is_fp8() and int(imprecise) > sa[-1]:
            raise TypeMismatchError(f"max_num_imprecise_acc is at most K, {sa[-1]} here, not {imprecise}")
        return self.new("tt.dot", [a, b, acc], type, {"input_precision": precision, "max_num_imprecise_acc": int(imprecise or 0)})

    def _input_precision(self, input_precision: Any, allow_tf32: Any) -> str:
        input_precision, allow_tf32 = unwrap(input_precision), unwrap(allow_tf32)
        if input_precision is not None and allow_tf32 is not None:
            raise TypeMismatchError("dot takes input_precision or the older allow_tf32, not both")
        if allow_tf32 is not None:
            return "tf32" if allow_tf32 else "ieee"
        if input_precision is None:
            input_precision = getattr(self.builder.options, "default_dot_input_precision", None) or "tf32"
        lowered = str(input_precision).lower()
        if lowered not in INPUT_PRECISIONS:
            raise TypeMismatchError(f"input_precision is one of {', '.join(INPUT_PRECISIONS)}, not {input_precision!r}")
        return lowered

    # -- the rest --------------------------------------------------------------------------------------------------
    def gather(self, src: Any, index: Any, axis: Any) -> tensor:
        """``src`` at ``index`` along ``axis``; both have one rank, and equal sizes in the other dims."""
        src, index = self._block(src, "gather"), self._block(index, "gather")
        if not index.type.scalar.is_int():
            raise TypeMismatchError(f"gather takes integer indices, not {index.type.scalar}")
        at = self.axis(src, axis, "gather")
        if len(src.type.shape) != len(index.type.shape) or any(
                m != n for i, (m, n) in enumerate(zip(src.type.shape, index.type.shape)) if i != at):
            raise ShapeMismatchError(f"gather along axis {at}: source {list(src.type.shape)} and indices {list(index.type.shape)} "
                                     "differ in another dim")
        return self.new("tt.gather", [src, self._wide(index)], block_type(src.type.scalar, index.type.shape), {"axis": at})

    def _wide(self, index: tensor) -> tensor:
        """Integers below 32 bits as int32: the IR's have no sign, and 255 of uint8 would be -1."""
        return self.cast(index, t.int32) if index.type.scalar.primitive_bitwidth < 32 else index

    def histogram(self, value: Any, num_bins: Any, mask: Any = None) -> tensor:
        """How often 0 … num_bins-1 occur in a rank-1 integer tensor, where the mask holds; int32."""
        value = self._block(value, "histogram")
        if len(value.type.shape) != 1 or not value.type.scalar.is_int():
            raise TypeMismatchError(f"histogram takes a rank-1 integer tensor, not {value.type}")
        value, mask = self._wide(value), self._mask(mask, "histogram")
        if mask is not None:
            mask = self.broadcast_to(mask, value.type.shape)
        return self.new("tt.histogram", [value, mask], block_type(t.int32, self.shape_of([num_bins])))

    def hint(self, name: str, value: Any, values: Any) -> tensor:
        """multiple_of, max_contiguous, max_constancy: a promise about ``value``, one number a dim."""
        value, numbers = self.to_tensor(value), self.shape_of(values)
        if len(numbers) != max(1, len(value.type.shape)):
            raise ShapeMismatchError(f"{name} of a tensor of shape {list(value.shape)} takes {max(1, len(value.shape))} numbers, not {len(numbers)}")
        if any(n < 1 for n in numbers):
            raise TypeMismatchError(f"{name} takes numbers of at least 1, not {numbers}")
        if value.type.scalar.is_floating():
            raise TypeMismatchError(f"{name} is a promise about integers and pointers, not about {value.type.scalar}")
        if name == "multiple_of" and value.const is not None and any(value.const % n for n in numbers):
            raise TypeMismatchError(f"multiple_of of the constant {value.const}: it is no multiple of {numbers}")
        self.builder.set_hint(value.handle, {"multiple_of": "tt.divisibility", "max_contiguous": "tt.contiguity",
                                             "max_constancy": "tt.constancy"}[name], numbers)
        return value
