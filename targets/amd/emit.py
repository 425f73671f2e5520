"""LLVM IR → AMDGCN assembly → HSACO, by llvmlite and a linker.

The text and the object come from two parses of one module: emitting both from one parsed module aborts LLVM on kernels
with branches.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from typing import Any

from tilewright.dialects.errors import AssemblerNotFoundError, InternalCompilerError
from tilewright.targets.amd.assembler import compile_ir, has_inline_asm
from tilewright.targets.amd.capabilities import features_of
from tilewright.targets.amd.knobs import KNOBS

TRIPLE = "amdgcn-amd-amdhsa"


@cache
def _target_machine(arch: str) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = ",".join(features_of(arch))
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=arch, features=features, opt=3, reloc="pic")


def _optimised(llvm_ir: str, arch: str) -> Any:
    import llvmlite.binding as llvm

    machine = _target_machine(arch)
    module = llvm.parse_assembly(llvm_ir)
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    # pairs of f32 (v_pk_mul_f32) pay on the rows and columns around matrix instructions; elsewhere pairing the 16-bit halves costs more moves than it saves
    options.slp_vectorization = "llvm.amdgcn.mfma." in llvm_ir
    llvm.create_pass_builder(machine, options).getModulePassManager().run(module, llvm.create_pass_builder(machine, options))
    return module


def optimise(llvm_ir: str, arch: str) -> str:
    """The module after LLVM's O3 pipeline for ``arch``, as text."""
    module = _optimised(llvm_ir, arch)
    _check_externals(module)
    return str(module)


def _check_externals(module: Any) -> None:
    """A call to an unknown intrinsic or a library function would only fail when the code object is loaded."""
    for function in module.functions:
        if function.is_declaration and not function.name.startswith("llvm."):
            raise InternalCompilerError(f"amd: the kernel calls {function.name!r}, which nothing defines")


def emit_amdgcn(optimised_ir: str, arch: str) -> str:
    """AMDGCN assembly text of an optimised module."""
    import llvmlite.binding as llvm

    if has_inline_asm(optimised_ir):
        text = str(compile_ir(optimised_ir, arch, "text"))
    else:
        text = _target_machine(arch).emit_assembly(llvm.parse_assembly(optimised_ir))
    unknown = re.search(r"llvm\.amdgcn\.[\w.]+@(?:rel32|gotpcrel32)", text)
    if unknown:
        raise InternalCompilerError(f"amd: {arch} does not have the intrinsic {unknown.group(0).split('@')[0]}")
    if KNOBS.dump_amdgcn:
        print(text, file=sys.stderr, flush=True)
    return text


# LLVM's function attribute amdgpu-sched-strategy: others than its own choice, to be tried where that spills
STRATEGIES = ("max-memory-clause", "max-ilp")


def with_strategy(llvm_ir: str, strategy: str) -> str:
    """The module with its kernels scheduled under another of LLVM's strategies; as it is where one was asked for."""
    if '"amdgpu-sched-strategy"' in llvm_ir:
        return llvm_ir
    return llvm_ir.replace('"amdgpu-flat-work-group-size"=', f'"amdgpu-sched-strategy"="{strategy}" "amdgpu-flat-work-group-size"=')


def emit_object(optimised_ir: str, arch: str) -> bytes:
    """Relocatable ELF object of an optimised module."""
    import llvmlite.binding as llvm

    if has_inline_asm(optimised_ir):
        return bytes(compile_ir(optimised_ir, arch, "object"))  # type: ignore[arg-type]
    return _target_machine(arch).emit_object(llvm.parse_assembly(optimised_ir))


@cache
def linker() -> tuple[str, ...] | None:
    """Command of an ELF linker for AMDGPU: ROCm's or the system's ld.lld, else the one in the package ziglang."""
    for folder in (os.environ.get("ROCM_PATH", "/opt/rocm") + "/llvm/bin", None):
        found = shutil.which("ld.lld", path=folder)
        if found:
            return (found,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "ld.lld")
    return None


def link(obj: bytes) -> bytes:
    """A loadable code object (HSACO). Raises AssemblerNotFoundError where no linker is found."""
    command = linker()
    if command is None:
        raise AssemblerNotFoundError("amd: no linker for code objects; pip install 'tilewright[amd]' (ziglang), or put ld.lld on PATH")
    with tempfile.TemporaryDirectory() as folder:
        source, out = os.path.join(folder, "k.o"), os.path.join(folder, "k.hsaco")
        with open(source, "wb") as f:
            f.write(obj)
        done = subprocess.run([*command, "-shared", "--no-undefined", source, "-o", out], capture_output=True, text=True)
        if done.returncode:
            raise InternalCompilerError(f"amd: the linker failed: {done.stderr.strip()[:500]}")
        with open(out, "rb") as f:
            return f.read()


_FIELDS = {"vgpr_count": "registers", "agpr_count": "agprs", "sgpr_count": "sgprs", "vgpr_spill_count": "spills",
           "sgpr_spill_count": "sgpr_spills", "private_segment_fixed_size": "scratch_bytes",
           "group_segment_fixed_size": "static_lds_bytes", "kernarg_segment_size": "kernarg_bytes"}


def resource_usage(amdgcn: str) -> dict[str, int]:
    """Register, spill and memory figures of the kernel, from the code object's own metadata (NT_AMDGPU_METADATA)."""
    found = {}
    for field, name in _FIELDS.items():
        match = re.search(rf"^\s*-?\s*\.{field}:\s*(\d+)", amdgcn, re.M)
        if match:
            found[name] = int(match.group(1))
    return found


def matrix_instructions(amdgcn: str) -> dict[str, int]:
    """Matrix instructions in the text by mnemonic (CDNA 3 ISA section 7, RDNA 3 ISA section 7.9), each with how often it stands there."""
    found: dict[str, int] = {}
    for name in re.findall(r"^\s+(v_(?:mfma|smfmac|wmma|swmmac)_\w+)", amdgcn, re.M):
        found[name] = found.get(name, 0) + 1
    return found


def kernel_arguments(amdgcn: str) -> list[dict[str, Any]]:
    """The explicit arguments in the metadata: offset, size, kind ("by_value", "global_buffer"), in order."""
    block = amdgcn[amdgcn.index("amdhsa.kernels:"):]
    args = []
    for entry in re.split(r"\n\s*- (?=\.)", block[block.index(".args:"):]):
        fields = dict(re.findall(r"\.(\w+):\s*(\S+)", entry.split(".group_segment")[0]))
        if "offset" in fields and "size" in fields and not fields.get("value_kind", "").startswith("hidden"):
            args.append({"offset": int(fields["offset"]), "size": int(fields["size"]), "kind": fields.get("value_kind", "")})
    return args
