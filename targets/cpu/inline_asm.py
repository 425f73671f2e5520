"""tt.elementwise_inline_asm on the host: its own assembly, in AT&T syntax on x86, run for every ``pack`` elements of a tile.

Registers are those of the shared plan (dialects/lowering/inline_asm.py). LLVM ends the process for assembly that it cannot take, so each
text is tried in a process of its own first.
"""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.lowering.inline_asm import WORD, Register, module_with, plan
from tilewright.targets.cpu.capabilities import machine_of
from tilewright.targets.cpu.lower import TileLowering, lowers
from tilewright.targets.cpu.lower_elementwise import element_of, from_storage, storage_type, to_storage
from tilewright.targets.cpu.tiles import Lazy, Tile, each

_TRY = """
import sys
import llvmlite.binding as llvm
triple, cpu, features = sys.argv[1:4]
llvm.initialize_all_targets(); llvm.initialize_all_asmprinters(); llvm.initialize_native_asmparser()
machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, reloc="pic")
machine.emit_object(llvm.parse_assembly(sys.stdin.read()))
sys.stdout.write("made")
"""


@lru_cache(maxsize=1024)
def refusal(arch: str, asm: str, constraints: str, results: tuple[str, ...], operands: tuple[str, ...]) -> str | None:
    """What LLVM's assembler for ``arch`` has against this inline assembly, or None."""
    done = subprocess.run([sys.executable, "-c", _TRY, *machine_of(arch)], input=module_with(asm, constraints, results, operands), capture_output=True,
                          text=True)
    if done.returncode == 0 and done.stdout == "made":
        return None
    lines = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
    first = next((i for i, line in enumerate(lines) if "error" in line.lower()), len(lines) - 1)
    source = lines[first + 1].strip() if "<inline asm>" in lines[first] and first + 1 < len(lines) else ""
    return lines[first].split("error:", 1)[-1].strip() + (f": {source}" if source else "")


@lowers("tt.elementwise_inline_asm")
def inline_asm(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    text, constraints = (ir.StringAttr(op.attributes[n]).value for n in ("asm_string", "constraints"))
    pack, pure = ir.IntegerAttr(op.attributes["packed"]).value, ir.BoolAttr(op.attributes["pure"]).value
    elements, given = ([element_of(v.type) for v in values] for values in (op.results, op.operands))
    storages, given_storages = ([storage_type(b, e) for e in kinds] for kinds in (elements, given))
    if machine_of(lo.arch)[0].startswith(("x86_64", "i686")):  # nearly every instruction changes the flags; compilers of C add these too
        constraints += ("," if constraints else "") + "~{dirflag},~{fpsr},~{flags}"
    how = plan(constraints, pack, [8 * b.size(s) for s in storages], [8 * b.size(s) for s in given_storages])

    def register_type(register: Register, storage: Any) -> Any:
        if register.elements == 1 and register.bits >= WORD:
            return storage
        return ir.IntegerType.get_signless(register.width)

    types = [register_type(r, s) for s, rs in zip(storages, how.results) for r in rs]
    taken = [register_type(r, s) for s, rs in zip(given_storages, how.operands) for r in rs]
    said = refusal(lo.arch, text, constraints, tuple(map(str, types)), tuple(map(str, taken)))
    if said is not None:
        raise UnsupportedOnTargetError(f"the assembler of the host ({lo.arch}) does not take this inline assembly: {said}. On the cpu it is the "
                                       "processor's own; assembly of other targets stands under `if` with the functions of tl.target_info")

    def packed(register: Register, values: list[Any], element: Any) -> Any:
        if register.elements == 1 and register.bits >= WORD:
            return to_storage(b, values[0], element)
        kind = ir.IntegerType.get_signless(register.width)
        word = b.const(kind, 0)
        for i, value in enumerate(values):
            bits = b.bitcast(to_storage(b, value, element), ir.IntegerType.get_signless(register.bits))
            bits = b.cast_int(bits, kind, signed=False)
            word = b.bin("arith.ori", word, b.bin("arith.shli", bits, b.const(kind, i * register.bits))) if i else bits
        return word

    def unpacked(register: Register, value: Any, storage: Any, element: Any, n: int) -> list[Any]:
        if register.elements == 1 and register.bits >= WORD:
            return [from_storage(b, value, element)]
        out = []
        for i in range(n):
            bits = b.bin("arith.shrui", value, b.const(value.type, i * register.bits)) if i else value
            bits = b.cast_int(bits, ir.IntegerType.get_signless(register.bits), signed=False)
            out.append(from_storage(b, b.bitcast(bits, storage), element))
        return out

    def call(values: list[list[Any]]) -> list[list[Any]]:
        """``pack`` elements of each operand to as many of each result."""
        args = []
        for held, registers, element in zip(values, how.operands, given):
            for r in registers:
                args.append(packed(r, held[:r.elements], element))
                held = held[r.elements:]
        attributes: dict[str, Any] = {"asm_string": ir.StringAttr.get(text), "constraints": ir.StringAttr.get(constraints),
                                      "asm_dialect": ir.IntegerAttr.get(b.i64, 0)}
        if not pure:
            attributes["has_side_effects"] = ir.UnitAttr.get()
        kind = types[0] if len(types) == 1 else ir.Type.parse(f"!llvm.struct<({', '.join(map(str, types))})>")
        made = b.op("llvm.inline_asm", args, [kind], attributes).result
        members = [made] if len(types) == 1 else [b.op("llvm.extractvalue", [made], [t], {"position": ir.DenseI64ArrayAttr.get([i])}).result
                                                  for i, t in enumerate(types)]
        out = []
        for registers, storage, element in zip(how.results, storages, elements):
            mine: list[Any] = []
            for r in registers:
                mine += unpacked(r, members.pop(0), storage, element, min(r.elements, pack - len(mine)))
            out.append(mine)
        return out

    held = [lo.env[v] for v in op.operands]
    if not lo.is_tile(op.results[0]):
        return [registers[0] for registers in call([[h] * pack for h in held])]
    tiles = [h if isinstance(h, Tile) else Lazy(b, lo.shape(op), e, lambda _index, _n, h=h: h) for h, e in zip(held, given)]  # type: ignore[misc]
    outs = [lo.out_buffer(op, i) for i in range(len(op.results))]
    step = min(pack, lo.shape(op)[-1])

    def some(index: Any) -> None:
        places = [[*index[:-1], b.add(index[-1], b.idx(min(j, step - 1)))] for j in range(pack)]
        results = call([[t.lanes(p, 1) for p in places] for t in tiles])
        for out, values in zip(outs, results):
            for j in range(step):
                out.put(places[j], values[j])

    each(b, lo.shape(op), step, some)
    return list(outs)


