"""One class per kind of mistake. Each message says what was found, what is allowed and what to change.

``CompilationError`` carries the place in the user's source; whoever knows the place raises it or calls ``at``.
"""

from __future__ import annotations

import linecache
import re
import types
from typing import Any


class TilewrightError(Exception):
    """Base of every error that Tilewright raises on purpose."""


class CompilationError(TilewrightError):
    """A mistake in a kernel: file, line and column of the user's code, the line quoted with a caret, and the message."""

    def __init__(self, message: str, file: str | None = None, line: int = 0, col: int = 0, source_line: str | None = None):
        self.message, self.file, self.line, self.col = message, file, line, col
        if source_line is None and file:
            source_line = linecache.getline(file, line)
        self.source_line = (source_line or "").rstrip("\n")
        self.calls: list[tuple[str, int, str]] = []  # file, line and text of the calls that lead there, the innermost first
        super().__init__(self.__str__())

    def __str__(self) -> str:
        if not self.file:
            return self.message
        text = f"{self.file}:{self.line}:{self.col + 1}: {self.message}"
        if self.source_line:
            text += f"\n    {self.source_line}\n    {' ' * self.col}^"
        for file, line, source in self.calls:
            text += f"\n  called from {file}:{line}: {source}"
        return text

    @property
    def error_message(self) -> str:
        """The message without its place, under Triton's name."""
        return self.message

    def at(self, file: str, line: int, col: int) -> CompilationError:
        """This error with its place; unchanged where it has one already."""
        return self if self.file else type(self)(self.message, file, line, col)


class NameResolutionError(CompilationError):
    """A name that is not defined, or is a global that is not a constexpr."""


class ShapeMismatchError(CompilationError):
    """Shapes that do not fit, or a block dim that is not a power of two."""


class TypeMismatchError(CompilationError):
    """An operand or argument of a type that the operation does not take."""


class UnsupportedLanguageConstruct(CompilationError):
    """Python that the language does not have."""


class CompileTimeAssertionFailure(CompilationError):
    """A static_assert that does not hold."""


class UnsupportedOnTargetError(CompilationError):
    """Valid code that this target or arch cannot run; says which can."""


class InternalCompilerError(CompilationError):
    """A pass failed; names the pass and the reproducer file."""


class AssemblerError(InternalCompilerError):
    """The assembler refused the code it was given: inline assembly of the user's, or a mistake of the compiler."""


class UnsupportedArchError(TilewrightError):
    """An arch the target does not know; names those it knows."""


class TargetNotFoundError(TilewrightError):
    """No such target, or its plugin is broken."""


class DriverNotFoundError(TilewrightError):
    """The vendor's driver or its Python package is missing; says what to install."""


class AssemblerNotFoundError(TilewrightError):
    """No assembler or linker for the last stage; says what to install."""


def mistake_of(error: Exception) -> CompilationError:
    """What an exception of Python's says of the kernel that was being compiled or interpreted: ``1 / 0``, ``len(3)``, a name that is missing."""
    text = re.sub(r"\b(?:CodeGenerator\.)?\b_(?!_)(\w+\(\))", r"\1", str(error)).replace(".__init__()", "()")  # functions of the language stand for Python's own
    if isinstance(error, NameError):
        missing = isinstance(error, UnboundLocalError) and error.name is None
        return NameResolutionError(text if missing or not error.name else f"{error.name} is not defined")
    if isinstance(error, AttributeError) and error.name and isinstance(error.obj, types.ModuleType):
        import difflib  # here, since every start of Python with Tilewright loads this module

        near = difflib.get_close_matches(error.name, dir(error.obj), 1)
        return NameResolutionError(f"{error.obj.__name__} has no {error.name!r}{f'; did you mean {near[0]}?' if near else ''}")
    if isinstance(error, AttributeError) and error.name and type(error.obj).__name__ == "tensor":
        obj: Any = error.obj
        return TypeMismatchError(f"a tensor of type {obj.type} has no attribute {error.name!r}")
    if isinstance(error, (TypeError, ValueError, AttributeError, AssertionError)) and text:
        return (CompilationError if isinstance(error, AssertionError) else TypeMismatchError)(text)
    return CompilationError(f"{type(error).__name__}: {text}")


class BundleError(TilewrightError):
    """A file of compiled kernels that is damaged, of another format, or without code for what is asked; says what it holds."""


class OutOfResources(TilewrightError):
    """More shared memory, registers or threads than the device has; names the amount, the limit and what to lower."""

    def __init__(self, required: int, limit: int, name: str, hint: str = ""):
        self.required, self.limit, self.name, self.hint = required, limit, name, hint
        super().__init__(f"out of resource: {name}: {required} needed, {limit} available. "
                         + (hint or "Reducing block sizes or `num_stages` may help."))

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return (type(self), (self.required, self.limit, self.name, self.hint))


class DeviceAssertionError(TilewrightError):
    """A device_assert did not hold; names the kernel, the program and the message."""


class DeviceAddressError(TilewrightError):
    """A kernel read or wrote memory through a null pointer; names the argument where it is one, the program and the line."""


class VariantNeeded(TilewrightError):
    """Not for users: these options do not lead to code for this kernel, but it compiles with ``options`` set so. ``reason`` says why.

    A pass raises it; the compiler starts again and notes the reason."""

    def __init__(self, options: dict[str, object], reason: str):
        self.options, self.reason = options, reason
        super().__init__(f"{reason}; the kernel compiles with {', '.join(f'{k}={v}' for k, v in options.items())}")

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return (type(self), (self.options, self.reason))


class KernelWarning(UserWarning):
    """Something in a kernel is taken, as Triton takes it, and is hardly meant; names the kernel's file and line."""


class ArgumentError(TilewrightError):
    """A launch argument that the kernel or the target cannot take (missing, of an unknown kind, on another device)."""
