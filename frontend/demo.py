"""``tilewright demo``: one kernel, ``y = relu(x @ w + b)``, compiled for every target and launched where there is a device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, no_type_check

import tilewright as triton
import tilewright.language as tl
from tilewright.dialects.errors import TilewrightError
from tilewright.runtime.jit import JITFunction
from tilewright.targets import registry

KERNEL = "linear_relu"
SHAPE = (200, 144, 112)  # M, N, K: no multiples of the block; rows of w and x are multiples of 16 bytes
BLOCK = (64, 64, 32)
BOUND = 1e-2  # fp16 inputs and output of magnitude 1


@no_type_check  # kernels are no Python to a type checker
def linear_relu(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn,
                BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + rows[:, None] * stride_xm + inner[None, :] * stride_xk
    w_ptrs = w_ptr + inner[:, None] * stride_wk + cols[None, :] * stride_wn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        x = tl.load(x_ptrs, mask=(rows[:, None] < M) & (inner[None, :] < left), other=0.0)
        w = tl.load(w_ptrs, mask=(inner[:, None] < left) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(x, w, acc)
        x_ptrs += BLOCK_K * stride_xk
        w_ptrs += BLOCK_K * stride_wk
    bias = tl.load(b_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    y = tl.maximum(acc + bias[None, :], 0.0)
    y_ptrs = y_ptr + rows[:, None] * stride_ym + cols[None, :] * stride_yn
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


# compiled even under TILEWRIGHT_INTERPRET=1, since the demo is of the compilers
kernel = JITFunction(linear_relu)


def source() -> Any:
    """The ASTSource that every target compiles: fp16 matrices, row-major, addresses and row lengths divisible by 16."""
    pointers = ("x_ptr", "w_ptr", "b_ptr", "y_ptr")
    signature = {n: "*fp16" if n in pointers else "i32" for n in kernel.arg_names}
    constants: dict[Any, Any] = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), BLOCK)) | {"stride_xk": 1, "stride_wn": 1, "stride_yn": 1}
    aligned = (*pointers, "N", "K", "stride_xm", "stride_wk", "stride_ym")
    attrs = {(kernel.arg_names.index(n),): [["tt.divisibility", 16]] for n in aligned}
    return triton.compiler.ASTSource(kernel, signature, constants, attrs)


def _inputs() -> tuple[Any, ...]:
    import numpy as np

    m, n, k = SHAPE
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((m, k)), rng.standard_normal((k, n)) / k**0.5, rng.standard_normal(n)
    return x.astype(np.float16), w.astype(np.float16), b.astype(np.float16)


def _padded(a: Any, poison: bool = False) -> Any:
    """The array as a part of one whose rows are multiples of 16 elements, at an aligned address."""
    import numpy as np

    rows, cols = a.shape
    pitch = -(-cols // 16) * 16
    raw = np.zeros(rows * pitch + 32, a.dtype)
    start = (-raw.ctypes.data % 64) // a.itemsize
    out = raw[start:start + rows * pitch].reshape(rows, pitch)[:, :cols]
    out[...] = np.nan if poison else a
    return out


def measure(selection: registry.Selection) -> float:
    """Launch on the target's device and return the largest deviation from float64. Raises what launching raises."""
    import numpy as np

    x, w, b = _inputs()
    reference = np.maximum(x.astype(np.float64) @ w.astype(np.float64) + b.astype(np.float64), 0)
    m, n, k = SHAPE
    grid = (triton.cdiv(m, BLOCK[0]), triton.cdiv(n, BLOCK[1]))
    launch = triton.compiler.compiler.compile_selected(source(), selection, {})[grid]
    if "cpu" in selection.plugin.device_types:
        x, w, y = _padded(x), _padded(w), _padded(np.empty((m, n), np.float16), poison=True)
        bias = _padded(b[None, :])[0]
        launch(x, w, bias, y, m, n, k, x.strides[0] // 2, 1, w.strides[0] // 2, 1, y.strides[0] // 2, 1, *BLOCK)
        out = y
    else:
        import torch

        device = torch.device(_torch_device(selection))
        xt, wt = (torch.zeros(a.shape[0], -(-a.shape[1] // 16) * 16, dtype=torch.float16, device=device) for a in (x, w))
        xt[:, :k], wt[:, :n] = torch.from_numpy(x).to(device), torch.from_numpy(w).to(device)
        yt = torch.full((m, -(-n // 16) * 16), float("nan"), dtype=torch.float16, device=device)
        launch(xt, wt, torch.from_numpy(b).to(device), yt, m, n, k, xt.stride(0), 1, wt.stride(0), 1, yt.stride(0), 1, *BLOCK)
        out = yt[:, :n].cpu().numpy()
    return float(np.abs(out.astype(np.float64) - reference).max())


def _torch_device(selection: registry.Selection) -> str:
    from tilewright.runtime.driver import ActiveDriver

    return str(ActiveDriver(selection).get_active_torch_device())


def label(selection: registry.Selection) -> str:
    """The target as rows name it: "cpu" for the host itself, else with the arch."""
    host = selection.plugin.name == registry.FALLBACK and selection.arch == selection.plugin.default_arch
    return selection.plugin.name if host and not selection.simulate else str(selection)


def row(selection: registry.Selection) -> dict[str, Any]:
    """What became of one target: compiled, its stages' sizes, resources, whether it ran and how exactly; ``error`` where something failed."""
    out: dict[str, Any] = {"target": label(selection), "kernel": KERNEL, "compiled": False, "stages": {}, "registers": None, "spills": None,
                           "shared_bytes": None, "ran": False, "max_error": None}
    try:
        compiled = triton.compiler.compiler.compile_selected(source(), selection, {})
        out["compiled"] = True
        out["stages"] = {stage: len(code if isinstance(code, bytes) else code.encode()) for stage, code in compiled.asm.items()}
        out.update(registers=compiled.metadata.registers, spills=compiled.metadata.spills, shared_bytes=compiled.metadata.shared)
        if any(selection.plugin.resolve_arch(d.arch) == selection.arch for d in registry.probe(selection.plugin)):
            why = _cannot_hold_arrays(selection)
            if why:
                out["note"] = why
                return out
            error = measure(selection)
            out.update(ran=True, max_error=error)
            if not error <= BOUND:  # NaN too
                out["error"] = f"the result is off by {error}; at most {BOUND} is right"
    except TilewrightError as failure:
        out["error"] = f"{type(failure).__name__}: {failure}"
    except Exception as failure:  # a broken plugin must not hide the others' rows
        out["error"] = f"{type(failure).__name__}: {failure}"
    return out


def _cannot_hold_arrays(selection: registry.Selection) -> str:
    """Why the demo has no arrays on the target's device; "" where it has."""
    if "cpu" in selection.plugin.device_types:
        return ""
    try:
        import torch
    except ImportError:
        return "a device is there; install torch to launch on it"
    modules = [getattr(torch, d) for d in selection.plugin.device_types if hasattr(torch, d)]
    return "" if any(m.is_available() for m in modules) else "a device is there, and this build of torch does not use it"


def selections(wanted: Sequence[str] = ()) -> Iterable[registry.Selection | dict[str, Any]]:
    """The targets to show: those named, else every arch of every target; a row with an error for one that does not load."""
    if wanted:
        for text in wanted:
            try:
                yield registry.parse(text)
            except TilewrightError as error:
                yield _failed(text, error)
        return
    for entry in registry.entries():
        if entry.plugin is None:
            assert entry.error is not None
            yield _failed(entry.name, entry.error)
            continue
        archs = list(entry.plugin.archs)
        for device in registry.probe(entry.plugin):
            arch = entry.plugin.resolve_arch(device.arch)
            if arch not in archs:
                archs.append(arch)
        for arch in archs:
            yield registry.Selection(entry.plugin, arch)


def _failed(name: str, error: Exception) -> dict[str, Any]:
    return {"target": name, "kernel": KERNEL, "compiled": False, "stages": {}, "registers": None, "spills": None, "shared_bytes": None,
            "ran": False, "max_error": None, "error": f"{type(error).__name__}: {error}"}


def rows(wanted: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One row a target."""
    return [s if isinstance(s, dict) else row(s) for s in selections(wanted)]
