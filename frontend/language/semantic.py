"""What each call of the language means, in primitive operations of a Builder (see compiler/builder.py).

The code generator has one over the MLIR builder, the interpreter one over numpy; there is no other difference between them.
``language/values.py`` makes one of them current for a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects.errors import UnsupportedLanguageConstruct
from tilewright.language.semantic_base import computation_type, integer_promote, type_of_python
from tilewright.language.semantic_descriptor import DescriptorSemantic
from tilewright.language.semantic_scaled import ScaledSemantic


class Semantic(DescriptorSemantic, ScaledSemantic):
    """All operations: constants, promotion, casts, arithmetic, memory, tiles.

    ``call_jit(fn, args, kwargs)`` calls a jit function that the language was handed as a value (a combiner): the code
    generator sets it to inline the function, and without it the plain Python function is called.
    """

    call_jit: Callable[[Any, list[Any], dict[str, Any]], Any] | None = None

    def call(self, fn: Any, *args: Any) -> Any:
        """Call a combiner: a language function, a jit function, or (in the interpreter) any Python function."""
        if getattr(fn, "__triton_builtin__", False):
            return fn(*args, _semantic=self)
        if self.call_jit is not None:
            return self.call_jit(fn, list(args), {})
        return self.call_python(fn, *args)

    @staticmethod
    def call_python(fn: Any, *args: Any) -> Any:
        """Without a code generator: a jit function is interpreted, with the helpers that it calls; any other function is called."""
        if hasattr(fn, "cache_key"):
            from tilewright.runtime.interpreter import interpreted

            return interpreted(fn)(*args)
        if not callable(fn):
            raise UnsupportedLanguageConstruct(f"{fn!r} is not a function of the language and cannot take tensors; decorate it with @jit")
        return (fn if hasattr(fn, "launches") else getattr(fn, "fn", fn))(*args)


__all__ = ["Semantic", "computation_type", "integer_promote", "type_of_python"]
