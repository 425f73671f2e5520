"""device_print and device_assert by the functions that CUDA's device runtime has: ``vprintf`` and ``__assertfail``.

From the CUDA programming guide ("Formatted output", "Assertion") and the PTX interoperability manual ("System calls"): vprintf
takes a format and a buffer of promoted arguments (int or 64-bit integers, double, pointers), each at its natural alignment.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir, llvm
from tilewright.dialects.lowering.hooks import PrintedValues
from tilewright.dialects.prints import widths


def _module_of(b: Any) -> Any:
    module = b.module_op
    if module is None:
        module = b.func
        while module.name != "builtin.module":
            module = module.parent
        b.module_op = module
    return module


def _string(b: Any, text: str) -> Any:
    """Generic pointer to a constant C string."""
    data = text.encode() + b"\0"
    module = _module_of(b)
    symbols = ir.SymbolTable(module)
    name = f"str_{data.hex()[:40]}_{len(data)}"
    number = 0
    while f"{name}_{number}" in symbols:
        known = symbols[f"{name}_{number}"].operation
        if ir.StringAttr(known.attributes["value"]).value_bytes == data:
            break
        number += 1
    name = f"{name}_{number}"
    if name not in symbols:
        ir.Operation.create("llvm.mlir.global", attributes={
            "sym_name": ir.StringAttr.get(name), "value": ir.StringAttr.get(data), "constant": ir.UnitAttr.get(),
            "global_type": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{len(data)} x i8>")), "addr_space": b.int_attr(0),
            "linkage": ir.Attribute.parse("#llvm.linkage<internal>"),
        }, regions=1, loc=ir.Location.unknown(), ip=ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]))
    return b.address_of(name, 0)


def _promoted(b: Any, value: Any, signed: bool) -> tuple[Any, str, str]:
    """(value as vprintf takes it, conversion in decimal, conversion in hexadecimal)."""
    t = value.type
    if isinstance(t, llvm.PointerType):
        return b.ptrtoint(value, b.t_i64), "0x%llx", "0x%llx"
    if isinstance(t, ir.IntegerType):
        if t.width == 64:
            return value, "%lld" if signed else "%llu", "0x%016llx"
        if t.width < 32:
            value = b.sext(value, b.t_i32) if signed and t.width > 1 else b.zext(value, b.t_i32)
        return value, "%d" if signed else "%u", f"0x%0{max(1, t.width // 4)}x"
    if t != b.t_f64:
        value = b.fpext(value, b.t_f64)
    # a NaN is printed without its sign, as elsewhere
    value = b.select(b.fcmp("uno", value, value), b.const(b.t_f64, float("nan")), value)
    return value, "%f", "%f"


def print_values(hooks: Any, b: Any, text: str, hex: bool, printed: PrintedValues | None) -> None:
    """One line a value: ``pid (x, y, z) idx (i, j)``, the text and the value; without values the text alone."""
    pids = [hooks.program_id(b, axis) for axis in range(3)]
    escaped = text.replace("%", "%%")
    if printed is None:
        _printf(b, f"pid (%u, %u, %u){escaped}\n", pids)
        return
    index = ", ".join(f"%{width}u" for width in widths(printed.shape))
    for value, at in zip(printed.values, printed.indices):
        value, decimal, hexadecimal = _promoted(b, value, printed.signed and not hex)
        _printf(b, f"pid (%u, %u, %u) idx ({index}){escaped}{hexadecimal if hex else decimal}\n", [*pids, *at, value])


def _printf(b: Any, text: str, values: list[Any]) -> None:
    offset, offsets = 0, []
    for v in values:
        size = 4 if v.type == b.t_i32 else 8
        offset = -(-offset // size) * size
        offsets.append(offset)
        offset += size
    # In the entry block: anywhere else it would be a dynamic allocation.
    buffer = ir.Operation.create("llvm.alloca", [b.ptr(0)], [b.i32(1)], {
        "elem_type": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{offset} x i8>")), "alignment": b.int_attr(8, 64),
    }, loc=b.loc, ip=b._const_ip).result
    for v, at in zip(values, offsets):
        b.store(v, b.gep(buffer, at, b.t_i8), align=4 if v.type == b.t_i32 else 8)
    b.call("vprintf", b.t_i32, [_string(b, text), buffer])


def assert_failed(b: Any, message: str) -> None:
    """Stop the kernel with ``message``; names the source line where it is known."""
    from tilewright.dialects.pass_runner import place_of

    file, line, _ = place_of(b.loc) or ("<unknown>", 0, 0)
    b.call("__assertfail", None, [_string(b, message), _string(b, file), b.i32(line), _string(b, "kernel"), b.i64(1)])
