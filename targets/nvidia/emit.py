"""LLVM IR → PTX (llvmlite's NVPTX backend) → cubin (ptxas, where one is found)."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from functools import cache
from typing import Any

from tilewright.dialects.errors import (
    AssemblerError,
    AssemblerNotFoundError,
    InternalCompilerError,
    OutOfResources,
    UnsupportedOnTargetError,
    VariantNeeded,
)
from tilewright.targets.nvidia.capabilities import ptx_version, resolve_arch
from tilewright.targets.nvidia.knobs import KNOBS

TRIPLE = "nvptx64-nvidia-cuda"

# Functions that the driver's or ptxas' runtime provides; any other external would fail at load only.
_KNOWN_EXTERNS = frozenset({"vprintf", "__assertfail", "malloc", "free"})


@cache
def _target_machine(arch: str) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    _short_shared_pointers()
    features = f"+ptx{ptx_version(arch)}"
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=arch, features=features, opt=3)


@cache
def _short_shared_pointers() -> None:
    """Shared-memory addresses take one 32-bit register instead of two (an LLVM option, of the whole process)."""
    import llvmlite.binding as llvm

    llvm.set_option("tilewright", "--nvptx-short-ptr")


def emit_ptx(llvm_ir: str, arch: str) -> str:
    """PTX of LLVM IR text, optimised at O3. Raises InternalCompilerError where a called function is defined nowhere."""
    import llvmlite.binding as llvm

    machine = _target_machine(resolve_arch(arch))
    # With any other kind LLVM writes ".target …, debug", with which ptxas does not optimise.
    llvm_ir = re.sub(r"emissionKind: (?:LineTablesOnly|FullDebug)", "emissionKind: DebugDirectivesOnly", llvm_ir)
    module = llvm.parse_assembly(llvm_ir)
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    ptx: str = machine.emit_assembly(module)
    if KNOBS.dump_nvptx:
        print(ptx, file=sys.stderr, flush=True)
    check_externs(ptx)
    return ptx


def matrix_instructions(ptx: str) -> dict[str, int]:
    """mma and wgmma in the PTX (PTX ISA 9.7.14 and 9.7.15) by shape and types, each with how often it stands there."""
    found: dict[str, int] = {}
    for name in re.findall(r"\b((?:wgmma\.mma_async|mma)\.sync\.aligned\.[\w.:]+)", ptx):
        found[name] = found.get(name, 0) + 1
    return found


def check_externs(ptx: str) -> None:
    """An intrinsic that LLVM does not know, or a library call, becomes an external function: say so now."""
    for name in re.findall(r"^\.extern \.func\s*(?:\([^)]*\)\s*)?([\w.$]+)", ptx, re.M):
        if name not in _KNOWN_EXTERNS:
            raise InternalCompilerError(f"nvidia: the kernel calls {name!r}, which neither PTX nor this LLVM knows")


def ptxas(arch: str = "") -> str | None:
    """Path of the ptxas for ``arch``: that of ``knobs.nvidia`` (TILEWRIGHT_PTXAS, TRITON_PTXAS_PATH), else as ``installed`` finds it."""
    return KNOBS.assembler(arch) or installed("ptxas")


@cache
def installed(tool: str) -> str | None:
    """Path of a tool of NVIDIA's: in the packages nvidia-cuda-*, else on PATH, in CUDA_HOME, in /usr/local/cuda; None where it is nowhere."""
    candidates: list[str | None] = []
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        spec = None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        candidates += [os.path.join(folder, sub, "bin", tool) for sub in ("cu13", "cuda_nvcc", f"cuda_{tool}")]
    candidates.append(shutil.which(tool))
    candidates += [os.path.join(root, "bin", tool) for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"),
                                                                  "/usr/local/cuda") if root]
    return next((c for c in candidates if c and os.access(c, os.X_OK)), None)


def ptxas_version(arch: str = "") -> str:
    """"13.0.88", or "none" where there is no ptxas."""
    path = ptxas(arch)
    return "none" if path is None else _version(path)


@cache
def _version(path: str) -> str:
    text = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"V(\d[\d.]*)", text)
    return found.group(1) if found else "unknown"


_REGISTERS_OF_A_CORE = 65536
_ROOM = 64  # registers a thread


def with_room_for_loads(ptx: str) -> str | None:
    """The PTX with leave to use _ROOM registers a thread, where it has a loop that loads twice or more and does no matrix product.

    Left to itself ptxas keeps such loops under 57 registers by loading again only after it has used what it loaded, so that one load is
    in flight where there might be several. On an H200 a loop of two 16-byte loads read 3,247 GB/s so, and 2,869 without (cross entropy
    of 8192×32768 bf16, 2026-11-29). None: there is nothing to gain.
    """
    threads = re.search(r"^\.reqntid (\d+)$", ptx, re.M)
    if threads is None or ".minnctapersm" in ptx or "mma" in ptx:
        return None
    blocks = _REGISTERS_OF_A_CORE // (_ROOM * int(threads[1]))
    for label in re.finditer(r"^(\$L__BB\w+):", ptx, re.M):
        back = re.search(rf"bra(?:\.uni)? \t?{re.escape(label[1])};", ptx[label.end():])
        if back and blocks and ptx.count("ld.global", label.end(), label.end() + back.start()) >= 2:
            return ptx[:threads.end()] + f"\n.minnctapersm {blocks}" + ptx[threads.end():]
    return None


def assemble(ptx: str, arch: str, line_info: bool = True, fast_compile: bool = False) -> tuple[bytes, dict[str, Any]]:
    """The cubin and ptxas' figures: ``registers``, ``spills`` (bytes stored and loaded), ``stack`` (bytes), and those of its words
    that ``resource_usage`` keeps.

    Raises AssemblerNotFoundError where there is no ptxas, OutOfResources where the kernel does not fit, else
    InternalCompilerError with the first error line.
    """
    roomy = with_room_for_loads(ptx)
    if roomy is not None:
        cubin, usage = _assemble(roomy, arch, line_info, fast_compile)
        if not usage["spills"]:
            return cubin, usage
    return _assemble(ptx, arch, line_info, fast_compile)


def _assemble(ptx: str, arch: str, line_info: bool, fast_compile: bool) -> tuple[bytes, dict[str, Any]]:
    """Raises VariantNeeded where warp-group products are missing (check_products). Loops of them that ptxas unrolled would hide those: they are not."""
    cubin, usage = _run_ptxas(ptx, arch, line_info, fast_compile)
    wanted = ptx.count("wgmma.mma_async")
    if wanted and count_products(cubin) > wanted:
        cubin, usage = _run_ptxas(without_unrolling(ptx), arch, line_info, fast_compile)
    check_products(ptx, cubin, arch)
    return cubin, usage


def without_unrolling(ptx: str) -> str:
    """The PTX with the pragma "nounroll" (PTX ISA manual, "Pragma Strings") at each of its labels, of which some begin loops."""
    return re.sub(r"^(\$L__BB\w+:.*)$", '\\1\n\t.pragma "nounroll";', ptx, flags=re.M)


def _run_ptxas(ptx: str, arch: str, line_info: bool, fast_compile: bool) -> tuple[bytes, dict[str, Any]]:
    path = ptxas(arch)
    if path is None:
        raise AssemblerNotFoundError("nvidia: no ptxas; pip install 'tilewright[nvidia]', or put ptxas on PATH "
                                     "(without one the driver assembles the PTX when the kernel is loaded)")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source, out = os.path.join(folder, "k.ptx"), os.path.join(folder, "k.cubin")
        with open(source, "w") as f:
            f.write(ptx)
        command = [path, "-v", f"--gpu-name={resolve_arch(arch)}", source, "-o", out]
        if line_info:
            command.insert(2, "-lineinfo")
        if KNOBS.disable_ptxas_opt or fast_compile:
            command.insert(2, "-O0" if KNOBS.disable_ptxas_opt else "-O1")
        command += shlex.split(KNOBS.ptxas_options or "")
        done = subprocess.run(command, capture_output=True, text=True)
        log = done.stderr + done.stdout
        if KNOBS.dump_ptxas_log:
            print(log, file=sys.stderr, flush=True)
        if done.returncode:
            _raise_assembler_error(log, ptx)
        with open(out, "rb") as f:
            cubin = f.read()
    return cubin, resource_usage(log)


# Opcodes of HGMMA, IGMMA and QGMMA in the low bits of sm_90's 128-bit instructions (as its disassembler prints them); the bit left
# out says whether A lies in registers.
_GMMA, _GMMA_MASK = frozenset({0x9F0, 0x9F1, 0x9F3}), 0xBFF


def count_products(cubin: bytes) -> int:
    """Warp-group matrix instructions in a cubin of sm_90a: an ELF file, whose executable sections are read word by word."""
    start, = struct.unpack_from("<Q", cubin, 0x28)
    size, count = struct.unpack_from("<HH", cubin, 0x3A)
    total = 0
    for i in range(count):
        _, _, flags, _, offset, length = struct.unpack_from("<IIQQQQ", cubin, start + i * size)
        if flags & 4:  # SHF_EXECINSTR
            words = struct.unpack_from(f"<{length // 8}Q", cubin, offset)
            total += sum(word & _GMMA_MASK in _GMMA for word in words[::2])
    return total


def check_products(ptx: str, cubin: bytes, arch: str = "") -> None:
    """Raises VariantNeeded where the cubin has fewer wgmma instructions than the PTX: ptxas 13.0 and 13.5 were seen to drop some. One that stands in the
    cubin more than once may stand for another that is missing."""
    wanted = ptx.count("wgmma.mma_async")
    if wanted and (found := count_products(cubin)) < wanted:
        raise VariantNeeded({"warp_group_dots": False}, f"ptxas {ptxas_version(arch)} left {found} of {wanted} wgmma instructions of the kernel, and its "
                            "results would be wrong; another ptxas (TILEWRIGHT_PTXAS) may take them")


def _raise_assembler_error(log: str, ptx: str) -> None:
    shared = re.search(r"uses too much shared data \((0x[0-9a-f]+|\d+) bytes.*?(0x[0-9a-f]+|\d+) max", log)
    if shared:
        raise OutOfResources(int(shared.group(1), 0), int(shared.group(2), 0), "static shared memory")
    registers = re.search(r"Insufficient registers \((\d+)\).*register target of (\d+)", log)
    if registers:
        raise OutOfResources(int(registers.group(2)), int(registers.group(1)), "registers of a thread",
                             "One matrix instruction needs them: raise maxnreg, or reduce the block size along N.")
    errors = [line for line in log.splitlines() if "error" in line or "fatal" in line] or log.splitlines()
    message = f"nvidia: ptxas failed: {errors[0] if errors else 'without a message'}"
    line = re.search(r"line (\d+)", errors[0]) if errors else None
    if line:
        lines = ptx.splitlines()
        number = int(line.group(1))
        shown = lines[number - 1].strip() if number <= len(lines) else ""
        place = _users_asm(lines, number)
        if place is not None:
            said = errors[0].split(";", 1)[-1].strip()
            raise UnsupportedOnTargetError(f"ptxas does not take this inline assembly: {said}\n    PTX line {number}: {shown}", *place)
        message += f"\n    PTX line {number}: {shown}"
    raise AssemblerError(message)


ASM_MARK = "// tl.inline_asm_elementwise"  # stands before a user's inline assembly, with file:line:column


def _users_asm(lines: list[str], number: int) -> tuple[str, int, int] | None:
    """Where the user wrote the inline assembly that PTX line ``number`` belongs to; None where the compiler wrote that line."""
    for line in reversed(lines[:number]):
        if ASM_MARK in line:
            file, at, column = line.split(ASM_MARK, 1)[1].strip().rsplit(":", 2)
            return file, int(at), int(column)
        if "end inline asm" in line:
            return None
    return None


def resource_usage(log: str) -> dict[str, Any]:
    """Figures in the output of ``ptxas -v``, and what it says, each where it says so: ``wgmma_serialized``: why it runs each
    warp-group product to its end before the next begins (C7510 to C7515); ``wgmma_injected``: waits and arrivals that it added by
    itself (C7517, C7519), since a register of a group in flight is touched; ``setmaxnreg_ignored``: register counts that it did
    not move (C7508)."""
    usage: dict[str, Any] = {"registers": 0, "spills": 0, "stack": 0}
    said = [line.strip() for line in re.findall(r"^.*\(C75\d\d\).*(?:wgmma|warpgroup).*$", log, re.M)]
    for key, lines in (("wgmma_serialized", [line for line in said if "serialized" in line]),
                       ("wgmma_injected", [line for line in said if "serialized" not in line])):
        if lines:
            usage[key] = "\n".join(lines)
    ignored = re.search(r"^.*\(C7508\).*setmaxnreg.*$", log, re.M)
    if ignored:
        usage["setmaxnreg_ignored"] = ignored.group(0).strip()
    found = re.search(r"Used (\d+) registers", log)
    if found:
        usage["registers"] = int(found.group(1))
    # of the kernel and of each function that it calls
    for stack, stores, loads in re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log):
        usage["stack"] += int(stack)
        usage["spills"] += int(stores) + int(loads)
    return usage
