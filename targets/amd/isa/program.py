"""AMDGCN assembly as LLVM prints it → ``Program``: kernels with descriptor, arguments and instructions, and constant data.

Syntax: LLVM's "AMDGPU Assembler Syntax" and the operand syntax pages of "User Guide for AMDGPU Backend". What is not understood
raises UnknownInstruction naming the line.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from tilewright.dialects.errors import ArgumentError
from tilewright.targets.amd.isa.errors import UnknownInstruction

WAVE64 = ("gfx90a", "gfx942", "gfx950")
ARCHS = (*WAVE64, "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201")


# ------------------------------------------------------------------------------------------------------- operands
@dataclass(frozen=True)
class Operand:
    """Base of operands. ``text`` as written."""

    text: str = field(default="", compare=False)
    neg: bool = False
    abs: bool = False
    sext: bool = False


@dataclass(frozen=True)
class Reg(Operand):
    """Registers ``kind``\\ [first : first + count]; kind "v", "a", "s" or "ttmp". ``hi``: ``.h`` True, ``.l`` False, neither None."""

    kind: str = "v"
    first: int = 0
    count: int = 1
    hi: bool | None = None


@dataclass(frozen=True)
class Special(Operand):
    """A named operand: vcc, vcc_lo, vcc_hi, exec, exec_lo, exec_hi, m0, scc, null, off, src_scc, src_vccz, src_execz, …"""

    name: str = ""


@dataclass(frozen=True)
class Imm(Operand):
    """A number as written: an int, or a float where the text has a point. ``literal``: no inline constant (hex, or an int out of −16…64)."""

    value: int | float = 0
    literal: bool = False


@dataclass(frozen=True)
class Expr(Operand):
    """A label, a symbol expression, or a call such as hwreg(…) and sendmsg(…), as text."""


_SPECIAL = {"vcc", "vcc_lo", "vcc_hi", "exec", "exec_lo", "exec_hi", "m0", "scc", "null", "off", "src_scc", "src_vccz", "src_execz",
            "src_shared_base", "src_shared_limit", "src_private_base", "src_private_limit", "flat_scratch", "flat_scratch_lo",
            "flat_scratch_hi", "xnack_mask", "xnack_mask_lo", "xnack_mask_hi", "lds_direct", "src_lds_direct", "tba_lo"}
_FLAGS = {"glc", "slc", "dlc", "scc", "sc0", "sc1", "nt", "lds", "gds", "offen", "idxen", "tfe", "clamp", "addr64",
          "row_mirror", "row_half_mirror", "high", "nv"}
_REG = re.compile(r"(v|a|s|ttmp|acc)(?:(\d+)|\[(\d+)(?::(\d+))?\])(?:\.([lh]))?$")
_INT = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)$")
_FLOAT = re.compile(r"-?\d+\.\d*(?:[eE][+-]?\d+)?$|-?\d+[eE][+-]?\d+$")
_WRAPPED = re.compile(r"(-?)(?:\|(.+)\||(abs|neg|sext)\((.+)\))$")


@lru_cache(maxsize=65536)
def parse_operand(text: str) -> Operand:
    """One operand without modifiers; an Expr for what is neither register, name nor number."""
    neg = absolute = sext = False
    body = text
    while True:
        wrapped = _WRAPPED.match(body)
        if wrapped:
            neg ^= bool(wrapped[1]) or wrapped[3] == "neg"
            absolute |= wrapped[2] is not None or wrapped[3] == "abs"
            sext |= wrapped[3] == "sext"
            body = wrapped[2] or wrapped[4]
        elif body.startswith("-") and len(body) > 1 and (body[1].isalpha() or body[1] == "|"):
            neg, body = not neg, body[1:]
        else:
            break
    flags: dict[str, Any] = {"text": text, "neg": neg, "abs": absolute, "sext": sext}
    reg = _REG.match(body)
    if reg:
        kind = "a" if reg[1] == "acc" else reg[1]
        first = int(reg[2] if reg[2] is not None else reg[3])
        count = int(reg[4]) - first + 1 if reg[4] else 1
        return Reg(kind=kind, first=first, count=count, hi=None if reg[5] is None else reg[5] == "h", **flags)
    if body in _SPECIAL:
        return Special(name=body, **flags)
    if _INT.match(body):
        value = int(body, 0)
        return Imm(value=value, literal="0x" in body or not -16 <= value <= 64, **flags)
    if _FLOAT.match(body):
        return Imm(value=float(body), **flags)
    return Expr(**flags)


# --------------------------------------------------------------------------------------------------- instructions
@dataclass
class Instruction:
    """``name`` as printed; ``base`` without encoding suffix (and v_dual_X as v_X); ``modifiers``: flags True, numbers int, lists tuples,
    words str, name(x) its x; ``line``: the Python line; ``dual``: the other half of a VOPD line."""

    name: str
    base: str
    operands: list[Operand]
    modifiers: dict[str, Any]
    index: int
    text: str
    kernel: str = ""
    file: str = ""
    line: int = 0
    address: int = 0  # bytes from the kernel's start, an estimate that only pc-relative code uses
    dual: Instruction | None = None

    def describe(self) -> str:
        where = f"{self.file}:{self.line}, " if self.line else ""
        return f"{self.kernel}, {where}pc {self.index}: {self.text}"


_BASE = re.compile(r"(_e32|_e64|_dpp|_sdwa|_e64_dpp|_e32_dpp)+$")
_COMMENT = re.compile(r"\s*(?:;|//).*$")


def _split(text: str, separator: str) -> list[str]:
    """Split at ``separator`` outside brackets and |bars|."""
    parts, depth, bar, start = [], 0, False, 0
    for i, c in enumerate(text):
        if c in "[(":
            depth += 1
        elif c in "])":
            depth -= 1
        elif c == "|":
            # "instid0(…) | instskip(…)" has blanks around its bars
            bar = not bar and text[i + 1:i + 2] not in (" ", "")
        elif c == separator and depth == 0 and not bar:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [p for p in parts if p]


def _modifier_value(text: str) -> Any:
    if text.startswith("["):
        return tuple(_modifier_value(p) for p in _split(text[1:-1], ","))
    return int(text, 0) if _INT.match(text) else text


@lru_cache(maxsize=65536)
def _parse_body(text: str) -> tuple[str, tuple[Operand, ...], tuple[tuple[str, Any], ...]]:
    name, _, rest = text.partition(" ")
    operands: list[Operand] = []
    modifiers: list[tuple[str, Any]] = []
    if name in ("s_delay_alu", "s_waitcnt", "s_wait_alu", "s_waitcnt_depctr"):
        for part in re.split(r"[\s&|,]+", rest):
            call = re.match(r"(\w+)\((.*)\)$", part)
            if call:
                modifiers.append((call[1], _modifier_value(call[2])))
            elif part:
                operands.append(parse_operand(part))
        return name, tuple(operands), tuple(modifiers)
    for part in _split(rest, ","):
        for word in _split(part, " "):
            key, colon, value = word.partition(":")
            if colon and re.match(r"[a-z][a-z0-9_]*$", key):
                modifiers.append((key, _modifier_value(value)))
            elif word in _FLAGS and (word != "scc" or name.startswith(("buffer_", "global_", "flat_", "scratch_"))):
                modifiers.append((word, True))
            else:
                operands.append(parse_operand(word))
    return name, tuple(operands), tuple(modifiers)


def parse_instruction(text: str, index: int = 0, kernel: str = "", file: str = "", line: int = 0) -> Instruction:
    """One line of assembly without label and comment."""
    halves = [h.strip() for h in text.split("::")]
    made = []
    for half in halves:
        name, operands, modifiers = _parse_body(half)
        base = _BASE.sub("", name)
        if len(halves) == 2:
            base = base.replace("v_dual_", "v_", 1)
        made.append(Instruction(name, base, list(operands), dict(modifiers), index, text, kernel, file, line))
    if len(made) == 2:
        made[0].dual = made[1]
    elif len(made) != 1:
        raise UnknownInstruction(f"a line of {len(made)} instructions: {text!r}")
    return made[0]


_SHORT = ("s_wait", "s_nop", "s_delay_alu", "s_clause", "s_branch", "s_cbranch_")  # a 16-bit immediate is part of the instruction
_GAP = 256  # bytes between functions


def _size(ins: Instruction) -> int:
    """Bytes of the encoding, close enough for pc-relative addresses, which only need to be consistent."""
    if ins.name.startswith(_SHORT):
        return 4
    return 4 if ins.name.startswith("s_") and not any(isinstance(o, (Imm, Expr)) and getattr(o, "literal", True) for o in ins.operands) else 8


# -------------------------------------------------------------------------------------------------------- kernels
@dataclass(frozen=True)
class Argument:
    """One entry of the kernel's .args: offset and size in bytes in the kernarg segment, .value_kind."""

    offset: int
    size: int
    kind: str

    @property
    def hidden(self) -> bool:
        return self.kind.startswith("hidden_")


@dataclass
class Kernel:
    """``descriptor``: the .amdhsa_ directives without that prefix; ``labels``: name → index of the instruction that follows;
    ``instructions``: the kernel's own, then those of the functions that it calls, whose names are labels; ``functions``: these names."""

    name: str
    arch: str
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    descriptor: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, int | str] = field(default_factory=dict)
    args: list[Argument] = field(default_factory=list)
    functions: tuple[str, ...] = ()

    @property
    def lanes(self) -> int:
        """Lanes of a wave."""
        if self.arch in WAVE64:
            return 64
        return 32 if self.descriptor.get("wavefront_size32", 1) else 64


@dataclass
class Program:
    """``data``: bytes of the constant sections; ``symbols``: offset in them of each symbol."""

    arch: str
    kernels: dict[str, Kernel]
    data: bytes = b""
    symbols: dict[str, int] = field(default_factory=dict)

    def kernel(self, name: str | None = None) -> Kernel:
        """The kernel of that name, or the only one. Raises ArgumentError."""
        if name is None:
            name, *more = self.kernels
            if more:
                raise ArgumentError(f"which kernel? there are {', '.join(self.kernels)}")
        if name not in self.kernels:
            raise ArgumentError(f"the text has no kernel {name!r}; it has {', '.join(self.kernels)}")
        return self.kernels[name]


_LABEL = re.compile(r"([A-Za-z_.$][\w.$]*):$")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"')
_DATA = {".byte": 1, ".short": 2, ".2byte": 2, ".long": 4, ".4byte": 4, ".quad": 8, ".8byte": 8}


@lru_cache(maxsize=64)
def parse(text: str) -> Program:
    """The program in LLVM's text. Raises UnknownInstruction for a text without target or kernel."""
    target = re.search(r'\.amdgcn_target\s+"[\w-]*--(gfx\w+)', text)
    if not target or target[1] not in ARCHS:
        raise UnknownInstruction(f"the text is not for one of {', '.join(ARCHS)}" + (f" but for {target[1]}" if target else ""))
    reader = _Reader(target[1])
    for line in text.splitlines():
        reader.line(line)
    reader.metadata()
    kernels = {name: k for name, k in reader.functions.items() if k.descriptor}
    if not kernels:
        raise UnknownInstruction("the text has no kernel (.amdhsa_kernel)")
    for kernel in kernels.values():
        _link(kernel, reader.functions)
    return Program(target[1], kernels, bytes(reader.data), reader.symbols)


_FUNCTION_ADDRESS = re.compile(r"([\w.$]+)@rel32@lo")


def _link(kernel: Kernel, functions: dict[str, Kernel]) -> None:
    """Put the instructions of the functions that the kernel calls, and those that these call, behind its own."""
    found = [kernel.name]
    for name in found:
        for ins in functions[name].instructions:
            for operand in ins.operands:
                address = _FUNCTION_ADDRESS.match(operand.text)
                if address and address[1] in functions and address[1] not in found:
                    found.append(address[1])
    for name in found[1:]:
        last = kernel.instructions[-1]
        start, base = len(kernel.instructions), last.address + _size(last) + _GAP
        for ins in functions[name].instructions:
            dual = ins.dual and replace(ins.dual, index=start + ins.index, address=base + ins.address)
            kernel.instructions.append(replace(ins, index=start + ins.index, address=base + ins.address, dual=dual))
        kernel.labels[name] = start
        kernel.labels.update({label: start + index for label, index in functions[name].labels.items()})
    kernel.functions = tuple(found[1:])


class _Reader:
    """State while reading lines."""

    def __init__(self, arch: str):
        self.arch = arch
        self.functions: dict[str, Kernel] = {}
        self.data, self.symbols = bytearray(), dict[str, int]()
        self.files: dict[int, str] = {}
        self._types: dict[str, str] = {}
        self._function: Kernel | None = None
        self._descriptor: Kernel | None = None
        self._section, self._place, self._address = ".text", ("", 0), 0
        self._notes: list[str] | None = None
        self._note_lines: list[str] = []

    def line(self, raw: str) -> None:
        if self._notes is not None:
            if ".end_amdgpu_metadata" in raw:
                self._note_lines, self._notes = self._notes, None
            else:
                self._notes.append(raw)
            return
        line = raw.strip() if '"' in raw else _COMMENT.sub("", raw).strip()
        if not line:
            return
        label = _LABEL.match(line)
        if label:
            self._label(label[1])
        elif line[0] == ".":
            self._directive(line)
        elif self._section == ".text" and self._function is not None:
            self._instruction(line)

    def _instruction(self, line: str) -> None:
        function = self._function
        assert function is not None
        ins = parse_instruction(re.sub(r"\s+", " ", line), len(function.instructions), function.name, *self._place)
        ins.address = self._address
        self._address += _size(ins)
        function.instructions.append(ins)

    def _label(self, name: str) -> None:
        if self._section == ".text":
            if self._types.get(name) == "@function":
                self._function = self.functions.setdefault(name, Kernel(name, self.arch))
                self._address = 0
            elif self._function is not None:
                self._function.labels[name] = len(self._function.instructions)
        elif self._section.startswith((".rodata", ".data", ".bss")):
            self.symbols[name] = len(self.data)

    def _directive(self, line: str) -> None:
        word, _, rest = line.partition(" ") if "\t" not in line else line.partition("\t")
        rest = rest.strip()
        if word.startswith(".amdhsa_"):
            if word == ".amdhsa_kernel":
                self._descriptor = self.functions.setdefault(rest, Kernel(rest, self.arch))
            elif self._descriptor is not None:
                if not _INT.match(rest):
                    raise UnknownInstruction(f"a descriptor whose values are no numbers is not simulated: {line}")
                self._descriptor.descriptor[word[len(".amdhsa_"):]] = int(rest, 0)
        elif word == ".end_amdhsa_kernel":
            self._descriptor = None
        elif word == ".size":  # ends a function; what follows in .text is padding
            self._function = None
        elif word in _DATA and self._section == ".text" and self._function is not None:
            raise UnknownInstruction(f"an instruction as a number is not simulated: {line}")
        elif word == ".loc":
            found = _LOC.match(line)
            if found and int(found[2]):  # 0: code of no line, which keeps the one before
                self._place = self.files.get(int(found[1]), ""), int(found[2])
        elif word == ".file":
            named = _FILE.match(line)
            if named:
                folder = named[2] or ""
                self.files[int(named[1])] = f"{folder}/{named[3]}" if folder and not named[3].startswith("/") else named[3]
        elif word == ".type":
            name, _, kind = rest.partition(",")
            self._types[name.strip()] = kind.strip()
        elif word == ".text":
            self._section = ".text"
        elif word == ".section":
            self._section = rest.partition(",")[0].strip()
        elif word == ".amdgpu_metadata":
            self._notes = []
        elif self._section.startswith((".rodata", ".data", ".bss")):
            self._bytes(word, rest)

    def _bytes(self, word: str, rest: str) -> None:
        if word in _DATA:
            size = _DATA[word]
            for value in _split(rest, ","):
                if not _INT.match(value):
                    raise UnknownInstruction(f"data {value!r} is no number")
                self.data += (int(value, 0) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        elif word in (".p2align", ".p2alignl"):
            self.data += bytes(-len(self.data) % (1 << int(rest.partition(",")[0], 0)))
        elif word in (".zero", ".space", ".skip"):
            self.data += bytes(int(rest.partition(",")[0], 0))
        elif word in (".ascii", ".asciz", ".string"):
            text = rest[rest.index('"') + 1:rest.rindex('"')]
            self.data += _unescape(text) + (b"" if word == ".ascii" else b"\0")

    def metadata(self) -> None:
        """The kernels' entries of the metadata (YAML as LLVM prints it: a list of kernels, each with a list .args)."""
        entry: dict[str, Any] | None = None
        arguments: list[dict[str, Any]] = []
        for line in self._note_lines:
            found = re.match(r"( *)(- )?\.(\w+): *(.*)$", line)
            if not found:
                continue
            depth, key, value = len(found[1]) + len(found[2] or ""), found[3], found[4].strip().strip("'")
            if depth == 4:
                if found[2]:
                    self._finish(entry, arguments)
                    entry, arguments = {}, []
                assert entry is not None
                entry[key] = int(value, 0) if _INT.match(value) else value
            elif depth == 8:
                if found[2]:
                    arguments.append({})
                arguments[-1][key] = int(value, 0) if _INT.match(value) else value
        self._finish(entry, arguments)

    def _finish(self, entry: dict[str, Any] | None, arguments: list[dict[str, Any]]) -> None:
        if entry is None:
            return
        kernel = self.functions.get(str(entry.get("name")))
        if kernel is not None:
            kernel.metadata = entry
            kernel.args = [Argument(a["offset"], a["size"], a["value_kind"]) for a in arguments if "value_kind" in a]


_ESCAPES = {"n": 10, "t": 9, "r": 13, "b": 8, "f": 12, '"': 34, "\\": 92}


def _unescape(text: str) -> bytes:
    out, i = bytearray(), 0
    while i < len(text):
        if text[i] != "\\":
            out += text[i].encode()
            i += 1
            continue
        octal = re.match(r"[0-7]{1,3}", text[i + 1:])
        if octal:
            out.append(int(octal[0], 8) & 255)
            i += 1 + len(octal[0])
        else:
            out.append(_ESCAPES[text[i + 1]])
            i += 2
    return bytes(out)


def float_bits(value: float, kind: str) -> int:
    """Bits of a float constant as an operand of ``kind`` "f16", "bf16", "f32" or "f64"; 0.1591549… is the inline constant 1/(2π)."""
    if abs(value - 0.15915494) < 1e-6:
        return {"f16": 0x3118, "bf16": 0x3E22, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}[kind]
    if kind == "f64":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    if kind == "f16":
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
    return bits >> 16 if kind == "bf16" else bits
