"""Kernels of other published packages, unchanged, with Tilewright for ``triton``: values on torch CPU tensors against float64.

Nightly; each is skipped where its package is not installed (``pip install --no-deps accelerated-scan fla-core einops``). Of an autotuned
kernel the first configuration is taken: measuring them all on a CPU takes minutes.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright
from tilewright import dropin

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def load() -> Iterator[Callable[[str], Any]]:
    before = set(sys.modules)
    every = tilewright.autotune
    tilewright.autotune = lambda configs, key, **k: every(list(configs)[:1], key, **k)
    tilewright.install_as_triton()

    def module(name: str) -> Any:
        top = name.split(".")[0]
        if importlib.util.find_spec(top) is None:
            pytest.skip(f"{top} is not installed: pip install --no-deps {top.replace('_', '-').replace('fla', 'fla-core')}")
        return importlib.import_module(name)

    try:
        yield module
    finally:
        tilewright.autotune = every
        dropin.uninstall()
        for name in [n for n in sys.modules if n.split(".")[0] in ("fla", "accelerated_scan") and n not in before]:
            del sys.modules[name]


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))) * scale


def near(got: Any, expected: Any, tolerance: float, what: str) -> None:
    error = float((got.double() - expected).abs().max())
    bound = tolerance * max(float(expected.abs().max()), 0.25)
    assert error <= bound, f"{what}: off by {error:.3g}, allowed {bound:.3g}"


def compare(run: Callable[..., Any], reference: Callable[..., Any], inputs: list[Any], tolerance: float) -> None:
    """Output and gradients of all inputs."""
    mine = [x.clone().requires_grad_() for x in inputs]
    theirs = [x.double().requires_grad_() for x in inputs]
    got, expected = run(*mine), reference(*theirs)
    near(got.detach(), expected.detach(), tolerance, "output")
    seed = draw(*got.shape, seed=9)
    got.backward(seed)
    expected.backward(seed.double())
    for i, (a, b) in enumerate(zip(mine, theirs)):
        near(a.grad, b.grad, 4 * tolerance, f"gradient of input {i}")


@pytest.mark.parametrize("length", [1, 37, 2048, 2051])
def test_accelerated_scan(load: Any, length: int) -> None:
    module = load("accelerated_scan.scalar")

    def reference(forget: Any, inputs: Any) -> Any:
        state, out = torch.zeros_like(inputs[..., 0]), []
        for t in range(inputs.shape[-1]):
            state = forget[..., t] * state + inputs[..., t]
            out.append(state)
        return torch.stack(out, -1)

    compare(module.scan, reference, [torch.sigmoid(draw(2, 3, length)), draw(2, 3, length, seed=1)], 1e-5)


def sequences(length: int = 37, heads: int = 2, size: int = 32) -> tuple[Any, Any, Any, Any]:
    q, k, v = (draw(1, length, heads, size, seed=s) for s in range(3))
    return q, k, v, torch.nn.functional.logsigmoid(draw(1, length, heads, size, seed=3))


@pytest.mark.parametrize("name", ["fused_recurrent_gla", "chunk_gla"])
def test_gated_linear_attention(load: Any, name: str) -> None:
    run = getattr(load("fla.ops.gla"), name)
    naive = load("fla.ops.gla.naive").naive_recurrent_gla
    compare(lambda q, k, v, g: run(q, k, v, g)[0], lambda q, k, v, g: gated(q, k, v, g), list(sequences()), 1e-4)
    q, k, v, g = sequences()
    near(run(q, k, v, g)[0], naive(q.double(), k.double(), v.double(), g.double())[0].double(), 1e-4, "output against the package's own")


def gated(q: Any, k: Any, v: Any, g: Any) -> Any:
    """o_t = q_t S_t / √size, S_t = diag(exp g_t) S_{t-1} + k_t v_tᵀ."""
    state, out = torch.zeros(*q.shape[:1], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype), []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None] + k[:, t][..., None] * v[:, t][..., None, :]
        out.append((q[:, t][..., None] * q.shape[3] ** -0.5 * state).sum(-2))
    return torch.stack(out, 1)


@pytest.mark.parametrize("name", ["fused_recurrent_delta_rule", "chunk_delta_rule"])
def test_delta_rule(load: Any, name: str) -> None:
    run = getattr(load("fla.ops.delta_rule"), name)

    def reference(q: Any, k: Any, v: Any, beta: Any) -> Any:
        k = torch.nn.functional.normalize(k, dim=-1)
        state, out = torch.zeros(*q.shape[:1], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype), []
        for t in range(q.shape[1]):
            old = (k[:, t][..., None] * state).sum(-2)
            state = state + k[:, t][..., None] * ((v[:, t] - old) * beta[:, t][..., None])[..., None, :]
            out.append((q[:, t][..., None] * q.shape[3] ** -0.5 * state).sum(-2))
        return torch.stack(out, 1)

    q, k, v, _ = sequences()
    compare(lambda q, k, v, beta: run(q, torch.nn.functional.normalize(k, dim=-1), v, beta)[0], reference, [q, k, v, torch.sigmoid(draw(1, 37, 2, seed=4))], 1e-4)
