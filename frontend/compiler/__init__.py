"""Compilation: ``compile``, its sources and its result. The code generator and MLIR are imported when something is compiled."""

from __future__ import annotations

from tilewright.compiler.compiled import CompiledKernel, LazyDict
from tilewright.compiler.compiler import ASTSource, IRSource, compile, get_cache_key, make_backend
from tilewright.dialects.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct

__all__ = [
    "ASTSource", "CompilationError", "CompileTimeAssertionFailure", "CompiledKernel", "IRSource", "LazyDict",
    "UnsupportedLanguageConstruct", "compile", "get_cache_key", "make_backend",
]
