"""Rules of random kernels that touch memory: loads and stores of every form, block pointers, descriptors, atomics.

Every address is inside its array or masked off, in every loop and program. Where programs or lanes share an address, the order does not
matter; old values of atomics are used where each address is touched by one element only.
"""

from __future__ import annotations

import math

from .harness import WIDTH
from .random_kernels_base import (
    EXACT,
    FLOATS,
    FP8,
    INTEGERS,
    SMALL,
    TYPES,
    Base,
    Nothing,
    Value,
    production,
    row_major,
    tl_type,
)

_FORMS = ("contiguous", "shifted", "strided", "reversed", "permuted", "repeated", "indirect", "run-time shift")
_MASKS = ("no mask", "end of the array", "by dims", "by values", "all off")


def _offsets(p: Base, shape: tuple[int, ...], how: str) -> tuple[str, int]:
    """Offsets of a tile as text, and one more than the largest."""
    numel, place = math.prod(shape), p.place(shape)
    if how == "contiguous":
        return place, numel
    if how == "shifted":
        c = p.number(1, 17)
        return f"{place} + {c}", numel + c
    if how == "strided":
        c = p.number(2, 3)
        return f"{place} * {c}", (numel - 1) * c + 1
    if how == "reversed":
        c = numel - 1 + p.number(0, 3)
        return f"{c} - ({place})", c + 1
    if how in ("permuted", "repeated"):
        strides, at = [0] * len(shape), 1
        kept = p.number(0, len(shape) - 1) if how == "repeated" and shape else -1
        for d in p.permutation(len(shape)):
            if d != kept:
                strides[d], at = at, at * shape[d]
        return row_major(shape, strides), at
    if how == "indirect":
        index = p.like(shape, lambda v: v.kind == "int", broadcast=False)
        if index is None:
            raise Nothing
        return f"({index.name}.to(tl.int32) & {numel - 1})", numel
    c = p.pick("n", "m", "n * 2", "(n + m)")
    return f"{place} + {c}", numel + 8


def _mask(p: Base, shape: tuple[int, ...], at: str, extent: int) -> tuple[str, int]:
    """(mask or "", elements that the array needs)."""
    how = p.variant(*_MASKS) if shape else "no mask"
    if how == "no mask":
        return "", extent
    if how == "end of the array":
        limit = p.number(max(1, extent // 3), extent)
        return f"({at}) < {limit}", limit
    if how == "by dims":
        d = p.number(0, len(shape) - 1)
        index = ", ".join(":" if e == d else "None" for e in range(len(shape)))
        part = f"tl.arange(0, {shape[d]})[{index}]" if len(shape) > 1 else f"tl.arange(0, {shape[d]})"
        text = f"({part} {p.pick('<', '>=', '!=')} {p.pick('n', 'm', 'n * 4', str(p.number(0, shape[d])))})"
        return p.pick(text, f"{text} & (n > {p.number(-1, 2)})"), extent
    if how == "by values":
        return p.condition(shape), extent
    return f"({at}) < 0", extent


def _other(p: Base, type: str, shape: tuple[int, ...]) -> tuple[str, int]:
    if type == "int1":
        return p.pick("", ", other=True", ", other=False"), 0
    if type in FP8 or p.chance(0.3):
        return "", 0
    v = p.like(shape, lambda v: v.type == type and v.kind in ("int", "exact")) if p.chance(0.3) else None
    if v is not None:
        return f", other={v.name}", v.bound
    c = p.number(0, 5)
    return f", other={c}", c


@production(4, variants=(*_FORMS, *_MASKS, "scalar", "shared by programs", "hints"))
def load(p: Base) -> None:
    type = p.pick(*TYPES)
    found = p.find(lambda v: len(v.shape) > 0) if p.chance(0.4) else None
    shape = found.shape if found else p.factor(p.numel)
    if p.chance(0.08):
        shape = ()
        p.variant("scalar")
    at, extent = _offsets(p, shape, p.variant(*(_FORMS if shape else ("contiguous", "shifted", "run-time shift"))))
    step = p.pick(0, 0, 1, 16, extent)
    if step == 0:
        p.variant("shared by programs")
    else:
        at, extent = f"{at} + pid * {step}", extent + (p.programs - 1) * step
    mask, size = _mask(p, shape, at, extent)
    name, kind, bound = p.array(type, size)
    other, other_bound = _other(p, type, shape) if mask else ("", 0)
    hint = ""
    if p.chance(0.1):
        p.variant("hints")
        hint = p.pick(', cache_modifier=".cg"', ', cache_modifier=".ca"', ', eviction_policy="evict_last"', ', eviction_policy="evict_first"', ", volatile=True")
    text = f"tl.load({name} + {at}" + (f", mask={mask}{other}" if mask else "") + f"{hint})"
    p.give(text, type, shape, kind, max(bound, other_bound) if kind in ("exact", "fp8") else 0)


_STORES = ("contiguous", "shifted", "strided", "reversed", "permuted")


@production(0.7, variants=(*_STORES, *_MASKS, "another type"))
def store(p: Base) -> None:
    save(p, p.any())


def save(p: Base, v: Value) -> None:
    """Store the value to an output of its own."""
    p.current = "store"
    p.read(v)
    if p.chance(0.5):
        p.emit(f"tl.static_assert({v.name}.dtype == {tl_type(v.type)})")  # what the rules of promotion give
    type, text = v.type, v.name
    if p.chance(0.15) and v.kind in ("int", "exact"):
        p.variant("another type")  # the store casts
        if v.kind == "int":
            type = p.pick(*INTEGERS)
        else:
            type = p.pick(*FLOATS, *FP8, "int32", "int16")
            text = p.low(v)
    at, extent = _offsets(p, v.shape, p.variant(*(_STORES if v.shape else ("contiguous", "shifted"))))
    at, size = (f"{at} + pid * {extent}", extent * p.programs) if p.programs > 1 else (at, extent)
    mask, _ = _mask(p, v.shape, at, size)
    name = p.output(type, size)
    p.emit(f"tl.store({name} + {at}, {text}" + (f", mask={mask})" if mask else ")"))
    p.used["op × type", f"store {type}"] += 1


# ------------------------------------------------------------------------------------------ block pointers, descriptors
def _window(p: Base, block: tuple[int, ...]) -> tuple[tuple[int, ...], list[int], list[int], list[int], int]:
    """(block, tensor's sizes, strides, offsets, elements): a block that may reach over the tensor's edges."""
    rank = len(block)
    sizes = [p.number(1, 2 * b) for b in block]
    strides, at = [0] * rank, 1
    for d in (range(rank - 1, -1, -1) if p.chance(0.7) else p.permutation(rank)):
        strides[d] = at
        at *= sizes[d]
    offsets = [p.number(0, max(0, s)) for s in sizes]
    return block, sizes, strides, offsets, at


def _list(values: list[int]) -> str:
    return "[" + ", ".join(map(str, values)) + "]"


@production(1.5, variants=("load", "store", "advance", "zero", "run-time sizes"))
def block_pointer(p: Base) -> None:
    v = p.find(lambda v: v.kind in ("int", "exact", "free") and 1 <= len(v.shape) <= 3) if p.programs == 1 and p.chance(0.4) else None
    block, sizes, strides, offsets, size = _window(p, v.shape if v else p.factor(min(p.numel, 512), p.pick(1, 2, 2, 2, 3)))
    dims = list(range(len(block)))
    # a dim without a check has to lie inside
    checked = [d for d in dims if offsets[d] + block[d] > sizes[d] or p.chance(0.5)]
    shape = list(map(str, sizes))
    if p.chance(0.4):
        p.variant("run-time sizes")
        shape[0] = f"n + {sizes[0] - p.n}"
    check = f", boundary_check=({', '.join(map(str, checked))}{',' if len(checked) == 1 else ''})" if checked else ""
    if v is None:
        p.variant("load")
        name, kind, bound = p.array(p.pick(*(t for t in TYPES if t != "int1" and t not in FP8)), size)
        pad = ', padding_option="zero"' if checked and p.chance(0.6) else ""
        if pad:
            p.variant("zero")
        elif len(checked) and kind == "free":
            pad = ', padding_option="nan"'
        window = f"tl.make_block_ptr({name}, [{', '.join(shape)}], {_list(strides)}, {_list(offsets)}, {_list(list(block))}, {_list(dims[::-1])})"
        if p.chance(0.3):
            p.variant("advance")
            back = [p.number(-2, 2) for _ in dims]
            window = f"tl.make_block_ptr({name}, [{', '.join(shape)}], {_list(strides)}, {_list([o - b for o, b in zip(offsets, back)])}, {_list(list(block))}, {_list(dims[::-1])})"
            window = f"tl.advance({window}, {_list(back)})"
        type = next(t for t, d in _torch_types() if d == p.args[name].dtype)
        p.give(f"tl.load({window}{check}{pad})", type, block, kind, bound)
        return
    p.variant("store")
    name = p.output(v.type, size)
    p.emit(f"tl.store(tl.make_block_ptr({name}, [{', '.join(shape)}], {_list(strides)}, {_list(offsets)}, {_list(list(block))}, {_list(dims[::-1])}), {v.name}{check})")


def _torch_types() -> list[tuple[str, object]]:
    from .harness import TORCH

    return list(TORCH.items())


@production(1, variants=("load", "store", "inside and outside"))
def descriptor(p: Base) -> None:
    v = p.find(lambda v: v.kind in ("int", "exact", "free") and 1 <= len(v.shape) <= 5 and v.shape[-1] * WIDTH[v.type] >= 128) \
        if p.programs == 1 and p.chance(0.4) else None
    if v is not None:
        type, block = v.type, v.shape
    else:
        type = p.pick("int32", "fp32", "fp16", "bf16", "int8", "int64", "uint8", "fp64", "int16")
        least = 16 * 8 // WIDTH[type]
        if p.numel < least:
            raise Nothing
        lead = p.factor(min(p.numel, 512) // least, p.pick(1, 2, 2, 3, 4))
        block = (*lead[:-1], lead[-1] * least)
    sizes = [p.number(1, 2 * b) for b in block]
    strides = [math.prod(sizes[d + 1:]) for d in range(len(block))]
    offsets = [p.number(-1, s) for s in sizes]
    p.variant("inside and outside")
    head = f"[{', '.join(map(str, sizes))}], {_list(strides)}, {_list(list(block))}"
    if v is None:
        p.variant("load")
        name, kind, bound = p.array(type, math.prod(sizes))
        p.give(f"tl.make_tensor_descriptor({name}, {head}).load({_list(offsets)})", type, block, kind, bound)
    else:
        p.variant("store")
        name = p.output(type, math.prod(sizes))
        p.emit(f"tl.make_tensor_descriptor({name}, {head}).store({_list(offsets)}, {v.name})")


@production(1.2, variants=("in place", "after a store", "one of two arrays"))
def alias(p: Base) -> None:
    """Loads and stores of one array in an order that matters, a barrier between them; and addresses in one of two arrays."""
    how = p.variant()
    if how == "one of two arrays":
        shape = p.factor(p.numel)
        type = p.pick("int32", "fp32", "fp16", "int64", "uint8")
        names = [p.array(type, math.prod(shape) * p.programs + 1) for _ in range(2)]
        at = f"{p.place(shape)} + pid * {math.prod(shape)}"
        (a, kind, bound), (b, _, _) = names
        p.give(f"tl.load(tl.where({p.condition(shape)}, {a} + {at}, {b} + 1 + {at}))", type, shape, kind, bound)
        return
    v = p.need(lambda v: v.kind in ("int", "exact", "free") and len(v.shape) > 0)
    numel = v.numel
    name, kind, bound = p.array(v.type, numel * p.programs, v.kind if v.kind == "exact" else None)
    at = f"{name} + pid * {numel}"
    back = f"{at} + ({numel - 1} - {p.place(v.shape)})"
    bound = max(bound, SMALL)
    value = p.low(v) if v.kind == "exact" else v.name
    kind = "free" if "free" in (kind, v.kind) else kind
    if how == "in place":
        old = p.read(p.give(f"tl.load({back})", v.type, v.shape, kind, bound))
        p.emit("tl.debug_barrier()")
        p.emit(f"tl.store({at} + {p.place(v.shape)}, {value})")
        p.give(f"tl.where({p.condition(v.shape)}, {old.name}, {value})", v.type, v.shape, kind, bound)
    else:
        p.emit(f"tl.store({at} + {p.place(v.shape)}, {value})")
        p.emit("tl.debug_barrier()")
        p.give(f"tl.load({back})", v.type, v.shape, kind, bound)
    p.emit("tl.debug_barrier()")  # what comes next in a loop is after it


# ----------------------------------------------------------------------------------------------------------- atomics
_WORDS = ("int32", "uint32", "int64", "uint64")


@production(1.2, variants=("add", "max", "min", "and", "or", "xor", "xchg", "cas", "old value", "masked", "relaxed"))
def atomic(p: Base) -> None:
    type = p.pick(*_WORDS, "fp32", "fp64")
    how = p.variant("add", "max", "min", "and", "or", "xor", "xchg", "cas") if type in _WORDS else p.variant("add", "max", "min", "xchg")
    v = p.find(lambda v: v.kind in ("int", "exact") and v.numel <= 512)
    if v is None:
        raise Nothing
    shape = v.shape
    text = f"({p.cast_few(v, type)})" if type in FLOATS else f"{v.name}.to({tl_type(type)})"
    alone = how in ("xchg", "cas") or p.chance(0.4)
    hints = ""
    if p.chance(0.3) and shape:
        p.variant("masked")
        hints += f", mask={p.condition(shape)}" if how != "cas" else ""
    if p.chance(0.3):
        p.variant("relaxed")
        hints += p.pick(', sem="relaxed"', ', sem="acquire"', ', scope="sys"', ', sem="release", scope="cta"' if p.programs == 1 else ', sem="release"')
    if not alone:
        buckets = p.pick(1, 2, 8, 16)
        name, _, _ = p.array(type, buckets, "exact")
        index = p.like(shape, lambda v: v.kind == "int", broadcast=False)
        at = f"({index.name if index else p.place(shape)} & {buckets - 1})"
        at = f"{at}.to(tl.int32)" if index else at
        p.emit(f"tl.atomic_{how}({name} + {at}, {text}{hints})")
        p.used["op × type", f"atomic {type}"] += 1
        return
    name, kind, bound = p.array(type, max(1, math.prod(shape)) * p.programs, "exact")
    at = f"{name} + {p.place(shape)} + pid * {max(1, math.prod(shape))}"
    p.variant("old value")
    if how == "cas":
        expected = f"tl.full({shape}, {p.number(0, 2)}, {tl_type(type)})" if shape else f"tl.full([1], 1, {tl_type(type)}).item()"
        p.give(f"tl.atomic_cas({at}, {expected}, {text}{hints})", type, shape, kind, 0)
    elif "mask" in hints:  # what a masked-off lane gives is 0
        p.give(f"tl.atomic_{how}({at}, {text}{hints})", type, shape, kind, SMALL * 1000 if kind == "exact" and how == "add" else max(bound, SMALL))
    else:
        p.give(f"tl.atomic_{how}({at}, {text}{hints})", type, shape, kind, EXACT["fp32"] if kind == "exact" and how == "add" else max(bound, SMALL))


__all__ = ["save"]
