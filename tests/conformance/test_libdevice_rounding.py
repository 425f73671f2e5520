"""libdevice's directed roundings, their conversions, rcp64h, jn and yn: every target gives the interpreter's bits (Bessel functions: nearly)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import TORCH, compare, fresh_rng, poisoned, special_floats
from tilewright.language.extra import libdevice

N = 32
OPERATIONS = {"add": "x, y", "sub": "x, y", "mul": "x, y", "div": "x, y", "fma": "x, y, z", "sqrt": "x", "rcp": "x"}
CONVERSIONS = {"int2float": ("int32", "fp32"), "uint2float": ("uint32", "fp32"), "ll2float": ("int64", "fp32"), "ull2float": ("uint64", "fp32"),
               "ll2double": ("int64", "fp64"), "ull2double": ("uint64", "fp64"), "double2float": ("fp64", "fp32")}


def _numbers(dtype, rng):
    """Special values, and numbers of all magnitudes."""
    word = {"fp32": np.uint32, "fp64": np.uint64}[dtype]
    any_bits = torch.from_numpy(rng.integers(0, np.iinfo(word).max, N, dtype=word).view({"fp32": np.float32, "fp64": np.float64}[dtype]))
    return torch.where(torch.from_numpy(rng.random(N) < 0.5), special_floats(dtype, N, rng)[torch.from_numpy(rng.permutation(N))], any_bits)


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_operations(dtype):
    rng = fresh_rng()
    names = [f"{name}_{mode}" for name in OPERATIONS for mode in ("rd", "ru", "rz")]
    stores = "\n            ".join(f"tl.store(o + {k * N} + i, libdevice.{name}({OPERATIONS[name[:-3]]}))" for k, name in enumerate(names))
    x, y, z = (_numbers(dtype, rng) for _ in range(3))
    x[:8], y[:8] = 1.1, torch.linspace(1, 3, 8)  # inexact whatever the draw
    z[:4] = -(x[:4] * y[:4])
    huge = torch.finfo(x.dtype).max / 2  # products beyond all numbers, added to an infinity
    x[8:12], y[8:12], z[8:12] = torch.tensor([huge, -huge, huge, -huge]), huge, torch.tensor([-torch.inf, torch.inf, torch.inf, torch.nan])
    reference = compare(f"""
        @triton.jit
        def kernel(px, py, pz, o):
            i = tl.arange(0, {N})
            x, y, z = tl.load(px + i), tl.load(py + i), tl.load(pz + i)
            {stores}
        """, {"px": x, "py": y, "pz": z, "o": poisoned(dtype, len(names) * N)}, num_warps=1)["o"].numpy().reshape(-1, N)
    results = dict(zip(names, reference))
    for name in ("div", "rcp", "sqrt"):
        down, up = results[f"{name}_rd"][:8], results[f"{name}_ru"][:8]
        assert (down <= up).all() and (up <= np.nextafter(down, down.dtype.type(np.inf))).all() and (down < up).any()


def test_conversions():
    rng = fresh_rng()
    args, loads, stores = {}, [], []
    for name, (source, result) in CONVERSIONS.items():
        kind = {"fp64": np.float64}.get(source, source)
        if source == "fp64":
            x = np.concatenate([special_floats("fp64", 20, rng)[:20].numpy(), np.exp2(rng.uniform(-155, 129, N - 20)) * rng.choice([-1, 1], N - 20)])
        else:
            info = np.iinfo(kind)
            x = rng.integers(info.min, info.max, N, dtype=kind, endpoint=True) >> rng.integers(0, info.bits, N).astype(kind)
            x[:4] = (0, info.max, info.min, 1)
        args[f"p_{name}"] = torch.from_numpy(x.astype(kind))
        args[f"o_{name}"] = poisoned(result, 3 * N)
        loads.append(f"{name} = tl.load(p_{name} + i)")
        stores += [f"tl.store(o_{name} + {k * N} + i, libdevice.{name}_{mode}({name}))" for k, mode in enumerate(("rd", "ru", "rz"))]
    lines = "\n            ".join([*loads, *stores])
    reference = compare(f"""
        @triton.jit
        def kernel({', '.join(args)}):
            i = tl.arange(0, {N})
            {lines}
        """, args, num_warps=1)
    for name, (source, _) in CONVERSIONS.items():
        if source != "fp64":
            down, up = reference[f"o_{name}"].numpy().reshape(3, N)[:2]
            exact = [int(v) for v in args[f"p_{name}"].tolist()]
            assert all(int(low) <= v <= int(high) for low, v, high in zip(down.tolist(), exact, up.tolist()))


def test_bessel_functions_of_any_order_and_the_high_reciprocal():
    rng = fresh_rng()
    n = torch.from_numpy(rng.integers(-9, 10, 16).astype(np.int32))
    x = torch.from_numpy(np.concatenate([rng.uniform(0.5, 30, 9), [0.0, 1e-3, 5e-3, 2.0, np.inf, np.nan, 100.0]])[rng.permutation(16)])
    args = {"pn": n, "px": x, "j": poisoned("fp64", 16), "y": poisoned("fp64", 16), "r": poisoned("fp64", 16)}
    reference = compare("""
        @triton.jit
        def kernel(pn, px, j, y, r):
            i = tl.arange(0, 16)
            n, x = tl.load(pn + i), tl.load(px + i)
            tl.store(j + i, libdevice.jn(n, x))
            tl.store(y + i, libdevice.yn(n, x))
            tl.store(r + i, libdevice.rcp64h(x))
        """, args, num_warps=1, tolerance={"j": {"atol": 1e-13}, "y": {"rtol": 1e-13}})
    finite = np.isfinite(x.numpy()) & (x.numpy() > 0)
    got, want = reference["r"].numpy()[finite], 1 / x.numpy()[finite]
    assert np.allclose(got, want, rtol=2.0**-19) and not (got.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()


def test_sixteen_bits_are_refused():
    from tilewright.dialects.errors import TypeMismatchError

    x = torch.ones(16, dtype=TORCH["fp16"])
    for name in ("add_rd", "sqrt_rz"):
        arity = 2 if name == "add_rd" else 1
        with pytest.raises(TypeMismatchError, match="fp32 or fp64, not fp16"):
            compare(f"""
                @triton.jit
                def kernel(p):
                    x = tl.load(p + tl.arange(0, 16))
                    tl.store(p + tl.arange(0, 16), libdevice.{name}({', '.join(['x'] * arity)}))
                """, {"p": x})


def test_every_name_of_tritons_module_is_there():
    assert len(libdevice.__all__) == 198
