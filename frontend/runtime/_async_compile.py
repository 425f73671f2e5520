"""Compile while the program goes on: inside ``with AsyncCompileMode(executor)``, ``kernel.warmup(…)`` and launches of new kinds hand their compilations
to the executor."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tilewright.dialects.errors import TilewrightError

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

active_mode: ContextVar[Any] = ContextVar("tilewright_async_compile", default=None)


class AsyncCompileError(TilewrightError, RuntimeError):
    """An AsyncCompileMode inside another."""


class FutureKernel:
    """A kernel that is being compiled."""

    def __init__(self, finalize_compile: Callable[[Any], None], future: Future[Any]):
        self.finalize_compile = finalize_compile
        self.kernel: Any = None
        self.future = future

    def result(self, ignore_errors: bool = False) -> Any:
        """The CompiledKernel, waited for. Raises what compiling raised; with ``ignore_errors`` returns None instead."""
        if self.kernel is None:
            try:
                kernel = self.future.result()
            except Exception:
                if ignore_errors:
                    return None
                raise
            self.finalize_compile(kernel)
            self.kernel = kernel
        return self.kernel

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.result(), name)


class AsyncCompileMode:
    """Compilations inside ``with`` run on ``executor``, one for each key, and are done at its end. ignore_errors: those that fail are left out, and raise
    at their launch; else the end raises the first error."""

    def __init__(self, executor: Executor, *, ignore_errors: bool = False):
        self.executor = executor
        self.ignore_errors = ignore_errors
        self.raw_futures: list[Future[Any]] = []
        self.future_kernels: dict[Any, FutureKernel] = {}
        self._keys: dict[Future[Any], Any] = {}

    def submit(self, key: Any, compile_fn: Callable[[], Any], finalize_fn: Callable[[Any], None]) -> FutureKernel:
        """The FutureKernel of ``key``; ``compile_fn`` is called on the executor where there is none yet."""
        found = self.future_kernels.get(key)
        if found is None:
            future = self.executor.submit(compile_fn)
            self.raw_futures.append(future)
            self._keys[future] = key
            found = self.future_kernels[key] = FutureKernel(finalize_fn, future)
        return found

    def __enter__(self) -> AsyncCompileMode:
        if active_mode.get() is not None:
            raise AsyncCompileError("an AsyncCompileMode is active already; leave it first")
        active_mode.set(self)
        return self

    def __exit__(self, *_: Any) -> None:
        from concurrent.futures import as_completed

        active_mode.set(None)
        for future in as_completed(self.raw_futures):
            self.future_kernels[self._keys[future]].result(self.ignore_errors)


class Collecting:
    """In place of an AsyncCompileMode: notes what would be compiled. ``jobs``: key → a partial of compile_selected."""

    def __init__(self) -> None:
        self.jobs: dict[Any, Any] = {}

    def submit(self, key: Any, compile_fn: Callable[[], Any], finalize_fn: Callable[[Any], None]) -> None:
        self.jobs.setdefault(key, compile_fn)

    def __enter__(self) -> Collecting:
        self._before = active_mode.set(self)
        return self

    def __exit__(self, *_: Any) -> None:
        active_mode.reset(self._before)
