"""``LoopBuilder``: makes scf, arith, vector and llvm ops for the cpu target, one call an op.

Values are in *compute form*: bf16, f16 and fp8 are held as f32 whose value the narrow type has (each op rounds), pointers as
i64, everything else as itself. ``n`` lanes are a ``vector<n x …>``, one lane is a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects._mlir import ir

VECTOR_LANES = 16  # elements worked on at once: one 512-bit register of f32, or two of 256 bits


class LoopBuilder:
    """Builds into ``func`` (a func.func with an entry block). Constants go to the start of the entry block."""

    def __init__(self, func: Any):
        self.func = func
        int_type = ir.IntegerType.get_signless
        self.i1, self.i8, self.i16, self.i32, self.i64 = (int_type(n) for n in (1, 8, 16, 32, 64))
        self.f16, self.f32, self.f64 = ir.F16Type.get(), ir.F32Type.get(), ir.F64Type.get()
        self.index = ir.IndexType.get()
        self.ptr = ir.Type.parse("!llvm.ptr")
        self.loc = ir.Location.unknown()
        self.contract = False
        self._contract = ir.Attribute.parse("#arith.fastmath<contract>")
        self.entry = func.regions[0].blocks[0]
        anchor = ir.Operation.create("arith.constant", [self.index], attributes={"value": ir.IntegerAttr.get(self.index, 0)},
                                     loc=self.loc, ip=ir.InsertionPoint.at_block_begin(self.entry))
        self._const_ip = ir.InsertionPoint(anchor)
        self._consts: dict[Any, Any] = {(self.index, 0): anchor.result}
        self._const_of: dict[Any, Any] = {anchor.result: 0}
        self._vecs: dict[Any, Any] = {}
        self.ip = ir.InsertionPoint(self.entry)
        # What tiles gave already, by block from the outermost on; empty outside of evaluations (see tiles.evaluating).
        self.known: list[dict[Any, Any]] = []

    # ------------------------------------------------------------------------------------------------- plumbing
    def op(self, name: str, operands: Sequence[Any] = (), results: Sequence[Any] = (), attrs: dict[str, Any] | None = None,
           regions: int = 0) -> Any:
        """Any op at the current place; returns the operation."""
        return ir.Operation.create(name, results, operands, attrs, None, regions, self.loc, self.ip)

    def vec(self, n: int, element: Any) -> Any:
        """``vector<n x element>``, or the element itself for one lane."""
        if n == 1:
            return element
        key = (n, element)
        if key not in self._vecs:
            self._vecs[key] = ir.VectorType.get([n], element)
        return self._vecs[key]

    @staticmethod
    def element(type: Any) -> Any:
        """Element type of a vector type, or the type itself."""
        return type.element_type if isinstance(type, ir.VectorType) else type

    @staticmethod
    def lanes(type: Any) -> int:
        return type.shape[0] if isinstance(type, ir.VectorType) else 1

    def const(self, type: Any, value: Any) -> Any:
        """Constant of a scalar or (splat) vector type."""
        key = (type, value if isinstance(value, int) else repr(value))
        found = self._consts.get(key)
        if found is None:
            element = self.element(type)
            if isinstance(element, ir.IntegerType):
                bits = element.width
                number = int(value) & ((1 << bits) - 1)
                attr = ir.IntegerAttr.get(element, number - (1 << bits) if bits > 1 and number >> (bits - 1) else number)
            elif isinstance(element, ir.IndexType):
                attr = ir.IntegerAttr.get(element, int(value))
            else:
                attr = ir.FloatAttr.get(element, float(value))
            if element != type:
                attr = ir.DenseElementsAttr.get_splat(type, attr)
            found = ir.Operation.create("arith.constant", [type], attributes={"value": attr}, loc=ir.Location.unknown(), ip=self._const_ip).result
            self._consts[key] = found
            self._const_of[found] = value
        return found

    def idx(self, value: int) -> Any:
        return self.const(self.index, value)

    def constant_of(self, value: Any) -> Any:
        """The Python number of a value made by ``const``, else None."""
        return self._const_of.get(value)

    def iota(self, n: int, element: Any) -> Any:
        """``vector<n> [0, 1, …, n-1]``."""
        key = ("iota", n, element)
        if key not in self._consts:
            attr = ir.DenseElementsAttr.get([ir.IntegerAttr.get(element, i) for i in range(n)], self.vec(n, element))
            self._consts[key] = ir.Operation.create("arith.constant", [self.vec(n, element)], attributes={"value": attr},
                                                    loc=ir.Location.unknown(), ip=self._const_ip).result
        return self._consts[key]

    # ---------------------------------------------------------------------------------------------- arithmetic
    def un(self, name: str, a: Any, type: Any = None) -> Any:
        return self.op(name, [a], [a.type if type is None else type]).result

    def bin(self, name: str, a: Any, b: Any) -> Any:
        attrs = {"fastmath": self._contract} if self.contract and name in ("arith.addf", "arith.subf", "arith.mulf") else None
        return self.op(name, [a, b], [a.type], attrs).result

    def add(self, a: Any, b: Any) -> Any:
        x, y = self._const_of.get(a), self._const_of.get(b)
        if y == 0:
            return a
        if x == 0:
            return b
        if x is not None and y is not None and a.type == self.index:
            return self.idx(x + y)
        return self.bin("arith.addi", a, b)

    def mul(self, a: Any, b: Any) -> Any:
        x, y = self._const_of.get(a), self._const_of.get(b)
        if y == 1:
            return a
        if x == 1:
            return b
        if 0 in (x, y):
            return self.const(a.type, 0)
        if x is not None and y is not None and a.type == self.index:
            return self.idx(x * y)
        return self.bin("arith.muli", a, b)

    def cmpi(self, predicate: str, a: Any, b: Any) -> Any:
        number = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge").index(predicate)
        return self.op("arith.cmpi", [a, b], [self.vec(self.lanes(a.type), self.i1)], {"predicate": ir.IntegerAttr.get(self.i64, number)}).result

    def cmpf(self, predicate: str, a: Any, b: Any) -> Any:
        number = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno").index(predicate)
        return self.op("arith.cmpf", [a, b], [self.vec(self.lanes(a.type), self.i1)], {"predicate": ir.IntegerAttr.get(self.i64, number)}).result

    def select(self, c: Any, a: Any, b: Any) -> Any:
        return self.op("arith.select", [c, a, b], [a.type]).result

    def cast_int(self, a: Any, element: Any, signed: bool = True) -> Any:
        """Integer lanes as ``element``: extended (by sign or zero) or truncated."""
        n, old = self.lanes(a.type), self.element(a.type)
        if old == element:
            return a
        if isinstance(old, ir.IndexType) or isinstance(element, ir.IndexType):
            return self.un("arith.index_cast", a, self.vec(n, element))
        name = "arith.trunci" if element.width < old.width else "arith.extsi" if signed else "arith.extui"
        return self.un(name, a, self.vec(n, element))

    def bitcast(self, a: Any, element: Any) -> Any:
        n = self.lanes(a.type)
        return a if self.element(a.type) == element else self.un("arith.bitcast", a, self.vec(n, element))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.op("math.fma", [a, b, c], [a.type]).result

    # -------------------------------------------------------------------------------------------------- vectors
    def broadcast(self, a: Any, n: int) -> Any:
        """A scalar to n lanes."""
        if n == 1 or isinstance(a.type, ir.VectorType):
            return a
        number = self._const_of.get(a)
        if number is not None:
            return self.const(self.vec(n, a.type), number)
        return self.un("vector.broadcast", a, self.vec(n, a.type))

    def extract(self, v: Any, i: int) -> Any:
        return self.op("vector.extract", [v], [self.element(v.type)], {"static_position": ir.DenseI64ArrayAttr.get([i])}).result

    def from_elements(self, values: Sequence[Any]) -> Any:
        if len(values) == 1:
            return values[0]
        return self.op("vector.from_elements", list(values), [self.vec(len(values), values[0].type)]).result

    def half(self, v: Any, which: int) -> Any:
        """Lower (0) or upper (1) half of the lanes."""
        n = self.lanes(v.type) // 2
        if n == 1:
            return self.extract(v, which)
        array = lambda x: ir.ArrayAttr.get([ir.IntegerAttr.get(self.i64, x)])  # noqa: E731
        return self.op("vector.extract_strided_slice", [v], [self.vec(n, self.element(v.type))],
                       {"offsets": array(which * n), "sizes": array(n), "strides": array(1)}).result

    def any_of(self, mask: Any) -> Any:
        """Whether any of the i1 lanes is set, as a scalar."""
        n = self.lanes(mask.type)
        if n == 1:
            return mask
        word = self.un("llvm.bitcast", mask, ir.IntegerType.get_signless(n))
        return self.cmpi("ne", word, self.const(word.type, 0))

    def all_of(self, mask: Any) -> Any:
        """Whether all of the i1 lanes are set, as a scalar."""
        n = self.lanes(mask.type)
        if n == 1:
            return mask
        word = self.un("llvm.bitcast", mask, ir.IntegerType.get_signless(n))
        return self.cmpi("eq", word, self.const(word.type, -1))

    # --------------------------------------------------------------------------------------------------- memory
    def gep(self, base: Any, index: Any, element: Any) -> Any:
        """``base`` advanced by ``index`` (an index or integer value, or a Python int) elements."""
        if isinstance(index, int):
            if index == 0:
                return base
            operands, raw = [base], [index]
        else:
            number = self._const_of.get(index)
            if number is not None:
                return self.gep(base, int(number), element)
            operands, raw = [base, self.cast_int(index, self.i64)], [-2147483648]
        return self.op("llvm.getelementptr", operands, [base.type], {"elem_type": ir.TypeAttr.get(element),
                                                                     "rawConstantIndices": ir.DenseI32ArrayAttr.get(raw)}).result

    def load(self, ptr: Any, type: Any, volatile: bool = False) -> Any:
        attrs: dict[str, Any] = {"alignment": ir.IntegerAttr.get(self.i64, self.size(self.element(type)))}
        if volatile:
            attrs["volatile_"] = ir.UnitAttr.get()
        return self.op("llvm.load", [ptr], [type], attrs).result

    def store(self, value: Any, ptr: Any) -> None:
        self.op("llvm.store", [value, ptr], [], {"alignment": ir.IntegerAttr.get(self.i64, self.size(self.element(value.type)))})

    # LLVM 22 splits a masked load that is wider than a register; of a half whose mask turns out to be all off while it does so, it makes a load
    # without a mask (or fails an assertion). So no masked access here is wider than ``bits``, a register, and the mask of each piece is made for
    # itself: ``mask(first, n)`` is that of n lanes from lane ``first`` on.
    def masked_load(self, ptr: Any, type: Any, mask: Callable[[int, int], Any], other: Any, bits: int, first: int = 0) -> Any:
        size, n = self.size(self.element(type)), self.lanes(type)
        if 8 * size * n > bits and n > 2:
            half = n // 2
            low, high = (self.masked_load(self.gep(ptr, self.idx(h * half), self.element(type)), self.vec(half, self.element(type)), mask,
                                          self.half(other, h), bits, first + h * half) for h in (0, 1))
            return self.op("vector.shuffle", [low, high], [type], {"mask": ir.DenseI64ArrayAttr.get(list(range(n)))}).result
        return self.op("llvm.intr.masked.load", [ptr, mask(first, n), other], [type], {"alignment": ir.IntegerAttr.get(self.i32, size)}).result

    def masked_store(self, value: Any, ptr: Any, mask: Callable[[int, int], Any], bits: int, first: int = 0) -> None:
        size, n = self.size(self.element(value.type)), self.lanes(value.type)
        if 8 * size * n > bits and n > 2:
            half = n // 2
            for h in (0, 1):
                self.masked_store(self.half(value, h), self.gep(ptr, self.idx(h * half), self.element(value.type)), mask, bits, first + h * half)
            return
        self.op("llvm.intr.masked.store", [value, ptr, mask(first, n)], [], {"alignment": ir.IntegerAttr.get(self.i32, size)})

    def to_ptr(self, address: Any) -> Any:
        """An i64 address as a pointer."""
        return self.un("llvm.inttoptr", address, self.ptr)

    @staticmethod
    def size(element: Any) -> int:
        """Bytes of a stored scalar."""
        if isinstance(element, ir.IntegerType):
            return max(element.width // 8, 1)
        return {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "!llvm.ptr": 8, "index": 8}[str(element)]

    # ------------------------------------------------------------------------------------------- control flow
    def for_(self, lower: Any, upper: Any, step: Any, inits: Sequence[Any], body: Callable[[Any, list[Any]], Sequence[Any]]) -> list[Any]:
        """scf.for; ``body(iv, args)`` returns what the next iteration's args are. Returns the final values."""
        loop = self.op("scf.for", [lower, upper, step, *inits], [v.type for v in inits], None, 1)
        block = loop.regions[0].blocks.append(lower.type, *[v.type for v in inits], arg_locs=[self.loc] * (1 + len(inits)))
        outer, self.ip = self.ip, ir.InsertionPoint(block)
        known = self.known
        self.known = [*known, {}] if known else known
        results = list(body(block.arguments[0], list(block.arguments)[1:]))
        self.op("scf.yield", results)
        self.ip, self.known = outer, known
        return list(loop.results)

    def loop(self, size: int, step: int, body: Callable[[Any], None]) -> None:
        """``body(index)`` for index in range(0, size, step); no loop where it runs once."""
        if size <= step:
            body(self.idx(0))
            return

        def run(iv: Any, _: list[Any]) -> list[Any]:
            body(iv)
            return []

        self.for_(self.idx(0), self.idx(size), self.idx(step), [], run)

    def if_(self, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any] | None, types: Sequence[Any]) -> list[Any]:
        """scf.if with results of ``types``."""
        branch = self.op("scf.if", [condition], list(types), None, 2)
        outer, known = self.ip, self.known
        for region, side in zip(branch.regions, (then, otherwise)):
            if side is None:
                continue
            self.ip = ir.InsertionPoint(region.blocks.append())
            self.known = [*known, {}] if known else known
            self.op("scf.yield", list(side() or []))
        self.ip, self.known = outer, known
        return list(branch.results)
