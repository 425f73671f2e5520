"""``LLVMBuilder``: makes LLVM-dialect ops one at a time, about 2 µs each, for the lowerings and the targets' hooks.

Every method returns the ``ir.Value`` of its result. Ops go to the end of the current block with the location ``b.loc``;
constants are made once and stand at the start of the entry block, so they may be used anywhere. Vectors are MLIR's
(``vector<4xf32>``), structs ``!llvm.struct<(…)>``.

``b.contract`` lets floating-point adds, subtractions and multiplications fuse (LLVM's ``contract`` flag); code that counts
on each rounding writes ``with b.no_contract():``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.dialects._mlir import ir

Value = Any
Type = Any

_ICMP = {p: i for i, p in enumerate(("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"))}
_FCMP = {p: i for i, p in enumerate(("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult",
                                     "ule", "une", "uno", "true"))}
_OVERFLOW = ("", "nsw", "nuw", "nsw, nuw")
_DYNAMIC = -2147483648  # marks an operand among a gep's constant indices
# LLVM dialect's AtomicBinOp and AtomicOrdering, in its order of declaration
ATOMIC_OPS = {name: i for i, name in enumerate((
    "xchg", "add", "sub", "and", "nand", "or", "xor", "max", "min", "umax", "umin", "fadd", "fsub", "fmax", "fmin"))}
ORDERINGS = {"monotonic": 2, "acquire": 4, "release": 5, "acq_rel": 6, "seq_cst": 7}

_create = ir.Operation.create
_prototypes: dict[tuple[str, Type], tuple[Any, Any]] = {}


def _prototype(text: str, type: Type) -> Any:
    """A detached op to clone: overflow flags are properties, which the bindings set only by parsing."""
    found = _prototypes.get((text, type))
    if found is None:
        module = ir.Module.parse(f"llvm.func @f(%a: {type}) {{\n {text.format(type=type)}\n llvm.return\n}}")
        op = module.body.operations[0].regions[0].blocks[0].operations[0].operation
        found = _prototypes[text, type] = (op, module)
    return found[0]


class LLVMBuilder:
    """Builds into ``func``, an ``llvm.func`` whose region has an entry block. Needs a current MLIR context.

    module: where external declarations go (found from ``func`` when left out).
    """

    def __init__(self, func: Any, module: Any = None):
        self.func = func
        self.module_op = module
        get = ir.IntegerType.get_signless
        self.t_i1, self.t_i8, self.t_i16, self.t_i32, self.t_i64 = (get(n) for n in (1, 8, 16, 32, 64))
        self.t_f16, self.t_bf16, self.t_f32, self.t_f64 = ir.F16Type.get(), ir.BF16Type.get(), ir.F32Type.get(), ir.F64Type.get()
        self.loc = ir.Location.unknown()
        self.contract = False
        self._unit = ir.UnitAttr.get()
        self._attrs: dict[Any, Any] = {}
        self._types: dict[Any, Any] = {}
        self._consts: dict[Any, Value] = {}
        self._const_of: dict[Value, Any] = {}
        self._declared: set[str] = set()
        self._icmp = {p: {"predicate": ir.IntegerAttr.get(self.t_i64, i)} for p, i in _ICMP.items()}
        self._fcmp = {p: {"predicate": ir.IntegerAttr.get(self.t_i64, i)} for p, i in _FCMP.items()}
        self._contract = {"fastmathFlags": ir.Attribute.parse("#llvm.fastmath<contract>")}
        self._nneg = {"nonNeg": self._unit}
        self._disjoint = {"isDisjoint": self._unit}
        self._dynamic_index = ir.DenseI32ArrayAttr.get([_DYNAMIC])
        self.entry = func.regions[0].blocks[0]
        # An anchor in front of which all constants go.
        anchor = _create("llvm.mlir.constant", [self.t_i32], attributes={"value": ir.IntegerAttr.get(self.t_i32, 0)},
                         loc=self.loc, ip=ir.InsertionPoint.at_block_begin(self.entry))
        self._remember((self.t_i32, 0), anchor.result, 0)
        self._const_ip = ir.InsertionPoint(anchor)
        self.current: Any = self.entry
        self._ip = ir.InsertionPoint(self.entry)

    # ------------------------------------------------------------------------------------------------ plumbing
    def op(self, name: str, operands: Sequence[Value] = (), results: Sequence[Type] = (), attrs: dict[str, Any] | None = None,
           successors: Sequence[Any] | None = None) -> Any:
        """Any op at the current place; returns the ``ir.Operation``."""
        return _create(name, results, operands, attrs, successors, 0, self.loc, self._ip)

    def _unary(self, name: str, a: Value, type: Type, attrs: Any = None) -> Value:
        return _create(name, (type,), (a,), attrs, None, 0, self.loc, self._ip).result

    def _binary(self, name: str, a: Value, b: Value, attrs: Any = None) -> Value:
        return _create(name, (a.type,), (a, b), attrs, None, 0, self.loc, self._ip).result

    def _overflow(self, name: str, a: Value, b: Value, nsw: bool, nuw: bool) -> Value:
        flags = _OVERFLOW[nsw | nuw << 1]
        op = _prototype(f"%0 = llvm.{name} %a, %a overflow<{flags}> : {{type}}", a.type).clone(self._ip)
        operands = op.operands
        operands[0], operands[1] = a, b
        op.location = self.loc
        return op.result

    @contextlib.contextmanager
    def no_contract(self) -> Iterator[None]:
        """Within it no ``contract`` flags are set."""
        saved, self.contract = self.contract, False
        try:
            yield
        finally:
            self.contract = saved

    def _cached(self, key: Any, make: Callable[[], Any]) -> Any:
        found = self._attrs.get(key)
        if found is None:
            found = self._attrs[key] = make()
        return found

    def int_attr(self, value: int, bits: int = 32) -> Any:
        return self._cached((bits, value), lambda: ir.IntegerAttr.get(ir.IntegerType.get_signless(bits), value))

    # --------------------------------------------------------------------------------------------------- types
    def ptr(self, space: int = 0) -> Type:
        """``!llvm.ptr<space>``."""
        t = self._types.get(space)
        if t is None:
            t = self._types[space] = ir.Type.parse(f"!llvm.ptr<{space}>" if space else "!llvm.ptr")
        return t

    def vec(self, n: int, element: Type) -> Type:
        """``vector<n x element>``."""
        key = (n, element)
        t = self._types.get(key)
        if t is None:
            t = self._types[key] = ir.VectorType.get([n], element)
        return t

    def struct(self, members: Sequence[Type]) -> Type:
        """The literal struct of ``members``."""
        key = ("struct", *members)
        t = self._types.get(key)
        if t is None:
            t = self._types[key] = ir.Type.parse(f"!llvm.struct<({', '.join(map(str, members))})>")
        return t

    def int_type(self, bits: int) -> Type:
        return {1: self.t_i1, 8: self.t_i8, 16: self.t_i16, 32: self.t_i32, 64: self.t_i64}.get(bits) \
            or ir.IntegerType.get_signless(bits)

    # ----------------------------------------------------------------------------------------------- constants
    def _remember(self, key: Any, value: Value, number: Any) -> Value:
        self._consts[key] = value
        self._const_of[value] = number
        return value

    def const(self, type: Type, value: int | float) -> Value:
        """A constant of an integer or float type, or a splat of a vector type. Integers wrap to the type's width."""
        key = (type, value) if value.__class__ is int else (type, repr(float(value)))
        found = self._consts.get(key)
        if found is not None:
            return found
        element, vector = type, None
        if isinstance(type, ir.VectorType):
            element, vector = type.element_type, type
        if isinstance(element, ir.IntegerType):
            bits = element.width
            wrapped = int(value) & ((1 << bits) - 1)
            if bits > 1 and wrapped >> (bits - 1):
                wrapped -= 1 << bits
            attr = ir.IntegerAttr.get(element, wrapped)
        else:
            attr = ir.FloatAttr.get(element, float(value))
        if vector is not None:
            attr = ir.DenseElementsAttr.get_splat(vector, attr)
        result = _create("llvm.mlir.constant", (type,), None, {"value": attr}, None, 0, self.loc, self._const_ip).result
        return self._remember(key, result, value)

    def constant_of(self, value: Value) -> int | float | None:
        """The Python number of a value made by ``const``, else None."""
        return self._const_of.get(value)

    def i1(self, value: int) -> Value:
        return self.const(self.t_i1, int(bool(value)))

    def i8(self, value: int) -> Value:
        return self.const(self.t_i8, value)

    def i16(self, value: int) -> Value:
        return self.const(self.t_i16, value)

    def i32(self, value: int) -> Value:
        return self._consts.get((self.t_i32, value)) or self.const(self.t_i32, value)

    def i64(self, value: int) -> Value:
        return self.const(self.t_i64, value)

    def undef(self, type: Type) -> Value:
        """``llvm.mlir.undef``, made once a type."""
        return self._special("llvm.mlir.undef", type)

    def poison(self, type: Type) -> Value:
        return self._special("llvm.mlir.poison", type)

    def zero(self, type: Type) -> Value:
        """All bits zero: 0, 0.0, null, or an aggregate of them."""
        return self._special("llvm.mlir.zero", type)

    def _special(self, name: str, type: Type) -> Value:
        key = (name, type)
        found = self._consts.get(key)
        if found is None:
            found = _create(name, (type,), None, None, None, 0, self.loc, self._const_ip).result
            self._consts[key] = found
            if name == "llvm.mlir.zero" and isinstance(type, (ir.IntegerType, ir.F32Type, ir.F16Type, ir.BF16Type, ir.F64Type)):
                self._const_of[found] = 0
        return found

    def address_of(self, symbol: str, space: int) -> Value:
        """Address of a module-level global; stands in the entry block."""
        key = ("&", symbol)
        found = self._consts.get(key)
        if found is None:
            found = _create("llvm.mlir.addressof", (self.ptr(space),), None,
                            {"global_name": ir.FlatSymbolRefAttr.get(symbol)}, None, 0, self.loc, self._const_ip).result
            self._consts[key] = found
        return found

    # ------------------------------------------------------------------------------------------------ integers
    def add(self, a: Value, b: Value, nsw: bool = False, nuw: bool = False) -> Value:
        return self._overflow("add", a, b, nsw, nuw) if nsw or nuw else self._binary("llvm.add", a, b)

    def sub(self, a: Value, b: Value, nsw: bool = False, nuw: bool = False) -> Value:
        return self._overflow("sub", a, b, nsw, nuw) if nsw or nuw else self._binary("llvm.sub", a, b)

    def mul(self, a: Value, b: Value, nsw: bool = False, nuw: bool = False) -> Value:
        return self._overflow("mul", a, b, nsw, nuw) if nsw or nuw else self._binary("llvm.mul", a, b)

    def udiv(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.udiv", a, b)

    def sdiv(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.sdiv", a, b)

    def urem(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.urem", a, b)

    def srem(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.srem", a, b)

    def and_(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.and", a, b)

    def or_(self, a: Value, b: Value, disjoint: bool = False) -> Value:
        return self._binary("llvm.or", a, b, self._disjoint if disjoint else None)

    def xor(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.xor", a, b)

    def shl(self, a: Value, b: Value, nsw: bool = False, nuw: bool = False) -> Value:
        return self._overflow("shl", a, b, nsw, nuw) if nsw or nuw else self._binary("llvm.shl", a, b)

    def lshr(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.lshr", a, b)

    def ashr(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.ashr", a, b)

    def icmp(self, pred: str, a: Value, b: Value) -> Value:
        """``pred``: eq ne slt sle sgt sge ult ule ugt uge. Result i1."""
        return _create("llvm.icmp", (self.t_i1,), (a, b), self._icmp[pred], None, 0, self.loc, self._ip).result

    # -------------------------------------------------------------------------------------------------- floats
    def fadd(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.fadd", a, b, self._contract if self.contract else None)

    def fsub(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.fsub", a, b, self._contract if self.contract else None)

    def fmul(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.fmul", a, b, self._contract if self.contract else None)

    def fdiv(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.fdiv", a, b)

    def frem(self, a: Value, b: Value) -> Value:
        return self._binary("llvm.frem", a, b)

    def fneg(self, a: Value) -> Value:
        return self._unary("llvm.fneg", a, a.type)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, rounded once."""
        return _create("llvm.intr.fma", (a.type,), (a, b, c), None, None, 0, self.loc, self._ip).result

    def fabs(self, a: Value) -> Value:
        return self._unary("llvm.intr.fabs", a, a.type)

    def copysign(self, a: Value, sign: Value) -> Value:
        return self._binary("llvm.intr.copysign", a, sign)

    def fcmp(self, pred: str, a: Value, b: Value) -> Value:
        """``pred``: oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno. Result i1."""
        return _create("llvm.fcmp", (self.t_i1,), (a, b), self._fcmp[pred], None, 0, self.loc, self._ip).result

    def select(self, c: Value, a: Value, b: Value) -> Value:
        return _create("llvm.select", (a.type,), (c, a, b), None, None, 0, self.loc, self._ip).result

    # --------------------------------------------------------------------------------------------- conversions
    def zext(self, a: Value, type: Type, nneg: bool = False) -> Value:
        return self._unary("llvm.zext", a, type, self._nneg if nneg else None)

    def sext(self, a: Value, type: Type) -> Value:
        return self._unary("llvm.sext", a, type)

    def trunc(self, a: Value, type: Type) -> Value:
        return self._unary("llvm.trunc", a, type)

    def fpext(self, a: Value, type: Type) -> Value:
        return self._unary("llvm.fpext", a, type)

    def fptrunc(self, a: Value, type: Type) -> Value:
        return self._unary("llvm.fptrunc", a, type)

    def bitcast(self, a: Value, type: Type) -> Value:
        """The same bits as ``type``; ``a`` itself where it has that type."""
        return a if a.type == type else self._unary("llvm.bitcast", a, type)

    def ptrtoint(self, a: Value, type: Type) -> Value:
        return self._unary("llvm.ptrtoint", a, type)

    def inttoptr(self, a: Value, type: Type) -> Value:
        return self._unary("llvm.inttoptr", a, type)

    def addrspacecast(self, a: Value, type: Type) -> Value:
        return self._unary("llvm.addrspacecast", a, type)

    def sitofp(self, a: Value, type: Type) -> Value:
        return self._unary("llvm.sitofp", a, type)

    def uitofp(self, a: Value, type: Type) -> Value:
        return self._unary("llvm.uitofp", a, type)

    def fptosi(self, a: Value, type: Type) -> Value:
        return self._unary("llvm.fptosi", a, type)

    def fptoui(self, a: Value, type: Type) -> Value:
        return self._unary("llvm.fptoui", a, type)

    # -------------------------------------------------------------------------------------------------- memory
    def gep(self, ptr: Value, index: Value | int, elem_type: Type) -> Value:
        """``ptr`` advanced by ``index`` elements: a signed integer value, or a Python int (0 gives ``ptr`` back)."""
        constant = isinstance(index, int)
        if constant and index == 0:
            return ptr
        key = (elem_type, index if constant else None)
        attrs = self._attrs.get(key)
        if attrs is None:
            raw = ir.DenseI32ArrayAttr.get([index]) if constant else self._dynamic_index
            attrs = self._attrs[key] = {"elem_type": ir.TypeAttr.get(elem_type), "rawConstantIndices": raw}
        return _create("llvm.getelementptr", (ptr.type,), (ptr,) if constant else (ptr, index), attrs, None, 0, self.loc,
                       self._ip).result

    def load(self, ptr: Value, type: Type, align: int = 0, volatile: bool = False) -> Value:
        """``align`` in bytes; 0: the type's own."""
        attrs = self._memory_attrs(align, volatile)
        return _create("llvm.load", (type,), (ptr,), attrs, None, 0, self.loc, self._ip).result

    def _memory_attrs(self, align: int, volatile: bool) -> Any:
        key = ("memory", align, volatile)
        attrs = self._attrs.get(key)
        if attrs is None:
            attrs = self._attrs[key] = {"alignment": self.int_attr(align, 64)} if align else {}
            if volatile:
                attrs["volatile_"] = self._unit
        return attrs

    def store(self, value: Value, ptr: Value, align: int = 0, volatile: bool = False) -> None:
        attrs = self._memory_attrs(align, volatile)
        _create("llvm.store", None, (value, ptr), attrs, None, 0, self.loc, self._ip)

    def atomicrmw(self, op: str, ptr: Value, value: Value, ordering: str = "monotonic", syncscope: str = "",
                  align: int = 0) -> Value:
        """LLVM's ``atomicrmw``; ``op`` in ATOMIC_OPS, ``ordering`` in ORDERINGS. Result: the old value."""
        attrs = {"bin_op": self.int_attr(ATOMIC_OPS[op], 64), "ordering": self.int_attr(ORDERINGS[ordering], 64)}
        if syncscope:
            attrs["syncscope"] = ir.StringAttr.get(syncscope)
        if align:
            attrs["alignment"] = self.int_attr(align, 64)
        return self.op("llvm.atomicrmw", (ptr, value), (value.type,), attrs).result

    def cmpxchg(self, ptr: Value, cmp: Value, value: Value, ordering: str = "acq_rel", failure: str = "acquire",
                syncscope: str = "") -> Value:
        """LLVM's ``cmpxchg`` on integers or pointers. Result: the old value."""
        attrs = {"success_ordering": self.int_attr(ORDERINGS[ordering], 64),
                 "failure_ordering": self.int_attr(ORDERINGS[failure], 64)}
        if syncscope:
            attrs["syncscope"] = ir.StringAttr.get(syncscope)
        pair = self.op("llvm.cmpxchg", (ptr, cmp, value), (self.struct((value.type, self.t_i1)),), attrs).result
        return self.extract_value(pair, 0)

    # ----------------------------------------------------------------------------------------------- aggregates
    def extract_element(self, vector: Value, index: Value | int) -> Value:
        if isinstance(index, int):
            index = self.i32(index)
        return _create("llvm.extractelement", (ir.VectorType(vector.type).element_type,), (vector, index), None, None, 0,
                       self.loc, self._ip).result

    def insert_element(self, vector: Value, value: Value, index: Value | int) -> Value:
        if isinstance(index, int):
            index = self.i32(index)
        return _create("llvm.insertelement", (vector.type,), (vector, value, index), None, None, 0, self.loc, self._ip).result

    def pack_vector(self, values: Sequence[Value]) -> Value:
        """``vector<n x type>`` of n scalars; the scalar itself where n is 1."""
        if len(values) == 1:
            return values[0]
        type = self.vec(len(values), values[0].type)
        vector = self.undef(type)
        for i, v in enumerate(values):
            vector = _create("llvm.insertelement", (type,), (vector, v, self.i32(i)), None, None, 0, self.loc, self._ip).result
        return vector

    def unpack_vector(self, vector: Value, n: int) -> list[Value]:
        """The n scalars of a vector; ``[vector]`` where n is 1 and it is a scalar."""
        type = vector.type
        if not isinstance(type, ir.VectorType):
            return [vector]
        element = (type.element_type,)
        return [_create("llvm.extractelement", element, (vector, self.i32(i)), None, None, 0, self.loc, self._ip).result
                for i in range(n)]

    def extract_value(self, struct: Value, index: int, type: Type | None = None) -> Value:
        """Member ``index`` of a struct; ``type``, the member's, saves a look-up where it is known."""
        if type is None:
            type = self.struct_members(struct.type)[index]
        return _create("llvm.extractvalue", (type,), (struct,), {"position": self._position(index)}, None, 0, self.loc,
                       self._ip).result

    def unpack_struct(self, struct: Value) -> list[Value]:
        """All members of a struct."""
        return [self.extract_value(struct, i, t) for i, t in enumerate(self.struct_members(struct.type))]

    def struct_members(self, type: Type) -> Sequence[Type]:
        return self._cached(("members", type), lambda: list(type.body))

    def pack_struct(self, values: Sequence[Value]) -> Value:
        type = self.struct([v.type for v in values])
        struct = self.undef(type)
        for i, v in enumerate(values):
            struct = _create("llvm.insertvalue", (type,), (struct, v), {"position": self._position(i)}, None, 0, self.loc,
                             self._ip).result
        return struct

    def _position(self, index: int) -> Any:
        return self._cached(("position", index), lambda: ir.DenseI64ArrayAttr.get([index]))

    # --------------------------------------------------------------------------------------------------- calls
    def call_intrinsic(self, name: str, result: Type | None, args: Sequence[Value]) -> Value | None:
        """An LLVM intrinsic by its full name (``llvm.fma.f32``). The name must be known to MLIR's LLVM; where only the
        assembling LLVM knows it, use ``call``."""
        attrs = {"intrin": self._cached(("str", name), lambda: ir.StringAttr.get(name)),
                 "operandSegmentSizes": self._cached(("seg", len(args)), lambda: ir.DenseI32ArrayAttr.get([len(args), 0])),
                 "op_bundle_sizes": self._cached("nobundles", lambda: ir.DenseI32ArrayAttr.get([]))}
        op = _create("llvm.call_intrinsic", () if result is None else (result,), args, attrs, None, 0, self.loc, self._ip)
        return None if result is None else op.result

    def call(self, name: str, result: Type | None, args: Sequence[Value]) -> Value | None:
        """Call a function by name; declared in the module when first called."""
        self.declare(name, result, [a.type for a in args])
        attrs = {"callee": self._cached(("sym", name), lambda: ir.FlatSymbolRefAttr.get(name)),
                 "operandSegmentSizes": self._cached(("seg", len(args)), lambda: ir.DenseI32ArrayAttr.get([len(args), 0])),
                 "op_bundle_sizes": self._cached("nobundles", lambda: ir.DenseI32ArrayAttr.get([]))}
        op = _create("llvm.call", () if result is None else (result,), args, attrs, None, 0, self.loc, self._ip)
        return None if result is None else op.result

    def declare(self, name: str, result: Type | None, args: Sequence[Type]) -> None:
        """Declare an external function unless that was done before."""
        if name in self._declared:
            return
        self._declared.add(name)
        module = self.module_op
        if module is None:
            module = self.func
            while module.name != "builtin.module":
                module = module.parent
            self.module_op = module
        if name in ir.SymbolTable(module):
            return
        type = ir.Type.parse(f"!llvm.func<{'void' if result is None else result} ({', '.join(map(str, args))})>")
        _create("llvm.func", None, None, {
            "sym_name": ir.StringAttr.get(name), "function_type": ir.TypeAttr.get(type),
            "linkage": ir.Attribute.parse("#llvm.linkage<external>"), "CConv": ir.Attribute.parse("#llvm.cconv<ccc>"),
        }, None, 1, ir.Location.unknown(), ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]))

    def inline_asm(self, asm: str, constraints: str, result: Type | None, args: Sequence[Value] = (),
                   side_effects: bool = True) -> Value | None:
        """Inline assembly in LLVM's syntax (``$0``); several results are a struct type."""
        attrs = {"asm_string": self._cached(("str", asm), lambda: ir.StringAttr.get(asm)),
                 "constraints": self._cached(("str", constraints), lambda: ir.StringAttr.get(constraints)),
                 "asm_dialect": self.int_attr(0, 64)}
        if side_effects:
            attrs["has_side_effects"] = self._unit
        op = _create("llvm.inline_asm", () if result is None else (result,), args, attrs, None, 0, self.loc, self._ip)
        return None if result is None else op.result

    # -------------------------------------------------------------------------------------------- control flow
    def block(self, arg_types: Sequence[Type] = (), after: Any = None) -> Any:
        """A new block after ``after`` (the current block), with arguments. It is not made current."""
        return (after or self.current).create_after(*arg_types, arg_locs=[self.loc] * len(arg_types))

    def set_block(self, block: Any) -> None:
        """Go on at the end of ``block``."""
        self.current = block
        self._ip = ir.InsertionPoint(block)

    def br(self, block: Any, args: Sequence[Value] = ()) -> None:
        _create("llvm.br", None, args, None, (block,), 0, self.loc, self._ip)

    def cond_br(self, cond: Value, then: Any, otherwise: Any, then_args: Sequence[Value] = (),
                else_args: Sequence[Value] = ()) -> None:
        sizes = (1, len(then_args), len(else_args))
        attrs = {"operandSegmentSizes": self._cached(("seg", sizes), lambda: ir.DenseI32ArrayAttr.get(list(sizes)))}
        _create("llvm.cond_br", None, (cond, *then_args, *else_args), attrs, (then, otherwise), 0, self.loc, self._ip)

    def ret(self, values: Sequence[Value] = ()) -> None:
        _create("llvm.return", None, values, None, None, 0, self.loc, self._ip)

    def if_then(self, cond: Value, fn: Callable[[], Any]) -> None:
        """``fn`` builds what happens where ``cond`` (i1) holds."""
        then = self.block()
        after = self.block(after=then)
        self.cond_br(cond, then, after)
        self.set_block(then)
        fn()
        self.br(after)
        self.set_block(after)

    def if_then_else(self, cond: Value, then_fn: Callable[[], Any], else_fn: Callable[[], Any]) -> list[Value]:
        """Each function builds one side and returns its values (a list, one value, or None); returns the merged list."""
        then = self.block()
        otherwise = self.block(after=then)
        self.cond_br(cond, then, otherwise)
        self.set_block(then)
        a = _as_list(then_fn())
        then_end = self.current
        self.set_block(otherwise)
        b = _as_list(else_fn())
        if len(a) != len(b):
            raise ValueError(f"the two sides of if_then_else give {len(a)} and {len(b)} values")
        after = self.block([v.type for v in a])
        self.br(after, b)
        self.set_block(then_end)
        self.br(after, a)
        self.set_block(after)
        return list(after.arguments)


def _as_list(values: Any) -> list[Value]:
    if values is None:
        return []
    return list(values) if isinstance(values, (list, tuple)) else [values]
