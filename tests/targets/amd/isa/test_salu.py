"""Scalar instructions against Python's integers: random values and edges, results and SCC."""

import numpy as np
import pytest
from snippets import run_snippet

EDGES = [0, 1, 2, 31, 32, 33, 63, 64, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x00050003, 0x00200000, 0x001F0004, 0x0040001F]
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def signed(x, bits=32):
    return x - (1 << bits) if x >> (bits - 1) else x


def values(bits):
    rng = np.random.default_rng(7)
    some = [*EDGES, *(int(v) for v in rng.integers(0, 1 << 32, 40))]
    if bits == 32:
        return some
    return [*some, *(a << 32 | b for a, b in zip(some, some[::-1])), 1 << 63, M64, 1 << 32, (1 << 63) - 1]


def field(a, control, bits, sign):
    offset, width = control & (bits - 1), control >> 16 & 0x7F
    width = min(width, bits - offset)
    value = a >> offset & ((1 << width) - 1)
    return value - (1 << width) if sign and width and value >> (width - 1) else value


def nonzero(function):
    return lambda a, b, scc: (function(a, b), None)


# name of gfx9 → (bits of S0, of S1, of D, function (a, b, scc) → (D, SCC; None: D is not 0; "keep")))
BINARY = {
    "s_add_u32": (32, 32, 32, lambda a, b, c: (a + b, a + b > M32)),
    "s_sub_u32": (32, 32, 32, lambda a, b, c: (a - b, b > a)),
    "s_add_i32": (32, 32, 32, lambda a, b, c: (a + b, not -1 << 31 <= signed(a) + signed(b) < 1 << 31)),
    "s_sub_i32": (32, 32, 32, lambda a, b, c: (a - b, not -1 << 31 <= signed(a) - signed(b) < 1 << 31)),
    "s_addc_u32": (32, 32, 32, lambda a, b, c: (a + b + c, a + b + c > M32)),
    "s_subb_u32": (32, 32, 32, lambda a, b, c: (a - b - c, a - b - c < 0)),
    "s_mul_i32": (32, 32, 32, lambda a, b, c: (a * b, "keep")),
    "s_mul_hi_u32": (32, 32, 32, lambda a, b, c: (a * b >> 32, "keep")),
    "s_mul_hi_i32": (32, 32, 32, lambda a, b, c: (signed(a) * signed(b) >> 32, "keep")),
    "s_min_i32": (32, 32, 32, lambda a, b, c: (min(signed(a), signed(b)), signed(a) < signed(b))),
    "s_min_u32": (32, 32, 32, lambda a, b, c: (min(a, b), a < b)),
    "s_max_i32": (32, 32, 32, lambda a, b, c: (max(signed(a), signed(b)), signed(a) >= signed(b))),
    "s_max_u32": (32, 32, 32, lambda a, b, c: (max(a, b), a >= b)),
    "s_lshl3_add_u32": (32, 32, 32, lambda a, b, c: ((a << 3) + b, (a << 3) + b > M32)),
    "s_cselect_b32": (32, 32, 32, lambda a, b, c: (a if c else b, "keep")),
    "s_cselect_b64": (64, 64, 64, lambda a, b, c: (a if c else b, "keep")),
    "s_pack_ll_b32_b16": (32, 32, 32, lambda a, b, c: (a & 0xFFFF | (b & 0xFFFF) << 16, "keep")),
    "s_pack_lh_b32_b16": (32, 32, 32, lambda a, b, c: (a & 0xFFFF | b & 0xFFFF0000, "keep")),
    "s_pack_hh_b32_b16": (32, 32, 32, lambda a, b, c: (a >> 16 | b & 0xFFFF0000, "keep")),
    "s_bfm_b32": (32, 32, 32, lambda a, b, c: (((1 << (a & 31)) - 1) << (b & 31), "keep")),
    "s_bfm_b64": (32, 32, 64, lambda a, b, c: (((1 << (a & 63)) - 1) << (b & 63), "keep")),
}
for _bits in (32, 64):
    _m = (1 << _bits) - 1
    BINARY |= {
        f"s_and_b{_bits}": (_bits, _bits, _bits, nonzero(lambda a, b: a & b)),
        f"s_or_b{_bits}": (_bits, _bits, _bits, nonzero(lambda a, b: a | b)),
        f"s_xor_b{_bits}": (_bits, _bits, _bits, nonzero(lambda a, b: a ^ b)),
        f"s_andn2_b{_bits}": (_bits, _bits, _bits, nonzero(lambda a, b: a & ~b)),
        f"s_orn2_b{_bits}": (_bits, _bits, _bits, nonzero(lambda a, b: a | ~b)),
        f"s_nand_b{_bits}": (_bits, _bits, _bits, nonzero(lambda a, b: ~(a & b))),
        f"s_nor_b{_bits}": (_bits, _bits, _bits, nonzero(lambda a, b: ~(a | b))),
        f"s_xnor_b{_bits}": (_bits, _bits, _bits, nonzero(lambda a, b: ~(a ^ b))),
        f"s_lshl_b{_bits}": (_bits, 32, _bits, nonzero(lambda a, b, n=_bits - 1: a << (b & n))),
        f"s_lshr_b{_bits}": (_bits, 32, _bits, nonzero(lambda a, b, n=_bits - 1: a >> (b & n))),
        f"s_ashr_i{_bits}": (_bits, 32, _bits, nonzero(lambda a, b, n=_bits: signed(a, n) >> (b & (n - 1)))),
        f"s_bfe_u{_bits}": (_bits, 32, _bits, nonzero(lambda a, b, n=_bits: field(a, b, n, False))),
        f"s_bfe_i{_bits}": (_bits, 32, _bits, nonzero(lambda a, b, n=_bits: field(a, b, n, True))),
    }
GFX12 = {"s_add_nc_u64": (64, 64, 64, lambda a, b, c: (a + b, "keep")), "s_sub_nc_u64": (64, 64, 64, lambda a, b, c: (a - b, "keep")),
         "s_mul_u64": (64, 64, 64, lambda a, b, c: (a * b, "keep")), "s_add_co_i32": BINARY["s_add_i32"], "s_add_co_u32": BINARY["s_add_u32"],
         "s_add_co_ci_u32": BINARY["s_addc_u32"], "s_sub_co_ci_u32": BINARY["s_subb_u32"], "s_sub_co_i32": BINARY["s_sub_i32"], "s_and_not1_b32": BINARY["s_andn2_b32"],
         "s_or_not1_b64": BINARY["s_orn2_b64"]}


def reference_run(name, arch, spec, text):
    """Each wave has its own pair of values."""
    first, second, out, function = spec
    pairs = [(a, b) for a in values(first) for b in values(second)]
    rng = np.random.default_rng(1)
    pairs = [pairs[i] for i in rng.choice(len(pairs), 500, replace=False)] + [(a, b) for a in EDGES for b in EDGES[:6]]
    a, b = (np.array([p[i] for p in pairs], np.uint64).astype(np.uint64 if n == 64 else np.uint32) for i, n in ((0, first), (1, second)))
    scc = rng.integers(0, 2, len(pairs)).astype(bool)
    result = run_snippet(arch, text, sgprs={2: a, 4: b, 6: np.uint64(0)}, groups=len(pairs), scc=scc)
    got = result.sgpr(6, np.uint64 if out == 64 else np.uint32)
    for i, (x, y) in enumerate(pairs):
        value, flag = function(x, y, int(scc[i]))
        value &= M64 if out == 64 else M32
        flag = bool(scc[i]) if flag == "keep" else value != 0 if flag is None else flag
        assert (int(got[i]), bool(result.scc[i])) == (value, flag), (name, hex(x), hex(y))


def registers(bits, k):
    return f"s[{k}:{k + 1}]" if bits == 64 else f"s{k}"


@pytest.mark.parametrize("name", [*BINARY, *GFX12])
def test_two_operands(name):
    spec = BINARY.get(name) or GFX12[name]
    first, second, out, _ = spec
    reference_run(name, "gfx942" if name in BINARY else "gfx1201", spec, f"{name} {registers(out, 6)}, {registers(first, 2)}, {registers(second, 4)}")


def leading_sign(x, bits):
    run = next((i for i in range(1, bits) if (x >> (bits - 1 - i) & 1) != x >> (bits - 1)), None)
    return -1 if run is None else run


UNARY = {"s_not_b32": (32, 32, lambda a: (~a, None)), "s_brev_b32": (32, 32, lambda a: (int(f"{a:032b}"[::-1], 2), "keep")),
         "s_brev_b64": (64, 64, lambda a: (int(f"{a:064b}"[::-1], 2), "keep")), "s_abs_i32": (32, 32, lambda a: (abs(signed(a)), None)),
         "s_sext_i32_i8": (32, 32, lambda a: (signed(a & 255, 8), "keep")), "s_sext_i32_i16": (32, 32, lambda a: (signed(a & 0xFFFF, 16), "keep")),
         "s_mov_b64": (64, 64, lambda a: (a, "keep")), "s_flbit_i32": (32, 32, lambda a: (leading_sign(a, 32), "keep"))}
for _bits in (32, 64):
    UNARY |= {f"s_bcnt1_i32_b{_bits}": (_bits, 32, lambda a: (a.bit_count(), None)), f"s_bcnt0_i32_b{_bits}": (_bits, 32, lambda a, n=_bits: (n - a.bit_count(), None)),
              f"s_ff1_i32_b{_bits}": (_bits, 32, lambda a: ((a & -a).bit_length() - 1, "keep")),
              f"s_flbit_i32_b{_bits}": (_bits, 32, lambda a, n=_bits: (n - a.bit_length() if a else -1, "keep"))}


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name):
    bits, out, function = UNARY[name]
    reference_run(name, "gfx942", (bits, 32, out, lambda a, b, c: function(a)), f"{name} {registers(out, 6)}, {registers(bits, 2)}")


@pytest.mark.parametrize("word, test", [("eq", lambda a, b: a == b), ("lg", lambda a, b: a != b), ("gt", lambda a, b: a > b), ("ge", lambda a, b: a >= b),
                                        ("lt", lambda a, b: a < b), ("le", lambda a, b: a <= b)])
def test_comparisons(word, test):
    keep = lambda f: (32, 32, 32, lambda a, b, c: (0, f(a, b)))  # noqa: E731
    reference_run(word, "gfx942", keep(test), f"s_cmp_{word}_u32 s2, s4")
    reference_run(word, "gfx942", keep(lambda a, b: test(signed(a), signed(b))), f"s_cmp_{word}_i32 s2, s4")
    reference_run(word, "gfx942", keep(lambda a, b: test(signed(a), -2)), f"s_cmpk_{word}_i32 s2, 0xfffe")
    reference_run(word, "gfx942", keep(lambda a, b: test(a, 0xFFFE)), f"s_cmpk_{word}_u32 s2, 0xfffe")
    if word in ("eq", "lg"):
        reference_run(word, "gfx942", (64, 64, 32, lambda a, b, c: (0, test(a, b))), f"s_cmp_{word}_u64 s[2:3], s[4:5]")


def test_bits_and_short_immediates():
    reference_run("s_bitcmp1_b32", "gfx942", (32, 32, 32, lambda a, b, c: (0, bool(a >> (b & 31) & 1))), "s_bitcmp1_b32 s2, s4")
    reference_run("s_bitcmp0_b64", "gfx942", (64, 32, 32, lambda a, b, c: (0, not a >> (b & 63) & 1)), "s_bitcmp0_b64 s[2:3], s4")
    reference_run("s_addk", "gfx942", (32, 32, 32, lambda a, b, c: (a - 3, not -1 << 31 <= signed(a) - 3)), "s_mov_b32 s6, s2\ns_addk_i32 s6, 0xfffd")
    reference_run("s_mulk", "gfx942", (32, 32, 32, lambda a, b, c: (a * -3, "keep")), "s_mov_b32 s6, s2\ns_mulk_i32 s6, 0xfffd")
    reference_run("s_cmov", "gfx942", (32, 32, 32, lambda a, b, c: (b if c else a, "keep")), "s_mov_b32 s6, s2\ns_cmov_b32 s6, s4")
    reference_run("s_bitset1", "gfx942", (32, 32, 32, lambda a, b, c: (a | 1 << (b & 31), "keep")), "s_mov_b32 s6, s2\ns_bitset1_b32 s6, s4")


@pytest.mark.parametrize("constant, bits", [("-1", M64), ("64", 64), ("0x80000000", 0x80000000), ("1.0", 0x3FF0000000000000), ("-16", M64 - 15)])
def test_constants_of_64_bits(constant, bits):
    """Inline integers are sign-extended, literals of unsigned operands are not, inline floats are doubles."""
    assert int(run_snippet("gfx942", f"s_mov_b64 s[2:3], {constant}").sgpr(2, np.uint64)[0]) == bits


SAVE = {"and": lambda s, e: s & e, "or": lambda s, e: s | e, "xor": lambda s, e: s ^ e, "andn2": lambda s, e: s & ~e, "orn2": lambda s, e: s | ~e,
        "nand": lambda s, e: ~(s & e), "nor": lambda s, e: ~(s | e), "xnor": lambda s, e: ~(s ^ e), "andn1": lambda s, e: ~s & e, "orn1": lambda s, e: ~s | e}
NEW = {"andn2": "and_not1", "orn2": "or_not1", "andn1": "and_not0", "orn1": "or_not0"}


@pytest.mark.parametrize("word", SAVE)
@pytest.mark.parametrize("arch, bits", [("gfx942", 64), ("gfx1100", 32)])
def test_saveexec(word, arch, bits):
    mask = (1 << bits) - 1
    rng = np.random.default_rng(3)
    execs = np.array([mask, 0, 1, mask >> 1, *(int(x) & mask for x in rng.integers(0, 1 << 63, 12))], np.uint64)
    sources = np.array([0, mask, mask - 1, 5, *(int(x) & mask for x in rng.integers(0, 1 << 63, 12))], np.uint64)
    name = f"s_{word if bits == 64 else NEW.get(word, word)}_saveexec_b{bits}"
    result = run_snippet(arch, f"{name} {registers(bits, 4)}, {registers(bits, 2)}", sgprs={2: sources}, exec=execs, groups=len(execs))
    expected = [SAVE[word](int(s), int(e)) & mask for s, e in zip(sources, execs)]
    assert [int(x) for x in result.exec] == expected
    assert [int(x) for x in result.sgpr(4, np.uint64 if bits == 64 else np.uint32)] == [int(e) for e in execs]
    assert [bool(x) for x in result.scc] == [e != 0 for e in expected]


def test_names_of_registers():
    result = run_snippet("gfx942", "s_mov_b64 vcc, s[2:3]\ns_mov_b32 m0, vcc_hi\ns_mov_b32 exec_lo, vcc_lo\ns_mov_b64 s[8:9], exec\ns_mov_b32 s10, m0",
                         sgprs={2: np.uint64(0x0000000500000003)})
    assert (int(result.vcc[0]), int(result.m0[0]), int(result.exec[0])) == (0x500000003, 5, 0xFFFFFFFF00000003)
    assert int(result.sgpr(8, np.uint64)[0]) == 0xFFFFFFFF00000003 and result.sgpr(10)[0] == 5
    null = run_snippet("gfx1100", "s_mov_b32 null, 5\ns_add_u32 s2, null, 1")
    assert null.sgpr(2)[0] == 1


FLOATS = np.array([0.0, -0.0, 1.5, -2.5, 3e38, -3e38, np.inf, -np.inf, np.nan, 1e-40, 7.25, -1e9, 4294967295.0, 2147483648.0], np.float32)


def float_run(text, a, b=None):
    result = run_snippet("gfx1201", text, sgprs={2: a, 3: a if b is None else b, 6: np.uint32(0)}, groups=len(a))
    return result


@pytest.mark.parametrize("name, function", [("s_add_f32", np.add), ("s_sub_f32", np.subtract), ("s_mul_f32", np.multiply), ("s_max_num_f32", np.fmax), ("s_min_num_f32", np.fmin)])
def test_scalar_floats(name, function):
    a, b = np.repeat(FLOATS, len(FLOATS)), np.tile(FLOATS, len(FLOATS))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(float_run(f"{name} s6, s2, s3", a, b).sgpr(6, np.float32), function(a, b).astype(np.float32))


def test_scalar_float_conversions_and_fma():
    got = float_run("s_cvt_i32_f32 s6, s2", FLOATS).sgpr(6, np.int32)
    assert got.tolist() == [0, 0, 1, -2, 2**31 - 1, -2**31, 2**31 - 1, -2**31, 0, 0, 7, -10**9, 2**31 - 1, 2**31 - 1]
    got = float_run("s_cvt_u32_f32 s6, s2", FLOATS).sgpr(6, np.uint32)
    assert got.tolist() == [0, 0, 1, 0, 2**32 - 1, 0, 2**32 - 1, 0, 0, 0, 7, 0, 2**32 - 1, 2**31]
    ints = np.array([0, 1, 16777217, 2**31 - 1, -5], np.int32)
    np.testing.assert_array_equal(float_run("s_cvt_f32_i32 s6, s2", ints).sgpr(6, np.float32), ints.astype(np.float32))
    a = np.array([1 + 2**-23], np.float32)
    got = float_run("s_mov_b32 s6, s3\ns_fmac_f32 s6, s2, s2", a, np.array([-1 - 2**-22], np.float32)).sgpr(6, np.float32)
    assert got[0] == 2.0**-46
    assert float_run("v_s_rcp_f32 s6, s2", np.array([4.0], np.float32)).sgpr(6, np.float32)[0] == 0.25
    compared = float_run("s_cmp_gt_f32 s2, s3", np.repeat(FLOATS, 14), np.tile(FLOATS, 14)).scc
    np.testing.assert_array_equal(compared, np.repeat(FLOATS, 14) > np.tile(FLOATS, 14))
