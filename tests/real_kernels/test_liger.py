"""liger-kernel from PyPI, unchanged, with Tilewright for ``triton``: forward and backward on torch CPU tensors, against torch in float64.

``pip install --no-deps liger-kernel`` brings it (its dependencies are torch, which is here, and triton, which is not wanted). The quick
part holds the four kernels that issue 5 names; ``-m nightly`` runs every case.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("liger_kernel") is None:
    pytest.skip("liger-kernel is not installed: pip install --no-deps liger-kernel", allow_module_level=True)

from torch.nn import functional as F

import tilewright
from tilewright import dropin

SIZES = [(1, 1), (3, 7), (5, 64), (2, 257), (4, 1031)]
DTYPES = [torch.float32, torch.bfloat16]
# of the largest value of what is compared: what the number of roundings on the way explains
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.fixture(scope="module")
def ops() -> Iterator[Any]:
    """``ops("rms_norm")`` is liger_kernel.ops.rms_norm, whose ``triton`` is Tilewright."""
    before = set(sys.modules)
    tilewright.install_as_triton()
    try:
        yield lambda name: importlib.import_module(f"liger_kernel.ops.{name}")
    finally:
        dropin.uninstall()
        for name in [n for n in sys.modules if n.split(".")[0] == "liger_kernel" and n not in before]:
            del sys.modules[name]


def tensor(*shape: int, dtype: Any = torch.float32, seed: int = 0, scale: float = 1.0) -> Any:
    generator = torch.Generator().manual_seed(seed + 7919 * len(shape) + sum(shape))
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def near(got: Any, expected: Any, tolerance: float, what: str) -> None:
    """Within ``tolerance`` of the largest value; NaN and infinities where they are expected."""
    assert tuple(got.shape) == tuple(expected.shape), f"{what}: shape {tuple(got.shape)}, not {tuple(expected.shape)}"
    a, b = got.detach().double(), expected.detach().double()
    finite = torch.isfinite(b)
    assert torch.equal(torch.nan_to_num(a[~finite], nan=7.0), torch.nan_to_num(b[~finite], nan=7.0)), f"{what}: other infinities or NaN"
    error = (a[finite] - b[finite]).abs()
    # gradients that cancel are as exact as what they are sums of, which is about 1
    bound = tolerance * max(float(b[finite].abs().max()) if finite.any() else 0.0, 0.25)
    assert bool((error <= bound).all()), f"{what}: off by {float(error.max()):.3g}, allowed {bound:.3g}"


def check(run: Callable[..., Any], reference: Callable[..., Any], inputs: dict[str, Any], tolerance: float, no_grad: tuple[str, ...] = (),
          grad_tolerance: float | None = None) -> None:
    """``run`` on the inputs, ``reference`` on the same in float64; outputs and the gradients of all floating inputs."""
    def leaves(wide: bool) -> dict[str, Any]:
        made = {}
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor):
                value = value.detach().clone()
                if value.dtype.is_floating_point:
                    value = value.double() if wide else value
                    value.requires_grad_(name not in no_grad)
            made[name] = value
        return made

    mine, theirs = leaves(False), leaves(True)
    # a kernel may write into its input: it gets what an operation before it would give
    got = run(**{n: v * 1 if isinstance(v, torch.Tensor) and v.requires_grad else v for n, v in mine.items()})
    expected = reference(**theirs)
    got = got if isinstance(got, tuple) else (got,)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(got) == len(expected)
    kept = [g.detach().clone() for g in got]
    for i, (g, e) in enumerate(zip(kept, expected)):
        near(g, e, tolerance, f"output {i}")
    seeds = [tensor(*g.shape, dtype=g.dtype, seed=5) if g.ndim else torch.tensor(1.0, dtype=g.dtype) for g in kept]
    if not any(g.requires_grad for g in got):
        assert not any(v.requires_grad for v in mine.values() if isinstance(v, torch.Tensor)), "the output has lost its gradient"
        return
    torch.autograd.backward([g for g in got if g.requires_grad], [s.clone() for g, s in zip(got, seeds) if g.requires_grad])
    torch.autograd.backward([e for e in expected if e.requires_grad], [s.double() for e, s in zip(expected, seeds) if e.requires_grad])
    for name, value in mine.items():
        if isinstance(value, torch.Tensor) and value.requires_grad:
            want = theirs[name].grad
            assert value.grad is not None, f"no gradient of {name}"
            near(value.grad, torch.zeros_like(theirs[name]) if want is None else want, grad_tolerance or tolerance, f"gradient of {name}")


def cases(quick: list[Any], rest: list[Any]) -> list[Any]:
    return [pytest.param(*c) for c in quick] + [pytest.param(*c, marks=pytest.mark.nightly) for c in rest]


# -------------------------------------------------------------------------------------------------------------- the four
def rms(x: Any, w: Any, offset: float, eps: float = 1e-6) -> Any:
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return y if w is None else y * (offset + w)


_RMS = [(s, d, mode, offset, in_place, True) for s in SIZES for d in DTYPES for mode, offset, in_place in
        (("llama", 0.0, True), ("gemma", 1.0, True), ("none", 0.0, False), ("llama", 0.0, False))]
_RMS_QUICK = [((3, 7), torch.float32, "llama", 0.0, True, True), ((2, 257), torch.bfloat16, "gemma", 1.0, False, True),
              ((4, 1031), torch.float32, "none", 0.0, True, True), ((1, 1), torch.bfloat16, "llama", 0.0, True, False)]


@pytest.mark.parametrize("shape, dtype, mode, offset, in_place, affine", cases(_RMS_QUICK, [c for c in _RMS if c not in _RMS_QUICK]))
def test_rms_norm(ops: Any, shape: Any, dtype: Any, mode: str, offset: float, in_place: bool, affine: bool) -> None:
    function = ops("rms_norm").LigerRMSNormFunction
    inputs = {"x": tensor(*shape, dtype=dtype), "w": tensor(shape[1], dtype=dtype) if affine else None}
    check(lambda x, w: function.apply(x, w, 1e-6, offset, mode, in_place, None), lambda x, w: rms(x, w, offset), inputs,
          TOLERANCE[dtype] * (4 if mode == "none" else 1))  # which rounds each step to the arrays' type


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row_mode", [None, True])
def test_rms_norm_of_many_rows(ops: Any, dtype: Any, row_mode: Any) -> None:
    function = ops("rms_norm").LigerRMSNormFunction
    inputs = {"x": tensor(32768 + 3, 5, dtype=dtype), "w": tensor(5, dtype=dtype)}
    check(lambda x, w: function.apply(x, w, 1e-6, 0.0, "llama", False, row_mode), lambda x, w: rms(x, w, 0.0), inputs, TOLERANCE[dtype],
          grad_tolerance=5 * TOLERANCE[dtype])


_LAYER_QUICK = [((3, 7), torch.float32), ((2, 257), torch.bfloat16), ((4, 1031), torch.float32)]


@pytest.mark.parametrize("shape, dtype", cases(_LAYER_QUICK, [(s, d) for s in SIZES for d in DTYPES if (s, d) not in _LAYER_QUICK]))
def test_layer_norm(ops: Any, shape: Any, dtype: Any) -> None:
    function = ops("layer_norm").LigerLayerNormFunction
    inputs = {"x": tensor(*shape, dtype=dtype), "w": tensor(shape[1], dtype=dtype, seed=1), "b": tensor(shape[1], dtype=dtype, seed=2)}
    check(lambda x, w, b: function.apply(x, w, b, 1e-5), lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b, 1e-5), inputs, TOLERANCE[dtype])


_SWIGLU_QUICK = [((3, 7), torch.float32, 1.0, 1.0), ((2, 257), torch.bfloat16, 1.0, 1.0), ((4, 1031), torch.float32, 0.75, 1.5)]


@pytest.mark.parametrize("shape, dtype, gate, down", cases(_SWIGLU_QUICK, [(s, d, g, e) for s in SIZES for d in DTYPES for g, e in ((1.0, 1.0), (0.75, 1.5))
                                                                          if (s, d, g, e) not in _SWIGLU_QUICK]))
def test_swiglu(ops: Any, shape: Any, dtype: Any, gate: float, down: float) -> None:
    function = ops("swiglu").LigerSiLUMulFunction
    inputs = {"a": tensor(*shape, dtype=dtype), "b": tensor(*shape, dtype=dtype, seed=1)}
    check(lambda a, b: function.apply(a, b, gate, down), lambda a, b: F.silu(a * gate) * b * down, inputs, TOLERANCE[dtype])


@pytest.mark.nightly
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_swiglu_of_gate_and_up_in_one(ops: Any, dtype: Any, in_place: bool) -> None:
    function = ops("swiglu").LigerFusedGateUpSiLUMulFunction
    check(lambda y: function.apply(y, in_place), lambda y: F.silu(y[:, : y.shape[1] // 2]) * y[:, y.shape[1] // 2 :], {"y": tensor(3, 2 * 131, dtype=dtype)}, TOLERANCE[dtype])


def entropy(x: Any, target: Any, weight: Any, ignore: int, z: float, smoothing: float, reduction: str, softcap: Any) -> Any:
    """(loss, z loss) as liger defines them: torch's, plus z × logsumexp² over the rows that count."""
    x = softcap * torch.tanh(x / softcap) if softcap else x
    valid = target != ignore
    loss = F.cross_entropy(x, target, weight.double() if weight is not None else None, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction)
    zs = torch.where(valid, z * torch.logsumexp(x, -1).square(), torch.zeros((), dtype=x.dtype))
    zs = zs.sum() / valid.sum() if reduction == "mean" else zs.sum() if reduction == "sum" else zs
    return loss + zs, zs


_ENTROPY = [  # shape, dtype, ignore_index, z, smoothing, reduction, softcap, weights
    ((3, 7), torch.float32, -100, 0.0, 0.0, "mean", None, False), ((2, 257), torch.bfloat16, -100, 0.0, 0.1, "sum", None, False),
    ((5, 64), torch.float32, 3, 1e-2, 0.2, "mean", 30.0, True), ((4, 1031), torch.float32, -100, 1e-3, 0.0, "none", None, True),
    ((1, 1), torch.float32, -100, 0.0, 0.0, "mean", None, False),
    *[(s, d, ignore, z, smoothing, reduction, softcap, weights) for s in ((6, 31), (4, 1031)) for d in DTYPES for ignore in (-100, 2)
      for z, smoothing, softcap in ((0.0, 0.0, None), (1e-2, 0.1, 20.0)) for reduction in ("mean", "sum", "none") for weights in (False, True)]]


@pytest.mark.parametrize("shape, dtype, ignore, z, smoothing, reduction, softcap, weights", cases(_ENTROPY[:5], _ENTROPY[5:]))
def test_cross_entropy(ops: Any, shape: Any, dtype: Any, ignore: int, z: float, smoothing: float, reduction: str, softcap: Any, weights: bool) -> None:
    function = ops("cross_entropy").LigerCrossEntropyFunction
    rows, columns = shape
    target = torch.arange(rows) * 3 % columns
    if rows > 1:
        target[1] = ignore
    weight = tensor(columns, seed=3).abs() + 0.1 if weights else None

    def run(x: Any) -> Any:
        loss, zs, accuracy, tokens = function.apply(x, target, weight, ignore, z, smoothing, reduction, softcap, True, True, True)
        run.told = (accuracy, tokens, x.detach().float().argmax(-1), zs)  # type: ignore[attr-defined]
        return loss

    x = tensor(*shape, dtype=dtype, scale=2.0)
    best = x.float().argmax(-1)
    check(run, lambda x: entropy(x, target, weight, ignore, z, smoothing, reduction, softcap)[0], {"x": x}, TOLERANCE[dtype])
    accuracy, tokens, _, zs = run.told  # type: ignore[attr-defined]
    near(zs, entropy(x.double(), target, weight, ignore, z, smoothing, reduction, softcap)[1], TOLERANCE[dtype], "z loss")
    valid = target != ignore
    if dtype == torch.float32:  # bfloat16 has ties, the first of which counts in both, but softcap makes more of them
        assert torch.equal(tokens[valid], best[valid])
        assert bool((tokens[~valid] == -1).all())
        right = (best == target) & valid
        near(accuracy, right.double() if reduction == "none" else right.sum().double() / valid.sum(), 1e-6, "accuracy")


@pytest.mark.nightly
def test_cross_entropy_over_more_columns_than_a_block(ops: Any) -> None:
    function = ops("cross_entropy").LigerCrossEntropyFunction
    target = torch.tensor([40000, -100, 5])
    check(lambda x: function.apply(x, target, None, -100, 0.0, 0.1, "mean", None, False)[0], lambda x: entropy(x, target, None, -100, 0.0, 0.1, "mean", None)[0],
          {"x": tensor(3, 40001)}, TOLERANCE[torch.float32])


# --------------------------------------------------------------------------------------------------------------- the rest
@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SIZES)
class TestByRows:
    """Operations of a matrix, row by row."""

    def test_geglu(self, ops: Any, shape: Any, dtype: Any) -> None:
        function = ops("geglu").LigerGELUMulFunction
        check(lambda a, b: function.apply(a, b), lambda a, b: F.gelu(a, approximate="tanh") * b,
              {"a": tensor(*shape, dtype=dtype), "b": tensor(*shape, dtype=dtype, seed=1)}, TOLERANCE[dtype])

    def test_relu_squared(self, ops: Any, shape: Any, dtype: Any) -> None:
        function = ops("relu_squared").LigerReLUSquaredFunction
        check(lambda x: function.apply(x), lambda x: F.relu(x).square(), {"x": tensor(*shape, dtype=dtype)}, TOLERANCE[dtype])

    def test_softmax(self, ops: Any, shape: Any, dtype: Any) -> None:
        function = ops("softmax").LigerSoftmaxFunction
        check(lambda x: function.apply(x), lambda x: torch.softmax(x, -1), {"x": tensor(*shape, dtype=dtype)}, TOLERANCE[dtype])

    def test_sparsemax(self, ops: Any, shape: Any, dtype: Any) -> None:
        if dtype != torch.float32 and shape[1] > 64:
            pytest.skip("the support of a sparsemax over many bfloat16 columns is decided by their rounding")
        function = ops("sparsemax").LigerSparsemaxFunction
        check(lambda x: function.apply(x, -1), sparsemax, {"x": tensor(*shape, dtype=dtype)}, TOLERANCE[dtype])

    def test_dyt(self, ops: Any, shape: Any, dtype: Any) -> None:
        function = ops("dyt").LigerDyTFunction
        for beta in (True, False):
            inputs = {"x": tensor(*shape, dtype=dtype), "alpha": torch.full((1,), 0.5, dtype=dtype), "gamma": tensor(shape[1], dtype=dtype, seed=1),
                      "beta": tensor(shape[1], dtype=dtype, seed=2) if beta else None}
            # its backward asks for the number of a GPU's processors, and has no case for others
            check(lambda x, alpha, gamma, beta: function.apply(x, alpha, gamma, beta).detach(),
                  lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + (0 if beta is None else beta), inputs, TOLERANCE[dtype],
                  no_grad=("x", "alpha", "gamma", "beta"))

    def test_fused_add_rms_norm(self, ops: Any, shape: Any, dtype: Any) -> None:
        function = ops("fused_add_rms_norm").LigerFusedAddRMSNormFunction
        for mode, offset in (("llama", 0.0), ("gemma", 1.0)):
            check(lambda x, r, w: function.apply(x, r, w, 1e-6, offset, mode, False), lambda x, r, w: (rms(x + r, w, offset), x + r),
                  {"x": tensor(*shape, dtype=dtype), "r": tensor(*shape, dtype=dtype, seed=1), "w": tensor(shape[1], dtype=dtype, seed=2)}, 2 * TOLERANCE[dtype])

    def test_poly_norm(self, ops: Any, shape: Any, dtype: Any) -> None:
        function = ops("poly_norm").LigerPolyNormFunction

        def norm(x: Any) -> Any:
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)

        check(lambda x, w, b: function.apply(x, w, b, 1e-6, False), lambda x, w, b: w[0] * norm(x**3) + w[1] * norm(x**2) + w[2] * norm(x) + b,
              {"x": tensor(*shape, dtype=dtype), "w": torch.tensor([0.3, 0.4, 0.2], dtype=dtype), "b": torch.tensor(0.5, dtype=dtype)}, TOLERANCE[dtype],
              grad_tolerance=4 * TOLERANCE[dtype])

    def test_modulated_rms_norm(self, ops: Any, shape: Any, dtype: Any) -> None:
        function = ops("modulated_rms_norm").LigerModulatedRMSNormFunction
        for shared in (True, False):
            extra = (shape[1],) if shared else shape
            check(lambda x, w, scale, shift: function.apply(x, w, scale, shift, 1e-6, 0.0, "llama", False),
                  lambda x, w, scale, shift: (1 + scale) * rms(x, w, 0.0) + shift,
                  {"x": tensor(*shape, dtype=dtype), "w": tensor(shape[1], dtype=dtype, seed=1), "scale": tensor(*extra, dtype=dtype, seed=2),
                   "shift": tensor(*extra, dtype=dtype, seed=3)}, 2 * TOLERANCE[dtype])

    def test_kl_div(self, ops: Any, shape: Any, dtype: Any) -> None:
        function = ops("kl_div").LigerKLDivLossFunction
        for log_target in (False, True):
            for reduction in ("batchmean", "sum", "mean", "none"):
                q = torch.log_softmax(tensor(*shape), -1).to(dtype)
                p = (torch.log_softmax if log_target else torch.softmax)(tensor(*shape, seed=1), -1).to(dtype)
                check(lambda q, p: function.apply(q, p, reduction, log_target, 1e-10), lambda q, p: F.kl_div(q, p, reduction=reduction, log_target=log_target),
                      {"q": q, "p": p}, TOLERANCE[dtype], no_grad=("p",))

    def test_jsd(self, ops: Any, shape: Any, dtype: Any) -> None:
        function = ops("jsd").LigerJSDFunction
        labels = torch.arange(shape[0])
        labels[shape[0] // 2] = -100 if shape[0] > 1 else 0
        for beta in (0.0, 0.3, 1.0):
            for given in (None, labels):
                q, p = (torch.log_softmax(tensor(*shape, seed=s), -1).to(dtype) for s in (0, 1))
                check(lambda q, p: function.apply(q, p, given, beta, -100, None, None), lambda q, p: jsd(q, p, given, beta), {"q": q, "p": p}, TOLERANCE[dtype], no_grad=("p",))

    def test_tvd(self, ops: Any, shape: Any, dtype: Any) -> None:
        function = ops("tvd").LigerTVDLossFunction
        for reduction in ("batchmean", "sum", "mean", "none"):
            p, q = (torch.softmax(tensor(*shape, seed=s), -1).to(dtype) for s in (0, 1))

            def reference(p: Any, q: Any) -> Any:
                loss = 0.5 * (p - q).abs()
                return {"none": loss, "sum": loss.sum(), "mean": loss.mean(), "batchmean": loss.sum() / p.shape[0]}[reduction]

            check(lambda p, q: function.apply(p, q, None, reduction, -100), reference, {"p": p, "q": q}, TOLERANCE[dtype], no_grad=("q",))


def sparsemax(x: Any) -> Any:
    z = torch.sort(x, -1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    total = z.cumsum(-1)
    count = (1 + k * z > total).sum(-1, keepdim=True)
    tau = (total.gather(-1, count - 1) - 1) / count
    return torch.clamp(x - tau, min=0)


def jsd(q: Any, p: Any, labels: Any, beta: float) -> Any:
    """Of log-probabilities ``q`` (the student's) and ``p``, over the rows that count."""
    if beta == 0.0:
        loss = p.exp() * (p - q)
    elif beta == 1.0:
        loss = q.exp() * (q - p)
    else:
        m = torch.log(beta * p.exp() + (1 - beta) * q.exp())
        loss = beta * p.exp() * (p - m) + (1 - beta) * q.exp() * (q - m)
    if labels is None:
        return loss.sum() / q.shape[0]
    valid = (labels != -100)[:, None]
    return torch.where(valid, loss, torch.zeros((), dtype=loss.dtype)).sum() / valid.sum()


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
def test_group_norm(ops: Any, dtype: Any) -> None:
    function = ops("group_norm").LigerGroupNormFunction
    for batch, channels, groups, hidden in ((2, 1, 1, 3), (2, 6, 3, 17), (3, 4, 1, 257), (2, 6, 6, 64)):
        check(lambda x, w, b: function.apply(x, w, b, channels, groups, 1e-5), lambda x, w, b: F.group_norm(x, groups, w, b, 1e-5),
              {"x": tensor(batch, channels, hidden, dtype=dtype), "w": tensor(channels, dtype=dtype, seed=1), "b": tensor(channels, dtype=dtype, seed=2)},
              # it keeps the mean and the gradients' sums in the arrays' type
              TOLERANCE[dtype], grad_tolerance=(3 if dtype == torch.float32 else 10) * TOLERANCE[dtype])


def rotate(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
def test_rope(ops: Any, dtype: Any) -> None:
    function = ops("rope").LigerRopeFunction
    for batch, heads, kv, length, dim in ((1, 1, 1, 1, 2), (2, 4, 2, 7, 16), (1, 3, 1, 5, 64)):
        angle = tensor(1, length, dim // 2, seed=3).repeat(1, 1, 2)
        cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
        check(lambda q, k: function.apply(q, k, cos, sin), lambda q, k: (rotate(q, cos.double(), sin.double()), rotate(k, cos.double(), sin.double())),
              {"q": tensor(batch, heads, length, dim, dtype=dtype), "k": tensor(batch, kv, length, dim, dtype=dtype, seed=1)}, TOLERANCE[dtype])


@pytest.mark.nightly
def test_llama4_rope(ops: Any) -> None:
    function = ops("llama4_rope").LigerLlama4RopeFunction
    batch, length, heads, kv, dim = 2, 5, 4, 2, 16
    angle = tensor(length, dim // 2, seed=3)
    freqs = torch.polar(torch.ones_like(angle), angle)

    def turn(x: Any) -> Any:
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(torch.ones_like(angle).double(), angle.double())[None, :, None]
        return torch.view_as_real(z).flatten(3)

    check(lambda q, k: function.apply(q, k, freqs), lambda q, k: (turn(q), turn(k)),
          {"q": tensor(batch, length, heads, dim), "k": tensor(batch, length, kv, dim, seed=1)}, TOLERANCE[torch.float32])


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
def test_qwen2vl_mrope(ops: Any, dtype: Any) -> None:
    function = ops("qwen2vl_mrope").LigerQwen2VLMRopeFunction
    batch, heads, kv, length, dim, sections = 2, 3, 1, 7, 16, [2, 3, 3]
    angle = tensor(3, batch, length, dim // 2, seed=3).repeat(1, 1, 1, 2)
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)

    def pick(table: Any) -> Any:
        return torch.cat([part[i % 3] for i, part in enumerate(table.double().split(sections * 2, dim=-1))], -1)[:, None]

    check(lambda q, k: function.apply(q, k, cos, sin, sections), lambda q, k: (rotate(q, pick(cos), pick(sin)), rotate(k, pick(cos), pick(sin))),
          {"q": tensor(batch, heads, length, dim, dtype=dtype), "k": tensor(batch, kv, length, dim, dtype=dtype, seed=1)}, TOLERANCE[dtype])


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_residual(ops: Any, dtype: Any) -> None:
    function = ops("attn_res").LigerAttnResFunction

    def reference(v: Any, w_query: Any, w_norm: Any) -> Any:
        alpha = torch.softmax((rms(v, w_norm, 0.0) * w_query).sum(-1), 0)
        return (alpha[..., None] * v).sum(0)

    for blocks, tokens, dim in ((1, 1, 1), (3, 5, 17), (5, 4, 130)):
        check(lambda v, w_query, w_norm: function.apply(v, w_query, w_norm, 1e-6), reference,
              {"v": tensor(blocks, 2, tokens, dim, dtype=dtype), "w_query": tensor(dim, dtype=dtype, seed=1, scale=0.2), "w_norm": tensor(dim, dtype=dtype, seed=2)},
              2 * TOLERANCE[dtype], grad_tolerance=4 * TOLERANCE[dtype])


@pytest.mark.nightly
@pytest.mark.parametrize("sparse", [False, True])
def test_multi_token_attention(ops: Any, sparse: bool) -> None:
    function = ops("multi_token_attention").LigerMultiTokenAttentionFunction
    batch, channels, length = 2, 4, 19
    lower = torch.ones(length, length, dtype=torch.bool).tril()

    def reference(s: Any, w: Any, b: Any) -> Any:
        masked = s.masked_fill(~lower, -1e9)
        probabilities = sparsemax(masked) if sparse else torch.softmax(masked, -1)
        return F.conv2d(probabilities, w, b, padding=1, groups=2).masked_fill(~lower, 0.0)

    check(lambda s, w, b: function.apply(s, w, b, 1, 1, 1, 2, sparse), reference,
          {"s": tensor(batch, channels, length, length), "w": tensor(6, 2, 3, 3, seed=1), "b": tensor(6, seed=2)}, 5 * TOLERANCE[torch.float32])


@pytest.mark.nightly
@pytest.mark.parametrize("dilation", [1, 2])
def test_neighborhood_attention(ops: Any, dilation: int) -> None:
    function = ops("fused_neighborhood_attention").LigerFusedNeighborhoodAttentionFunction
    for length, dim in ((7, 16), (37, 32)):
        away = torch.arange(length)[:, None] - torch.arange(length)[None]
        near_by = (away.abs() <= 2 * dilation) & (away % dilation == 0)

        def reference(q: Any, k: Any, v: Any) -> Any:
            scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~near_by, float("-inf"))
            return torch.softmax(scores, -1) @ v

        check(lambda q, k, v: function.apply(q, k, v, 5, dilation, None), reference,
              {n: tensor(2, 3, length, dim, seed=i) for i, n in enumerate("qkv")}, 20 * TOLERANCE[torch.float32])


def linear_case(dtype: Any, rows: int = 7, hidden: int = 24, columns: int = 131) -> dict[str, Any]:
    return {"x": tensor(rows, hidden, dtype=dtype, scale=0.5), "w": tensor(columns, hidden, dtype=dtype, seed=1, scale=0.3)}


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_fused_linear_cross_entropy(ops: Any, dtype: Any, reduction: str) -> None:
    function = ops("fused_linear_cross_entropy").LigerFusedLinearCrossEntropyFunction
    target = torch.tensor([1, 5, -100, 130, 0, 7, 99])
    for bias, z, smoothing, softcap in ((True, 0.0, 0.0, None), (False, 1e-3, 0.1, 30.0)):
        inputs = linear_case(dtype) | {"b": tensor(131, dtype=dtype, seed=2) if bias else None}
        check(lambda x, w, b: function.apply(x, w, target, b, None, -100, z, smoothing, reduction, softcap)[0],
              lambda x, w, b: entropy(x @ w.T + (0 if b is None else b), target, None, -100, z, smoothing, reduction, softcap)[0], inputs, 2 * TOLERANCE[dtype])


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_linear_jsd(ops: Any, dtype: Any) -> None:
    function = ops("fused_linear_jsd").LigerFusedLinearJSDFunction
    labels = torch.tensor([1, 5, -100, 130, 0, 7, 99])
    for beta, temperature, given in ((0.5, 1.0, None), (0.2, 2.0, labels), (0.0, 1.0, labels), (1.0, 0.7, None)):
        inputs = linear_case(dtype) | {"tx": tensor(7, 40, dtype=dtype, seed=3, scale=0.5), "tw": tensor(131, 40, dtype=dtype, seed=4, scale=0.3)}
        check(lambda x, w, tx, tw: function.apply(x, w, tx, tw, given, beta, -100, temperature, None, None, None),
              lambda x, w, tx, tw: jsd(torch.log_softmax(x @ w.T / temperature, -1), torch.log_softmax(tx @ tw.T / temperature, -1), given, beta),
              inputs, 2 * TOLERANCE[dtype], no_grad=("tx", "tw"), grad_tolerance=3 * TOLERANCE[dtype])


@pytest.mark.nightly
def test_embedding(ops: Any) -> None:
    function = ops("experimental.embedding").LigerEmbeddingFunction
    indices = torch.tensor([[3, 0, 3], [12, 5, 3]])
    check(lambda w: function.apply(w, indices), lambda w: F.embedding(indices, w), {"w": tensor(13, 70)}, TOLERANCE[torch.float32])


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
def test_hyper_connections(ops: Any, dtype: Any) -> None:
    module = ops("mhc")
    tokens, streams, channels = 5, 4, 37
    check(lambda x, h: module.LigerMHCPreFunction.apply(x, h), lambda x, h: (h[..., None] * x).sum(-2),
          {"x": tensor(2, tokens, streams, channels, dtype=dtype), "h": tensor(2, tokens, streams, seed=1)}, TOLERANCE[dtype])
    check(lambda x, f, post, res: module.LigerMHCPostResFunction.apply(x, f, post, res),
          lambda x, f, post, res: res @ x + post[..., None] * f[..., None, :],
          {"x": tensor(2, tokens, streams, channels, dtype=dtype), "f": tensor(2, tokens, channels, dtype=dtype, seed=1), "post": tensor(2, tokens, streams, seed=2),
           "res": tensor(2, tokens, streams, streams, seed=3)}, TOLERANCE[dtype])


@pytest.mark.nightly
def test_hyper_connection_coefficients(ops: Any) -> None:
    function = ops("mhc").LigerMHCCoeffsFunction
    streams, channels = 4, 16
    size = streams * streams + 2 * streams

    def reference(x: Any, phi: Any, b: Any, pre: Any, post: Any, res: Any) -> Any:
        flat = x.flatten(-2)
        mix = (flat @ phi) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + 1e-6)
        h_pre = torch.sigmoid(pre * mix[..., :streams] + b[:streams])
        h_post = 2.0 * torch.sigmoid(post * mix[..., streams : 2 * streams] + b[streams : 2 * streams])
        logits = (res * mix[..., 2 * streams :] + b[2 * streams :]).unflatten(-1, (streams, streams))
        m = torch.softmax(logits, -1) + 1e-6
        m = m / (m.sum(-2, keepdim=True) + 1e-6)
        for _ in range(4):
            m = m / (m.sum(-1, keepdim=True) + 1e-6)
            m = m / (m.sum(-2, keepdim=True) + 1e-6)
        return h_pre, h_post, m

    check(lambda x, phi, b, pre, post, res: function.apply(x, phi, b, pre, post, res, True, 5, 1e-6, 0.0, 1e-6, 2.0), reference,
          {"x": tensor(3, streams, channels), "phi": tensor(streams * channels, size, seed=1, scale=0.1), "b": tensor(size, seed=2, scale=0.3),
           "pre": torch.tensor(1.0), "post": torch.tensor(0.8), "res": torch.tensor(1.2)}, 50 * TOLERANCE[torch.float32])
