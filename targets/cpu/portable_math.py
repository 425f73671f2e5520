"""Functions of dialects/lower_math on lanes: an adapter with the methods of the LLVM builder that they use, over vectors of n lanes.

Only functions without branches can be built so; those named in ``NAMES`` are. jn and yn have loops, and go a lane at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from tilewright.dialects.lower_math import lookup
from tilewright.dialects.lower_math.bessel_orders import bessel_j, bessel_y
from tilewright.targets.cpu.loop_builder import LoopBuilder
from tilewright.targets.cpu.vector_math import library

_DIRECTED = tuple(f"{name}_{mode}" for name in ("add", "sub", "mul", "div", "fma", "sqrt", "rcp", "double2float", "int2float", "uint2float", "ll2float",
                                               "ull2float", "ll2double", "ull2double") for mode in ("rd", "ru", "rz"))
NAMES = frozenset(("cyl_bessel_i0", "cyl_bessel_i1", "erfinv", "erfcinv", "erfcx", "nextafter", "normcdf", "normcdfinv", "rcp64h", "jn", "yn", *_DIRECTED))
_OPS = {"fadd": "arith.addf", "fsub": "arith.subf", "fmul": "arith.mulf", "fdiv": "arith.divf", "add": "arith.addi", "sub": "arith.subi",
        "mul": "arith.muli", "shl": "arith.shli", "lshr": "arith.shrui", "ashr": "arith.shrsi", "and_": "arith.andi", "or_": "arith.ori",
        "xor": "arith.xori"}
_CASTS = {"fpext": "arith.extf", "fptrunc": "arith.truncf", "fptosi": "arith.fptosi", "sitofp": "arith.sitofp", "trunc": "arith.trunci",
          "zext": "arith.extui", "sext": "arith.extsi"}
_INTRINSICS = {"rint": "math.roundeven", "floor": "math.floor", "ceil": "math.ceil", "trunc": "math.trunc", "sqrt": "math.sqrt",
               "maxnum": "arith.maxnumf", "minnum": "arith.minnumf"}


class LaneBuilder:
    """The LLVM builder's arithmetic, on ``vector<n x …>`` (or scalars where n is 1)."""

    def __init__(self, b: LoopBuilder, n: int):
        self.b, self.n = b, n
        self.t_i1, self.t_i32, self.t_i64, self.t_f32, self.t_f64 = (b.vec(n, t) for t in (b.i1, b.i32, b.i64, b.f32, b.f64))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _OPS:
            return lambda x, y: self.b.op(_OPS[name], [x, y], [x.type]).result
        if name in _CASTS:
            return lambda x, type: self.b.un(_CASTS[name], x, type)
        raise AttributeError(name)

    @contextmanager
    def no_contract(self) -> Iterator[None]:
        """Nothing is fused that is not written as fma: no operation here carries the flag."""
        yield

    def const(self, type: Any, value: Any) -> Any:
        return self.b.const(type, value)

    def int_type(self, bits: int) -> Any:
        return self.t_i64 if bits == 64 else self.t_i32

    def i1(self, value: int) -> Any:
        return self.b.const(self.t_i1, value)

    def i32(self, value: int) -> Any:
        return self.b.const(self.t_i32, value)

    def i64(self, value: int) -> Any:
        return self.b.const(self.t_i64, value)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.b.fma(x, y, z)

    def fneg(self, x: Any) -> Any:
        return self.b.un("arith.negf", x)

    def fabs(self, x: Any) -> Any:
        return self.b.un("math.absf", x)

    def copysign(self, x: Any, sign: Any) -> Any:
        return self.b.op("math.copysign", [x, sign], [x.type]).result

    def select(self, condition: Any, x: Any, y: Any) -> Any:
        return self.b.select(condition, x, y)

    def fcmp(self, predicate: str, x: Any, y: Any) -> Any:
        return self.b.cmpf(predicate, x, y)

    def icmp(self, predicate: str, x: Any, y: Any) -> Any:
        return self.b.cmpi(predicate, x, y)

    def bitcast(self, x: Any, type: Any) -> Any:
        return self.b.un("arith.bitcast", x, type)

    def op(self, name: str, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        return SimpleNamespace(result=self.b.op(_INTRINSICS[name.removeprefix("llvm.intr.")], list(operands), list(results)).result)


def call(b: LoopBuilder, name: str, args: Sequence[Any], declare: Callable[[str, int], None]) -> Any | None:
    """The function on lanes, or None where it is not one of ``NAMES``. ``declare(symbol, arity)`` as in vector_math.call."""
    if name not in NAMES:
        return None
    if name in ("jn", "yn"):
        return _bessel(b, name, args, declare)
    return lookup(name, str(b.element(args[0].type))).build(LaneBuilder(b, b.lanes(args[0].type)), *args)


def _bessel(b: LoopBuilder, name: str, args: Sequence[Any], declare: Callable[[str, int], None]) -> Any:
    """jn and yn, a lane at a time: their loops are of different lengths."""
    n, element, scalar = b.lanes(args[1].type), b.element(args[1].type), LaneBuilder(b, 1)
    results = []
    for i in range(n):
        order, x = (b.extract(a, i) if n > 1 else a for a in args)
        x = x if element == b.f64 else b.un("arith.extf", x, b.f64)
        at = scalar.fabs(x) if name == "jn" else x
        zeroth, first = (library(b, f"{name[0]}{k}", [at], declare) for k in (0, 1))

        def loop(count: Any, initial: Sequence[Any], body: Callable[[Any, Sequence[Any]], Sequence[Any]]) -> Sequence[Any]:
            def one(index: Any, values: list[Any]) -> Sequence[Any]:
                return body(b.op("arith.index_cast", [index], [b.i64]).result, values)

            return b.for_(b.idx(0), b.op("arith.index_cast", [count], [b.index]).result, b.idx(1), initial, one)

        y = (bessel_j if name == "jn" else bessel_y)(scalar, order, x, zeroth, first, loop)
        results.append(y if element == b.f64 else b.un("arith.truncf", y, element))
    return b.from_elements(results)
