"""``tl.core``, second part: loads, stores, atomics, block pointers and tensor descriptors."""

from __future__ import annotations

from typing import Any

from tilewright.language.decorators import builtin, member
from tilewright.language.tensor_descriptor import tensor_descriptor
from tilewright.language.values import tensor
from tilewright.language.values import tuple as tuple  # noqa: A004


# -- memory ------------------------------------------------------------------------------------------------------------
@builtin
def load(pointer: Any, mask: Any = None, other: Any = None, boundary_check: Any = (), padding_option: Any = "",
         cache_modifier: Any = "", eviction_policy: Any = "", volatile: Any = False, _semantic: Any = None) -> tensor:
    """Read through a pointer or tensor of pointers. Masked-off lanes read nothing and give ``other`` (0 without it).

    ``cache_modifier`` "", ".ca", ".cg", ".cs", ".cv"; ``eviction_policy`` "", "evict_first", "evict_last": hints.
    ``volatile``: every load happens, in order.

    Types: pointers to any type.

    Example::

        x = tl.load(p + i, mask=i < n, other=0.0)
        first = tl.load(p, cache_modifier=".cg")
    """
    return _semantic.load(pointer, mask, other, boundary_check, padding_option, cache_modifier, eviction_policy, volatile)


@member
@builtin
def store(pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: Any = "", eviction_policy: Any = "",
          _semantic: Any = None) -> None:
    """Write ``value``, cast to the pointee's type and broadcast, through the pointers where the mask holds.

    Types: pointers to any type.

    Example::

        tl.store(out + i, x * 2, mask=i < n)
        tl.store(out, 1.0)
    """
    return _semantic.store(pointer, value, mask, boundary_check, cache_modifier, eviction_policy)


def _atomic(name: str, what: str) -> Any:
    def fn(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
        return _semantic.atomic_rmw(name, pointer, val, mask, sem, scope)

    fn.__name__ = fn.__qualname__ = f"atomic_{name}"
    value, pointer = ("i", "q + i") if name in ("and", "or", "xor") else ("x", "out + i")
    types = {"add": "16-, 32- and 64-bit types", "xchg": "16-, 32- and 64-bit types"}.get(name, "32- and 64-bit types")
    fn.__doc__ = (f"Atomically {what}; the old value is the result (0 where masked off). ``sem``: relaxed, acquire, release, "
                  f"acq_rel (default); ``scope``: cta, gpu (default), sys.\n\nTypes: {types if value == 'x' else '32- and 64-bit integers'}.\n\n"
                  f"Example::\n\n    tl.atomic_{name}({pointer}, {value}, mask=mask)\n    old = tl.atomic_{name}({pointer}, {value}, sem=\"relaxed\")\n")
    return member(builtin(fn))


atomic_add = _atomic("add", "add ``val`` to memory")
atomic_max = _atomic("max", "store the larger of memory and ``val``")
atomic_min = _atomic("min", "store the smaller of memory and ``val``")
atomic_and = _atomic("and", "store memory & ``val``")
atomic_or = _atomic("or", "store memory | ``val``")
atomic_xor = _atomic("xor", "store memory ^ ``val``")
atomic_xchg = _atomic("xchg", "store ``val``")


@member
@builtin
def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
    """Atomically store ``val`` where memory holds ``cmp``; the old value is the result.

    Types: 16-, 32- and 64-bit integers and floats.

    Example::

        while tl.atomic_cas(q, 0, 1) == 1:
            pass
        old = tl.atomic_xchg(q, 0)
    """
    return _semantic.atomic_cas(pointer, cmp, val, sem, scope)


@builtin
def make_block_ptr(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any, _semantic: Any = None) -> Any:
    """A window of ``block_shape`` at ``offsets`` (int32) into the array at ``base`` with ``shape`` and ``strides`` in elements.

    Loads and stores take ``boundary_check``, the dims in which the window may leave the array. ``order`` is a hint.

    Types: a scalar pointer; int32 or int64 sizes.

    Example::

        window = tl.make_block_ptr(p, (n, n), (n, 1), (0, 0), (16, 16), (1, 0))
        m = tl.load(window, boundary_check=(0, 1), padding_option="zero")
    """
    return _semantic.make_block_ptr(base, shape, strides, offsets, block_shape, order)


@builtin
def advance(base: Any, offsets: Any, _semantic: Any = None) -> Any:
    """The block pointer moved by ``offsets``, one a dim.

    Types: a block pointer.

    Example::

        window = tl.make_block_ptr(p, (n, n), (n, 1), (0, 0), (16, 16), (1, 0))
        window = tl.advance(window, (0, 16))
    """
    return _semantic.advance(base, offsets)


@builtin
def make_tensor_descriptor(base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any = "zero",
                           _semantic: Any = None) -> tensor_descriptor:
    """A descriptor of the tensor at ``base`` (a scalar pointer) with ``shape`` and ``strides`` in elements, 1 to 5 dims, the last stride 1.

    It reads and writes blocks of ``block_shape`` (constexprs, powers of two, a row of at least 16 bytes): see tensor_descriptor's load,
    store, gather, scatter and atomics. ``padding_option``: what elements outside the tensor read as, "zero" or "nan" (floats). The base
    and the other strides may have any alignment here; multiples of 16 bytes let targets with bulk copies use them.

    Types: a scalar pointer to any number type; int32 sizes, int64 strides.

    Example::

        d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [16, 16])
        m = d.load([0, 16])
    """
    return _semantic.make_tensor_descriptor(base, shape, strides, block_shape, padding_option)


@builtin
def load_tensor_descriptor(desc: Any, offsets: Any, _semantic: Any = None) -> tensor:
    """``desc.load(offsets)``.

    Types: a tensor descriptor.

    Example::

        d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [16, 16])
        m = tl.load_tensor_descriptor(d, [0, 16])
    """
    return _semantic.descriptor_load(desc, offsets)


@builtin
def store_tensor_descriptor(desc: Any, offsets: Any, value: Any, _semantic: Any = None) -> None:
    """``desc.store(offsets, value)``.

    Types: a tensor descriptor.

    Example::

        d = tl.make_tensor_descriptor(out, [n, n], [n, 1], [16, 16])
        tl.store_tensor_descriptor(d, [0, 0], m)
    """
    _semantic.descriptor_store(desc, offsets, value)
