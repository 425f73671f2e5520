"""From the LLVM dialect to LLVM IR text that the assembling LLVM (llvmlite's, older than MLIR's) reads and understands.

MLIR prints float constants, NaN and infinity in a spelling of its own generation: they are rewritten to hexadecimal bits, which
every generation reads. Attributes that changed their form are rewritten, and a call to an ``llvm.*`` function that the assembling
LLVM does not know is an error here rather than an undefined symbol on the device.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Any

from tilewright.dialects._mlir import PassManager, llvm
from tilewright.dialects.errors import InternalCompilerError

_LITERAL = re.compile(r'"[^"]*"|\b(half|bfloat|float|double)\b|'
                      r"(?<![\w.%@$])((?:[+-]?\d+\.\d+[eE][+-]?\d+)|(?:[+-](?:inf|qnan|s?nan\(0x[0-9A-Fa-f]+\)))|f0x[0-9A-Fa-f]+)")
_DECLARED = re.compile(r"@(llvm\.[\w.]+)\(")
_known_intrinsics: dict[str, bool] = {}


def add_line_tables(module: Any) -> None:
    """Give every function and op with a source location debug scopes, so that LLVM writes line tables.

    An op in an inlined helper (CallSiteLoc) keeps the helper's file and line, inlined at the caller's.
    """
    root = module.operation if hasattr(module, "operation") else module
    PassManager.parse("builtin.module(ensure-debug-info-scope-on-llvm-func{emission-kind=LineTablesOnly})").run(root)


def _bits(literal: str, type: str) -> str:
    """A float literal of MLIR's LLVM in the spelling all generations read."""
    sign = -1.0 if literal[0] == "-" else 1.0
    width = {"half": 16, "bfloat": 16, "float": 32, "double": 64}[type]
    digits = literal.lstrip("+-")
    if digits.startswith("f0x"):
        raw = bytes.fromhex(digits[3:])
        value = struct.unpack(">f" if width == 32 else ">d", raw)[0]
        if math.isnan(value):
            return _nan(type, sign < 0)
    elif digits == "inf":
        value = sign * math.inf
    elif "nan" in digits:
        return _nan(type, sign < 0)
    else:
        value = float(literal)
    if type == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if type == "bfloat":
        word = struct.unpack("<I", struct.pack("<f", value))[0]
        return f"0xR{(word + 0x7FFF + (word >> 16 & 1)) >> 16 if math.isfinite(value) else word >> 16:04X}"
    if type == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _nan(type: str, negative: bool) -> str:
    return {"half": ("0xH7E00", "0xHFE00"), "bfloat": ("0xR7FC0", "0xRFFC0")}.get(
        type, ("0x7FF8000000000000", "0xFFF8000000000000"))[negative]


def rewrite_literals(text: str) -> str:
    """Every float constant of LLVM IR text as hexadecimal bits. NaN payloads become the quiet NaN."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        # substring tests are much faster than a pattern, and few lines have constants
        if not ("e+" in line or "e-" in line or "f0x" in line or "inf" in line or "nan" in line or "E-" in line):
            continue
        type = ""

        def replace(m: re.Match[str]) -> str:
            nonlocal type
            if m.group(1):
                type = m.group(1)
            elif m.group(2):
                if not type:
                    raise InternalCompilerError(f"a float constant without a type in LLVM IR: {m.string.strip()}")
                return _bits(m.group(2), type)
            return m.group(0)

        lines[i] = _LITERAL.sub(replace, line)
    return "\n".join(lines)


def check_intrinsics(text: str) -> None:
    """Raise InternalCompilerError where LLVM IR text declares an ``llvm.*`` function that llvmlite's LLVM does not know."""
    declared = {}
    for line in text.split("\n"):
        if line.startswith("declare ") and (found := _DECLARED.search(line)):
            declared[found.group(1)] = line
    names = [n for n in declared if n not in _known_intrinsics]
    if names:
        import llvmlite.binding as binding

        # LLVM prints a remark above such a declaration; that is the only way llvmlite shows it.
        printed = str(binding.parse_assembly("\n".join(_without_attributes(declared[n]) for n in names)))
        unknown = set(re.findall(r"; Unknown intrinsic\ndeclare [^\n]*@(llvm\.[\w.]+)\(", printed))
        for n in names:
            _known_intrinsics[n] = n not in unknown
    bad = [n for n in declared if not _known_intrinsics[n]]
    if bad:
        raise InternalCompilerError(f"the assembling LLVM knows no intrinsic {', '.join(bad)}: the target must call it by the name "
                                    "of that version")


def _without_attributes(declaration: str) -> str:
    return re.sub(r"\)\s*(?:local_unnamed_addr\s*)?#\d+\s*$", ")", declaration)


def translate_to_llvm_ir(module: Any, ctx: Any = None, line_tables: bool = True) -> str:
    """LLVM IR text of a lowered module, ready for ``llvmlite.binding.parse_assembly``.

    ``ctx`` (a PassContext) may be None. Raises InternalCompilerError for intrinsics that llvmlite's LLVM lacks.
    Needs to run inside ``mlir_context()``; adds debug scopes to ``module``.
    """
    root = module.operation if hasattr(module, "operation") else module
    if any(op.operation.name == "func.func" for op in root.regions[0].blocks[0].operations):  # the translation would crash on its types
        raise InternalCompilerError("the module still has functions of tt or ttg: run lower_to_llvm first")
    if line_tables and getattr(ctx, "line_tables", True):
        add_line_tables(root)
    text = llvm.translate_module_to_llvmir(root)
    text = rewrite_literals(text)
    text = re.sub(r"^declare !dbg !\d+ ", "declare ", text, flags=re.M)  # declarations have no lines
    # An attribute without a value means "true" to the newer LLVM and nothing to the older.
    text = re.sub(r'"uniform-work-group-size"(?!=)', '"uniform-work-group-size"="true"', text)
    check_intrinsics(text)
    return text
