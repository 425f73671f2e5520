"""What is measured: per case the buffers, the candidate configurations, the launches, the float64 reference and the library's own kernels.

A case is data for whoever measures, compiles or checks it: ``buffers(new)`` makes arrays through ``new(shape, dtype, fill)`` (of a device, of
a CPU, or stand-ins without memory), ``launches(buffers, candidate, framework)`` says what to run. torch is imported only where arrays are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Candidate = dict[str, Any]
New = Callable[[Sequence[int], str, str], Any]
LOG2E = 1.4426950408889634
PEAK = {"float16": 989.4, "bfloat16": 989.4, "float8_e4m3fn": 1978.9}  # dense TFLOP/s in H100/H200's data sheet, SXM
SMS = 132


@dataclass(frozen=True)
class Launch:
    """``framework.kernel(file, kernel)[grid](*args, **options)``; options hold the constexprs too."""

    file: str
    kernel: str
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    options: dict[str, Any]


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


class Case:
    """``work``: flops or bytes. ``bounds``: output → greatest relative error (Frobenius; of one element 8 times that, against the largest).
    ``peak``: TFLOP/s of the device for this type, None where memory is the limit."""

    unit = "TFLOP/s"
    peak: float | None = None

    def __init__(self, name: str, title: str, work: float, bounds: dict[str, float], candidates: Sequence[Candidate]):
        self.name, self.title, self.work, self.bounds, self.candidates = name, title, work, bounds, list(candidates)

    def rate(self, ms: float) -> float:
        return self.work / ms / (1e6 if self.unit == "GB/s" else 1e9)

    def buffers(self, new: New) -> dict[str, Any]:
        """Inputs, outputs (full of NaN) and what lies between, by name."""
        raise NotImplementedError

    def prepare(self, b: dict[str, Any]) -> None:
        """Fill the buffers that follow from the inputs (of real arrays)."""

    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        raise NotImplementedError

    def reference(self, b: dict[str, Any]) -> dict[str, Any]:
        """Outputs in float64, by name."""
        raise NotImplementedError

    def libraries(self, b: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        """The library's kernels for the same result; the first is the one that the table compares with."""
        return {}


# ---------------------------------------------------------------------------------------------------------------- matmul
def _tiles(*rows: tuple[Any, ...], **more: Any) -> list[Candidate]:
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages[, WRAP]) → candidates."""
    return [{"BLOCK_M": r[0], "BLOCK_N": r[1], "BLOCK_K": r[2], "num_warps": r[3], "num_stages": r[4],
             **({"WRAP": r[5] if len(r) > 5 else True}), **more} for r in rows]


BIG = _tiles((128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (128, 128, 64, 4, 4), (128, 128, 64, 8, 4), (64, 256, 64, 4, 4),
             (128, 256, 64, 8, 3, False), (128, 128, 64, 8, 3, False), (256, 128, 64, 8, 3))
SMALL = _tiles((64, 64, 64, 4, 4), (64, 64, 128, 4, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 128, 128, 4, 3),
               (64, 64, 64, 4, 4, False), (128, 64, 64, 4, 4, False), (128, 64, 64, 8, 4, False))
SKINNY = _tiles((64, 64, 128, 4, 5), (64, 64, 128, 4, 4), (64, 64, 64, 4, 6), (64, 64, 256, 4, 3), (64, 32, 128, 4, 5), (64, 128, 64, 4, 5),
                (64, 64, 128, 4, 5, False), (64, 32, 256, 4, 4))
FP8 = _tiles((128, 256, 128, 8, 3), (128, 256, 128, 8, 4), (128, 128, 128, 4, 4), (128, 128, 128, 8, 4), (64, 256, 128, 4, 4),
             (128, 256, 128, 8, 3, False), (256, 128, 128, 8, 3), (128, 256, 64, 8, 4))


class Matmul(Case):
    """y = x w (+ bias, relu) by pointers. ``transposed``: w lies in memory as (N, K)."""

    def __init__(self, name: str, m: int, n: int, k: int, candidates: Sequence[Candidate], dtype: str = "float16", out: str = "",
                 epilogue: bool = False, transposed: bool = False, bound: float = 2e-3):
        short = {"float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8 e4m3"}[dtype]
        size = f"{m}³" if m == n == k else f"{m}×{n}×{k}"
        super().__init__(name, f"matmul {short} {size}{' bias relu' if epilogue else ''}", 2.0 * m * n * k, {"y": bound}, candidates)
        self.m, self.n, self.k, self.dtype, self.out = m, n, k, dtype, out or dtype
        self.epilogue, self.transposed, self.peak = epilogue, transposed, PEAK[dtype]

    def buffers(self, new: New) -> dict[str, Any]:
        w = (self.n, self.k) if self.transposed else (self.k, self.n)
        b = {"x": new((self.m, self.k), self.dtype, "random"), "w": new(w, self.dtype, "random"), "y": new((self.m, self.n), self.out, "nan")}
        if self.epilogue:
            b["b"] = new((self.n,), self.dtype, "random")
        return b

    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        m, n, k = self.m, self.n, self.k
        w_strides = (1, k) if self.transposed else (n, 1)
        grid = (cdiv(m, c["BLOCK_M"]) * cdiv(n, c["BLOCK_N"]),)
        return [Launch("matmul", "matmul_pointers", grid, (b["x"], b["w"], b.get("b"), b["y"], m, n, k, k, 1, *w_strides, n, 1),
                       {"GROUP_M": 8, "BIAS": self.epilogue, "RELU": self.epilogue, **c})]

    def _operand(self, b: dict[str, Any]) -> Any:
        return b["w"].t() if self.transposed else b["w"]

    def reference(self, b: dict[str, Any]) -> dict[str, Any]:
        y = b["x"].double() @ self._operand(b).double()
        return {"y": (y + b["b"].double()).relu() if self.epilogue else y}

    def libraries(self, b: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        import torch

        x, w = b["x"], self._operand(b)
        if self.dtype.startswith("float8"):
            one = torch.ones((), device=x.device)
            out = getattr(torch, self.out)
            return {"scaled_mm fast": lambda: torch._scaled_mm(x, w, one, one, out_dtype=out, use_fast_accum=True),
                    "scaled_mm": lambda: torch._scaled_mm(x, w, one, one, out_dtype=out)}
        found: dict[str, Callable[[], Any]] = {"cuBLAS": lambda: torch.matmul(x, w)}
        if self.epilogue:
            found["cuBLASLt epilogue"] = lambda: torch._addmm_activation(b["b"], x, w)
        return found


class DescriptorMatmul(Matmul):
    """y = x wᵀ by descriptors in a persistent loop."""

    def __init__(self, name: str, m: int, n: int, k: int, candidates: Sequence[Candidate], **more: Any):
        super().__init__(name, m, n, k, candidates, transposed=True, **more)
        self.title += " descriptors, persistent"

    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        m, n, k = self.m, self.n, self.k
        bm, bn, bk = c["BLOCK_M"], c["BLOCK_N"], c["BLOCK_K"]
        programs = min(SMS, cdiv(m, bm) * cdiv(n, bn))
        out = getattr(framework.tl, self.out)
        args = (framework.descriptor(b["x"], (m, k), (bm, bk)), framework.descriptor(b["w"], (n, k), (bn, bk)),
                framework.descriptor(b["y"], (m, n), (bm, bn // 2 if c["HALVES"] else bn)), m, n, k)
        return [Launch("matmul", "matmul_descriptors", (programs,), args, {"GROUP_M": 8, "PROGRAMS": programs, "OUT": out, **c})]


def _persistent(*rows: tuple[Any, ...]) -> list[Candidate]:
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, form): form "f" flattened, "w" warp-specialised, "p" plain; "h" store in halves."""
    return [{"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": w, "num_stages": s, "FLATTEN": "f" in form,
             "WARP_SPECIALIZE": "w" in form, "HALVES": "h" in form} for m, n, k, w, s, form in rows]


PERSISTENT = _persistent((128, 256, 64, 8, 3, "f"), (128, 256, 64, 8, 4, "fh"), (128, 256, 64, 8, 3, "w"), (128, 256, 64, 8, 3, "wh"),
                         (128, 256, 64, 8, 3, "p"), (128, 128, 64, 8, 4, "f"), (128, 128, 64, 8, 4, "w"), (128, 128, 128, 8, 3, "fh"))
PERSISTENT_FP8 = _persistent((128, 256, 128, 8, 3, "f"), (128, 256, 128, 8, 4, "fh"), (128, 256, 128, 8, 3, "w"), (128, 256, 128, 8, 3, "wh"),
                             (128, 256, 128, 8, 3, "p"), (128, 128, 128, 8, 4, "f"), (128, 128, 128, 8, 4, "w"), (128, 256, 64, 8, 4, "f"))


# ------------------------------------------------------------------------------------------------------------- attention
def _attention(*rows: tuple[Any, ...]) -> list[Candidate]:
    """(form, BLOCK_M, BLOCK_N, num_warps, num_stages): form "p" pointers, "d" descriptors, "w" descriptors, warp-specialised."""
    return [{"FORM": f, "BLOCK_M": m, "BLOCK_N": n, "num_warps": w, "num_stages": s} for f, m, n, w, s in rows]


ATTENTION_128 = _attention(("p", 128, 128, 8, 2), ("p", 128, 64, 8, 3), ("p", 128, 64, 4, 3), ("p", 128, 64, 4, 2),
                           ("d", 128, 128, 8, 2), ("d", 128, 128, 8, 3), ("d", 128, 64, 4, 3), ("w", 128, 128, 8, 2))
ATTENTION_64 = _attention(("p", 128, 128, 8, 3), ("p", 128, 64, 4, 3), ("p", 128, 64, 8, 3), ("p", 128, 128, 4, 3),
                          ("d", 128, 128, 8, 3), ("d", 128, 64, 4, 4), ("d", 128, 128, 4, 3), ("w", 128, 128, 8, 3))


def _scores(b: dict[str, Any], causal: bool, heads: range) -> Any:
    """Scaled scores of some heads in float64, masked with -inf."""
    import torch

    q, k = (b[t][heads.start:heads.stop].double() for t in "qk")
    s = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    if causal:
        n = s.shape[-1]
        s = s.masked_fill_(~torch.ones(n, n, dtype=torch.bool, device=s.device).tril(), float("-inf"))
    return s


def _chunks(heads: int, n: int) -> list[range]:
    """Heads by so many at a time that their scores in float64 take at most 2 GiB."""
    step = max(1, 2**28 // (n * n))
    return [range(h, min(h + step, heads)) for h in range(0, heads, step)]


class Attention(Case):
    """Forward; the log-sum-exp of each row (of base 2), which a backward needs, is written too."""

    def __init__(self, name: str, heads: int, n: int, d: int, causal: bool, candidates: Sequence[Candidate], dtype: str = "bfloat16"):
        title = f"attention forward {'bf16' if dtype == 'bfloat16' else dtype} D={d} N={n}{' causal' if causal else ''}"
        super().__init__(name, title, 4.0 * heads * n * n * d * (0.5 if causal else 1.0), {"o": 8e-3, "lse": 1e-5}, candidates)
        self.heads, self.n, self.d, self.causal, self.dtype, self.peak = heads, n, d, causal, dtype, PEAK.get(dtype)

    def buffers(self, new: New) -> dict[str, Any]:
        shape = (self.heads, self.n, self.d)
        return {**{t: new(shape, self.dtype, "random") for t in "qkv"}, "o": new(shape, self.dtype, "nan"), "lse": new(shape[:2], "float32", "nan")}

    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        c = dict(c)
        form, bm, bn = c.pop("FORM"), c["BLOCK_M"], c["BLOCK_N"]
        grid = (cdiv(self.n, bm), self.heads)
        scale = LOG2E / self.d**0.5
        options = {"D": self.d, "CAUSAL": self.causal, **c}
        if form == "p":
            return [Launch("attention", "forward_pointers", grid, (*(b[t] for t in "qkvo"), b["lse"], self.n, scale), options)]
        shape = (self.heads * self.n, self.d)
        arrays = [framework.descriptor(b[t], shape, (bm if t in "qo" else bn, self.d)) for t in "qkvo"]
        options |= {"WARP_SPECIALIZE": form == "w", "OUT": getattr(framework.tl, self.dtype)}
        return [Launch("attention", "forward_descriptors", grid, (*arrays, b["lse"], self.n, scale), options)]

    def reference(self, b: dict[str, Any]) -> dict[str, Any]:
        import torch

        o, lse = [], []
        for heads in _chunks(self.heads, self.n):
            s = _scores(b, self.causal, heads)
            lse.append(torch.logsumexp(s, -1) * LOG2E)
            o.append(torch.softmax(s, -1) @ b["v"][heads.start:heads.stop].double())
        return {"o": torch.cat(o), "lse": torch.cat(lse)}

    def libraries(self, b: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        q, k, v = (b[t].unflatten(0, (-1, 16)) for t in "qkv")
        return {"cuDNN": _cudnn(lambda f: f(q, k, v, is_causal=self.causal))}


def _cudnn(call: Callable[[Any], Any]) -> Callable[[], Any]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run() -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return call(torch.nn.functional.scaled_dot_product_attention)

    return run


def _backward(*rows: tuple[Any, ...]) -> list[Candidate]:
    """(outer block, inner block, num_warps, num_stages), of the kernel for dk and dv and of that for dq."""
    return [{"KEYS": tuple(keys), "QUERIES": tuple(queries)} for keys, queries in rows]


BACKWARD_128 = _backward(((128, 64, 8, 2), (128, 64, 8, 2)), ((128, 64, 8, 3), (128, 64, 8, 3)), ((128, 32, 4, 3), (128, 32, 4, 4)),
                         ((64, 64, 4, 2), (64, 64, 4, 3)), ((128, 128, 8, 2), (128, 128, 8, 2)), ((128, 32, 8, 3), (128, 32, 8, 3)))
BACKWARD_64 = _backward(((128, 64, 8, 3), (128, 64, 8, 3)), ((128, 64, 4, 3), (128, 64, 4, 3)), ((128, 32, 4, 4), (128, 32, 4, 4)),
                        ((64, 64, 4, 3), (64, 64, 4, 3)), ((128, 128, 8, 2), (128, 128, 8, 2)), ((128, 128, 8, 3), (128, 64, 8, 4)))


class AttentionBackward(Case):
    """dq, dk, dv from o and its log-sum-exp: three launches, timed together."""

    def __init__(self, name: str, heads: int, n: int, d: int, causal: bool, candidates: Sequence[Candidate], dtype: str = "bfloat16"):
        title = f"attention backward {'bf16' if dtype == 'bfloat16' else dtype} D={d} N={n}{' causal' if causal else ''}"
        super().__init__(name, title, 10.0 * heads * n * n * d * (0.5 if causal else 1.0), dict.fromkeys(("dq", "dk", "dv"), 1.2e-2), candidates)
        self.heads, self.n, self.d, self.causal, self.dtype, self.peak = heads, n, d, causal, dtype, PEAK.get(dtype)

    def buffers(self, new: New) -> dict[str, Any]:
        shape = (self.heads, self.n, self.d)
        b = {t: new(shape, self.dtype, "random") for t in ("q", "k", "v", "do")}
        b |= {t: new(shape, self.dtype, "nan") for t in ("o", "dq", "dk", "dv")}
        return b | {t: new(shape[:2], "float32", "nan") for t in ("lse", "delta")}

    def prepare(self, b: dict[str, Any]) -> None:
        forward = Attention("", self.heads, self.n, self.d, self.causal, [], self.dtype).reference(b)
        b["o"].copy_(forward["o"])
        b["lse"].copy_(forward["lse"])

    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        plain = 1.0 / self.d**0.5
        scales = (self.n, plain * LOG2E, plain)
        rest = (b["lse"], b["delta"], *scales)
        (kn, km, kw, ks), (qm, qn, qw, qs) = c["KEYS"], c["QUERIES"]
        static = {"D": self.d, "CAUSAL": self.causal}
        inputs = tuple(b[t] for t in ("q", "k", "v", "do"))
        return [
            Launch("attention", "backward_delta", (cdiv(self.heads * self.n, 64),), (b["o"], b["do"], b["delta"]), {"D": self.d, "BLOCK": 64, "num_warps": 4}),
            Launch("attention", "backward_keys", (cdiv(self.n, kn), self.heads), (*inputs, b["dk"], b["dv"], *rest),
                   {**static, "BLOCK_M": km, "BLOCK_N": kn, "num_warps": kw, "num_stages": ks}),
            Launch("attention", "backward_queries", (cdiv(self.n, qm), self.heads), (*inputs, b["dq"], *rest),
                   {**static, "BLOCK_M": qm, "BLOCK_N": qn, "num_warps": qw, "num_stages": qs}),
        ]

    def reference(self, b: dict[str, Any]) -> dict[str, Any]:
        """The gradients of the rounded inputs; delta from the float64 output."""
        import torch

        out: dict[str, list[Any]] = {"dq": [], "dk": [], "dv": []}
        for heads in _chunks(self.heads, 2 * self.n):
            q, k, v, do = (b[t][heads.start:heads.stop].double() for t in ("q", "k", "v", "do"))
            p = torch.softmax(_scores(b, self.causal, heads), -1)
            dp = do @ v.transpose(1, 2)
            ds = p * (dp - (p * dp).sum(-1, keepdim=True)) / self.d**0.5
            out["dq"].append(ds @ k)
            out["dk"].append(ds.transpose(1, 2) @ q)
            out["dv"].append(p.transpose(1, 2) @ do)
        return {name: torch.cat(parts) for name, parts in out.items()}

    def libraries(self, b: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        import torch

        q, k, v = (b[t].unflatten(0, (-1, 16)).detach().requires_grad_() for t in "qkv")
        do = b["do"].unflatten(0, (-1, 16))
        o = _cudnn(lambda f: f(q, k, v, is_causal=self.causal))()
        return {"cuDNN": lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True)}


# ------------------------------------------------------------------------------------------------------ bound by memory
class Bandwidth(Case):
    unit = "GB/s"


class Add(Bandwidth):
    def __init__(self, name: str, n: int):
        super().__init__(name, f"add fp32 {f'2^{n.bit_length() - 1}' if n & n - 1 == 0 else n}", 12.0 * n, {"z": 1e-6},
                         [{"BLOCK": b, "num_warps": w} for b, w in ((1024, 4), (2048, 8), (4096, 8))])
        self.n = n

    def buffers(self, new: New) -> dict[str, Any]:
        return {"x": new((self.n,), "float32", "random"), "y": new((self.n,), "float32", "random"), "z": new((self.n,), "float32", "nan")}

    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        return [Launch("examples/vector_add", "add_kernel", (cdiv(self.n, c["BLOCK"]),), (b["x"], b["y"], b["z"], self.n), c)]

    def reference(self, b: dict[str, Any]) -> dict[str, Any]:
        return {"z": b["x"].double() + b["y"].double()}

    def libraries(self, b: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        return {"torch": lambda: b["x"].add(b["y"])}


class Rows(Bandwidth):
    """x (rows, columns) → y of the same shape; a program per row."""

    def __init__(self, name: str, what: str, rows: int, columns: int, dtype: str, bound: float, candidates: Sequence[Candidate]):
        super().__init__(name, f"{what} {'bf16' if dtype == 'bfloat16' else 'fp16'} {rows}×{columns}", 4.0 * rows * columns, {"y": bound}, candidates)
        self.rows, self.columns, self.dtype = rows, columns, dtype

    def buffers(self, new: New) -> dict[str, Any]:
        shape, row = (self.rows, self.columns), (self.columns,)
        return {"x": new(shape, self.dtype, "random"), "w": new(row, self.dtype, "random"), "b": new(row, self.dtype, "random"),
                "y": new(shape, self.dtype, "nan"), "mean": new((self.rows,), "float32", "nan"), "rstd": new((self.rows,), "float32", "nan")}


class Softmax(Rows):
    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        block = 1 << (self.columns - 1).bit_length()
        args = (b["y"], b["x"], self.columns, self.columns, self.rows, self.columns)
        return [Launch("examples/softmax", "softmax_kernel", (self.rows,), args, {"BLOCK": block, **c})]

    def reference(self, b: dict[str, Any]) -> dict[str, Any]:
        return {"y": b["x"].double().softmax(1)}

    def libraries(self, b: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        return {"torch": lambda: b["x"].softmax(1)}


class LayerNorm(Rows):
    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        args = (b["x"], b["y"], b["w"], b["b"], b["mean"], b["rstd"], self.columns, self.columns, 1e-5)
        return [Launch("examples/layer_norm", "layer_norm_kernel", (self.rows,), args, c)]

    def reference(self, b: dict[str, Any]) -> dict[str, Any]:
        import torch

        return {"y": torch.nn.functional.layer_norm(b["x"].double(), (self.columns,), b["w"].double(), b["b"].double(), 1e-5)}

    def libraries(self, b: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        import torch

        return {"torch": lambda: torch.nn.functional.layer_norm(b["x"], (self.columns,), b["w"], b["b"], 1e-5)}


class RmsNorm(Rows):
    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        block = 1 << (self.columns - 1).bit_length()
        return [Launch("rows", "rms_norm", (self.rows,), (b["x"], b["w"], b["y"], self.columns, self.columns, 1e-5), {"BLOCK": block, **c})]

    def reference(self, b: dict[str, Any]) -> dict[str, Any]:
        x = b["x"].double()
        return {"y": x * ((x * x).mean(1, keepdim=True) + 1e-5).rsqrt() * b["w"].double()}

    def libraries(self, b: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        import torch

        return {"torch": lambda: torch.nn.functional.rms_norm(b["x"], (self.columns,), b["w"], 1e-5)}


class CrossEntropy(Bandwidth):
    def __init__(self, name: str, rows: int, columns: int, candidates: Sequence[Candidate]):
        super().__init__(name, f"cross entropy bf16 {rows}×{columns}", 2.0 * rows * columns, {"loss": 1e-5}, candidates)
        self.rows, self.columns = rows, columns

    def buffers(self, new: New) -> dict[str, Any]:
        return {"x": new((self.rows, self.columns), "bfloat16", "random"), "label": new((self.rows,), "int64", f"below {self.columns}"),
                "loss": new((self.rows,), "float32", "nan")}

    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        return [Launch("rows", "cross_entropy", (self.rows,), (b["x"], b["label"], b["loss"], self.columns, self.columns), c)]

    def reference(self, b: dict[str, Any]) -> dict[str, Any]:
        import torch

        return {"loss": torch.nn.functional.cross_entropy(b["x"].double(), b["label"], reduction="none")}

    def libraries(self, b: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        import torch

        return {"torch": lambda: torch.nn.functional.cross_entropy(b["x"], b["label"], reduction="none")}


# ------------------------------------------------------------------------------------------------- the examples' own two
class ExampleMatmul(Matmul):
    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        m, n, k = self.m, self.n, self.k
        options = {key: value for key, value in c.items() if key != "WRAP"}
        return [Launch("examples/matmul", "matmul_kernel", (cdiv(m, c["BLOCK_M"]) * cdiv(n, c["BLOCK_N"]),),
                       (b["x"], b["w"], b["b"], b["y"], m, n, k, k, 1, n, 1, n, 1), {"GROUP_M": 8, "RELU": True, "PRECISION": "tf32", **options})]


class ExampleAttention(Attention):
    def __init__(self, *args: Any, **more: Any):
        super().__init__(*args, **more)
        del self.bounds["lse"]

    def launches(self, b: dict[str, Any], c: Candidate, framework: Any) -> list[Launch]:
        strides = [self.n * self.d, self.d] * 4
        options = {key: value for key, value in c.items() if key != "FORM"}
        return [Launch("examples/attention", "attention_kernel", (cdiv(self.n, c["BLOCK_M"]), self.heads),
                       (*(b[t] for t in "qkvo"), *strides, self.n, LOG2E / self.d**0.5),
                       {"HEAD_DIM": self.d, "CAUSAL": self.causal, "PRECISION": "tf32", **options})]


def _rows(*pairs: tuple[int, int]) -> list[Candidate]:
    return [{"BLOCK": b, "num_warps": w} for b, w in pairs]


def all_cases() -> dict[str, Case]:
    """Name → case, in the order of the table in docs/performance.md."""
    bf16, fp8 = "bfloat16", "float8_e4m3fn"
    listed: list[Case] = [
        Matmul("matmul8192", 8192, 8192, 8192, BIG, epilogue=True),
        Matmul("matmul4096", 4096, 4096, 4096, BIG, epilogue=True),
        Matmul("matmul8192_bf16", 8192, 8192, 8192, BIG[:6], bf16, bound=8e-3),
        Matmul("matmul4096_bf16", 4096, 4096, 4096, BIG[:6], bf16, bound=8e-3),
        Matmul("matmul_k1024", 8192, 8192, 1024, BIG),
        Matmul("matmul1000", 1000, 1000, 1000, SMALL),
        Matmul("matmul_skinny", 64, 8192, 8192, SKINNY, bf16, bound=8e-3),
        DescriptorMatmul("matmul_desc", 8192, 8192, 8192, PERSISTENT),
        Matmul("matmul_fp8", 8192, 8192, 8192, FP8, fp8, out=bf16, transposed=True, bound=1e-2),
        DescriptorMatmul("matmul_fp8_desc", 8192, 8192, 8192, PERSISTENT_FP8, dtype=fp8, out=bf16, bound=1e-2),
        Attention("attention128", 64, 4096, 128, False, ATTENTION_128),
        Attention("attention128c", 64, 4096, 128, True, ATTENTION_128),
        Attention("attention64", 64, 4096, 64, False, ATTENTION_64),
        Attention("attention64c", 64, 4096, 64, True, ATTENTION_64),
        AttentionBackward("backward128", 64, 4096, 128, False, BACKWARD_128),
        AttentionBackward("backward128c", 64, 4096, 128, True, BACKWARD_128),
        AttentionBackward("backward64c", 64, 4096, 64, True, BACKWARD_64),
        Attention("attention128_16k", 16, 16384, 128, False, ATTENTION_128),
        Attention("attention128c_16k", 16, 16384, 128, True, ATTENTION_128),
        Add("add", 2**27),
        Softmax("softmax", "softmax", 8192, 4096, bf16, 8e-3, [{"num_warps": w} for w in (4, 8, 16)]),
        LayerNorm("layer_norm", "layer norm", 8192, 8192, "float16", 1e-3, _rows((2048, 8), (4096, 8), (8192, 8), (8192, 16))),
        RmsNorm("rms_norm", "rms norm", 8192, 8192, bf16, 8e-3, [{"num_warps": w} for w in (4, 8, 16)]),
        CrossEntropy("cross_entropy", 8192, 32768, _rows((2048, 4), (4096, 8), (8192, 8), (8192, 16))),
        ExampleMatmul("example_matmul", 4096, 4096, 4096, BIG[:4], epilogue=True),
        ExampleAttention("example_attention", 64, 4096, 64, False, ATTENTION_64[:4]),
    ]
    for case in listed[-2:]:
        case.title += " (examples/)"
    return {case.name: case for case in listed}
