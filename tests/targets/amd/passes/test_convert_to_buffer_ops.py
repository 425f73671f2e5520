"""Buffer loads and stores: what is converted, what is proven or guarded, and that masks by range check mean what the kernel says."""

import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.targets.amd.launch_guards import LaunchGuards
from tilewright.targets.protocol import NeedsVariant


@tilewright.jit
def rows_kernel(x_ptr, y_ptr, M, N, stride_x, stride_y, start, other, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SLACK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = start + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (columns[None, :] <= N - 1)
    x = tl.load(x_ptr + rows[:, None] * stride_x + columns[None, :], mask=inside, other=other)
    tl.store(y_ptr + rows[:, None] * stride_y + columns[None, :], x, mask=(rows[:, None] < M) & (columns[None, :] < N + SLACK))


@tilewright.jit
def loop_kernel(x_ptr, y_ptr, M, K, stride, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, WIDE: tl.constexpr):
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    ks = tl.arange(0, BLOCK_K)
    if WIDE:
        ptrs = x_ptr + rows[:, None].to(tl.int64) * stride + ks[None, :]
    else:
        ptrs = x_ptr + rows[:, None] * stride + ks[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        total += tl.load(ptrs, mask=ks[None, :] < K - k * BLOCK_K, other=0.0)
        ptrs += BLOCK_K
    sums = tl.sum(total, axis=1)
    out = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    tl.store(y_ptr + out, sums, mask=out < M)


@tilewright.jit
def flat_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=-0.0), mask=at <= n)


@tilewright.jit
def clamped_kernel(x_ptr, y_ptr, at, n, BLOCK: tl.constexpr):
    row = tl.minimum(tl.maximum(at, 0), 7)
    bound = tl.maximum(tl.minimum(n, BLOCK), 3)
    columns = tl.arange(0, BLOCK)
    tl.store(y_ptr + columns, tl.load(x_ptr + row * BLOCK + columns, mask=columns < bound))


@tilewright.jit
def gather_kernel(x_ptr, i_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + tl.load(i_ptr + at)))


@pytest.fixture(params=["gfx942", "gfx1100", "gfx1201"])
def arch(request, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{request.param}:sim")
    return request.param


@pytest.fixture
def gfx942(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx942:sim")


def compiled(fn, signature, constexprs, arch="gfx942", aligned=(), **options):
    attrs = {(list(signature).index(a),): [["tt.divisibility", 16]] for a in aligned}
    src = tilewright.compiler.ASTSource(fn=fn, signature={**signature, **dict.fromkeys(constexprs, "constexpr")}, constexprs=constexprs, attrs=attrs)
    return tilewright.compile(src, target=GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32), options=options)


def rows(m, n, grid=None, block=(8, 32), start=0, other=0.0, slack=0, width=None, stride=None):
    x = np.random.default_rng(m * n).standard_normal((m, width or n)).astype(np.float32)
    y = np.full((m + 2, width or n), np.nan, np.float32)
    k = rows_kernel[(grid or -(-m // block[0]),)](x, y, m, n, x.shape[1] if stride is None else stride, y.shape[1], start, other, *block, slack)
    return x, y, k


@pytest.mark.parametrize("m, n, width", [(1, 1, 64), (8, 32, 32), (19, 21, 40), (13, 32, 32)])
def test_masks_of_rows_and_columns(arch, m, n, width):
    x, y, _ = rows(m, n, width=width)
    np.testing.assert_array_equal(y[:m, :n], x[:, :n])
    assert np.isnan(y[m:]).all() and np.isnan(y[:m, n:]).all()


@pytest.mark.parametrize("other", [7.0, -0.0, float("inf")])
def test_other(arch, other):
    x, y, _ = rows(5, 17, width=40, other=other, slack=4)
    np.testing.assert_array_equal(y[:5, :17], x[:, :17])
    assert (y[:5, 17:21].view(np.uint32) == np.float32(other).view(np.uint32)).all() and np.isnan(y[:5, 21:]).all() and np.isnan(y[5:]).all()


def test_programs_beyond_the_rows_touch_nothing(arch):
    x, y, _ = rows(9, 32, grid=5)
    np.testing.assert_array_equal(y[:9], x)
    assert np.isnan(y[9:]).all()


def test_rows_shorter_than_the_block_are_cut_by_their_own_mask(arch):
    """Columns beyond the stride lie in the next row: the column's mask, not the row's bound, keeps them out."""
    x, y, k = rows(11, 20)
    np.testing.assert_array_equal(y[:11], x)
    assert np.isnan(y[11:]).all()
    assert "buffer_store" in k.asm["amdgcn"]


@pytest.mark.parametrize("m, k, wide", [(1, 1, False), (13, 37, False), (16, 128, True), (20, 65, True)])
def test_pointers_that_a_loop_advances(arch, m, k, wide):
    x = np.random.default_rng(k).standard_normal((m, k)).astype(np.float32)
    y = np.full(m + 3, np.nan, np.float32)
    kernel = loop_kernel[(-(-m // 16),)](x, y, m, k, k, 16, 32, wide)
    np.testing.assert_allclose(y[:m], x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)
    assert np.isnan(y[m:]).all() and "buffer_load" in kernel.asm["amdgcn"]


@pytest.mark.parametrize("n", [0, 1, 255, 1000])
def test_flat_tiles(arch, n):
    x, y = np.arange(n + 1, dtype=np.float32) + 1, np.full(n + 2, np.nan, np.float32)
    kernel = flat_kernel[(-(-(n + 1) // 256),)](x, y, n, 256)
    np.testing.assert_array_equal(y[:n], x[:n])
    assert y[n:n + 1].view(np.uint32) == 0x80000000 and np.isnan(y[n + 1])
    assert "buffer_load" in kernel.asm["amdgcn"] and "saveexec" not in kernel.asm["amdgcn"]


def test_clamped_scalars_are_one_value_to_llvm(arch):
    """LLVM clamps in vector registers (v_med3); without readfirstlane it would loop over the lanes' descriptors."""
    x, y = np.arange(8 * 64, dtype=np.float32), np.full(64, np.nan, np.float32)
    kernel = clamped_kernel[(1,)](x, y, 30, 40, 64)
    np.testing.assert_array_equal(y[:40], x[7 * 64:7 * 64 + 40])
    assert (y[40:] == 0).all()
    assert "buffer_load" in kernel.asm["amdgcn"] and "v_readfirstlane" in kernel.asm["amdgcn"] and "saveexec" not in kernel.asm["amdgcn"]


# ------------------------------------------------------------------------------------------------- guards
def test_negative_strides_run_the_version_with_pointers(gfx942):
    x = np.arange(64 * 4, dtype=np.float32).reshape(4, 64)
    y = np.full((6, 64), np.nan, np.float32)
    k = rows_kernel[(1,)](x[::-1], y, 4, 64, -64, 64, 0, 0.0, 4, 64, 0)
    np.testing.assert_array_equal(y[:4], x[::-1])
    assert "buffer_load" not in k.asm["amdgcn"]
    assert "must lie within 2 GB" in k.explain()


def test_a_stride_of_zero_runs_the_version_with_pointers(gfx942):
    x = np.arange(32, dtype=np.float32)
    y = np.full((5, 32), np.nan, np.float32)
    k = rows_kernel[(1,)](x, y, 3, 32, 0, 32, 0, 0.0, 4, 32, 0)
    np.testing.assert_array_equal(y[:3], np.tile(x, (3, 1)))
    assert np.isnan(y[3:]).all() and "buffer_load" not in k.asm["amdgcn"]


SIGNATURE = {"x_ptr": "*fp32", "y_ptr": "*fp32", "M": "i32", "N": "i32", "stride_x": "i32", "stride_y": "i32", "start": "i32", "other": "fp32"}


@pytest.mark.parametrize("args, reason", [
    ((1 << 20, 512, 512, 512, 0), None),  # 2 GB in all, of which a tile is a small part
    ((8, 1 << 27, 1 << 27, 1 << 27, 0), "must lie within 2 GB"),  # eight rows of 512 MB
    ((1 << 20, 4096, 4096, 4096, 0), "32-bit arithmetic must not wrap"),
    ((64, 64, 64, 8, 0), "reach into each other"),  # rows of y that overlap
    ((64, 64, 64, 64, -40), "must lie within 2 GB"),  # columns that begin before the argument
])
def test_what_a_launch_checks(args, reason):
    kernel = compiled(rows_kernel, SIGNATURE, {"BLOCK_M": 8, "BLOCK_N": 32, "SLACK": 0})
    metadata = kernel.metadata._asdict()
    m, n, sx, sy, start = args
    guards = LaunchGuards(metadata)
    call = lambda: guards.require((0, 0, m, n, sx, sy, start, 0.0), (-(-m // 8), 1, 1))  # noqa: E731
    if reason is None or start < 0:
        call()  # where a tile begins is in its pointer, which has 64 bits
    else:
        with pytest.raises(NeedsVariant, match=reason) as raised:
            call()
        assert raised.value.options == {"buffer_ops": False}


def test_data_dependent_addresses_stay_pointers():
    kernel = compiled(gather_kernel, {"x_ptr": "*fp32", "i_ptr": "*i32", "y_ptr": "*fp32"}, {"BLOCK": 256})
    ttgir = kernel.asm["ttgir"]
    assert ttgir.count("amdg.buffer_load") == 1 and ttgir.count("tt.load") == 1 and ttgir.count("amdg.buffer_store") == 1
    assert any(c["chosen"] == "pointer" and "opaque" not in c["why"] for c in kernel.metadata.choices)


def test_the_option_says_no():
    kernel = compiled(flat_kernel, {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}, {"BLOCK": 256}, buffer_ops=False)
    assert "amdg.buffer" not in kernel.asm["ttgir"] and "buffer_load" not in kernel.asm["amdgcn"]
    assert not (getattr(kernel.metadata, "host", None) or {}).get("guards")


# -------------------------------------------------------------------------------------------- what the code looks like
def loop_of(assembly):
    """Instructions of the innermost loop with matrix instructions."""
    blocks = re.split(r"^\.LBB\d+_\d+:.*$", assembly, flags=re.M)
    block = max(blocks, key=lambda b: len(re.findall(r"v_mfma|v_wmma", b)))
    return [line.split() for line in block.splitlines() if re.match(r"\t[a-z]", line)]


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_the_loop_of_the_masked_matmul(arch):
    """No branch, no address arithmetic a lane: pointers advance in scalar registers."""
    import matmul

    signature = {**dict.fromkeys(("x_ptr", "w_ptr", "b_ptr", "y_ptr"), "*fp16"),
                 **dict.fromkeys(("M", "N", "K", "stride_xm", "stride_wk", "stride_ym"), "i32")}
    order = ["x_ptr", "w_ptr", "b_ptr", "y_ptr", "M", "N", "K", "stride_xm", "stride_xk", "stride_wk", "stride_wn", "stride_ym", "stride_yn",
             "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "RELU", "PRECISION"]
    constexprs = {"stride_xk": 1, "stride_wn": 1, "stride_yn": 1, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "RELU": True, "PRECISION": "ieee"}
    src = tilewright.compiler.ASTSource(fn=matmul.matmul_kernel, signature={n: signature.get(n, "constexpr") for n in order}, constexprs=constexprs,
                                        attrs={(order.index(a),): [["tt.divisibility", 16]] for a in signature})
    kernel = tilewright.compile(src, target=GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32), options={"num_warps": 4})
    assert "saveexec" not in kernel.asm["amdgcn"] and "tt.load" not in kernel.asm["ttgir"]
    names = [line[0] for line in loop_of(kernel.asm["amdgcn"])]
    assert not [n for n in names if re.match(r"v_(add|sub|lshl|mul|mad|ashr)", n)]
    assert not [n for n in names if n.startswith(("global_", "flat_"))]
    loads = [n for n in names if n.startswith("buffer_load")]
    ofx = [n for n in loads if n.endswith(("x4", "128"))]
    assert loads and sum(n.startswith("v_cndmask") for n in names) <= len(ofx)  # k is masked over x; rows of w are cut by the buffer size


def test_rows_by_runs_have_one_addition_a_round():
    """Layer norm's loops: the bound, the resources and their addresses stand before them."""
    import layer_norm

    kinds = dict(zip(("x_ptr", "y_ptr", "w_ptr", "b_ptr"), ["*fp16"] * 4)) | {"mean_ptr": "*fp32", "rstd_ptr": "*fp32", "stride": "i32", "n": "i32", "eps": "fp32"}
    kernel = compiled(layer_norm.layer_norm_kernel, kinds, {"BLOCK": 2048}, "gfx942", [k for k in kinds if k != "eps"], num_warps=4)
    blocks = re.split(r"^\.LBB\d+_\d+:.*$", kernel.asm["amdgcn"], flags=re.M)
    last = [line.split()[0] for line in [b for b in blocks if "buffer_store_dwordx4" in b][-1].splitlines() if re.match(r"\t[a-z]", line)]
    assert sum(n.startswith("buffer_load_dwordx4") for n in last) == 3
    assert last.count("v_add_u32_e32") == 1 and sum(n.startswith("s_") and n not in ("s_waitcnt", "s_nop") for n in last) <= 4


def test_other_is_chosen_by_words():
    """Softmax: -inf for a vector of eight bf16 is four selections under one comparison, not eight."""
    import softmax

    kinds = {"out_ptr": "*bf16", "in_ptr": "*bf16", "out_stride": "i32", "in_stride": "i32", "n_rows": "i32", "n_cols": "i32"}
    kernel = compiled(softmax.softmax_kernel, kinds, {"BLOCK": 2048}, "gfx942", list(kinds), num_warps=4)
    assert len(re.findall(r"v_cmp_gt_i32", kernel.asm["amdgcn"])) <= 2


@tilewright.jit
def shifted_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = at - 1
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x - tl.load(x_ptr + before, mask=(before >= 0) & (at < n), other=0.0), mask=at < n)


def test_an_access_that_never_fits_costs_the_others_nothing(arch):
    n = 300
    x, y = np.random.default_rng(0).standard_normal(n).astype(np.float32), np.full(n, np.nan, np.float32)
    kernel = shifted_kernel[(2,)](x, y, n, BLOCK=256)
    assert kernel.asm["ttgir"].count("amdg.buffer_load") == 1 and kernel.asm["ttgir"].count("amdg.buffer_store") == 1
    assert kernel.asm["ttgir"].count('"tt.load"') == 1
    np.testing.assert_array_equal(y, np.diff(x, prepend=np.float32(0)))


@tilewright.jit
def difference_kernel(x_ptr, y_ptr, n, k, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at), mask=at < n - k)


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@pytest.mark.parametrize("n, k", [(-(2**31), 0), (-(2**31) + 5, 5), (1 - 2**31, 0), (2**31 - 1, 0), (9, 4)])
def test_bounds_at_the_ends_of_32_bits(gfx942, dtype, n, k):
    x, y = np.arange(64, dtype=dtype), np.full(64, -7, dtype)
    difference_kernel[(1,)](x, y, n, k, BLOCK=64)
    np.testing.assert_array_equal(y, np.where(np.arange(64) < n - k, x, -7))


def test_conditions_that_follow_from_others():
    """``k < K - 32 · i`` leaves nothing of an iteration beyond ⌈K / 32⌉, nor of one beyond K / 32 where 32 divides it; the other way round, or off by one, nothing follows."""
    from tilewright.dialects.analysis.polynomial import Atom, Poly
    from tilewright.targets.amd.passes.convert_to_buffer_ops import _follows

    size, i, k = (Poly.of(Atom(n, kind, payload, 32)) for n, (kind, payload) in enumerate((("arg", (0,)), ("arg", (1,)), ("dim", (1, 32)))))
    rounds = Poly.of(Atom(3, "div", (size + 31, Poly.const(32)), 32))
    whole = Poly.of(Atom(4, "div", (size, Poly.const(32)), 32))
    inside = k - (size - (i + 1) * 32)
    assert _follows(inside, i + 1 - rounds) and _follows(inside, i - rounds)
    assert not _follows(inside, i + 2 - rounds) and not _follows(inside, i + 1 - whole) and not _follows(-k - (size - (i + 1) * 32), i + 1 - rounds)
    assert _follows(k + i - size, i - size) and not _follows(k + i - size, i + 1 - size) and not _follows(k + i - size, size - i)
