"""The machine code of native_code.py made, kept and loaded: its bytes, an address in this process, and a builtin function."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import sysconfig
from functools import cache
from typing import Any

from tilewright.runtime.native_writer import API


def usable() -> bool:
    """Whether the machine code suits this Python and this machine: CPython from 3.11 on with its lock, 64 bits, Linux on x86-64 or Arm."""
    if (sys.platform != "linux" or platform.python_implementation() != "CPython" or platform.machine() not in ("x86_64", "aarch64") or sys.maxsize < 1 << 32
            or sysconfig.get_config_var("Py_GIL_DISABLED") or not hasattr(os, "memfd_create") or not all(hasattr(ctypes.pythonapi, name) for name in API)):
        return False
    number = struct.unpack("d", struct.pack("Q", 0x7F12_3456_7890))[0]
    word = ctypes.c_uint64.from_address
    return all(word(id(x) + 8).value == id(type(x)) for x in (1, 1.5, (), None, usable)) and word(id(number) + 16).value == 0x7F12_3456_7890


_TRIPLES = {"x86_64": ("x86_64-unknown-linux-gnu", "x86-64"), "aarch64": ("aarch64-unknown-linux-gnu", "generic")}  # and the least of their processors


def make(kind: str = platform.machine()) -> bytes:
    """The machine code for a kind of machine: an offset of 8 bytes, then the text of which it is that of ``launch``. Takes 0.2 s."""
    import llvmlite.binding as llvm
    from llvmlite import ir

    from tilewright.runtime.native_code import Launch

    module = ir.Module("native_launch")
    Launch(module)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple, processor = _TRIPLES[kind]
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, opt=1, reloc="pic", codemodel="small")
    module.triple = triple
    # tables of jumps, and library functions in the place of loops, would lie outside of the text
    compiled = llvm.parse_assembly(str(module).replace(" nounwind", ' nounwind "no-jump-tables"="true" "no-builtins"'))
    compiled.data_layout = str(machine.target_data)
    compiled.verify()
    # all of O2 takes as long again, for 0.05 µs of a launch
    passes = llvm.create_new_module_pass_manager()
    for add in (passes.add_sroa_pass, passes.add_instruction_combine_pass, passes.add_simplify_cfg_pass):
        add()
    passes.run(compiled, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1)))
    return text_of(machine.emit_object(compiled), "launch")


def text_of(obj: bytes, symbol: str) -> bytes:
    """Of an ELF64 object, a symbol's offset in the text (8 bytes) and the text. Raises ValueError where that refers to anything outside (System V
    ABI, chapter 4)."""
    if obj[:5] != b"\x7fELF\x02":
        raise ValueError("no ELF64 object")
    (offset,) = struct.unpack_from("<Q", obj, 40)
    size, count, names = struct.unpack_from("<HHH", obj, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", obj, offset + i * size) for i in range(count)]

    def name(table: tuple[int, ...], at: int) -> str:
        begin = table[4] + at
        return obj[begin:obj.index(b"\0", begin)].decode()

    number = next(i for i, s in enumerate(sections) if name(sections[names], s[0]) == ".text")
    text, begin = sections[number], None
    for s in sections:
        if s[1] in (4, 9) and s[7] == number and s[5]:  # SHT_RELA, SHT_REL
            raise ValueError("the text has relocations")
        if s[1] == 2:  # SHT_SYMTAB
            for at in range(s[4], s[4] + s[5], 24):
                word, _, _, where, value, _ = struct.unpack_from("<IBBHQQ", obj, at)
                if where == number and name(sections[s[6]], word) == symbol:
                    begin = value
    if begin is None:
        raise ValueError(f"the text has no {symbol}")
    return struct.pack("<Q", begin) + obj[text[4]:text[4] + text[5]]


def stamp() -> str:
    """What the machine code depends on: what writes it, and the kind of machine."""
    import hashlib

    digest = hashlib.sha256(platform.machine().encode())
    for file in ("native_writer.py", "native_readers.py", "native_code.py", "native_machine.py"):
        with open(os.path.join(os.path.dirname(__file__), file), "rb") as f:
            digest.update(f.read())
    return digest.hexdigest()


def load(code: bytes) -> int:
    """Address of ``launch`` in memory that may be executed, which stays for good. Raises OSError where the system gives none."""
    begin, text = struct.unpack_from("<Q", code)[0], code[8:]
    file = os.memfd_create("tilewright-launch")
    try:
        os.write(file, text)
        mmap = ctypes.CDLL(None, use_errno=True).mmap
        mmap.restype, mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        at = mmap(None, len(text), 1 | 4, 2, file, 0)  # PROT_READ | PROT_EXEC, MAP_PRIVATE
        if at is None or at == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "no memory for machine code")
        return int(at) + int(begin)
    finally:
        os.close(file)


@cache
def api() -> Any:
    """The addresses that the machine code calls."""
    found = (getattr(ctypes.pythonapi, name) for name in API)
    return (ctypes.c_uint64 * len(API))(*[ctypes.cast(f, ctypes.c_void_p).value or 0 for f in found])


class _MethodDef(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


@cache
def _definition(address: int) -> _MethodDef:
    return _MethodDef(b"launch", address, 0x80 | 2, b"launch(grid, *args, **kwargs): a warm launch by machine code")  # METH_FASTCALL | METH_KEYWORDS


def callable_of(address: int, me: float) -> Any:
    """The builtin function of the machine code at ``address``, whose state lies where the bits of ``me`` say."""
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return new(ctypes.addressof(_definition(address)), me, None)
