"""LLVM IR → optimised IR, assembly text and object code for a CPU, by llvmlite."""

from __future__ import annotations

from functools import cache
from typing import Any

from tilewright.dialects.errors import InternalCompilerError
from tilewright.targets.cpu.vector_math import LIBRARY_SYMBOLS

CALLBACKS = frozenset({"tilewright_cpu_print", "tilewright_cpu_assert"})
# what LLVM itself may call, beyond the functions the lowering asks for; all in every C library
_RUNTIME = frozenset({"memcpy", "memset", "memmove", "fmod", "fmodf", "round", "roundf", "trunc", "truncf", "floor", "floorf", "ceil",
                      "ceilf", "roundeven", "roundevenf", "fma", "fmaf", "fmaxf", "fminf", "fmax", "fmin"})


@cache
def target_machine(arch: str) -> Any:
    """llvmlite's TargetMachine; "native" is the host's processor with all its features."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    if arch == "native":
        triple, cpu, features = llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
        if "+avx512f" in features:
            features += ",-prefer-256-bit"
    else:
        triple = "aarch64-unknown-linux-gnu" if arch == "aarch64" else "x86_64-unknown-linux-gnu"
        cpu, features = ("generic" if arch == "aarch64" else arch), ""
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default")


def _parse(text: str, arch: str) -> Any:
    import llvmlite.binding as llvm

    machine = target_machine(arch)
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return module


def optimise(llvm_ir: str, arch: str) -> str:
    """LLVM's O3 pipeline. Raises InternalCompilerError where something undefined is called."""
    import llvmlite.binding as llvm

    module = _parse(llvm_ir, arch)
    module.verify()
    machine = target_machine(arch)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False  # the loops are vectorised already
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    for function in module.functions:
        if function.is_declaration and not function.name.startswith("llvm.") and function.name not in LIBRARY_SYMBOLS | CALLBACKS | _RUNTIME:
            raise InternalCompilerError(f"cpu: the kernel calls {function.name!r}, which nothing defines")
    return str(module)


def emit_assembly(optimised_ir: str, arch: str) -> str:
    return target_machine(arch).emit_assembly(_parse(optimised_ir, arch))


def emit_object(optimised_ir: str, arch: str) -> bytes:
    """ELF object (Mach-O, COFF where the host has those). Undefined symbols are checked: a missing one would crash when run."""
    obj = target_machine(arch).emit_object(_parse(optimised_ir, arch))
    return obj


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
