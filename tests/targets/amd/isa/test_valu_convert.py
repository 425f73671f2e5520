"""Conversions against numpy, torch and Python's own."""

import math

import numpy as np
import pytest
import torch
from snippets import run_snippet
from valu_cases import floats, integers, lane_values, run_one, same, to_register

from tilewright.targets.amd.isa import valu_numbers as numbers
from tilewright.targets.amd.isa.errors import UnknownInstruction


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("out, of", [("f16", "f32"), ("f32", "f16"), ("f64", "f32"), ("f32", "f64")])
def test_between_floats(out, of):
    type = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
    x = lane_values("gfx942", lambda n: floats(of, n))
    d, s = ("v[0:1]" if out == "f64" else "v0"), ("v[2:3]" if of == "f64" else "v2")
    same(run_one("gfx942", f"v_cvt_{out}_{of}_e32 {d}, {s}", {2: x}, type[out]), x.astype(type[out]))
    same(run_one("gfx942", f"v_cvt_{out}_{of}_e64 {d}, -|{s}|", {2: x}, type[out]), (-abs(x)).astype(type[out]))


@pytest.mark.parametrize("out, of, bits, dtype", [("f32", "i32", 32, np.int32), ("f32", "u32", 32, np.uint32), ("f64", "i32", 32, np.int32), ("f64", "u32", 32, np.uint32),
                                                  ("f16", "i16", 16, np.int16), ("f16", "u16", 16, np.uint16)])
def test_from_integers(out, of, bits, dtype):
    x = lane_values("gfx1030", lambda n: integers(n, 1, bits)).view(dtype)
    type = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[out]
    expected = np.array([type(float(v)) if out != "f32" else np.float32(v) for v in x.reshape(-1).tolist()], type).reshape(x.shape)
    same(run_one("gfx1030", f"v_cvt_{out}_{of}_e32 {'v[0:1]' if out == 'f64' else 'v0'}, v2", {2: x}, type), expected)


@pytest.mark.parametrize("out, of", [("i32", "f32"), ("u32", "f32"), ("i32", "f64"), ("u32", "f64"), ("i16", "f16"), ("u16", "f16")])
def test_to_integers(out, of):
    x = lane_values("gfx942", lambda n: floats(of, n))
    x[:, ::3] *= x.dtype.type(1000)
    dtype = {"i32": np.int32, "u32": np.uint32, "i16": np.int16, "u16": np.uint16}[out]
    info = np.iinfo(dtype)

    def convert(v):
        if math.isnan(v):
            return 0
        return int(info.max if v >= info.max else info.min if v <= info.min else math.trunc(v))

    expected = np.array([convert(float(v)) for v in x.reshape(-1)], dtype).reshape(x.shape)
    got = run_one("gfx942", f"v_cvt_{out}_{of}_e32 v0, {'v[2:3]' if of == 'f64' else 'v2'}", {2: x}, dtype)
    assert (got == expected).all()


def test_rounded_to_integers():
    x = lane_values("gfx942", lambda n: floats("f32", n))
    finite = np.where(np.isfinite(x), x.astype(np.float64), 0)
    up, down = np.floor(finite + 0.5), np.floor(finite)
    for name, other, value in (("v_cvt_rpi_i32_f32", "v_cvt_nearest_i32_f32", up), ("v_cvt_flr_i32_f32", "v_cvt_floor_i32_f32", down)):
        value = np.clip(value, -(2**31), 2**31 - 1).astype(np.int64).astype(np.int32)
        value = np.where(np.isposinf(x), 2**31 - 1, np.where(np.isneginf(x), -(2**31), value)).astype(np.int32)
        assert (run_one("gfx942", f"{name}_e32 v0, v2", {2: x}, np.int32) == value).all()
        assert (run_one("gfx1100", f"{other}_e32 v0, v2", {2: x[:, :32]}, np.int32) == value[:, :32]).all()


def test_bytes_to_floats():
    x = lane_values("gfx942", integers)
    for i in range(4):
        same(run_one("gfx942", f"v_cvt_f32_ubyte{i}_e32 v0, v2", {2: x}, np.float32), (x >> np.uint32(8 * i) & np.uint32(255)).astype(np.float32))


def test_widened_halves():
    x = lane_values("gfx1100", lambda n: integers(n, 0, 16))
    assert (run_one("gfx1100", "v_cvt_i32_i16_e32 v0, v2.l", {2: x}, np.int32) == x.view(np.int16)).all()
    assert (run_one("gfx1100", "v_cvt_u32_u16_e32 v0, v2", {2: x}, np.uint32) == x).all()


def _halves(r, type):
    return np.stack([(r & np.uint32(0xFFFF)).astype(np.uint16).view(type), (r >> np.uint32(16)).astype(np.uint16).view(type)])


@pytest.mark.parametrize("arch, name", [("gfx942", "v_cvt_pkrtz_f16_f32"), ("gfx1100", "v_cvt_pk_rtz_f16_f32_e32")])
def test_pair_towards_zero(arch, name):
    a, b = (lane_values(arch, lambda n, i=i: floats("f32", n, i)) for i in (1, 2))
    got = _halves(run_one(arch, f"{name} v0, v2, v4", {2: a, 4: b}, np.uint32), np.float16)
    for g, x in zip(got, (a, b)):
        same(g, numbers.to_f16_towards_zero(x))


def test_pairs_of_gfx950():
    a, b = (lane_values("gfx950", lambda n, i=i: floats("f32", n, i)) for i in (1, 2))
    got = _halves(run_one("gfx950", "v_cvt_pk_f16_f32 v0, v2, v4", {2: a, 4: b}, np.uint32), np.float16)
    same(got[0], a.astype(np.float16))
    same(got[1], b.astype(np.float16))
    got = _halves(run_one("gfx950", "v_cvt_pk_bf16_f32 v0, v2, -v4", {2: a, 4: b}, np.uint32), np.uint16)
    for g, x in zip(got, (a, -b)):
        want = torch.from_numpy(x).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
        assert (g == want)[~np.isnan(x)].all() and np.isnan(numbers.bf16_to_f32(g[np.isnan(x)])).all()


@pytest.mark.parametrize("name, of, dtype, out", [("v_cvt_pk_i16_i32", "i32", np.int32, np.int16), ("v_cvt_pk_u16_u32", "u32", np.uint32, np.uint16)])
def test_pairs_of_integers_saturate(name, of, dtype, out):
    a, b = (lane_values("gfx942", lambda n, i=i: integers(n, i)).view(dtype) for i in (1, 2))
    a[:, ::2] >>= dtype(15)
    info = np.iinfo(out)
    got = _halves(run_one("gfx942", f"{name} v0, v2, v4", {2: a, 4: b}, np.uint32), out)
    for g, x in zip(got, (a, b)):
        assert (g == np.clip(x.astype(np.int64), info.min, info.max)).all()


def test_pairs_of_normalised_integers():
    a, b = (lane_values("gfx942", lambda n, i=i: floats("f32", n, i)) for i in (1, 2))
    for name, scale, low, type in (("v_cvt_pknorm_i16_f32", 32767, -1, np.int16), ("v_cvt_pknorm_u16_f32", 65535, 0, np.uint16)):
        got = _halves(run_one("gfx942", f"{name} v0, v2, v4", {2: a, 4: b}, np.uint32), type)
        for g, x in zip(got, (a, b)):
            want = [0 if math.isnan(v) else round(max(low, min(1, v)) * scale) for v in x.reshape(-1).tolist()]
            assert g.reshape(-1).tolist() == want


def test_packed_halves():
    a, b = (lane_values("gfx1030", lambda n, i=i: floats("f16", n, i), waves=1) for i in (1, 2))
    pair = a.view(np.uint16).astype(np.uint32) | b.view(np.uint16).astype(np.uint32) << np.uint32(16)
    r = run_snippet("gfx1030", "v_pack_b32_f16 v0, v2, v4\nv_pack_b32_f16 v1, v6, -v6 op_sel:[1,0,0]", {2: to_register(a), 4: to_register(b), 6: pair},
                    descriptor={"float_denorm_mode_16_64": 0})
    assert (r.vgpr(0) == pair).all()
    assert (r.vgpr(1) == (b.view(np.uint16).astype(np.uint32) | (a.view(np.uint16) ^ np.uint16(0x8000)).astype(np.uint32) << np.uint32(16))).all()


def test_byte_insertion():
    x = np.array([[-3, 0.4, 0.6, 1.5, 2.5, 254.7, 300, np.nan] * 8], np.float32)
    position, rest = np.arange(64, dtype=np.uint32)[None] // np.uint32(8), np.uint32(0x11223344)
    got = run_one("gfx942", "v_cvt_pk_u8_f32 v0, v2, v4, v6", {2: x, 4: position, 6: rest}, np.uint32, waves=1)
    bytes_ = [0, 0, 1, 2, 2, 255, 255, 0] * 8
    for g, v, p in zip(got[0].tolist(), bytes_, position[0].tolist()):
        shift = 8 * (p & 3)
        assert g == 0x11223344 & ~(255 << shift) | v << shift


# -------------------------------------------------------------------------------------------------------- 8-bit floats
FORMATS = {("gfx942", "fp8"): torch.float8_e4m3fnuz, ("gfx942", "bf8"): torch.float8_e5m2fnuz, ("gfx950", "fp8"): torch.float8_e4m3fn,
           ("gfx950", "bf8"): torch.float8_e5m2, ("gfx1201", "fp8"): torch.float8_e4m3fn, ("gfx1201", "bf8"): torch.float8_e5m2}


def decoded(codes, arch, kind):
    return torch.from_numpy(codes.astype(np.uint8).copy()).view(FORMATS[arch, kind]).to(torch.float32).numpy()


@pytest.mark.parametrize("arch, kind", FORMATS)
def test_from_eight_bits(arch, kind):
    x = lane_values(arch, lambda n: integers(n, 3))
    byte = [(x >> np.uint32(8 * i)) & np.uint32(255) for i in range(4)]
    if arch == "gfx1201":
        texts = [f"v_cvt_f32_{kind}_e32 v0, v2"] + [f"v_cvt_f32_{kind}_e64 v0, v2 byte_sel:{i}" for i in (1, 2, 3)]
        pairs = [f"v_cvt_pk_f32_{kind}_e32 v[0:1], v2", f"v_cvt_pk_f32_{kind}_e64 v[0:1], v2 op_sel:[1,0]"]
    else:
        texts = [f"v_cvt_f32_{kind}_e32 v0, v2"] + [f"v_cvt_f32_{kind}_sdwa v0, v2 src0_sel:BYTE_{i}" for i in (1, 2, 3)]
        pairs = [f"v_cvt_pk_f32_{kind}_e32 v[0:1], v2", f"v_cvt_pk_f32_{kind}_sdwa v[0:1], v2 src0_sel:WORD_1"]
    for text, b in zip(texts, byte):
        same(run_one(arch, text, {2: x}, np.float32), decoded(b, arch, kind))
    for i, text in enumerate(pairs):
        r = run_snippet(arch, text, {2: x}, waves=8)
        same(r.vgpr(0, np.float32), decoded(byte[2 * i], arch, kind))
        same(r.vgpr(1, np.float32), decoded(byte[2 * i + 1], arch, kind))


@pytest.mark.parametrize("arch, kind", FORMATS)
def test_to_eight_bits(arch, kind):
    a, b = (lane_values(arch, lambda n, i=i: floats("f32", n, i)) for i in (1, 2))
    largest = decoded(np.arange(256), arch, kind)
    largest = np.nanmax(np.where(np.isfinite(largest), largest, 0))
    a, b = (np.where(np.abs(x) > largest, np.float32(0.3), x) for x in (a, b))
    for text, shift in ((f"v_cvt_pk_{kind}_f32 v0, v2, -v4", 0), (f"v_cvt_pk_{kind}_f32 v0, v2, -v4 op_sel:[0,0,1]", 16)):
        r = run_snippet(arch, text, {0: np.uint32(0xABCDABCD), 2: a, 4: b}, waves=8).vgpr(0)
        assert (r >> np.uint32(16 - shift) & 0xFFFF == 0xABCD).all()
        for i, x in enumerate((a, -b)):
            code = r >> np.uint32(shift + 8 * i) & np.uint32(255)
            want = torch.from_numpy(x).to(FORMATS[arch, kind]).view(torch.uint8).numpy()
            assert ((code == want) | np.isnan(x)).all() and np.isnan(decoded(code, arch, kind)[np.isnan(x)]).all()


def test_saturating_conversions_are_refused():
    with pytest.raises(UnknownInstruction, match="FP16_OVFL"):
        run_snippet("gfx942", "v_cvt_pk_fp8_f32 v0, v2, v4", descriptor={"fp16_overflow": 1})
