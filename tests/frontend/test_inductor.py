"""torch.compile with Tilewright in Triton's place, on the cpu target: in this process, and by torch's worker processes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

# a process of its own: torch keeps what it has compiled, and which triton it saw
SCRIPT = """
    import tilewright
    tilewright.install_as_triton()
    import torch
    import torch._inductor.config as config
    from torch._inductor.async_compile import AsyncCompile
    from torch.nn import functional as F
    from tilewright import knobs

    config.compile_threads = THREADS
    config.cpu_backend = "triton"
    config.fx_graph_cache = False
    names = []
    knobs.compilation.listener = lambda *, src, **_: names.append(src.name)
    if THREADS > 1:
        AsyncCompile.wait_pool_ready()
    assert AsyncCompile.use_process_pool() == (THREADS > 1)
"""
SMALL = SCRIPT + """
    def softmax(x):
        return torch.softmax(x * 2 + 1, dim=-1)

    def pointwise(x, y):
        return torch.relu(x) * y.exp() + 3

    x, y = torch.randn(64, 128), torch.randn(64, 128)
    torch.testing.assert_close(torch.compile(softmax)(x), softmax(x))
    torch.testing.assert_close(torch.compile(pointwise)(x, y), pointwise(x, y))
    here = any("softmax" in n for n in names) and any(n.startswith("triton_poi") for n in names)
    assert here == (THREADS == 1), names  # by the workers, where there are any
    print("compiled", sorted(set(names)))
"""
MODEL = SCRIPT + """
    class Block(torch.nn.Module):
        def __init__(self, tokens=50, width=48, heads=3):
            super().__init__()
            self.heads, self.embedding = heads, torch.nn.Embedding(tokens, width)
            self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

        def forward(self, ids):
            x = self.embedding(ids)
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.before(x)).chunk(3, -1))
            scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=ids.device).triu(1)
            x = x + self.out((scores.masked_fill(later, float("-inf")).softmax(-1) @ v).transpose(1, 2).flatten(-2))
            x = x + self.down(F.gelu(self.up(self.between(x))))
            logits = x @ self.embedding.weight.T
            return logits, F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()), x.amax(-1).argmax(-1), x.var(1), x.cumsum(1)

    def results(model, ids):
        model.zero_grad()
        out = model(ids)
        (out[1] + out[3].sum() + out[4].square().mean()).backward()
        return [*out, *(p.grad.clone() for p in model.parameters())]

    torch.manual_seed(0)
    model, ids = Block(), torch.randint(0, 50, (2, 37))
    expected = results(model, ids)
    compiled = torch.compile(model)
    for _ in range(2):
        for got, want in zip(results(compiled, ids), expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    if THREADS == 1:
        wanted = ("embedding", "layer_norm", "gelu", "softmax", "triton_red", "triton_per", "backward")
        assert all(any(w in n for n in names) for w in wanted), names
    print("compiled", sorted(set(names)))
"""


KERNEL = SCRIPT + """
    sys.path.insert(0, FOLDER)
    import users_kernel
    for n in 500, 300:
        x, y = torch.randn(n), torch.randn(n)
        torch.testing.assert_close(torch.compile(users_kernel.function, dynamic=n == 300)(x, y), torch.relu(x + 6 * y) + 2 * x)
        assert "scaled_sum" in names, names
    print("compiled", names)
"""
USERS_KERNEL = """
    import torch
    import triton
    import triton.language as tl

    SCALE: tl.constexpr = tl.constexpr(3)

    @triton.constexpr_function
    def twice(n):
        return n * 2

    @triton.jit
    def scaled(x):
        return x * SCALE * twice(1)

    @triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
    @triton.jit
    def scaled_sum(x, y, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, i < n) + scaled(tl.load(y + i, i < n)), i < n)

    @triton.jit
    def double(x, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + i, i < n) * 2, i < n)

    def function(x, y):
        out, n = torch.empty_like(x), x.numel()
        scaled_sum[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
        x = x.clone()
        double[(triton.cdiv(n, 128),)](x, n, BLOCK=128)
        return torch.relu(out) + x
"""


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is missing")
@pytest.mark.parametrize("script, threads", [(SMALL, 1), (SMALL, 2), (MODEL, 1), (KERNEL, 1)], ids=["small", "workers", "model", "users_kernel"])
def test_kernels_of_torch_compile(tmp_path, script, threads):
    (tmp_path / "users_kernel.py").write_text(textwrap.dedent(USERS_KERNEL))
    done = subprocess.run([sys.executable, "-c", f"import sys\nTHREADS, FOLDER = {threads}, {str(tmp_path)!r}\n" + textwrap.dedent(script)], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "TILEWRIGHT_TARGET": "cpu", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0 and "compiled" in done.stdout, done.stderr[-3000:]
