"""NVIDIA's command-line tools and peak figures, under Triton's names (``triton.testing``, ``triton.tools.disasm``)."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.dialects.errors import ArgumentError, TilewrightError
from tilewright.targets.c_source import CApi, generate
from tilewright.targets.nvidia.knobs import KNOBS

# Dense floating-point (integer for int8) operations a clock of one multiprocessor, by compute capability: CUDA C++ Programming Guide,
# "Throughput of Native Arithmetic Instructions" (results a clock, twice as many operations), and the architectures' white papers.
_SIMD = {
    70: {"fp32": 128, "fp16": 256}, 75: {"fp32": 128, "fp16": 256}, 80: {"fp32": 128, "fp16": 512, "bf16": 256},
    86: {"fp32": 256, "fp16": 256, "bf16": 256}, 89: {"fp32": 256, "fp16": 256, "bf16": 256}, 90: {"fp32": 256, "fp16": 512, "bf16": 512},
}
_MATRIX = {
    70: {"fp16": 1024}, 75: {"fp16": 1024, "i8": 2048},
    80: {"fp32": 1024, "fp16": 2048, "bf16": 2048, "i8": 4096},
    86: {"fp32": 512, "fp16": 1024, "bf16": 1024, "i8": 2048},
    89: {"fp32": 512, "fp16": 1024, "bf16": 1024, "i8": 2048, "fp8e4nv": 2048, "fp8e5": 2048},
    90: {"fp32": 2048, "fp16": 4096, "bf16": 4096, "i8": 8192, "fp8e4nv": 8192, "fp8e5": 8192},
}


class ToolError(TilewrightError):
    """A program of NVIDIA's is missing or failed; names it and what it said."""


def _tool(name: str, hint: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ToolError(f"nvidia: there is no {name} on PATH; {hint}")
    return path


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ToolError(f"nvidia: {os.path.basename(command[0])} failed: {said[0] if said else f'status {done.returncode}'}")
    return done.stdout


def nvsmi(attrs: Sequence[str]) -> list[int]:
    """Integers that nvidia-smi gives of device 0 for attributes of its --query-gpu, such as "clocks.max.sm" (MHz)."""
    out = _output([_tool("nvidia-smi", "it comes with NVIDIA's driver"), "-i", "0", f"--query-gpu={','.join(attrs)}", "--format=csv,noheader,nounits"])
    try:
        return [int(float(value)) for value in out.split(",")]
    except ValueError:
        raise ToolError(f"nvidia: nvidia-smi does not tell {', '.join(attrs)} of this device in numbers: {out.strip()}") from None


@contextlib.contextmanager
def set_gpu_clock(ref_sm_clock: int = 1350, ref_mem_clock: int = 1215) -> Iterator[tuple[float, float]]:
    """Lock device 0's clocks (MHz) inside ``with``; gives (TFLOPS of FP16 matrix instructions of an A100, GB/s of its memory) at them.

    Needs the rights to set clocks. Raises ToolError where nvidia-smi refuses, or the clocks come out more than 10 MHz elsewhere.
    """
    smi = [_tool("nvidia-smi", "it comes with NVIDIA's driver"), "-i", "0"]
    try:
        _output([*smi, "-pm", "1"])
        _output([*smi, f"--lock-gpu-clocks={ref_sm_clock},{ref_sm_clock}"])
        _output([*smi, f"--lock-memory-clocks={ref_mem_clock},{ref_mem_clock}"])
        sm, memory = nvsmi(["clocks.current.sm", "clocks.current.memory"])
        if abs(sm - ref_sm_clock) >= 10 or abs(memory - ref_mem_clock) >= 10:
            raise ToolError(f"nvidia: the clocks are {sm} and {memory} MHz, not the {ref_sm_clock} and {ref_mem_clock} asked for")
        yield 1e-6 * 2 * 108 * 4 * 256 * ref_sm_clock, 640 * 2 * ref_mem_clock * 1e-3
    finally:
        for flags in (("-pm", "0"), ("-rgc",), ("-rmc",)):
            subprocess.run([*smi, *flags], capture_output=True)


def cuda_memcheck(**target_kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a pytest test with a ``request`` fixture: where its arguments hold all of ``target_kwargs``, it runs once more under
    NVIDIA's memory checker (compute-sanitizer, or cuda-memcheck), which must find no error."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not target_kwargs.items() <= kwargs.items() or os.environ.get("TILEWRIGHT_IN_MEMCHECK"):
                return test(*args, **kwargs)
            if "request" not in kwargs:
                raise ArgumentError(f"cuda_memcheck: {test.__name__} needs the fixture request among its parameters")
            checker = shutil.which("compute-sanitizer") or _tool("cuda-memcheck", "install compute-sanitizer, of the CUDA toolkit")
            name = f"{os.path.realpath(test.__globals__['__file__'])}::{test.__name__}[{kwargs['request'].node.callspec.id}]"
            done = subprocess.run([checker, "pytest", "-vs", name], capture_output=True, text=True,
                                  env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "TILEWRIGHT_IN_MEMCHECK": "1"})
            assert done.returncode == 0 and "ERROR SUMMARY: 0 errors" in done.stdout, f"{os.path.basename(checker)} found errors:\n{done.stdout}"

        return wrapper

    return decorate


def _peak(table: Mapping[int, Mapping[str, int]], what: str, facts: Mapping[str, Any], dtype: str, clock_rate: float) -> float:
    arch = int(facts["arch"])
    row = table.get(arch)
    if row is None or dtype not in row:
        known = ", ".join(row or ()) or f"capabilities {', '.join(f'{a / 10}' for a in table)}"
        raise ArgumentError(f"nvidia: the peak of {what} in {dtype} at compute capability {arch / 10} is not known here; known are {known}")
    return float(facts["multiprocessor_count"] * row[dtype] * clock_rate * 1e-9)  # kHz to 10^12 a second


def max_tensorcore_tflops(facts: Mapping[str, Any], dtype: str, clock_rate: float) -> float:
    """Peak of dense matrix instructions. facts: of get_device_properties. fp32 means tf32."""
    return _peak(_MATRIX, "matrix instructions", facts, "i8" if dtype == "u8" else dtype, clock_rate)


def max_simd_tflops(facts: Mapping[str, Any], dtype: str, clock_rate: float) -> float:
    """Peak of multiply-adds outside the matrix instructions."""
    return _peak(_SIMD, "multiply-adds", facts, dtype, clock_rate)


# ------------------------------------------------------------------------------------------------------------------- disassembly
_LINE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s*([^;]*;)\s*/\* 0x([0-9a-f]{16}) \*/")
_SECOND = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/")
_FUNCTION = re.compile(r"\s*Function : (\S+)")
_BRANCH = re.compile(r"\b(BRA(?:\.\S+)?\s.*?)(0x[0-9a-f]+)(\s*;)")


def _control(word: int) -> str:
    """The scheduling fields of a 128-bit instruction's upper half: wait mask, read and write barrier, yield, stall cycles."""
    stall, keeps, write, read, wait = word >> 41 & 15, word >> 45 & 1, word >> 46 & 7, word >> 49 & 7, word >> 52 & 63
    return ":".join(["--" if not wait else f"{wait:02d}", "-" if read == 7 else str(read), "-" if write == 7 else str(write), "-" if keeps else "Y", f"{stall:x}"])


def listing(text: str) -> str:
    """cuobjdump's SASS with the scheduling fields before each instruction, and labels in place of branch targets."""
    out: list[str] = []
    body: list[tuple[str, str]] = []

    def finish() -> None:
        labels: dict[int, str] = {}
        for _, instruction in body:
            if found := _BRANCH.search(instruction):
                labels.setdefault(int(found.group(2), 16), f"LBB{len(labels)}")
        for i, (fields, instruction) in enumerate(body):
            if 16 * i in labels:
                out.append(f"{labels[16 * i]}:")
            out.append(f"{fields}\t" + _BRANCH.sub(lambda m: m.group(1) + labels[int(m.group(2), 16)] + ";", instruction))
        if body:
            out.append("")
        body.clear()

    first = ""
    for line in text.splitlines():
        if found := _FUNCTION.match(line):
            finish()
            out.append(f"Function:{found.group(1)}")
        elif found := _LINE.match(line):
            first = re.sub(r"\s+;$", ";", found.group(1))
        elif first and (found := _SECOND.match(line)):
            body.append((_control(int(found.group(1), 16)), first))
            first = ""
    finish()
    return "\n".join(out) + "\n"


def get_sass(cubin_asm: bytes, fun: str | None = None) -> str:
    """SASS of a cubin (``kernel.asm["cubin"]``), of all functions or only ``fun``, by cuobjdump. Raises ToolError where there is none."""
    tool = KNOBS.cuobjdump
    if tool is None:
        raise ToolError("nvidia: there is no cuobjdump; pip install nvidia-cuda-cuobjdump, or set TRITON_CUOBJDUMP_PATH")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = os.path.join(folder, "kernel.cubin")
        with open(path, "wb") as f:
            f.write(cubin_asm)
        return listing(_output([tool.path, *(("-fun", fun) if fun else ()), "-sass", path]))


C_API = CApi(header="cuda.h", result="CUresult", success="CUDA_SUCCESS", module="CUmodule", function="CUfunction", stream="CUstream", load="cuModuleLoadData",
             get_function="cuModuleGetFunction", unload="cuModuleUnload", launch="cuLaunchKernel", buffer_pointer="CU_LAUNCH_PARAM_BUFFER_POINTER",
             buffer_size="CU_LAUNCH_PARAM_BUFFER_SIZE", end="CU_LAUNCH_PARAM_END", device_pointer="CUdeviceptr",
             shared_attribute="cuFuncSetAttribute({function}, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, {shared})")

UTILITIES: dict[str, Callable[..., Any]] = {
    "nvsmi": nvsmi, "set_gpu_clock": set_gpu_clock, "cuda_memcheck": cuda_memcheck, "get_sass": get_sass,
    "c_source": functools.partial(generate, C_API), "max_tensorcore_tflops": max_tensorcore_tflops, "max_simd_tflops": max_simd_tflops,
}
