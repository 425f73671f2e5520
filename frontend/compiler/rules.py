"""What Python's operators and syntax mean for values of kernels: one judgement for the code generator and the interpreter. Nothing here touches IR.

Compile-time values (constexprs, and Python's own) compute as Python does; as soon as a run-time tensor takes part, the language's rules hold.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from enum import Enum
from types import ModuleType
from typing import Any

from tilewright.dialects.errors import NameResolutionError, TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.language import core
from tilewright.language import dtypes as t
from tilewright.language.aggregate import Aggregate, BoundMethod
from tilewright.language.const import ConstexprFunction, constexpr
from tilewright.language.dtypes import dtype
from tilewright.language.semantic_base import integer_promote
from tilewright.language.values import base_value, tensor
from tilewright.language.values import tuple as tl_tuple

BINARY: dict[type, tuple[str, str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", "add", operator.add), ast.Sub: ("-", "sub", operator.sub), ast.Mult: ("*", "mul", operator.mul),
    ast.Div: ("/", "truediv", operator.truediv), ast.FloorDiv: ("//", "floordiv", operator.floordiv), ast.Mod: ("%", "mod", operator.mod),
    ast.LShift: ("<<", "shl", operator.lshift), ast.RShift: (">>", "shr", operator.rshift), ast.BitAnd: ("&", "and_", operator.and_),
    ast.BitOr: ("|", "or_", operator.or_), ast.BitXor: ("^", "xor_", operator.xor), ast.Pow: ("**", "", operator.pow),
}
COMPARE: dict[type, tuple[str, str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", "equal", operator.eq), ast.NotEq: ("!=", "not_equal", operator.ne), ast.Lt: ("<", "less_than", operator.lt),
    ast.LtE: ("<=", "less_equal", operator.le), ast.Gt: (">", "greater_than", operator.gt), ast.GtE: (">=", "greater_equal", operator.ge),
}
UNARY: dict[type, str] = {ast.USub: "__neg__", ast.UAdd: "__pos__", ast.Invert: "__invert__"}
_METHODS: dict[type, str] = {ast.LShift: "lshift", ast.RShift: "rshift", ast.Pow: "pow"}
_MOST_BITS = 1 << 16  # of a compile-time integer: more is a mistake, and would take the machine's memory


# -- values ------------------------------------------------------------------------------------------------------------
def is_static(value: Any) -> bool:
    """Known while compiling: neither a tensor nor a tuple that holds one."""
    if isinstance(value, tensor):
        return False
    if isinstance(value, base_value):
        return all(is_static(v) for v in value.parts)
    return True


def static_value(value: Any) -> Any:
    """The Python value of something static."""
    if type(value) is constexpr:
        return value.value
    if isinstance(value, tl_tuple):
        return tuple(static_value(v) for v in value.values)
    return value


def wrap(value: Any) -> Any:
    """A Python value as kernels hold it: numbers and strings become constexprs, tuples and lists tuples of the language."""
    if value is None or isinstance(value, (bool, int, float, str, Enum)):
        return constexpr(value)
    if isinstance(value, (tuple, list)):
        return tl_tuple([wrap(v) for v in value], getattr(value, "_fields", None))
    return value


def same_static(a: Any, b: Any) -> bool:
    """Two compile-time values are one and the same."""
    if a is b:
        return True
    a, b = static_value(a), static_value(b)
    return a is b or (type(a) is type(b) and bool(a == b))


def type_text(value: Any) -> str:
    """A value's type in an error message."""
    if isinstance(value, tensor):
        return str(value.type)
    if isinstance(value, tl_tuple):
        return f"({', '.join(type_text(v) for v in value.values)})"
    if type(value) is constexpr:
        return f"the constexpr {value.value!r}"
    return repr(value)


def is_constexpr_annotation(annotation: Any) -> bool:
    """Whether the annotation of an assignment (its value, or its text) makes a constexpr."""
    annotation = static_value(annotation)
    return annotation is constexpr or isinstance(annotation, str) and "constexpr" in annotation


class ValueRules:
    """The rules. Those who generate code say with ``at`` where the ops that follow come from; ``semantic`` makes them."""

    semantic: Any

    def at(self, node: Any) -> None:
        """Ops made from now on come from ``node``."""

    def call(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a method of an aggregate."""
        raise NotImplementedError

    def operation(self, method: str, python: Callable[[Any, Any], Any], lhs: Any, rhs: Any) -> Any:
        """A binary operation with at least one tensor."""
        return getattr(self.semantic, method)(lhs, rhs)

    # -- calls -----------------------------------------------------------------------------------------------------
    def call_python(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A class, a constexpr_function, or a Python function of a module, with compile-time arguments."""
        if fn is constexpr:
            if len(args) != 1 or kwargs or not is_static(args[0]):
                raise TypeMismatchError("tl.constexpr takes one compile-time value")
            return constexpr(static_value(args[0]))
        if fn is tl_tuple:
            return tl_tuple(self.static_iterable(args[0], "tuple") if args else [], *args[1:], **kwargs)
        if isinstance(fn, type) and issubclass(fn, (core.range, core.condition)):
            return fn(*args, **kwargs)
        if isinstance(fn, type) and issubclass(fn, tuple) and hasattr(fn, "_fields"):
            values = fn(*args, **kwargs)
            return tl_tuple(list(values), fn._fields)
        static = all(is_static(a) for a in (*args, *kwargs.values()))
        if not static:
            if isinstance(fn, ConstexprFunction):  # triton.cdiv(run-time, constexpr), say: its operators do
                return wrap(fn.fn(*args, **kwargs))
            raise UnsupportedLanguageConstruct(f"{getattr(fn, '__name__', fn)!s} is not a function of the language and cannot take tensors; "
                                               "decorate it with @jit")
        if not callable(fn):
            how = f"; convert with x.to({fn})" if isinstance(fn, t.dtype) else ""
            raise TypeMismatchError(f"{fn!r} cannot be called{how}")
        return wrap(fn(*(static_value(a) for a in args), **{k: static_value(v) for k, v in kwargs.items()}))

    # -- conversions -----------------------------------------------------------------------------------------------
    def to_tensor(self, value: Any) -> Any:
        """Numbers as tensors, inside tuples too; anything else as it is."""
        if isinstance(value, tensor):
            return value
        if isinstance(value, (tl_tuple, tuple)):
            values = value.values if isinstance(value, tl_tuple) else value
            return tl_tuple([self.to_tensor(v) for v in values], value.fields if isinstance(value, tl_tuple) else getattr(value, "_fields", None))
        raw = value.value if type(value) is constexpr else value
        if isinstance(raw, (bool, int, float)) and not isinstance(raw, Enum):
            return self.semantic.to_tensor(raw)
        return value

    def run_time(self, value: Any) -> Any:
        """What a plain assignment stores: numbers become tensors, as in Triton; annotate with tl.constexpr to keep them."""
        return self.to_tensor(value)

    def compile_time(self, value: Any) -> Any:
        """What an assignment annotated as constexpr stores. A run-time value stays one, as in Triton, whose kernels write
        ``tile: tl.constexpr = BLOCK * n`` of an ``n`` that specialisation may make constant: what needs a constant of it says so."""
        if not is_static(value):
            return value
        return value if isinstance(value, (constexpr, tl_tuple)) else constexpr(value)

    def static_iterable(self, value: Any, what: str) -> list[Any]:
        """The items of something whose length is known while compiling."""
        if isinstance(value, tl_tuple):
            return list(value.values)
        if isinstance(value, tensor):
            raise TypeMismatchError(f"{what} takes a tuple, not a tensor of type {value.type}")
        raw = static_value(value)
        if not hasattr(raw, "__iter__"):
            raise TypeMismatchError(f"{what} takes a tuple or list, not {raw!r}")
        return [wrap(v) for v in raw]

    # -- operators -------------------------------------------------------------------------------------------------
    def binary(self, node: Any, kind: type, lhs: Any, rhs: Any) -> Any:
        """``lhs op rhs``; ``kind``: the operator's class of ast."""
        sign, method, python = BINARY[kind]
        if isinstance(lhs, Aggregate) or isinstance(rhs, Aggregate):
            name = _METHODS.get(kind, method.rstrip("_"))
            for one, other, prefix in ((lhs, rhs, "__"), (rhs, lhs, "__r")):
                if isinstance(one, Aggregate) and hasattr(type(one), f"{prefix}{name}__"):
                    return self.call(getattr(one, f"{prefix}{name}__"), [other], {})
            raise TypeMismatchError(f"{type_text(lhs)} {sign} {type_text(rhs)}: neither has a method __{name}__ for that")
        if isinstance(lhs, tensor) or isinstance(rhs, tensor):
            if not method:
                raise UnsupportedLanguageConstruct("** of run-time tensors is not part of the language; multiply, or use "
                                                   "tl.exp2(y * tl.log2(x)) or libdevice.pow")
            self.at(node)
            return self.operation(method, python, self.operand(lhs, sign), self.operand(rhs, sign))
        if isinstance(lhs, tl_tuple) or isinstance(rhs, tl_tuple):
            if kind is ast.Add:
                return tl_tuple([*self.static_iterable(lhs, "+"), *self.static_iterable(rhs, "+")])
            if kind is ast.Mult:
                items, count = (lhs, rhs) if isinstance(lhs, tl_tuple) else (rhs, lhs)
                times = static_value(count)
                if isinstance(times, bool) or not isinstance(times, int):
                    raise TypeMismatchError(f"a tuple is repeated by a compile-time integer, not by {times!r}")
                return items * times
            raise TypeMismatchError(f"{sign} does not take tuples")
        return wrap(self.python_operation(kind, python, static_value(lhs), static_value(rhs)))

    @staticmethod
    def python_operation(kind: type, python: Callable[[Any, Any], Any], lhs: Any, rhs: Any) -> Any:
        """An operation of Python's numbers, refused where it has no number."""
        sign = BINARY[kind][0]
        if kind in (ast.Div, ast.FloorDiv, ast.Mod) and isinstance(rhs, (int, float)) and isinstance(lhs, (int, float)) and rhs == 0:
            raise TypeMismatchError(f"{lhs} {sign} {rhs} while compiling: a division by zero has no value")
        if kind in (ast.LShift, ast.RShift) and isinstance(rhs, int) and isinstance(lhs, int):
            if rhs < 0:
                raise TypeMismatchError(f"{lhs} {sign} {rhs} while compiling: negative shift count")
            if kind is ast.LShift and rhs > _MOST_BITS:
                raise TypeMismatchError(f"{lhs} << {rhs} while compiling: the integer would have more than {_MOST_BITS} bits")
        if kind is ast.Pow and isinstance(rhs, int) and isinstance(lhs, int):
            if lhs == 0 and rhs < 0:
                raise TypeMismatchError(f"{lhs} ** {rhs} while compiling: a division by zero has no value")
            if abs(lhs) > 1 and rhs * abs(lhs).bit_length() > _MOST_BITS:
                raise TypeMismatchError(f"{lhs} ** {rhs} while compiling: the integer would have more than {_MOST_BITS} bits")
        return python(lhs, rhs)

    def operand(self, value: Any, sign: str) -> Any:
        """An operand of an operation with a tensor: a tensor, or a number."""
        if isinstance(value, tensor):
            return value
        raw = static_value(value)
        if not isinstance(raw, (bool, int, float)):
            raise TypeMismatchError(f"{sign} of a tensor and {raw!r}")
        return raw

    def unary(self, node: Any, kind: type, value: Any) -> Any:
        """``-``, ``+``, ``~`` and ``not``."""
        if isinstance(value, Aggregate) and kind in UNARY:
            return self.call(self.special(value, UNARY[kind]), [], {})
        if isinstance(value, tensor):
            self.at(node)
            if kind is ast.USub:
                return self.semantic.minus(value)
            if kind is ast.Invert:
                return self.semantic.invert(value)
            return self.semantic.not_(value) if kind is ast.Not else value
        raw = static_value(value)
        if kind is ast.Not:
            return constexpr(not raw)
        return wrap(-raw if kind is ast.USub else ~raw if kind is ast.Invert else +raw)

    def compare(self, node: Any, kind: type, lhs: Any, rhs: Any) -> Any:
        """One comparison; ``kind``: its class of ast."""
        if kind in (ast.Is, ast.IsNot):
            same = static_value(lhs) is static_value(rhs) if is_static(lhs) and is_static(rhs) else lhs is rhs
            if not same and is_static(lhs) and is_static(rhs):
                same = isinstance(static_value(lhs), (dtype, bool)) and same_static(lhs, rhs)
            return constexpr(same == (kind is ast.Is))
        if kind in (ast.In, ast.NotIn):
            raw = static_value(rhs) if is_static(rhs) else None
            items = raw if isinstance(raw, str) else [static_value(v) for v in self.static_iterable(rhs, "in")]
            if not is_static(lhs):
                raise TypeMismatchError("`in` looks for a compile-time value")
            if not all(map(is_static, items)):
                raise TypeMismatchError("`in` looks among compile-time values; compare with each run-time one")
            return constexpr((static_value(lhs) in items) == (kind is ast.In))
        sign, method, python = COMPARE[kind]
        if isinstance(lhs, Aggregate):
            name = f"__{python.__name__}__"
            if isinstance(getattr(lhs, name), BoundMethod):
                return self.call(getattr(lhs, name), [rhs], {})
            if kind in (ast.Eq, ast.NotEq):
                raise TypeMismatchError(f"{type(lhs).__name__} has no jit method {name}; compare its fields")
        if isinstance(lhs, tensor) or isinstance(rhs, tensor):
            other = rhs if isinstance(lhs, tensor) else lhs
            if kind in (ast.Eq, ast.NotEq) and not isinstance(other, tensor) and not isinstance(static_value(other), (bool, int, float)):
                return constexpr(kind is ast.NotEq)
            self.at(node)
            return self.operation(method, python, self.operand(lhs, sign), self.operand(rhs, sign))
        if isinstance(lhs, tl_tuple) and isinstance(rhs, tl_tuple) and not (is_static(lhs) and is_static(rhs)):
            if kind not in (ast.Eq, ast.NotEq):
                raise TypeMismatchError(f"{sign} does not take tuples of tensors")
            result: Any = constexpr(len(lhs) == len(rhs))
            for a, b in zip(lhs.values, rhs.values):
                result = self.both(node, result, self.compare(node, ast.Eq, a, b))
            if kind is ast.Eq:
                return result
            return self.semantic.not_(result) if isinstance(result, tensor) else constexpr(not result.value)
        return constexpr(bool(python(static_value(lhs), static_value(rhs))))

    def both(self, node: Any, a: Any, b: Any) -> Any:
        """``a and b`` of values that exist already."""
        if not isinstance(a, tensor):
            return b if static_value(a) else a
        if not isinstance(b, tensor):
            return a if static_value(b) else b
        self.at(node)
        return self.semantic.logical_and(a, b)

    @staticmethod
    def ends_early(is_and: bool, value: Any) -> bool:
        """Whether an operand of ``and`` or ``or`` decides it: a compile-time value may, as in Python."""
        return not isinstance(value, tensor) and bool(static_value(value)) != is_and

    def combined(self, node: Any, is_and: bool, values: Sequence[Any]) -> Any:
        """The value of ``and`` or ``or`` of the operands that were evaluated. Run-time ones are combined as truth values, int1; a single one is
        the value itself, as in Triton."""
        if self.ends_early(is_and, values[-1]):
            return values[-1]
        tensors = [v for v in values if isinstance(v, tensor)]
        if not tensors:
            return values[-1]
        result = tensors[0]
        for value in tensors[1:]:
            self.at(node)
            result = self.semantic.logical_and(result, value) if is_and else self.semantic.logical_or(result, value)
        return result

    def test(self, node: Any, value: Any) -> Any:
        """The value of a condition as an int1 scalar tensor, or as a Python bool."""
        if isinstance(value, core.condition):
            value = value.condition
        if not isinstance(value, tensor):
            return bool(static_value(value))
        if value.type.is_block():
            if value.numel != 1:
                raise TypeMismatchError(f"a condition is one truth value, and this tensor has shape {list(value.shape)}; reduce it "
                                        "(tl.max, tl.reduce_or) or use tl.where")
            self.at(node)
            value = self.semantic.unsplat(value)
        self.at(node)
        return self.semantic.to_bool(value)

    def alike(self, a: Any, b: Any) -> bool:
        """Whether two values have one structure and types, and equal compile-time parts."""
        if isinstance(a, tensor):
            return isinstance(b, tensor) and a.type == b.type
        if isinstance(a, base_value):
            return isinstance(b, base_value) and a.same_form(b) and all(self.alike(x, y) for x, y in zip(a.parts, b.parts))
        return not isinstance(b, base_value) and same_static(a, b)

    @staticmethod
    def unlike(a: Any, b: Any) -> TypeMismatchError:
        """The error of a conditional expression whose values are not alike."""
        return TypeMismatchError(f"the values of a conditional expression with a run-time condition have one type, not {type_text(a)} and {type_text(b)}")

    # -- parts of values -------------------------------------------------------------------------------------------
    def attribute(self, node: Any, value: Any, name: str) -> Any:
        """``value.name``."""
        if isinstance(value, tensor):
            if name == "T":
                self.at(node)
                return self.semantic.trans(value)
            if name in ("handle", "const") or (name.startswith("_") and name not in ("_reinterpret",)) or not hasattr(type(value), name):
                raise TypeMismatchError(f"a tensor of type {value.type} has no attribute {name!r}")
            return wrap(getattr(value, name))
        if type(value) is constexpr:
            if name == "value":
                return value
            if name == "type":
                return value.type
            return wrap(getattr(value.value, name))
        try:
            return wrap(getattr(value, name))
        except AttributeError:
            if not isinstance(value, ModuleType):
                raise
            import difflib

            near = difflib.get_close_matches(name, dir(value), 1)
            raise NameResolutionError(f"{value.__name__} has no {name!r}{f'; did you mean {near[0]}?' if near else ''}") from None

    def subscript(self, node: Any, value: Any, index: Any) -> Any:
        """``value[index]``."""
        if isinstance(value, Aggregate):
            return self.call(self.special(value, "__getitem__"), [index], {})
        if isinstance(value, tensor):
            self.at(node)
            return self.semantic.getitem(value, index)
        if not is_static(index):
            raise TypeMismatchError("a tuple is indexed by a compile-time integer, not by a run-time tensor")
        if isinstance(index, slice) and any(isinstance(part, tensor) for part in (index.start, index.stop, index.step)):
            raise TypeMismatchError("a tuple is sliced by compile-time integers, not by a run-time tensor")
        if isinstance(value, tl_tuple):
            return value[static_value(index) if not isinstance(index, slice) else index]
        raw = static_value(value)
        key = static_value(index)
        if isinstance(key, slice):
            key = slice(*(static_value(v) for v in (key.start, key.stop, key.step)))
        return wrap(raw[key])

    def special(self, value: Aggregate, name: str) -> Any:
        """A method that Python's syntax calls."""
        if not hasattr(type(value), name):
            raise TypeMismatchError(f"{type(value).__name__} has no method {name}")
        return getattr(value, name)

    def with_item(self, whole: Any, index: Any, value: Any) -> Any:
        """What a variable holds after ``variable[index] = value``: a tuple with that item, or the aggregate whose method was called."""
        if isinstance(whole, Aggregate):
            self.call(self.special(whole, "__setitem__"), [index, value], {})
            return whole
        if not isinstance(whole, tl_tuple):
            raise UnsupportedLanguageConstruct("only names and items of tuples are assigned in kernels; tl.store writes memory")
        items, at = list(whole.values), static_value(index) if is_static(index) else None
        if isinstance(at, bool) or not isinstance(at, int) or not -len(items) <= at < len(items):
            raise TypeMismatchError(f"an item of a tuple of {len(items)} is assigned at a compile-time index within it, not at {index}")
        items[at] = value
        return tl_tuple(items, whole.fields)

    def assign_attribute(self, instance: Any, name: str, value: Any, allowed: bool) -> None:
        """``instance.name = value``, which is for fields of aggregates in their jit ``__init__`` (``allowed``)."""
        if not isinstance(instance, Aggregate):
            raise UnsupportedLanguageConstruct("attributes are not assigned in kernels; only names are")
        if not allowed:
            raise UnsupportedLanguageConstruct(f"the field {name} of {type(instance).__name__} is assigned in __init__, outside branches and loops "
                                               "known at run time; make a new instance instead")
        setattr(instance, name, value if instance.kind_of(name) is constexpr else self.run_time(value))

    # -- loops -----------------------------------------------------------------------------------------------------
    def range_bounds(self, loop: core.range) -> tuple[tensor, tensor, tensor, bool, Any]:
        """(start, end, distance of two steps, whether it counts down, type of the user's variable) of a run-time loop."""
        step = loop.step
        down = is_static(step) and static_value(step) < 0
        if is_static(step) and static_value(step) == 0:
            raise TypeMismatchError("the step of a loop is not 0")
        start, end, step = (self.semantic.to_tensor(b) for b in (loop.start, loop.end, constexpr(-static_value(step)) if down else step))
        for bound in (start, end, step):
            if bound.type.is_block() or not bound.type.is_int():
                raise TypeMismatchError(f"the bounds of a loop are integers, not {bound.type}")
        # a truth value counts as 0 or 1
        start, end, step = (self.semantic.cast(b, t.int32) if b.type.is_bool() else b for b in (start, end, step))
        counter = integer_promote(integer_promote(start.type, end.type), step.type)
        return start, end, step, down, t.int32 if counter.int_bitwidth < 32 else counter
