"""Errors of compilation, under Triton's module name."""

from __future__ import annotations

from tilewright.dialects.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct

__all__ = ["CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"]
