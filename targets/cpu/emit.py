"""LLVM IR → optimised IR, assembly text and object code for a CPU, by llvmlite."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from tilewright.dialects.errors import InternalCompilerError
from tilewright.targets.cpu import masked_stores
from tilewright.targets.cpu.capabilities import machine_of

ENTRY_SUFFIX = "__grid"  # of the function that the driver calls; here, since loading cached code must not import MLIR
CALLBACKS = frozenset({"tilewright_cpu_print", "tilewright_cpu_assert"})
# what LLVM itself may call, beyond the functions the lowering asks for; all in every C library
_RUNTIME = frozenset({"memcpy", "memset", "memmove", "fmod", "fmodf", "round", "roundf", "trunc", "truncf", "floor", "floorf", "ceil",
                      "ceilf", "roundeven", "roundevenf", "fma", "fmaf", "fmaxf", "fminf", "fmax", "fmin"})

with_assembly = True  # off: no text, for runs of very many kernels that nobody reads; making it takes a third of LLVM's time


@cache
def target_machine(arch: str) -> Any:
    """The TargetMachine to compile with."""
    return new_target_machine(arch)


def new_target_machine(arch: str) -> Any:
    """llvmlite's TargetMachine; "native" is the host's processor with all its features."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # of inline assembly
    triple, cpu, features = machine_of(arch)
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default")


def compile_ir(llvm_ir: str, arch: str) -> tuple[str, str, bytes]:
    """(LLVM IR after O3, assembly text, object) of LLVM IR text. Raises InternalCompilerError where something undefined is called,
    be it by the IR or by code that LLVM made of an instruction (a conversion of bf16, say): it would crash when run."""
    import llvmlite.binding as llvm

    from tilewright.targets.cpu.vector_math import LIBRARY_SYMBOLS

    machine = target_machine(arch)
    module = llvm.parse_assembly(llvm_ir)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False  # the loops are vectorised already
    options.loop_unrolling = False  # they hold enough independent work; unrolled, they take twice as long to compile
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    optimised = masked_stores.expand(text := str(module))
    if optimised != text:
        module = llvm.parse_assembly(optimised)
        module.verify()
    asm, obj = machine.emit_assembly(module) if with_assembly else "", machine.emit_object(module)
    missing = sorted(undefined_symbols(obj) - LIBRARY_SYMBOLS - CALLBACKS - _RUNTIME)
    if missing:
        raise InternalCompilerError(f"cpu: the kernel calls {', '.join(missing)}, which nothing defines")
    return optimised, asm, obj


def undefined_symbols(obj: bytes) -> set[str]:
    """Names that an ELF64 object needs from elsewhere (System V ABI, chapter 4, "Symbol Table"); of other formats, the empty set."""
    if obj[:5] != b"\x7fELF\x02":
        return set()
    (offset,) = struct.unpack_from("<Q", obj, 40)
    size, count = struct.unpack_from("<HH", obj, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", obj, offset + i * size) for i in range(count)]
    names: set[str] = set()
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, where = struct.unpack_from("<IBBH", obj, at)
            if where == 0 and name:
                names.add(obj[strings + name:obj.index(b"\0", strings + name)].decode())
    return names - {"_GLOBAL_OFFSET_TABLE_"}


def fingerprint() -> str:
    """Versions that the code depends on; cheap, since every first launch asks."""
    import os
    import platform
    from importlib.metadata import version

    return f"llvmlite {version('llvmlite')}; {platform.machine()} {_cpu_model()}; {os.name}"


@cache
def _cpu_model() -> str:
    """The processor's model, so that a cache shared between machines keeps native code apart."""
    import platform

    try:
        with open("/proc/cpuinfo") as f:
            lines = f.read().split("\n\n")[0].splitlines()
        facts = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "flags", "Features"))]
        import hashlib

        return hashlib.sha256("|".join(facts).encode()).hexdigest()[:16]
    except OSError:
        return platform.processor()
