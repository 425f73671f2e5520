"""``tl.random``: counter-based random numbers, the same on every target.

The generator is Philox-4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four 32-bit words are a
keyed bijection of a 128-bit counter. A (seed, offset) pair always gives the same value, whatever the launch.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.errors import TypeMismatchError
from tilewright.language.core import bfloat16, float16, float32, int32, int64, uint32, uint64
from tilewright.language.decorators import builtin
from tilewright.language.values import tensor
from tilewright.language.values import tuple as _tuple

N_ROUNDS_DEFAULT = 10
# the paper's multipliers and Weyl increments, by word width
_ROUND = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}
_KEY = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}
_TWO_PI = 6.283185307179586


def _check_seed(seed: tensor) -> None:
    if not seed.dtype.is_int():
        raise TypeMismatchError(f"the seed of random numbers is an integer; found {seed.dtype}")


@builtin
def philox_impl(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: int = N_ROUNDS_DEFAULT, _semantic: Any = None) -> Any:
    """``n_rounds`` rounds on the counter words c0 … c3 (uint32 or uint64, of one shape) under the key k0, k1.

    Types: uint32, uint64.

    Example::

        c = k.to(tl.uint32)
        r0, r1, r2, r3 = tl.philox_impl(c, c, c, c, c, c)
    """
    s = _semantic
    word = c0.dtype
    (a, b), (ka, kb) = _ROUND[word.int_bitwidth], _KEY[word.int_bitwidth]
    a, b, ka, kb = (s.constant(v, word) for v in (a, b, ka, kb))
    for _ in range(n_rounds):
        high_a, high_b = s.umulhi(a, c0), s.umulhi(b, c2)
        low_a, low_b = s.mul(a, c0, False), s.mul(b, c2, False)
        c0, c1, c2, c3 = s.xor_(s.xor_(high_b, c1), k0), low_b, s.xor_(s.xor_(high_a, c3), k1), low_a
        k0, k1 = s.add(k0, ka, False), s.add(k1, kb, False)
    return _tuple([c0, c1, c2, c3])


@builtin
def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: int = N_ROUNDS_DEFAULT, _semantic: Any = None) -> Any:
    """Four random words for the counter (c0, c1, c2, c3); 64-bit words where c0 has 64 bits, else 32-bit ones. Of floats of that width the bits count.

    Types: integers; fp32, fp64.

    Example::

        r0, r1, r2, r3 = tl.philox(n, i, 0, 0, 0)
        bit = r0 & 1
    """
    s = _semantic
    seed, *counter = (s.to_tensor(v) for v in (seed, c0, c1, c2, c3))
    _check_seed(seed)
    wide = counter[0].dtype.primitive_bitwidth == 64
    word = uint64 if wide else uint32
    for c in counter:
        if not c.dtype.is_int() and not (c.dtype.is_floating() and c.dtype.primitive_bitwidth == word.int_bitwidth):
            raise TypeMismatchError(f"counter words of philox are integers, or floats of {word.int_bitwidth} bits whose bits are taken; found {c.dtype}")
    seed = s.cast(seed, uint64)
    if wide:
        k0, k1 = seed, s.constant(0, uint64)
    else:
        k0 = s.cast(s.and_(seed, s.constant(0xFFFFFFFF, uint64)), uint32)
        k1 = s.cast(s.shr(seed, s.constant(32, uint64)), uint32)
    counter = [s.cast(c, word) if c.dtype.is_int() else s.bitcast(c, word) for c in counter]
    for i in (1, 2, 3):
        counter[0], counter[i] = s.broadcast(counter[0], counter[i])
    counter = [s.broadcast(c, counter[0])[0] for c in counter]
    c0, c1, c2, c3 = counter
    return philox_impl(c0, c1, c2, c3, k0, k1, n_rounds, _semantic=s)


@builtin
def randint4x(seed: Any, offset: Any, n_rounds: int = N_ROUNDS_DEFAULT, _semantic: Any = None) -> Any:
    """Four tensors of random uint32, shaped as ``offset``; a 64-bit offset makes two counter words. A tensor of floats is rounded towards zero to uint32.

    Types: integers, fp16, bf16, fp32; uint32.

    Example::

        r0, r1, r2, r3 = tl.randint4x(n, i)
        dice = r0 % 6 + 1
    """
    s = _semantic
    _check_seed(s.to_tensor(seed))
    given, offset = offset, s.to_tensor(offset)
    if offset.dtype in (float16, bfloat16, float32) and isinstance(given, tensor):
        offset = s.cast(offset, uint32)
    if not offset.dtype.is_int():
        raise TypeMismatchError("offsets of random numbers are integers, or tensors of fp16, bf16 or fp32 that are rounded towards zero to uint32; found "
                                f"{offset.dtype if isinstance(given, tensor) else given}")
    zero = s.constant(0, offset.type.with_element_ty(uint32))
    if offset.dtype.int_bitwidth > 32:
        low = s.cast(s.cast(offset, uint64), uint32)
        high = s.cast(s.shr(s.cast(offset, uint64), 32), uint32)
        return philox(seed, low, high, zero, zero, n_rounds, _semantic=s)
    return philox(seed, offset, zero, zero, zero, n_rounds, _semantic=s)


@builtin
def randint(seed: Any, offset: Any, n_rounds: int = N_ROUNDS_DEFAULT, _semantic: Any = None) -> tensor:
    """Random uint32, one an element of ``offset``. randint4x costs the same and gives four.

    Types: integers, fp16, bf16, fp32; uint32.

    Example::

        r = tl.randint(n, i)
        dice = r % 6 + 1
    """
    return randint4x(seed, offset, n_rounds, _semantic=_semantic)[0]


@builtin
def uint_to_uniform_float(x: Any, _semantic: Any = None) -> tensor:
    """Random integers as fp32 uniform in [0, 1); the scale keeps the largest below 1.

    Types: 32- and 64-bit integers; fp32.

    Example::

        u = tl.uint_to_uniform_float(tl.randint(n, i))
        kept = u > 0.1
    """
    s = _semantic
    if x.dtype.int_bitwidth == 32:
        x, scale = s.bitcast(x, int32), 4.6566127342e-10
    elif x.dtype.int_bitwidth == 64:
        x, scale = s.bitcast(x, int64), 1.0842020432385337e-19
    else:
        raise TypeMismatchError(f"uint_to_uniform_float takes 32- or 64-bit integers, not {x.dtype}")
    x = s.where(s.less_than(x, 0), s.sub(s.minus(x, False), 1, False), x)
    return s.mul(s.cast(x, float32), scale)


@builtin
def rand(seed: Any, offset: Any, n_rounds: int = N_ROUNDS_DEFAULT, _semantic: Any = None) -> tensor:
    """fp32 uniform in [0, 1), one an element of ``offset``.

    Types: integers, fp16, bf16, fp32; fp32.

    Example::

        kept = tl.rand(n, i) > 0.1
        z = tl.where(kept, x / 0.9, 0.0)
    """
    return uint_to_uniform_float(randint(seed, offset, n_rounds, _semantic=_semantic), _semantic=_semantic)


@builtin
def rand4x(seed: Any, offset: Any, n_rounds: int = N_ROUNDS_DEFAULT, _semantic: Any = None) -> Any:
    """Four tensors of fp32 uniform in [0, 1).

    Types: integers, fp16, bf16, fp32; fp32.

    Example::

        u0, u1, u2, u3 = tl.rand4x(n, i)
        z = x * u0
    """
    return _tuple([uint_to_uniform_float(v, _semantic=_semantic) for v in randint4x(seed, offset, n_rounds, _semantic=_semantic)])


@builtin
def pair_uniform_to_normal(u1: Any, u2: Any, _semantic: Any = None) -> Any:
    """Box and Muller: two uniform tensors to two normal ones.

    Types: fp32.

    Example::

        u0, u1, u2, u3 = tl.rand4x(n, i)
        g0, g1 = tl.pair_uniform_to_normal(u0, u1)
    """
    s = _semantic
    u1 = s.maximum(1.0e-7, u1)
    angle = s.mul(u2, _TWO_PI)
    radius = s.unary_math("sqrt", s.mul(s.unary_math("log", u1), -2.0))
    return _tuple([s.mul(radius, s.unary_math("cos", angle)), s.mul(radius, s.unary_math("sin", angle))])


@builtin
def randn(seed: Any, offset: Any, n_rounds: int = N_ROUNDS_DEFAULT, _semantic: Any = None) -> tensor:
    """fp32 standard normal, one an element of ``offset``.

    Types: integers, fp16, bf16, fp32; fp32.

    Example::

        noise = tl.randn(n, i)
        z = x + noise * 0.1
    """
    s = _semantic
    i1, i2, _, _ = randint4x(seed, offset, n_rounds, _semantic=s)
    u1, u2 = uint_to_uniform_float(i1, _semantic=s), uint_to_uniform_float(i2, _semantic=s)
    return pair_uniform_to_normal(u1, u2, _semantic=s)[0]


@builtin
def randn4x(seed: Any, offset: Any, n_rounds: int = N_ROUNDS_DEFAULT, _semantic: Any = None) -> Any:
    """Four tensors of fp32 standard normal.

    Types: integers, fp16, bf16, fp32; fp32.

    Example::

        g0, g1, g2, g3 = tl.randn4x(n, i)
        z = x + g0
    """
    s = _semantic
    u = [uint_to_uniform_float(v, _semantic=s) for v in randint4x(seed, offset, n_rounds, _semantic=s)]
    return _tuple([*pair_uniform_to_normal(u[0], u[1], _semantic=s), *pair_uniform_to_normal(u[2], u[3], _semantic=s)])


__all__ = ["N_ROUNDS_DEFAULT", "pair_uniform_to_normal", "philox", "philox_impl", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x",
           "uint_to_uniform_float"]
