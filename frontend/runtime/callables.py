"""What a jit function is made of: the Python function's parameters, its source text, and the key of all that its code depends on."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tilewright.language.const import listeners
from tilewright.runtime import dependencies
from tilewright.runtime.driver import forget_choices
from tilewright.runtime.errors import ArgumentError, KernelCallError
from tilewright.runtime.specialize import ALIGN, ONE, element_name


class KernelParam:
    """One parameter of a kernel, as its definition says."""

    def __init__(self, num: int, param: inspect.Parameter, do_not_specialize: bool, do_not_specialize_on_alignment: bool):
        self.num = num
        self._param = param
        self.name = param.name
        self.do_not_specialize = do_not_specialize
        self.do_not_specialize_on_alignment = do_not_specialize_on_alignment
        self.has_default = param.default is not inspect.Parameter.empty
        self.default = param.default
        self.keyword_only = param.kind is inspect.Parameter.KEYWORD_ONLY
        annotation = "" if param.annotation is inspect.Parameter.empty else param.annotation
        if isinstance(annotation, type):
            self.annotation = annotation.__name__
        else:
            self.annotation = annotation if isinstance(annotation, str) else str(getattr(annotation, "name", annotation))
        self.is_constexpr = "constexpr" in self.annotation
        self.is_const = not self.is_constexpr and "const" in self.annotation
        self.annotation_type = "" if self.is_constexpr else _annotated_type(self.annotation)
        one = not do_not_specialize and not self.annotation_type
        align = not do_not_specialize and not do_not_specialize_on_alignment
        self.mode = (ONE if one else 0) | (ALIGN if align else 0)

    @property
    def has_annotation(self) -> bool:
        return bool(self.annotation)

    @property
    def is_not_constexpr(self) -> bool:
        return not self.is_constexpr

    def __repr__(self) -> str:
        return f"KernelParam({self.num}, {self.name!r}{': ' + self.annotation if self.annotation else ''})"


def _annotated_type(annotation: str) -> str:
    """"i64" of ``tl.int64``, "int64" or "i64"; "" of anything that is no scalar type (a pointer annotation is for the reader)."""
    try:
        return element_name(annotation.rsplit(".", 1)[-1].strip("'\" "))
    except ArgumentError:
        return ""


def check_function(fn: Any) -> None:
    """Raise where jit is put over what is no function written with def, or one that no kernel can be."""
    name = getattr(fn, "__qualname__", repr(fn))
    if hasattr(type(fn), "cache_key"):
        raise KernelCallError(f"{name} is a kernel already: jit stands over it once")
    if hasattr(fn, "arg_names") and hasattr(fn, "fn"):
        raise KernelCallError(f"jit stands nearest to the function, under autotune and heuristics; found it above {type(fn).__name__} of {fn.__name__}")
    if isinstance(fn, (staticmethod, classmethod)) or inspect.ismethod(fn):
        raise KernelCallError(f"jit is put over a {'method of an object or class' if inspect.ismethod(fn) else type(fn).__name__} ({name}); a kernel has no self: "
                              "write @staticmethod above @jit")
    if inspect.isclass(fn):
        raise KernelCallError(f"{name} is a class; jit takes functions defined with def")
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None:
        raise KernelCallError(f"{name} is a {type(fn).__name__} without source in Python; jit takes functions defined with def")
    place = f"{code.co_filename}:{code.co_firstlineno}"
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise KernelCallError(f"{place}: {name} is an async function, and kernels wait for nothing; define it with def")
    if code.co_flags & inspect.CO_GENERATOR:
        raise KernelCallError(f"{place}: {name} is a generator, since it has a yield; kernels return values, or store them")
    reserved = [n for n in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount] if n.startswith("_tw_")]
    if reserved:
        raise KernelCallError(f"{place}: the parameter {reserved[0]!r} of {name} has to be called otherwise: names that start with _tw_ are the launcher's")


_edition = 0  # counts what changed in place


def edited() -> None:
    """What kernels are made of has changed in place: have all look at it anew."""
    global _edition
    _edition += 1
    forget_choices()


listeners.append(edited)


class JITCallable:
    """A function whose source the compiler reads: parameters, source text, and the key of all that its code depends on."""

    def __init__(self, fn: Callable[..., Any]):
        check_function(fn)
        self.fn = fn
        self.signature = inspect.signature(fn)
        try:
            self.raw_src, self.starting_line_number = inspect.getsourcelines(fn)
        except (OSError, TypeError) as error:
            raise KernelCallError(f"the source of {getattr(fn, '__name__', fn)!r} cannot be read ({error}); define jit functions in a file "
                                  "or a notebook cell, not by exec or in an interactive prompt") from None
        source = textwrap.dedent("".join(self.raw_src))
        found = re.search(r"^def\s+(\w+)\s*\(", source, re.MULTILINE)
        if found is None:
            raise KernelCallError(f"{getattr(fn, '__name__', fn)!r} is no function defined with def; jit takes those")
        code = inspect.unwrap(fn).__code__  # type: ignore[attr-defined]
        if found.group(1) != code.co_name:
            raise KernelCallError(f"{code.co_filename}:{code.co_firstlineno}: what stands there is {found.group(1)}, not {code.co_name}: the file was edited since Python has "
                                  "read it; start again, or reload the module")
        self._src = source[found.start():]
        self.def_line = self.starting_line_number + source[:found.start()].count("\n")
        first = self.raw_src[self.def_line - self.starting_line_number]
        self.indent = len(first) - len(first.lstrip())
        self.file = fn.__code__.co_filename
        self.hash: str | None = None
        self.used_global_vals: dict[Any, Any] = {}
        self._uses: list[dependencies.Use] = []
        self._checks: list[tuple[dict[str, Any], str, Any]] = []
        self._slow_checks: list[dependencies.Use] = []
        self._hash_lock = threading.RLock()
        self._hashing = False
        self._edition = 0
        self._key = ""  # what hash was last
        self._noinline: bool | None = None
        self._tree: ast.Module | None = None
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__doc__ = fn.__doc__
        self.__module__ = fn.__module__
        self.__globals__ = fn.__globals__
        self._fn_name = f"{fn.__module__}.{fn.__qualname__}"

    @property
    def src(self) -> str:
        """The definition's text from ``def`` on, without indentation. Setting it changes the code (for tools)."""
        return self._src

    @src.setter
    def src(self, text: str) -> None:
        self._src = text
        self._invalidate()
        edited()

    def _unsafe_update_src(self, text: str) -> None:
        self.src = text

    @property
    def noinline(self) -> bool | None:
        """Whether calls of the function stay calls."""
        return self._noinline

    @noinline.setter
    def noinline(self, value: bool | None) -> None:
        if value != self._noinline:
            self._noinline = value
            edited()

    def parse(self) -> ast.Module:
        """The definition as a module of one function; line 1 is ``def_line`` of the file, column 0 its column ``indent``."""
        if self._tree is None:
            tree = ast.parse(self._src)
            if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
                raise KernelCallError(f"{self.__name__}: the source is not that of one function")
            self._tree = tree
        return self._tree

    def get_capture_scope(self) -> dict[str, Any]:
        """Globals and variables of enclosing functions, by name, as they are now."""
        return {**self.__globals__, **inspect.getclosurevars(self.fn).nonlocals}

    @property
    def cache_key(self) -> str:
        """Hash of the source, of the sources of all jit functions reached from it, and of the globals that they read, as they are now."""
        with self._hash_lock:
            if self.hash is not None and self.fn is not None and not self._hashing and self._outdated():
                self._refresh()
            if self.hash is None:
                if self._hashing:  # a function that calls itself
                    return f"recursion:{self._fn_name}"
                self._hashing = True
                try:
                    self._compute_hash()
                finally:
                    self._hashing = False
            assert self.hash is not None
            return self.hash

    def _compute_hash(self) -> None:
        function = self.parse().body[0]
        assert isinstance(function, ast.FunctionDef)
        self._edition = _edition
        parameters = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
        self._uses = dependencies.find(self.fn, function, parameters)
        self.used_global_vals = {(u.name, id(self.__globals__)): (u.value, self.__globals__) for u in self._uses
                                 if not hasattr(u.value, "cache_key")}
        parts = [self._src, str(self.starting_line_number)]
        parts += [f"{u.name} = {dependencies.stable_text(u.value)}" for u in sorted(self._uses, key=lambda u: u.name)]
        uses = self._all_uses(set())
        checks = {(id(scope), name): (scope, name, value) for u in uses for scope, name, value in u.places}
        import hashlib  # loads OpenSSL: with the first kernel, not with Tilewright

        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        if key != self._key:
            had_another, self._key = bool(self._key), key
            if had_another:  # else the first launch of every kernel would take itself for overtaken
                self._code_changed()  # before launches look at the new checks
        self._checks = list(checks.values())
        self._slow_checks = [u for u in uses if not u.places]
        self.hash = key

    def _code_changed(self) -> None:
        """The key is another one than before."""

    def _all_uses(self, seen: set[int]) -> list[dependencies.Use]:
        if id(self) in seen:
            return []
        seen.add(id(self))
        out = list(self._uses)
        for callee in self._callees():
            out += callee._all_uses(seen)
        return out

    def _callees(self) -> Iterator[JITCallable]:
        """The jit functions that it may call, those in constexprs and tuples too."""
        for use in self._uses:
            for value in dependencies.parts(use.value):
                if isinstance(value, JITCallable):
                    yield value

    def _outdated(self) -> bool:
        """Whether anything is no longer what it was when the hash was made."""
        return (self._edition != _edition or any(scope.get(name) is not value for scope, name, value in self._checks)
                or any(use.changed() for use in self._slow_checks))

    def _invalidate(self) -> None:
        with self._hash_lock:
            self.hash = None
            self._tree = None

    def _refresh(self, seen: set[int] | None = None) -> bool:
        """Forget the hashes of this function and of all helpers, so that globals are looked at anew. True where one has another value."""
        seen = seen if seen is not None else set()
        if id(self) in seen:
            return False
        seen.add(id(self))
        changed = any(u.changed() for u in self._uses)
        for callee in self._callees():
            changed |= callee._refresh(seen)
        self._invalidate()
        return changed

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other
