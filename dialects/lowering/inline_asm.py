"""tt.elementwise_inline_asm: how elements travel in registers, what is checked, and its lowering for targets of one thread an element list.

``pack`` elements a call. Elements narrower than 32 bits share registers of 4 bytes, the first lowest, as many as fit and are packed; of
others each has a register of its own. Results come first in the constraint string, then operands, then clobbers (``~{memory}``), as in
LLVM's "Inline Assembler Expressions". Which elements share a call is not specified; where they do not divide by ``pack`` the last call
works on some a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import TypeMismatchError
from tilewright.dialects.lowering.registry import lowers

WORD = 32


@dataclass(frozen=True)
class Register:
    """``elements`` values of ``bits`` bits each in one register of ``width`` bits, which ``constraint`` names."""

    elements: int
    bits: int
    width: int
    constraint: str


@dataclass(frozen=True)
class AsmPlan:
    """One tuple of registers a result and an operand."""

    results: tuple[tuple[Register, ...], ...]
    operands: tuple[tuple[Register, ...], ...]


def split_constraints(text: str) -> tuple[list[str], list[str], list[str]]:
    """(results, operands, clobbers) of a constraint string."""
    parts = [p.strip() for p in text.split(",") if p.strip()]
    return [p for p in parts if p.startswith("=")], [p for p in parts if p[0] not in "=~"], [p for p in parts if p.startswith("~")]


def plan(constraints: str, pack: int, result_bits: Sequence[int], operand_bits: Sequence[int],
         narrow: Callable[[str], int] = lambda letter: WORD) -> AsmPlan:
    """The registers of a call. ``narrow``: bits of a register of that constraint, where it is less than 4 bytes.

    Raises TypeMismatchError where the constraints are not as many as the registers."""
    results, operands, _ = split_constraints(constraints)

    def registers(bits: Sequence[int]) -> list[tuple[int, int]]:
        """(elements, bits of each), one a register, for each value in turn."""
        out = []
        for b in bits:
            each = min(max(WORD // b, 1), pack)
            out.append([(each, b)] * -(-pack // each))
        return out  # type: ignore[return-value]

    def matched(bits: Sequence[int], given: list[str], what: str) -> tuple[tuple[Register, ...], ...]:
        wanted: Any = registers(bits)
        count = sum(map(len, wanted))
        if count != len(given):
            raise TypeMismatchError(f"this inline assembly has {count} {what} registers a call ({pack} elements of "
                                    f"{', '.join(map(str, bits)) or 'no'} bits, of which those under {WORD} bits share registers of 4 bytes), but the "
                                    f"constraints {constraints!r} name {len(given)}")
        names = iter(given)
        return tuple(tuple(_register(each, b, next(names), results, narrow) for each, b in value) for value in wanted)

    return AsmPlan(matched(result_bits, results, "result"), matched(operand_bits, operands, "operand"))


def _register(elements: int, bits: int, constraint: str, results: list[str], narrow: Callable[[str], int]) -> Register:
    letter = constraint.lstrip("=&")
    if letter.isdigit() and int(letter) < len(results):  # the same register as that result's
        letter = results[int(letter)].lstrip("=&")
    total = elements * bits
    return Register(elements, bits, total if total >= WORD else max(min(narrow(letter), WORD), total), constraint)


def groups(count: int, pack: int) -> list[list[int]]:
    """Numbers of the elements of each call."""
    return [[min(start + j, count - 1) for j in range(pack)] for start in range(0, count, pack)]


@lowers("tt.elementwise_inline_asm")
def lower_inline_asm(ctx: Any, op: Any) -> list[Any]:
    b, hooks = ctx.b, ctx.hooks
    text, constraints = (ir.StringAttr(op.attributes[n]).value for n in ("asm_string", "constraints"))
    pack, pure = int(ir.IntegerAttr(op.attributes["packed"]).value), bool(ir.BoolAttr(op.attributes["pure"]).value)
    operands = ctx.operands(op)
    count = max((len(o) for o in operands), default=0) or (
        ctx.layout_of(op.results[0].type).in_size("register") if isinstance(op.results[0].type, ir.RankedTensorType) else 1)
    operands = [o if len(o) == count else o * count for o in operands]
    results = [ctx.llvm_type(r.type) for r in op.results]
    how = plan(constraints, pack, [encodings.storage_bits(t) for t in results], [encodings.storage_bits(o[0].type) for o in operands],
               hooks.asm_register_bits)

    def packed(register: Register, values: list[Any]) -> Any:
        """The values, fewer than fit where ``pack`` does not divide, as one register."""
        type = values[0].type
        if register.elements == 1 and register.bits >= WORD:
            return b.ptrtoint(values[0], b.t_i64) if str(type).startswith("!llvm.ptr") else values[0]
        word = b.const(b.int_type(register.width), 0)
        for i, value in enumerate(values):
            bits = b.bitcast(ctx.to_storage(value), b.int_type(register.bits))
            if register.bits < register.width:
                bits = b.zext(bits, word.type)
            word = b.or_(word, b.shl(bits, b.const(word.type, i * register.bits))) if i else bits
        return word

    def unpacked(register: Register, value: Any, type: Any, n: int) -> list[Any]:
        if register.elements == 1 and register.bits >= WORD:
            return [b.inttoptr(value, type) if str(type).startswith("!llvm.ptr") else value]
        out = []
        for i in range(n):
            bits = b.lshr(value, b.const(value.type, i * register.bits)) if i else value
            if register.bits < register.width:
                bits = b.trunc(bits, b.int_type(register.bits))
            out.append(ctx.from_storage(b.bitcast(bits, ctx.storage_type(type)), type))
        return out

    def register_type(register: Register, type: Any) -> Any:
        if register.elements == 1 and register.bits >= WORD:
            return b.t_i64 if str(type).startswith("!llvm.ptr") else type
        return b.int_type(register.width)

    types = [register_type(r, t) for t, rs in zip(results, how.results) for r in rs]
    outs: list[list[Any]] = [[] for _ in results]
    for numbers in groups(count, pack):
        args = []
        for o, registers in zip(operands, how.operands):
            values = [o[n] for n in numbers]
            for r in registers:
                args.append(packed(r, values[:r.elements]))
                values = values[r.elements:]
        shown = hooks.check_inline_asm(text, constraints, [str(t) for t in types], [str(a.type) for a in args], b.loc)
        made = b.inline_asm(shown, constraints, types[0] if len(types) == 1 else b.struct(types), args, side_effects=not pure)
        members = [made] if len(types) == 1 else b.unpack_struct(made)
        for out, registers, type in zip(outs, how.results, results):
            left = pack
            for r in registers:
                out += unpacked(r, members.pop(0), type, min(left, r.elements))
                left -= r.elements
    return [out[:count] for out in outs]


# ---------------------------------------------------------------------------------------------- trying an assembler
def escaped(text: str) -> str:
    """In LLVM IR's string form."""
    return "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in text.encode())


_IR_TYPES = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}


def module_with(asm: str, constraints: str, results: Sequence[str], operands: Sequence[str], convention: str = "") -> str:
    """LLVM IR of a function that holds this inline assembly and nothing else, to see whether an assembler takes it. Types are the LLVM
    dialect's scalars."""
    given, made = ([_IR_TYPES.get(t, t) for t in types] for types in (operands, results))
    memory = [f"  %v{i} = load volatile {t}, ptr %p" for i, t in enumerate(given)]
    kind = made[0] if len(made) == 1 else f"{{ {', '.join(made)} }}" if made else "void"
    name, store = ("%r = ", f"  store volatile {kind} %r, ptr %p\n") if made else ("", "")
    call = f'  {name}call {kind} asm sideeffect "{escaped(asm)}", "{escaped(constraints)}"({", ".join(f"{t} %v{i}" for i, t in enumerate(given))})'
    return f"define {convention} void @probe(ptr %p) {{\n" + "\n".join([*memory, call]) + f"\n{store}  ret void\n}}\n"
