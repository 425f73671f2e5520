"""What a launch argument is to the compiler: its type, and what is known of its value.

Triton's rules: an int is i32, i64 or u64 by its value; 1 becomes a constexpr; an int or address divisible by 16 is marked so
(``tt.divisibility``); bool is i1, float fp32, None a constexpr. Arrays are known by what they offer (``data_ptr`` and ``dtype``,
``__array_interface__`` and its device kin, DLPack), never by importing their packages.

Two functions per kind of argument: a *fast* one for every launch, ``argument → (key, value)``, where the key is hashable and equal for
arguments that give the same code, and ``describe`` for the first launch of a key. ``FAST[mode]`` maps ``type(argument)`` to the former.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilewright.dialects.errors import ArgumentError
from tilewright.language.const import constexpr
from tilewright.runtime.arguments import TensorWrapper
from tilewright.runtime.dependencies import argument_text, is_settled_kind
from tilewright.targets.protocol import is_pinned

ALIGNMENT = 16

_ELEMENT_NAMES = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "half": "fp16", "float": "fp32", "double": "fp64",
    "bool": "i1", "int1": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float8_e4m3fn": "fp8e4nv", "float8e4nv": "fp8e4nv", "float8_e5m2": "fp8e5", "float8e5": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8", "float8e4b8": "fp8e4b8", "float8_e5m2fnuz": "fp8e5b16", "float8e5b16": "fp8e5b16",
    "float8_e4m3b15": "fp8e4b15", "float8e4b15": "fp8e4b15",
}
_ELEMENT_NAMES |= {name: name for name in set(_ELEMENT_NAMES.values())}
_TYPESTR = {"f2": "fp16", "f4": "fp32", "f8": "fp64", "b1": "i1", **{f"{k}{n}": f"{k}{8 * n}" for k in "iu" for n in (1, 2, 4, 8)}}
_element_names: dict[Any, str] = {}  # dtype object → name, as seen

CONSTEXPR = "constexpr"
PINNED = "pinned host memory"  # a device type: memory of the host that a GPU may read and write at the same address


def element_name(dtype: Any) -> str:
    """Signature name ("fp32", "i8") of a dtype of torch, numpy, ml_dtypes or tl. Raises ArgumentError for one that kernels do not have."""
    found = _element_names.get(dtype)
    if found is None:
        if isinstance(dtype, type):  # numpy's and ml_dtypes' classes of scalars stand for their dtypes
            text = dtype.__name__.rstrip("_") if is_numpy_scalar(dtype) else None
        else:
            text = getattr(dtype, "name", None) if not isinstance(dtype, str) else dtype
        text = text if isinstance(text, str) else str(dtype).rsplit(".", 1)[-1]
        found = _ELEMENT_NAMES.get(text)
        if found is None or getattr(dtype, "isnative", True) is False:
            raise ArgumentError(f"elements of type {dtype} are not known to kernels; known are {', '.join(sorted(set(_ELEMENT_NAMES.values())))}")
        _element_names[dtype] = found
    return found


# ------------------------------------------------------------------------------------------------------------ modes
ONE, ALIGN = 1, 2  # bits of a mode: specialise on the value 1; on divisibility by 16
FULL = ONE | ALIGN

Fast = Callable[[Any], "tuple[Any, Any]"]


def _int_full(v: int) -> tuple[Any, Any]:
    if v == 1:
        return "1", v
    if -0x80000000 <= v <= 0x7FFFFFFF:
        return ("i32" if v & 15 else "i32:16"), v
    return _wide_int(v, True), v


def _int_one(v: int) -> tuple[Any, Any]:
    if v == 1:
        return "1", v
    return ("i32" if -0x80000000 <= v <= 0x7FFFFFFF else _wide_int(v, False)), v


def _int_align(v: int) -> tuple[Any, Any]:
    if -0x80000000 <= v <= 0x7FFFFFFF:
        return ("i32" if v & 15 else "i32:16"), v
    return _wide_int(v, True), v


def _int_plain(v: int) -> tuple[Any, Any]:
    return ("i32" if -0x80000000 <= v <= 0x7FFFFFFF else _wide_int(v, False)), v


def _wide_int(v: int, align: bool) -> str:
    suffix = ":16" if align and v & 15 == 0 else ""
    if -(1 << 63) <= v < 1 << 63:
        return "i64" + suffix
    if 0 <= v < 1 << 64:
        return "u64" + suffix
    raise ArgumentError(f"the integer {v} needs more than 64 bits")


def _bool(v: Any) -> tuple[Any, Any]:
    return "i1", bool(v)


def _float(v: float) -> tuple[Any, Any]:
    return "fp32", v


def _none(v: None) -> tuple[Any, Any]:
    return None, None


# The key of an array without memory (None, or "null", in place of whether it is aligned) is no other's, so that what is kept is never launched
# with one.
def _torch_aligned(v: Any) -> tuple[Any, Any]:
    p = v.data_ptr()
    return (v.dtype, PINNED if v.is_cpu and is_pinned(v) else v.device, p & 15 == 0 if p else None), p


def _torch_plain(v: Any) -> tuple[Any, Any]:
    p = v.data_ptr()
    place = PINNED if v.is_cpu and is_pinned(v) else v.device
    return ((v.dtype, place) if p else (v.dtype, place, "null", None)), p


_HEAD = object.__basicsize__  # in CPython, what lies at an object's id before its own fields; numpy's first field is the data pointer


def numpy_address(v: Any) -> int:
    """Address of a numpy array's data, in 0.2 µs (its __array_interface__ takes 1.3)."""
    return ctypes.c_void_p.from_address(id(v) + _HEAD).value or 0


def _interface_address(v: Any) -> int:
    return v.__array_interface__["data"][0]


def _numpy_reader() -> Callable[[Any], int]:
    """``numpy_address`` where it agrees with the array interface on arrays and views, else the interface."""
    import platform

    import numpy as np

    a = np.zeros((4, 6), np.int16)
    if platform.python_implementation() == "CPython" and all(numpy_address(v) == _interface_address(v) for v in (a, a[1:, ::-1], a.T[2:], a[:0])):
        return numpy_address
    return _interface_address


def _numpy(aligned: bool) -> Fast:
    address = _numpy_reader()

    def handler_aligned(v: Any) -> tuple[Any, Any]:
        p = address(v)
        return (v.dtype, "host" if v.flags.writeable else "read-only", p & 15 == 0), p

    def handler_plain(v: Any) -> tuple[Any, Any]:
        return (v.dtype, "host" if v.flags.writeable else "read-only"), address(v)

    return handler_aligned if aligned else handler_plain


def _pointer(aligned: bool) -> Fast:
    def handler(v: Any) -> tuple[Any, Any]:
        element, device, p = pointer_facts(v)
        return ("ptr", element, device, "read-only" if is_read_only(v) else device_index(v), (aligned and p & 15 == 0) if p else None if aligned else "null"), p

    return handler


def _tuple(mode: int) -> Fast:
    def handler(v: tuple[Any, ...]) -> tuple[Any, Any]:
        table = FAST[mode]
        pairs = [table[type(x)](x) for x in v]
        return (type(v), *(k for k, _ in pairs)), tuple(value for _, value in pairs)

    return handler


def constexpr_key(v: Any) -> Any:
    """A hashable key of a constexpr's value: equal only for values that give the same code (1, True and 1.0 differ)."""
    t = type(v)
    if t is int or t is str or v is None:
        return v
    if t is bool:
        return (bool, v)
    if t is float:
        return (float, repr(v))
    if isinstance(v, constexpr):
        return constexpr_key(v.value)
    if is_numpy_scalar(t):
        plain = v.item()
        return (t, repr(v)) if type(plain) is t else constexpr_key(plain)
    if isinstance(v, (tuple, list)):
        return (t, *(constexpr_key(x) for x in v))
    if hasattr(v, "cache_key"):
        return ("jit", v.cache_key, bool(getattr(v, "noinline", False)))
    if is_settled_kind(t):  # type: ignore[arg-type]
        return (t, v)
    return (t, argument_text(v))  # equal values may differ in the types of their parts, and what may change in place is another value then


def constexpr_value(v: Any) -> Any:
    """What a kernel sees of a constexpr argument: the value in a ``tl.constexpr``; a numpy scalar, and those in tuples, as the Python number."""
    t = type(v)
    if t is int or t is bool or t is str or v is None:
        return v
    if isinstance(v, constexpr):
        return constexpr_value(v.value)
    if t is tuple or t is list:
        return t([constexpr_value(x) for x in v])
    return v.item() if is_numpy_scalar(t) else v


def shown(v: Any) -> str:
    """A value in a message: its repr, shortened, in one line."""
    text = " ".join(repr(v).split())
    return text if len(text) <= 100 else f"{text[:60]} … {text[-30:]}"


def _constexpr(v: Any) -> tuple[Any, Any]:
    return (CONSTEXPR, constexpr_key(v)), v


def _scalar(mode: int) -> Fast:
    """numpy scalars and 0-d values with item(): as the Python number."""

    def handler(v: Any) -> tuple[Any, Any]:
        item = v.item()
        if type(item) is type(v):  # Python has no such number
            raise ArgumentError(f"a {type(v).__module__}.{type(v).__qualname__} is no kernel argument; pass a float")
        return FAST[mode][type(item)](item)

    return handler


def _int_subclass(mode: int) -> Fast:
    plain = FAST[mode][int]
    return lambda v: plain(int(v))


def _torch_dtype(v: Any) -> tuple[Any, Any]:
    return ("ptr", element_name(v), None, None, None), 0


_item_sizes: dict[Any, int] = {}  # dtype object, or signature name → bytes, as seen


def _item_size(kind: tuple[Any, ...]) -> int:
    """Bytes of the elements of an array whose key is ``kind``."""
    return item_size(kind[1] if kind[0] == "ptr" else kind[0])


def item_size(dtype: Any) -> int:
    """Bytes of an element of a dtype, or of a signature's name for one."""
    found = _item_sizes.get(dtype)
    if found is None:
        from tilewright.language.dtypes import str_to_ty

        found = _item_sizes[dtype] = str_to_ty(element_name(dtype)).itemsize
    return found


def _descriptor(v: Any) -> tuple[Any, Any]:
    """A TensorDescriptor. Its fields may have been assigned since it was made, so what the code relies on is looked at in each launch:
    ors of all sizes and all strides have the bits that some of them has. The value is a tuple of the arguments that it becomes."""
    base, shape, strides, block = v.base, v.shape, v.strides, tuple(v.block_shape)
    kind, address = FAST[ALIGN][type(base)](base)
    sizes = bits = 0
    for s in shape:
        sizes |= s
    for s in strides[:-1]:
        bits |= s
    if (kind[-1] is False or bits * _item_size(kind) & 15 or not 0 <= sizes <= 0x7FFFFFFF or strides[-1] != 1
            or not len(shape) == len(strides) == len(block)):
        from tilewright.tools.tensor_descriptor import check

        check(v)
        raise ArgumentError(f"{v!r} is no tensor descriptor")
    return ("descriptor", kind, block, v.padding, shape[-1] & 15 == 0), (address, *shape, *strides[:-1])


def plain_descriptor(v: Any) -> bool:
    """Whether a TensorDescriptor keeps all rules, as far as a quick look can tell; False where a closer one is needed."""
    try:
        (_, kind, block, padding, _), _ = _descriptor(v)
    except (TypeError, IndexError):
        return False
    for b in block:
        if type(b) is not int or b < 1 or b & (b - 1):
            return False
    return padding == "zero" and all(s >= 0 for s in v.strides) and len(block) <= 5 and block[-1] * _item_size(kind) >= 16


class _Table(dict):
    """type → fast function; an unknown type is looked at once."""

    def __init__(self, mode: int):
        super().__init__()
        self.mode = mode

    def __missing__(self, t: type) -> Fast:
        handler = self[t] = _classify(t, self.mode)
        return handler


FAST: tuple[_Table, ...] = tuple(_Table(mode) for mode in range(4))


def is_torch_tensor(t: type) -> bool:
    """Whether a class is torch.Tensor or derived from it."""
    return any(c.__name__ == "Tensor" and c.__module__.split(".")[0] == "torch" for c in t.__mro__)


def _is_ndarray(t: type) -> bool:
    return any(c.__name__ == "ndarray" and c.__module__ == "numpy" for c in t.__mro__)


def is_numpy_scalar(t: type) -> bool:
    return any(c.__name__ == "generic" and c.__module__ == "numpy" for c in t.__mro__)


def _classify(t: type, mode: int) -> Fast:
    from tilewright.targets.registry import ARRAY_PROTOCOLS

    aligned = bool(mode & ALIGN)
    if issubclass(t, bool):
        return _bool
    if t is int:
        return (_int_plain, _int_one, _int_align, _int_full)[mode]
    if is_numpy_scalar(t):
        return _scalar(mode)
    if issubclass(t, int):
        return _int_subclass(mode)
    if issubclass(t, float):
        return _float
    if t is type(None):
        return _none
    if issubclass(t, constexpr) or issubclass(t, str) or hasattr(t, "cache_key") or hasattr(t, "__interprets__"):
        return _constexpr
    if issubclass(t, tuple):
        return _tuple(mode)
    if t.__name__ == "dtype" and t.__module__.split(".")[0] == "torch":
        return _torch_dtype
    if t.__module__.startswith(__name__.split(".")[0] + ".language"):
        return _constexpr  # tl.dtype and its kin
    if any(c.__name__ == "TensorDescriptor" for c in t.__mro__):
        return _descriptor
    if is_torch_tensor(t):
        return _torch_aligned if aligned else _torch_plain
    if _is_ndarray(t):
        return _numpy(aligned)
    if hasattr(t, "data_ptr") or hasattr(t, "__dlpack__") or any(hasattr(t, p) for p in ARRAY_PROTOCOLS):
        return _pointer(aligned)
    raise ArgumentError(f"a {t.__module__}.{t.__qualname__} is no kernel argument; allowed are arrays (torch, numpy, anything with data_ptr "
                        "and dtype, an array interface or DLPack), int, float, bool, None, tuples, and constexpr values")


# --------------------------------------------------------------------------------------------------- pointers, slowly
class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    ]


_DL_CODES = {0: "i", 1: "u", 2: "fp", 4: "bf", 6: "i"}


def _dlpack_tensor(capsule: Any) -> _DLTensor:
    """What a capsule holds; the capsule's own destructor frees it."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return _DLTensor.from_address(get(capsule, b"dltensor"))


def dlpack_layout(v: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """(sizes, strides in elements) of an array that offers DLPack; None for strides where there are no gaps."""
    capsule = v.__dlpack__()
    tensor = _dlpack_tensor(capsule)
    sizes = tuple((ctypes.c_int64 * tensor.ndim).from_address(tensor.shape)) if tensor.ndim else ()
    return sizes, tuple((ctypes.c_int64 * tensor.ndim).from_address(tensor.strides)) if tensor.strides else None


def _from_dlpack(v: Any) -> tuple[str, str | None, int]:
    from tilewright.targets.registry import DLPACK_DEVICE_TYPES

    capsule = v.__dlpack__()
    tensor = _dlpack_tensor(capsule)
    name = f"{_DL_CODES.get(tensor.code, '?')}{tensor.bits}"
    if tensor.code == 6:
        name = "i1"
    if tensor.lanes != 1 or name not in _ELEMENT_NAMES.values():
        raise ArgumentError(f"a DLPack array of type code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes is no kernel argument")
    return name, DLPACK_DEVICE_TYPES.get(tensor.device_type, f"dlpack device {tensor.device_type}"), (tensor.data or 0) + tensor.byte_offset


def _from_interface(interface: Any, protocol: str, dtype: Any) -> tuple[str, str | None, int]:
    from tilewright.targets.registry import ARRAY_PROTOCOLS

    typestr = interface["typestr"]
    if typestr[0] == ">":
        raise ArgumentError(f"the array is big-endian ({typestr}); convert it to native byte order")
    name = _TYPESTR.get(typestr[1:])
    if name is None:  # ml_dtypes arrays call their bytes raw
        if dtype is None:
            raise ArgumentError(f"elements of type {typestr} are not known to kernels; known are {', '.join(sorted(set(_TYPESTR.values())))}")
        name = element_name(dtype)
    return name, ARRAY_PROTOCOLS[protocol], interface["data"][0] or 0


def native_specialize_impl(backend: Any, arg: Any, is_const: bool, specialize_value: bool, align: bool) -> tuple[Any, Any]:
    """(type, "D" where the value or address is known to be a multiple of 16, else "") of a launch argument, for tools that call Triton's function of this name.
    ``backend`` means nothing here. Of a constexpr: ("constexpr", its value)."""
    facts = describe(arg, (ONE if specialize_value else 0) | (ALIGN if align else 0))
    if facts.type == CONSTEXPR:
        return CONSTEXPR, facts.constants.get(())
    kind = "*k" + facts.type[1:] if is_const and isinstance(facts.type, str) and facts.type.startswith("*") else facts.type
    return kind, "D" if facts.attrs.get(()) else ""


def mangle_type(arg: Any, specialize: bool = False) -> Any:
    """The signature's type of a launch argument; with ``specialize`` 1 is "constexpr"."""
    return native_specialize_impl(None, arg, False, specialize, True)[0]


def is_read_only(v: Any) -> bool:
    """Whether an array says that it may not be written, as numpy's do, and those with an array interface."""
    if isinstance(v, TensorWrapper):
        return is_read_only(v.base)
    if hasattr(v, "data_ptr") or is_numpy_scalar(type(v)):  # numpy 2.5 calls the memory of its scalars read-only
        return False
    from tilewright.targets.registry import ARRAY_PROTOCOLS

    for protocol in ARRAY_PROTOCOLS:
        interface = getattr(v, protocol, None)
        if interface is not None:
            return bool(interface["data"][1])
    return False


def device_index(v: Any) -> int | None:
    """Which of several devices of its kind an array lies on; None where it does not say, as arrays of the host."""
    device = getattr(v, "device", None)
    for name in ("index", "id"):
        found = getattr(device, name, None)
        if type(found) is int:
            return found
    return None


def pointer_facts(v: Any) -> tuple[str, str | None, int]:
    """(element type, device type, address) of any array; device type None where the object does not say, ``PINNED`` for a tensor in page-locked
    memory of the host.

    Raises ArgumentError where the elements are of a type that kernels do not have.
    """
    from tilewright.targets.registry import ARRAY_PROTOCOLS

    if hasattr(v, "data_ptr") and hasattr(v, "dtype"):
        device = getattr(v, "device", None)
        kind = getattr(device, "type", device if isinstance(device, str) else None)
        address = v.data_ptr()
        base = getattr(v, "base", v) if isinstance(v, TensorWrapper) else v
        return element_name(v.dtype), PINNED if kind == "cpu" and hasattr(base, "is_pinned") and is_pinned(base) else kind, address
    for protocol in ARRAY_PROTOCOLS:
        interface = getattr(v, protocol, None)
        if interface is not None:
            return _from_interface(interface, protocol, getattr(v, "dtype", None))
    if hasattr(v, "__dlpack__"):
        return _from_dlpack(v)
    raise ArgumentError(f"a {type(v).__name__} has no data_ptr, array interface or DLPack capsule")


# ----------------------------------------------------------------------------------------------------- the slow view
@dataclass
class Described:
    """One argument, or one element of a tuple: its signature type (a tuple of such for a tuple), what is known, and where it lies.

    ``constants`` and ``attrs`` are by path below this argument: () is the argument itself, (1,) a tuple's second element.
    """

    type: Any
    constants: dict[tuple[int, ...], Any] = field(default_factory=dict)
    attrs: dict[tuple[int, ...], list[list[Any]]] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)


def describe(v: Any, mode: int) -> Described:
    """What ``FAST[mode]`` keys an argument by, spelled out. Raises ArgumentError for what is no kernel argument."""
    try:
        key, _ = FAST[mode][type(v)](v)
    except RuntimeError as error:  # torch's, of tensors without an address
        raise ArgumentError(f"a {type(v).__name__} of layout {getattr(v, 'layout', 'unknown')} on device {getattr(v, 'device', 'unknown')} has no elements "
                            f"in memory ({str(error).splitlines()[0]}); pass a dense tensor") from None
    if key is None:
        return Described(CONSTEXPR, {(): None})
    if key == "1":
        return Described(CONSTEXPR, {(): 1})
    if isinstance(key, str):
        name, _, divisible = key.partition(":")
        return Described(name, attrs={(): [["tt.divisibility", ALIGNMENT]]} if divisible else {})
    if isinstance(v, tuple):
        parts = [describe(x, mode) for x in v]
        types: Any = tuple(p.type for p in parts)
        if hasattr(v, "_fields"):
            types = type(v)(*types)
        out = Described(types)
        for i, part in enumerate(parts):
            out.constants.update({(i, *path): c for path, c in part.constants.items()})
            out.attrs.update({(i, *path): a for path, a in part.attrs.items()})
            out.devices += part.devices
        return out
    if key[0] == CONSTEXPR:
        return Described(CONSTEXPR, {(): v})
    if key[0] == "descriptor":
        from tilewright.tools.tensor_descriptor import check

        check(v)
        base = describe(v.base, ALIGN)
        shape = ",".join(str(int(s)) for s in key[2])
        # what is known beyond the type: the last size is divisible by 16
        return Described(f"tensordesc<{base.type[1:]}[{shape}]{' nan' if v.padding == 'nan' else ''}>",
                         attrs={(): [["tt.divisibility", ALIGNMENT]]} if key[4] else {}, devices=base.devices)
    if key[0] == "ptr":
        element, device, aligned = key[1], key[2], key[4] in (True, None)
    else:
        element, device, _ = pointer_facts(v)
        aligned = len(key) == 3 and key[2] in (True, None)
    return Described(f"*{element}", attrs={(): [["tt.divisibility", ALIGNMENT]]} if aligned else {}, devices=[device] if device else [])
