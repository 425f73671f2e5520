"""What the language needs of a builder: the tt dialect as an interface.

``language/semantic.py`` turns language calls into primitive ops through this interface only. It has two implementations:
``compiler/mlir_builder.py`` makes IR, ``runtime/interpreter.py`` computes with numpy. A *handle* is opaque to the caller:
an ``ir.Value`` in the first, an array in the second. Types are language types (``tl.dtype``, ``tl.pointer_type``,
``tl.block_type``): they know signedness, which tt does not.
"""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects.errors import KernelWarning

Handle = Any


class Builder(ABC):
    """Makes (or computes) primitive operations. Both implementations raise ``dialects.errors`` classes only."""

    #: True where handles hold values now, so that ``concrete`` works.
    is_interpreter: bool = False
    #: The launch options (num_warps, debug, default_dot_input_precision, …), duck-typed; may be None.
    options: Any = None

    @abstractmethod
    def create(self, op: str, operands: Sequence[Handle | None], result_types: Sequence[Any], attrs: dict[str, Any] | None = None,
               ) -> list[Handle]:
        """One op. ``op`` is an MLIR op name ("arith.addf", "tt.load", "arith.cmpi" with attrs {"predicate": "slt"}).

        ``attrs`` are Python values: bool → BoolAttr, int → i32, str → StringAttr, list of int → DenseI32ArrayAttr;
        predicates of arith.cmpi and arith.cmpf are MLIR's names ("slt", "ult", "oeq", "une"). Optional operands
        (mask, other) are None where absent, never left out. Returns one handle a result type.
        """

    @abstractmethod
    def constant(self, value: Any, type: Any) -> Handle:
        """``value`` (a Python bool, int or float) as a scalar of ``type``, or as a tile where ``type`` is a block_type.

        Integers are given as the language writes them: a uint8 255 is 255, not -1.
        """

    @abstractmethod
    def region_op(self, op: str, operands: Sequence[Handle], result_types: Sequence[Any], attrs: dict[str, Any],
                  scalar_types: Sequence[Any], combine: Callable[[list[Handle]], list[Handle]]) -> list[Handle]:
        """"tt.reduce" or "tt.scan". ``combine`` takes 2n scalar handles (n accumulators, then n elements) and gives n.

        ``scalar_types`` are the n element types of ``operands``. For numpy, ``combine`` may be called with whole
        arrays, since all that a combiner may use is elementwise.
        """

    @abstractmethod
    def map_op(self, operands: Sequence[Handle], tile: Any, scalar_types: Sequence[Any], pack: int,
               function: Callable[[list[Handle]], tuple[list[Handle], list[Any]]]) -> tuple[list[Handle], list[Any]]:
        """"tt.map_elementwise" on operands of the block_type ``tile``'s shape. ``function`` takes ``pack`` scalar handles of each operand
        in turn and gives as many of each result, with their types; returned are the results and their element types."""

    def warn(self, text: str) -> None:
        """A ``KernelWarning`` at the kernel's line. Default: the line that is running, for builders that compute."""
        level, frame = 1, inspect.currentframe()
        while frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == __name__.split(".")[0]:
            level, frame = level + 1, frame.f_back
        warnings.warn(text, KernelWarning, stacklevel=level)

    def set_hint(self, handle: Handle, name: str, values: Sequence[int]) -> None:
        """Promise ``name`` ("tt.divisibility", "tt.contiguity", "tt.constancy"), one value a dim, of a value. Default: ignored."""
        return None

    def concrete(self, handle: Handle) -> bool | int | float:
        """The value of a scalar (or one-element) handle, in the interpreter. Raises TypeMismatchError when compiling."""
        from tilewright.dialects.errors import TypeMismatchError

        raise TypeMismatchError("the value of a tensor is known at run time only; here a Python value is needed while compiling "
                                "(declare it tl.constexpr, or use tl.where or an `if` statement on it)")
