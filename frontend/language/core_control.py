"""``tl.core``, fourth part: hints, debugging, escapes from the language, and loops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilewright.dialects.errors import CompileTimeAssertionFailure, TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.language.const import unwrap as _unwrap_if_constexpr
from tilewright.language.decorators import builtin
from tilewright.language.dtypes import dtype as base_type
from tilewright.language.values import tensor
from tilewright.language.values import tuple as tuple  # noqa: A004

_python_range = range
_python_tuple: Any = type(())


# -- hints and debugging -----------------------------------------------------------------------------------------------
@builtin
def multiple_of(input: Any, values: Any, _semantic: Any = None) -> tensor:
    """Promise that the first value of every block along dim i is a multiple of ``values[i]``.

    Types: integers, pointers.

    Example::

        start = tl.multiple_of(n * 16, 16)
        x = tl.load(p + start + i, mask=mask)
    """
    return _semantic.hint("multiple_of", input, values)


@builtin
def max_contiguous(input: Any, values: Any, _semantic: Any = None) -> tensor:
    """Promise that ``values[i]`` successive values along dim i are contiguous.

    Types: integers, pointers.

    Example::

        offsets = tl.max_contiguous(tl.multiple_of(n * 16 + i, 16), 16)
        x = tl.load(p + offsets, mask=mask)
    """
    return _semantic.hint("max_contiguous", input, values)


@builtin
def max_constancy(input: Any, values: Any, _semantic: Any = None) -> tensor:
    """Promise that ``values[i]`` successive values along dim i are equal.

    Types: integers, pointers.

    Example::

        group = tl.max_constancy(i // 4, 4)
        scale = tl.load(p + group)
    """
    return _semantic.hint("max_constancy", input, values)


@builtin
def assume(cond: Any, _semantic: Any = None) -> None:
    """Promise that a scalar condition holds.

    Types: scalar int1.

    Example::

        tl.assume(n > 0)
        x = tl.load(p + i % n)
    """
    if not isinstance(cond, (tensor, bool)):
        raise TypeMismatchError(f"assume takes a scalar condition, not {cond!r}")
    if isinstance(cond, tensor):
        _semantic.assume(cond)


@builtin
def debug_barrier(_semantic: Any = None) -> None:
    """All threads of the program wait for each other.

    Example::

        tl.store(out + i, x)
        tl.debug_barrier()
    """
    _semantic.debug_barrier()


@builtin
def static_print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False, _semantic: Any = None) -> None:
    """Print compile-time values while compiling; of tensors, their type.

    Types: compile-time values.

    Example::

        tl.static_print("block of", x.shape, x.dtype)
        tl.static_print(f"{x.shape[0]} elements")
    """
    print(sep.join(str(_unwrap_if_constexpr(v)) for v in values), end=end, file=file, flush=flush)


@builtin
def static_assert(cond: Any, msg: Any = "", _semantic: Any = None) -> None:
    """Fail the compilation unless a compile-time condition holds.

    Types: compile-time values.

    Example::

        tl.static_assert(x.shape[0] == 16, "blocks of 16")
        tl.static_assert(x.dtype == tl.float32)
    """
    if isinstance(cond, tensor):
        raise TypeMismatchError("static_assert takes a compile-time condition, not a run-time tensor; use tl.device_assert")
    if not cond:
        raise CompileTimeAssertionFailure(f"static_assert does not hold{': ' + str(msg) if msg != '' else ''}")


@builtin
def device_print(prefix: Any, *args: Any, hex: bool = False, _semantic: Any = None) -> None:
    """Print each element of the tensors once a program at run time: ``pid (x, y, z) idx (i, j) prefix: value``.

    ``prefix``: a compile-time string of printable ASCII; without tensors it is printed alone. ``args``: tensors, scalars and numbers; of several each line
    says ``(operand k)``. ``hex``: in hexadecimal, of floats their bits. Lines of different programs and elements come in any order; on a GPU they come
    when the kernel has ended, and a buffer that is full loses lines. Raises TypeMismatchError for a prefix that is no such string.

    Types: any.

    Example::

        tl.device_print("n", n)
        tl.device_print("k", k, hex=True)
    """
    if not isinstance(prefix, str):
        raise TypeMismatchError("device_print takes a string first, then tensors")
    _semantic.device_print(prefix, args, hex)


@builtin
def device_assert(cond: Any, msg: Any = "", mask: Any = None, _semantic: Any = None) -> None:
    """Stop the program at run time where ``cond`` fails; compiled in only with the option debug=True.

    Types: int1.

    Example::

        tl.device_assert(n >= 0, "n is a size")
        tl.device_assert(k >= 0, "negative", mask=mask)
    """
    _semantic.device_assert(cond, str(msg), mask)


# -- escapes -----------------------------------------------------------------------------------------------------------
@builtin
def inline_asm_elementwise(asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int, _semantic: Any = None) -> Any:
    """Target assembly on ``pack`` elements at a time. ``dtype``: one type, or several for as many results.

    ``asm`` and ``constraints`` are LLVM's for the target; operands are $0 (the first result), $1, …; values narrower than 32 bits share a register
    where ``pack`` is larger than 1. ``is_pure``: it has no effect but its results. Text that the target's assembler refuses is an error with its
    message; tl.target_info tells targets apart at compile time.

    Types: integers and floats.

    Targets: all but the interpreter, each with its own assembly.

    Example::

        z = tl.inline_asm_elementwise("shl.b32 $0, $1, 3;", "=r,r", [k], dtype=tl.int32, is_pure=True, pack=1)
    """
    many = not isinstance(dtype, base_type)
    results = _semantic.inline_asm(asm, constraints, list(args), [_unwrap_if_constexpr(d) for d in dtype] if many else [dtype], is_pure, pack)
    return tuple(results) if many else results[0]


@builtin
def extern_elementwise(lib_name: str, lib_path: str, args: Any, arg_type_symbol_dict: dict[Any, Any], is_pure: bool, _semantic: Any = None) -> tensor:
    """Call an external function chosen by the argument types: {(types…): (symbol, result type)}.

    Symbols are libdevice's names ("tanh"), with a vendor library's prefix and suffix or without. They mean Tilewright's own functions of those
    names, on every target: no library is linked, and another symbol is an error.

    Types: integers and floats.

    Example::

        h = tl.extern_elementwise("", "", [x], {(tl.float32,): ("tanh", tl.float32)}, is_pure=True)
        tl.store(out + i, h)
    """
    values = [_semantic.to_tensor(a) for a in args]
    key = _python_tuple(v.dtype for v in values)
    if key not in arg_type_symbol_dict:
        wanted = "; ".join(", ".join(str(d) for d in k) for k in arg_type_symbol_dict)
        raise TypeMismatchError(f"the external function takes {wanted}, not {', '.join(str(d) for d in key)}")
    symbol, result = map(_unwrap_if_constexpr, arg_type_symbol_dict[key])
    from tilewright.language.extra import libdevice

    name = _portable(symbol, libdevice.__all__)
    if name is not None:
        return _semantic.cast(getattr(libdevice, name)(*values, _semantic=_semantic), result)
    if lib_path:
        raise UnsupportedLanguageConstruct(f"{symbol!r} of {lib_path} is none of libdevice's functions, and libraries are not linked; write it in the "
                                           "language, or as tl.inline_asm_elementwise")
    return _semantic.extern(symbol, values, result, is_pure)


def _portable(symbol: str, names: Sequence[str]) -> str | None:
    """The libdevice name in a library's symbol: ``__xx_tanhf`` and ``__xxxx_tanh_f32`` are tanh. None where there is none."""
    bare = re.sub(r"_f(16|32|64)$", "", re.sub(r"^__[a-z]+_", "", symbol))
    return next((n for n in (bare, bare.removesuffix("f")) if n in names), None)


def _count(what: str, value: Any) -> None:
    value = _unwrap_if_constexpr(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeMismatchError(f"{what} is a compile-time integer, not {value!r}")


def _flag(what: str, value: Any) -> None:
    value = _unwrap_if_constexpr(value)
    if isinstance(value, tensor) or value not in (None, False, True):
        raise TypeMismatchError(f"{what} is True or False, known while compiling, not {value!r}")


# -- loops -------------------------------------------------------------------------------------------------------------
class range:  # noqa: A001
    """``for i in tl.range(…)``: a run-time loop with hints. It runs as often as Python's range, at the limits of its type too.

    ``num_stages``: iterations in flight of the loads; ``loop_unroll_factor``: iterations a round (a second loop runs those that are
    left; below 2: none); ``flatten``, ``warp_specialize``, ``disallow_acc_multi_buffer``, ``disable_licm``. They are hints that change no result,
    and compile-time values: integers and truth values. Raises TypeMismatchError for others, and for a negative ``num_stages``.

    Types: int32, int64.

    Example::

        for j in tl.range(0, n, 4, num_stages=3):
            x += tl.load(p + j + i)
    """

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None, num_stages: Any = None, loop_unroll_factor: Any = None,
                 disallow_acc_multi_buffer: Any = False, flatten: Any = False, warp_specialize: Any = False, disable_licm: Any = False,
                 _semantic: Any = None):
        self.start: Any = 0 if arg2 is None else arg1
        self.end: Any = arg1 if arg2 is None else arg2
        self.step = 1 if step is None else step
        self.num_stages, self.loop_unroll_factor = num_stages, loop_unroll_factor
        self.disallow_acc_multi_buffer, self.flatten, self.warp_specialize = disallow_acc_multi_buffer, flatten, warp_specialize
        self.disable_licm = disable_licm
        for name in ("num_stages", "loop_unroll_factor"):
            _count(f"{name} of tl.range", getattr(self, name))
        if self.num_stages is not None and _unwrap_if_constexpr(self.num_stages) is not None and _unwrap_if_constexpr(self.num_stages) < 0:
            raise TypeMismatchError(f"num_stages of tl.range is at least 0, not {_unwrap_if_constexpr(self.num_stages)}")
        for name in ("disallow_acc_multi_buffer", "flatten", "warp_specialize", "disable_licm"):
            _flag(f"{name} of tl.range", getattr(self, name))

    def __iter__(self) -> Any:
        return iter(_python_range(*(int(_unwrap_if_constexpr(v)) for v in (self.start, self.end, self.step))))

    def __next__(self) -> Any:
        raise TypeMismatchError("tl.range is for `for` loops only")


class static_range(range):
    """``for i in tl.static_range(…)``: unrolled while compiling; its bounds are constexprs.

    Types: constexprs.

    Example::

        for j in tl.static_range(4):
            x += tl.load(p + j * 16 + i)
    """

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None, _semantic: Any = None):
        super().__init__(arg1, arg2, step)
        for v in (self.start, self.end, self.step):
            v = _unwrap_if_constexpr(v)
            if isinstance(v, tensor) or not hasattr(v, "__index__"):
                raise TypeMismatchError(f"static_range takes compile-time integers (constexpr), not {v!r}; use tl.range for run-time bounds")


class condition:
    """``while tl.condition(test, …)``: a run-time loop with hints.

    Types: scalar int1.

    Example::

        j = n
        while tl.condition(j > 0):
            j -= 1
    """

    def __init__(self, arg1: Any, disable_licm: Any = False, _semantic: Any = None):
        _flag("disable_licm of tl.condition", disable_licm)
        self.condition, self.disable_licm = arg1, disable_licm

    def __bool__(self) -> bool:
        return bool(self.condition)


class slice:  # noqa: A001
    """Kept for Triton's name; kernels write ``x[:, None]``."""

    def __init__(self, start: Any, stop: Any, step: Any):
        self.start, self.stop, self.step = start, stop, step


def extern(fn: Any) -> Any:
    """Decorator of functions that call extern_elementwise: a builtin."""
    return builtin(fn)
