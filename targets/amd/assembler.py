"""Kernels with inline assembly: LLVM's library as it is used here has no parser of AMD's assembly, so a clang compiles their LLVM IR.

It is the clang in the package ziglang, of the LLVM version that the library has, or ROCm's.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache, lru_cache

from tilewright.dialects.errors import AssemblerNotFoundError, InternalCompilerError

TRIPLE = "amdgcn-amd-amdhsa"
_ASM = re.compile(r'\basm (?:sideeffect |alignstack |inteldialect |unwind )*"[^"]')

_PLAIN = re.compile(r"((=?&?[vsa]|\d|~\{memory\})(,|$))*")


@cache
def clang() -> tuple[str, ...] | None:
    """Command of a clang for AMDGPU; None where there is none."""
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "clang")
    found = shutil.which("clang", path=os.environ.get("ROCM_PATH", "/opt/rocm") + "/llvm/bin")
    return (found,) if found else None


def has_inline_asm(llvm_ir: str) -> bool:
    """Whether any inline assembly that is not empty stands in the module."""
    return bool(_ASM.search(llvm_ir))


def compile_ir(llvm_ir: str, arch: str, kind: str) -> bytes | str:
    """Assembly text ("text") or a relocatable object ("object") of an optimised module. Raises AssemblerNotFoundError without a clang, and
    InternalCompilerError with what it says: inline assembly has been tried before (``refusal``)."""
    done, out = _run(llvm_ir, arch, kind)
    if done:
        raise InternalCompilerError(f"amd: clang failed: {done[:500]}")
    return out if kind == "object" else out.decode()


def _run(llvm_ir: str, arch: str, kind: str) -> tuple[str, bytes]:
    """(what it says where it fails, else "", what it made)"""
    command = clang()
    if command is None:
        raise AssemblerNotFoundError("amd: inline assembly needs a clang; pip install 'tilewright[amd]' (ziglang), or set ROCM_PATH")
    # as in emit._target_machine
    features = ("-Xclang", "-target-feature", "-Xclang", "-real-true16") if arch.startswith("gfx11") else ()
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source, out = os.path.join(folder, "k.ll"), os.path.join(folder, "k.out")
        with open(source, "w", encoding="utf-8") as f:
            f.write(llvm_ir)
        done = subprocess.run([*command, "-x", "ir", "-O3", "-nogpulib", f"--target={TRIPLE}", f"-mcpu={arch}", "-fPIC", *features, "-Xclang",
                               "-disable-llvm-passes", "-S" if kind == "text" else "-c", source, "-o", out], capture_output=True, text=True)
        if done.returncode:
            return done.stderr.strip() or f"exit status {done.returncode}", b""
        with open(out, "rb") as f:
            return "", f.read()


@lru_cache(maxsize=1024)
def refusal(arch: str, asm: str, constraints: str, results: tuple[str, ...], operands: tuple[str, ...]) -> str | None:
    """What the assembler has against this inline assembly with registers of these types (the LLVM dialect's scalars), its line and all;
    None where it takes it."""
    # what brings MLIR is imported here: a look into the cache does without
    if not asm and _PLAIN.fullmatch(constraints.replace(" ", "")):
        return None
    from tilewright.dialects.lowering.inline_asm import module_with

    said, _ = _run(module_with(asm, constraints, results, operands, "amdgpu_kernel").replace("(ptr %p)", "(ptr %p) nounwind"), arch, "object")
    if not said:
        return None
    lines = said.splitlines()
    first = next((i for i, line in enumerate(lines) if "error" in line), 0)
    source = lines[first + 1].strip() if "<inline asm>" in lines[first] and first + 1 < len(lines) else ""
    return re.sub(r"^.*?error: ", "", lines[first]) + (f": {source}" if source else "")
