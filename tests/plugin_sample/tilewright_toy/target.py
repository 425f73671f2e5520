"""The plugin: capabilities, one matrix instruction, hooks, pipeline, emitter and driver of the toy chip."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.targets.api import (
    API_VERSION,
    Capabilities,
    CommonOptions,
    GPUTarget,  # noqa: F401  (what users compile for: GPUTarget("toy", "toy1", 1))
    MatrixOp,
    OperandBases,
    OutOfResources,
    Pass,
    Pipeline,
    Stage,
    TargetHooks,
    TargetPlugin,
    UnsupportedArchError,
    UnsupportedOnTargetError,
    checked_arguments,
    shared_pass,
    tt_passes,
    ttg_passes,
)

# D[2,2] += A[2,2] B[2,2] in one thread: registers 0..3 are the elements row by row
_TILE = OperandBases(register=((0, 1), (1, 0)), lane=())
MATRIX_OPS = (MatrixOp("toy.fma_2x2x2_f32", 2, 2, 2, "f32", "f32", "f32", _TILE, _TILE, _TILE, 1, "llvm.fma.f32"),)


@dataclass(frozen=True)
class Options(CommonOptions):
    num_warps: int = 1
    num_stages: int = 1


def resolve_arch(arch: int | str) -> str:
    if arch != "toy1":
        raise UnsupportedArchError(f"toy: unknown architecture {arch!r}; known: toy1")
    return "toy1"


def capabilities(arch: str) -> Capabilities:
    return Capabilities(arch=arch, warp_size=1, max_shared_bytes=64 * 1024, max_threads=1, matrix_ops=("toy.fma_2x2x2_f32",))


class Hooks(TargetHooks):
    """A program is one thread; the driver writes its place in the grid into globals of the module."""

    warp_size = 1

    def declare_kernel(self, b: Any, func: Any, num_warps: int) -> None:
        if num_warps != 1:
            raise UnsupportedOnTargetError(f"the toy chip runs one thread a program; found num_warps={num_warps}, use 1")

    def _global(self, b: Any, name: str) -> Any:
        return b.load(b.call("toy_grid", b.ptr(), []), b.vec(6, b.t_i32), align=4) if name == "grid" else None

    def thread_id(self, b: Any) -> Any:
        return b.i32(0)

    def program_id(self, b: Any, axis: int) -> Any:
        return b.extract_element(self._global(b, "grid"), axis)

    def num_programs(self, b: Any, axis: int) -> Any:
        return b.extract_element(self._global(b, "grid"), 3 + axis)

    def barrier(self, b: Any) -> None:
        """One thread waits for nobody."""

    def shuffle_idx(self, b: Any, value: Any, lane: Any) -> Any:
        return value

    def load_global(self, b: Any, ptr: Any, type: Any, pred: Any, other: Any, cache: str, evict: str, volatile: bool, align: int) -> Any:
        def load() -> Any:
            return b.load(ptr, type, align=align, volatile=volatile)

        return load() if pred is None else b.if_then_else(pred, load, lambda: b.zero(type) if other is None else other)[0]

    def store_global(self, b: Any, ptr: Any, value: Any, pred: Any, cache: str, evict: str, align: int) -> None:
        if pred is None:
            b.store(value, ptr, align=align)
        else:
            b.if_then(pred, lambda: b.store(value, ptr, align=align))

    def mma(self, b: Any, row: MatrixOp, a: Sequence[Any], bv: Sequence[Any], c: Sequence[Any]) -> list[Any]:
        out = list(c)
        for m in range(2):
            for n in range(2):
                for k in range(2):
                    out[2 * m + n] = b.call_intrinsic(row.intrinsic, b.t_f32, [a[2 * m + k], bv[2 * k + n], out[2 * m + n]])
        return out


# ---------------------------------------------------------------------------------------------------- emitter
_MOST_LINES = 50_000  # the chip's program memory; LLVM takes many minutes for ten times as much


def _machine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, reloc="pic", codemodel="default")


def _parse(text: str) -> Any:
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.triple = llvm.get_default_triple()
    module.verify()
    return module


def to_llvm_ir(module: Any, ctx: Any) -> str:
    from tilewright.targets.api import translate_to_llvm_ir

    text = translate_to_llvm_ir(module, ctx)
    if (lines := text.count("\n")) > _MOST_LINES:
        raise OutOfResources(lines, _MOST_LINES, "lines of LLVM IR", "The one thread of a program holds whole tiles: use smaller blocks.")
    # the toy chip's shared memory is a plain global array of each program
    ctx.metadata["llir"] = text.replace("@global_smem = external", "@global_smem = internal").replace(
        "[0 x i8], align", f"[{max(int(ctx.metadata.get('shared', 0)), 1)} x i8] zeroinitializer, align")
    return ctx.metadata["llir"]


def to_asm(llvm_ir: str, ctx: Any) -> str:
    """Assembly. What the chip has no instruction for LLVM makes a call of its run-time library (a rounding to bf16, say), of which this
    process may have nothing: such a kernel is refused here, since it would call address 0."""
    import llvmlite.binding as llvm

    llvm.add_symbol("toy_grid", ctypes.cast(_grid_callback, ctypes.c_void_p).value)
    asm = _machine().emit_assembly(_parse(llvm_ir))
    called = set(re.findall(r"\b([A-Za-z_]\w*)@(?:PLT|GOTPCREL)\b|^\s*bl\s+([A-Za-z_]\w*)", asm, re.M))
    missing = sorted(name for pair in called for name in pair if name and not llvm.address_of_symbol(name))
    if missing:
        raise UnsupportedOnTargetError(f"the toy chip has no {', '.join(missing)}: compute in types that it has instructions for")
    return asm


def to_obj(asm: str, ctx: Any) -> bytes:
    return _machine().emit_object(_parse(ctx.metadata.pop("llir")))


def fingerprint() -> str:
    """What the code depends on beside its source: it is native code, so the processor too."""
    import llvmlite.binding as llvm

    return f"toy 0.1 {llvm.get_host_cpu_name()}"


def pipeline(arch: str, options: Any) -> Pipeline:
    from tilewright_toy.dialect import fuse_relu

    return Pipeline((
        Stage("ttir", tt_passes()),
        Stage("ttgir", ttg_passes((Pass("fuse_relu", fuse_relu, "maxnumf(x, 0) becomes toy.relu"),))),
        Stage("llir", (shared_pass("lower_to_llvm"),), to_llvm_ir),
        Stage("toyasm", (), to_asm),
        Stage("toyobj", (), to_obj),
    ))


# ----------------------------------------------------------------------------------------------------- driver
_CTYPES = {"i1": ctypes.c_bool, "i8": ctypes.c_int8, "u8": ctypes.c_uint8, "i16": ctypes.c_int16, "u16": ctypes.c_uint16, "i32": ctypes.c_int32,
           "u32": ctypes.c_uint32, "i64": ctypes.c_int64, "u64": ctypes.c_uint64, "fp32": ctypes.c_float, "fp64": ctypes.c_double}
_grid = (ctypes.c_int32 * 8)()
_grid_callback = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(_grid))


class Loaded:
    n_regs = n_spills = 0

    def __init__(self, obj: bytes, name: str):
        import llvmlite.binding as llvm

        llvm.add_symbol("toy_grid", ctypes.cast(_grid_callback, ctypes.c_void_p).value)
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
        self.engine.add_object_file(llvm.ObjectFileRef.from_data(obj))
        self.engine.finalize_object()
        self.function = self.engine.get_function_address(name)


class Driver:
    def current_device(self) -> int:
        return 0

    def current_stream(self, device: int) -> int:
        return 0

    def load(self, asm: Mapping[str, Any], metadata: Mapping[str, Any], device: int) -> Loaded:
        return Loaded(asm["toyobj"], metadata["name"])

    def make_launcher(self, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
        for t in signature:
            if not t.startswith("*") and t not in _CTYPES:
                raise UnsupportedOnTargetError(f"the toy chip takes no kernel arguments of type {t}; pass fp32")
        kinds = [ctypes.c_void_p if t.startswith("*") else _CTYPES[t] for t in signature]

        def address(a: Any) -> int:
            return int(a.__array_interface__["data"][0] if hasattr(a, "__array_interface__") else a or 0)

        def launch(gx: int, gy: int, gz: int, stream: int, handle: Loaded, args: Sequence[Any]) -> None:
            fn = ctypes.CFUNCTYPE(None, *kinds)(handle.function)
            raw = checked_arguments(args, signature, address)  # ctypes takes numbers beyond the type's
            _grid[3], _grid[4], _grid[5] = gx, gy, gz
            for i in range(gx * gy * gz):
                _grid[0], _grid[1], _grid[2] = i % gx, i // gx % gy, i // gx // gy
                fn(*raw)

        return launch

    def synchronize(self) -> None:
        """Launches are done when they return."""

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        return {"max_shared_mem": 64 * 1024, "warpSize": 1}

    def event_timer(self) -> Any:
        raise NotImplementedError("the toy chip has no clock")


def _dialects() -> Sequence[Any]:
    from tilewright_toy.dialect import TOY

    return (TOY,)


def _lowerings() -> Mapping[str, Callable[..., Any]]:
    from tilewright_toy.dialect import lower_relu

    return {"toy.relu": lower_relu}


TARGET = TargetPlugin(
    api=API_VERSION, name="toy", aliases=(), device_types=("cpu",), archs=("toy1",), default_arch="toy1", probe=lambda: [],
    resolve_arch=resolve_arch, capabilities=capabilities, options=Options, pipeline=pipeline, driver=Driver,
    fingerprint=fingerprint, binary_stage="toyobj", source_stage="toyasm", matrix_ops=lambda: MATRIX_OPS,
    dialects=_dialects, lowerings=_lowerings, hooks=lambda arch, options: Hooks(),
)
