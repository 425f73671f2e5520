"""Chains of products in many forms, warp-specialised, in the simulator of sm_90a against numpy; and what ptxas makes of large ones.

The simulator raises on races, deadlocks, barriers left half full, and reads that no fence precedes.
"""

import chained_kernels as kernels
import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.targets.nvidia.emit import ptxas
from tilewright.targets.nvidia.passes import rotate_chained_dots
from tilewright.targets.protocol import GPUTarget

torch = pytest.importorskip("torch")

TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "e5m2": torch.float8_e5m2}
NEAR = {"fp16": 2e-3, "bf16": 2e-2, "tf32": 3e-3, "e5m2": 1.6e-1}
PLAIN = {"D": 32, "DV": 32, "BM": 64, "BN": 32, "FORM": "", "BEFORE": False, "TOP": True, "BIAS": False, "KEEP": False, "SLOPE": False, "SHARED": 1,
         "STORE_P": False, "USE_O": False, "TWO": False, "EARLY": False, "KN": False, "AFTER": "", "STAGES": None}


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")
    monkeypatch.setenv("TILEWRIGHT_WARP_GROUP_DOTS", "1")
    monkeypatch.setenv("TILEWRIGHT_BULK_COPIES", "1")


@pytest.fixture(autouse=True)
def turns(monkeypatch, request):
    """Small products take turns too, in the simulator."""
    if "nothing_spills" not in request.node.name:
        monkeypatch.setattr(rotate_chained_dots, "_DEEP", 0)


def exact(x):
    return x.to(torch.float64).numpy()


def small(rng, *shape):
    """Values of which products and sums are exact in float16."""
    return torch.from_numpy(rng.integers(-1, 2, shape).astype(np.float16))


def poisoned(*shape):
    return torch.full(shape, float("nan"))


def specialised(kernel, rotated=None):
    """The kernel, after a look at its IR: warp-specialised, and its last product beside the next round's first or not."""
    text = kernel.asm["ttgir"]
    assert "ttng.async_tma_copy_global_to_local" in text and "ttng.warp_specialize" in text, kernel.metadata.variants
    if rotated is not None:
        assert ("scf.if" in text.split("ttng.warp_specialize")[1]) == rotated
    return text


def check_attention(n=128, heads=1, dtype="fp16", num_warps=4, num_stages=2, **changed):
    c = {**PLAIN, **changed}
    c["DV"] = changed.get("DV", c["D"])
    rng = np.random.default_rng(0)
    d, dv, block = c["D"], c["DV"], c["BM"]

    def random(*shape):
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32) / 2).to(TYPES[dtype])

    q, k, v, w = random(heads, n, d), random(heads // c["SHARED"], n, d), random(heads // c["SHARED"], n, dv), random(n, dv)
    o, o2, lse, p = poisoned(heads, n, dv), poisoned(n, dv), poisoned(heads, n), poisoned(n, n)
    bias = torch.from_numpy(rng.standard_normal((n, n)).astype(np.float32))
    keep = torch.from_numpy(rng.integers(0, 2, (n, n)).astype(np.int8))
    bounds = torch.tensor([[0, n], [c["BN"], n]] * (n // block), dtype=torch.int32)[: n // block].contiguous()
    sums, scale = torch.zeros(n), 0.3
    kernel = kernels.attention[(n // block, heads)](q, k, v, w, o, o2, lse, p, bias, keep, bounds, sums, n, scale, **c, num_warps=num_warps,
                                                    num_stages=num_stages)
    row, column = np.arange(n)[:, None], np.arange(n)[None]
    seen = {"causal, two loops": row >= column, "causal, masked everywhere": row >= column, "window": (row >= column) & (row - column < 64),
            "bounds from memory": column >= exact(bounds)[row // block, 0], "nothing": row < 0}.get(c["FORM"], row >= 0)
    if c["FORM"] == "nothing":
        assert np.isnan(exact(o)).all()
        return kernel
    want, want_p = np.zeros((heads, n, dv)), None
    for h in range(heads):
        kk, vv, qq = exact(k)[h // c["SHARED"]], exact(v)[h // c["SHARED"]], q[h]
        s = exact((qq.float() * scale).to(qq.dtype)) @ kk.T if c["BEFORE"] else exact(qq) @ kk.T * scale
        s = s + (exact(bias) if c["BIAS"] else 0) - (0.01 * abs(row - column) if c["SLOPE"] else 0)
        s = np.where(seen, s, -np.inf)
        top = s.max(1, keepdims=True) if c["TOP"] else 0
        e = np.exp2(s - top) if c["TOP"] else np.exp(s)
        total = e.sum(1, keepdims=True)
        if c["AFTER"] == "lse":
            np.testing.assert_allclose(exact(lse)[h], (top + np.log2(total))[:, 0], rtol=1e-3, atol=1e-3)
        weight = 1.0
        if c["USE_O"]:  # block j of b is doubled b - j times
            weight = 2.0 ** -(column // c["BN"])
            total = (e * weight).sum(1, keepdims=True)
        want_p = e
        e = e * (exact(keep) if c["KEEP"] else 1) * weight
        want[h] = e @ vv / total
        if c["TWO"]:
            np.testing.assert_allclose(exact(o2), e @ exact(w) / total, rtol=NEAR[dtype], atol=NEAR[dtype])
    np.testing.assert_allclose(exact(o), want, rtol=NEAR[dtype], atol=NEAR[dtype])
    if c["STORE_P"]:
        np.testing.assert_allclose(exact(p), want_p, rtol=1e-3, atol=1e-3)
    if c["AFTER"] == "atomics":
        np.testing.assert_allclose(exact(sums), want.sum((0, 2)), rtol=1e-2, atol=1e-2)
    return kernel


@pytest.mark.parametrize("form", ["", "causal, two loops", "causal, masked everywhere", "window", "nothing"])
@pytest.mark.parametrize("warps, block", [(4, 64), (8, 128)])
def test_attention(form, warps, block):
    """Loops of no, one, some and all rounds, and warp groups that take turns."""
    text = specialised(check_attention(n=256 if form == "window" else 128, FORM=form, BM=block, num_warps=warps), rotated=True)
    assert ("ttng.named_barrier" in text) == (warps == 8)


@pytest.mark.parametrize("changed", [
    {"BEFORE": True, "EARLY": True}, {"TOP": False, "STORE_P": True}, {"TOP": False, "KN": True}, {"BIAS": True, "KEEP": True, "SLOPE": True},
    {"USE_O": True}, {"TWO": True, "FORM": "causal, masked everywhere"}, {"heads": 2, "SHARED": 2}, {"AFTER": "atomics"}, {"AFTER": "lse"},
    {"AFTER": "assertion"}, {"STAGES": 1}, {"num_stages": 5}, {"D": 16, "BN": 16}, {"D": 64, "DV": 32}, {"DV": 128, "n": 64}, {"BN": 128},
    {"dtype": "bf16"}, {"BM": 128, "num_warps": 8, "TWO": True}, {"BM": 128, "num_warps": 8, "TOP": False},
    {"BM": 128, "num_warps": 8, "BEFORE": True, "n": 256},  # warps meet before a product reads what they scaled: no turns then
], ids=lambda changed: " ".join(f"{k}={v}" for k, v in changed.items()))
@pytest.mark.slow
def test_attention_with_changes(changed):
    specialised(check_attention(**changed))


@pytest.mark.parametrize("changed", [
    {"FORM": "bounds from memory"}, {"dtype": "tf32", "BN": 16}, {"dtype": "e5m2", "KN": True}, {"num_warps": 2}, {"BM": 16, "num_warps": 1, "n": 32},
    {"FORM": "bounds from memory", "BM": 256, "n": 256, "BN": 16, "dtype": "tf32", "STAGES": 1, "TOP": False},
], ids=lambda changed: " ".join(f"{k}={v}" for k, v in changed.items()))
@pytest.mark.slow
def test_attention_of_which_less_can_be_done(changed):
    check_attention(**changed)


FORMS = {"over tiles": True, "backwards": True, "while": None, "block pointers": True, "rotated by hand": None, "loads ahead by hand": False,
         "under an if": None, "two levels": True, "tiles of two loops": True, "counts its rounds": True, "sum in the scores": False,
         "stores each round": False}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("warps, block", [(4, 64), (8, 128)])
@pytest.mark.slow
def test_forms_of_loops(form, warps, block):
    rng = np.random.default_rng(1)
    m, n, d, step = 256, 128, 32, 32
    q, k, v, o = small(rng, m, d), small(rng, n, d), small(rng, n, d), poisoned(m, d)
    grid = 2 if form == "over tiles" else m // block
    kernel = kernels.loops[(grid,)](q, k, v, o, n, m, D=d, BM=block, BN=step, FORM=form, num_warps=warps, num_stages=2)
    scores = exact(q) @ exact(k).T
    weights = np.ones(n)
    if form == "counts its rounds":
        weights = np.arange(n) // step + 1.0
    want = (np.maximum(scores, 0) * weights) @ exact(v)
    if form == "counts its rounds":
        want += scores[:, -step:].sum(1, keepdims=True) + n // step
    np.testing.assert_array_equal(exact(o), want)
    specialised(kernel, FORMS[form])


@pytest.mark.parametrize("decay, within, warps, c, d", [(0, 0, 4, 64, 64), (1, 0, 4, 64, 64), (0, 1, 4, 64, 64), (1, 1, 8, 128, 128)])
@pytest.mark.slow
def test_state_that_the_next_round_multiplies(decay, within, warps, c, d):
    rng = np.random.default_rng(2)
    heads, steps, e = 2, 3, 32
    q, k, v = small(rng, heads, steps, c, d), small(rng, heads, steps, c, d), small(rng, heads, steps, c, e)
    o = poisoned(heads, steps, c, e)
    kernel = kernels.linear_attention[(heads,)](q, k, v, o, steps, D=d, E=e, C=c, DECAY=decay, WITHIN=within, num_warps=warps)
    for h in range(heads):
        state = np.zeros((d, e))
        for i in range(steps):
            qq, kk, vv = exact(q[h, i]), exact(k[h, i]), exact(v[h, i])
            np.testing.assert_array_equal(exact(o[h, i]), qq @ state + (np.tril(qq @ kk.T) @ vv if within else 0))
            state = state * (0.5 if decay else 1) + kk.T @ vv
    specialised(kernel)
    assert not getattr(kernel.metadata, "wgmma_serialized", None)


@pytest.mark.parametrize("outside, warps", [(False, 4), (True, 8)])
def test_three_products_in_a_chain(outside, warps):
    rng = np.random.default_rng(3)
    block = 16 * warps
    m, n, d, step, e = 2 * block, 128, 32, 32, 16
    q, k, w, v, o = small(rng, m, d), small(rng, n, d), small(rng, step, e), small(rng, n // step * e, d), poisoned(m, d)
    specialised(kernels.three_products[(2,)](q, k, w, v, o, n, D=d, BM=block, BN=step, E=e, OUTSIDE=outside, num_warps=warps))
    want = sum(np.maximum(np.maximum(exact(q) @ exact(k)[i * step:][:step].T, 0) @ exact(w), 0) @ exact(v)[i * e:][:e] for i in range(n // step))
    np.testing.assert_array_equal(exact(o), want)


@pytest.mark.parametrize("nested, warps", [(True, 4), (False, 4), (True, 8)])
def test_fused_layers(nested, warps):
    rng = np.random.default_rng(4)
    block = 16 * warps
    m, h, k, out = 2 * block, 96, 64, 64
    x, w1, w2, o = small(rng, m, k), small(rng, k, h), small(rng, h, out), poisoned(m, out)
    specialised(kernels.mlp[(2,)](x, w1, w2, o, h, k, BM=block, BH=32, BK=32 if nested else k, OUT=out, NESTED=nested, num_warps=warps))
    np.testing.assert_array_equal(exact(o), np.maximum(exact(x) @ exact(w1), 0) @ exact(w2))


@pytest.mark.parametrize("once, warps, stages", [(True, 4, 2), (False, 4, 1), (False, 8, 3)])
def test_keys_that_are_the_values(once, warps, stages):
    rng = np.random.default_rng(5)
    block = 16 * warps
    q, c = (torch.from_numpy(rng.standard_normal((128, 32)).astype(np.float16)) for _ in range(2))
    o = poisoned(128, 32)
    specialised(kernels.latent_attention[(128 // block,)](q, c, o, 128, D=32, BM=block, BN=32, ONCE=once, num_warps=warps, num_stages=stages))
    e = np.exp2(0.2 * exact(q) @ exact(c).T)
    np.testing.assert_allclose(exact(o), e / e.sum(1, keepdims=True) @ exact(c), rtol=2e-3, atol=2e-3)


# ------------------------------------------------------------------------------------------------ large ones, assembled
def assembled(changed, warps, stages=2, element="*fp16"):
    """attention for sm_90a."""
    constants = {**PLAIN, **changed}
    constants["DV"] = changed.get("DV", constants["D"])
    others = {"o_ptr": "*fp16", "keep_ptr": "*i8", "bounds_ptr": "*i32", **{f"{n}_ptr": "*fp32" for n in ("o2", "lse", "p", "bias", "sums")}}
    if element == "*fp32":
        others["o_ptr"] = element
    names = kernels.attention.arg_names
    signature = {n: others.get(n, element if n.endswith("_ptr") else "fp32" if n == "scale" else "i32") for n in names if n not in constants}
    divisible = {(names.index(n),): [["tt.divisibility", 16]] for n in signature if n != "scale"}
    return tilewright.compile(ASTSource(kernels.attention, signature, constants, divisible), target=GPUTarget("cuda", 90, 32),
                              options={"num_warps": warps, "num_stages": stages})


@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
@pytest.mark.parametrize("changed, warps, launched", [
    ({"D": 128, "BM": 128, "BN": 128}, 8, 8), ({"D": 64, "BM": 128, "BN": 64, "FORM": "causal, two loops", "AFTER": "lse"}, 4, 4),
    ({"D": 128, "BM": 128, "BN": 128, "BEFORE": True}, 8, 8), ({"D": 64, "BM": 128, "BN": 64, "BIAS": True}, 4, 8), ({"D": 128, "BM": 128, "BN": 64, "USE_O": True}, 4, 8),
    ({"D": 64, "BM": 128, "BN": 128}, 8, 8), ({"D": 64, "BM": 128, "BN": 128, "TWO": True}, 4, 8), ({"D": 256, "BM": 64, "BN": 64, "BIAS": True}, 4, 4),
], ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value))
def test_nothing_spills_and_nothing_is_serialised(changed, warps, launched):
    """A thread that would need more registers than there are gets half the work: twice the warps. Warp groups take turns where the first
    product is deep, not where softmax takes longer than the products."""
    kernel = assembled(changed, warps)
    text = specialised(kernel)
    if warps == 8 and "BEFORE" not in changed:
        assert ("ttng.named_barrier" in text) == (changed["D"] >= 128)
    assert kernel.metadata.spills == 0 and not getattr(kernel.metadata, "wgmma_serialized", None), kernel.metadata
    assert kernel.metadata.num_warps == launched


@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
def test_what_has_no_room_for_bulk_copies_and_hardly_any_without():
    """K and V are read through pointers, whose stages warp_specialize does not see; O's buffer cannot be shared with them."""
    changed = {"FORM": "bounds from memory", "BM": 128, "BN": 64, "DV": 128}
    metadata = assembled(changed, 8, 4, "*fp32").metadata
    assert [v["options"] for v in metadata.variants] == [{"tma": False}] and "out of resource" in metadata.variants[0]["reason"]
    assert metadata.shared <= 232448 and metadata.spills == 0


@tilewright.jit
def stepped(q, k, v, o, low, high, step, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows, columns, d = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    a = tl.load(q + rows[:, None] * D + d[None, :])
    acc = tl.zeros((BM, D), tl.float32)
    for n in tl.range(low, high, step):
        at = n + columns
        s = tl.dot(a, tl.trans(tl.load(k + at[:, None] * D + d[None, :])))
        acc = tl.dot(s.to(v.dtype.element_ty), tl.load(v + at[:, None] * D + d[None, :]), acc)
    tl.store(o + rows[:, None] * D + d[None, :], acc)


def test_steps_known_at_run_time():
    """The first round stands before the loop: where the step turns out not to be positive there is none."""
    rng = np.random.default_rng(0)
    q, k, v = (small(rng, n, 32) for n in (64, 128, 128))
    for step in (-32, 48):
        o = poisoned(64, 32)
        specialised(stepped[(1,)](q, k, v, o, 0, 96, step, BM=64, BN=32, D=32), rotated=True)
        want = sum((exact(q) @ exact(k)[n:n + 32].T @ exact(v)[n:n + 32] for n in range(0, 96, step)), np.zeros((64, 32)))
        np.testing.assert_array_equal(exact(o), want)
