"""device_print and device_assert: records in the buffer that is a function's last argument (passes/add_report_buffer, targets/device_reports)."""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir, llvm
from tilewright.dialects.lowering.hooks import PrintedValues
from tilewright.targets.device_reports import CAPACITY, HEADER_WORDS, RECORD_WORDS


def _record(hooks: Any, b: Any, entry: dict[str, Any], which: Any, bits: Any) -> None:
    """``which``: the element's row-major number, or the thread's (i32). ``bits``: an i64, or None."""
    if entry not in hooks.reports:
        hooks.reports.append(entry)
    buffer = b.entry.arguments[len(b.entry.arguments) - 1]
    at = b.atomicrmw("add", buffer, b.i32(1), "monotonic", "agent")

    def write() -> None:
        low, high = (b.i32(0), b.i32(0)) if bits is None else (b.trunc(bits, b.t_i32), b.trunc(b.lshr(bits, b.i64(32)), b.t_i32))
        first = b.add(b.mul(at, b.i32(RECORD_WORDS)), b.i32(HEADER_WORDS))
        words = [b.i32(hooks.reports.index(entry)), *(hooks.program_id(b, axis) for axis in range(3)), which, low, high]
        for i, word in enumerate(words):
            b.store(word, b.gep(buffer, b.add(first, b.i32(i)), b.t_i32), align=4)

    b.if_then(b.icmp("ult", at, b.i32(CAPACITY)), write)


def _as_bits(b: Any, value: Any, signed: bool) -> tuple[Any, str, int]:
    """(i64, kind, bits) as dialects/prints prints them."""
    t = value.type
    if isinstance(t, llvm.PointerType):
        return b.ptrtoint(value, b.t_i64), "p", 64
    if isinstance(t, ir.IntegerType):
        wide = value if t.width == 64 else b.sext(value, b.t_i64) if signed and t.width > 1 else b.zext(value, b.t_i64)
        return wide, "i" if signed else "u", t.width
    return b.bitcast(value if t == b.t_f64 else b.fpext(value, b.t_f64), b.t_i64), "f", 64


def print_values(hooks: Any, b: Any, text: str, hex: bool, printed: PrintedValues | None) -> None:
    """One record a value; just the text where there is none."""
    if printed is None:
        _record(hooks, b, {"kind": "print", "text": text}, b.i32(0), None)
        return
    for value, index in zip(printed.values, printed.indices):
        bits, kind, width = _as_bits(b, value, printed.signed)
        flat = b.i32(0)
        for size, i in zip(printed.shape, index):
            flat = b.add(b.mul(flat, b.i32(size)), i)
        entry = {"kind": "print", "text": text, "type": kind, "bits": width, "hex": hex, "shape": list(printed.shape)}
        _record(hooks, b, entry, flat, bits)


def assert_failed(hooks: Any, b: Any, message: str) -> None:
    """A record, and the wave ends; the launcher raises what the record says when the kernel is done."""
    from tilewright.dialects.pass_runner import place_of

    place = place_of(b.loc)
    where = f" at {place[0]}:{place[1]}" if place else ""
    _record(hooks, b, {"kind": "assert", "text": f"{message}{where}"}, hooks.thread_id(b), None)
    b.call_intrinsic("llvm.amdgcn.endpgm", None, [])
