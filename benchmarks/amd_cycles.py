"""What AMDGCN text does in its loops: instructions by kind, registers, occupancy, and cycles by a model of published rates.

The model knows throughput alone. A work-group's step costs each part of the compute unit some cycles (``Cost.parts``); ``Cost.cycles`` is the
busiest part, as if all else ran beside it, and ``Cost.serial`` the sum, as if nothing did; the truth lies between. No latencies, caches, clocks
or instruction fetch. Rates (``RATES``), for a whole compute unit of CDNA and a work-group processor (two compute units) of RDNA:

* matrix: the dense rates of the data sheets over units and clocks: MI300X 2048 fp16 operations a cycle and compute unit (1307 TFLOP/s, 304
  units, 2.1 GHz), MI355X 4096 (2.5 PFLOP/s, 256, 2.4 GHz), RX 7900 XTX 512 (123 TFLOP/s, 96, 2.5 GHz), RX 9070 XT 1024 (195, 64, 2.97);
  fp8 and int8 twice, f32 an eighth (CDNA).
* vector: a wave64 takes 4 cycles of CDNA's SIMD16s (CDNA 3 ISA, 3.1), a wave32 one of RDNA's SIMD32s (RDNA 3 ISA, 2.1); transcendental functions and
  32-bit integer products four times that; packed f32 and dual-issue instructions are one. RDNA's WMMA runs in the vector unit, CDNA's MFMA beside it.
* scalar: one instruction when it is the SIMD's turn (every 4 cycles, CDNA), every cycle (RDNA).
* LDS: one word a bank and cycle. Global and scratch memory: 64 bytes a cycle and compute unit (the vector cache's width), 16 of scratch's words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """Of one unit: ``flops`` (16-bit operands, a cycle), ``simds``, ``lanes`` of a wave, ``vector`` and ``scalar`` (cycles an instruction), ``lds`` and
    ``memory`` (bytes a cycle), ``registers`` (words of all waves of a SIMD, a lane), ``granule`` of their allocation, ``waves`` a SIMD at most,
    ``lds_bytes``, ``shared_port``: matrix instructions keep the vector unit busy."""

    flops: int
    simds: int
    lanes: int
    vector: int
    scalar: int
    lds: int
    memory: int
    registers: int
    granule: int
    waves: int
    lds_bytes: int
    shared_port: bool


RATES = {
    "gfx942": Rates(2048, 4, 64, 4, 4, 128, 64, 512, 8, 8, 64 << 10, False),
    "gfx950": Rates(4096, 4, 64, 4, 4, 256, 64, 512, 8, 8, 160 << 10, False),
    "gfx1100": Rates(1024, 4, 32, 1, 1, 256, 128, 1536, 24, 16, 128 << 10, True),
    "gfx1201": Rates(2048, 4, 32, 1, 1, 256, 128, 1536, 24, 16, 128 << 10, True),
}
SLOW = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos|tanh)_|v_rcp_iflag|v_(mul_lo|mul_hi)_[ui]32|v_mad_(co_)?[ui]64|v_s_")  # a quarter of the rate
KINDS = ("matrix", "valu", "salu", "lds", "global", "scratch", "smem", "wait")
_WAIT = re.compile(r"s_(wait|nop|delay_alu|clause|barrier|setprio|sleep|sendmsg|endpgm|code_end|inst_prefetch|set_inst|icache|dcache|setreg|trap)"
                   r"|(buffer|global)_(inv|wb|gl[01]_inv)")
_PREFIXES = (("v_mfma", "matrix"), ("v_smfmac", "matrix"), ("v_wmma", "matrix"), ("v_swmmac", "matrix"), ("v_", "valu"), ("ds_", "lds"),
             ("global_", "global"), ("buffer_", "global"), ("flat_", "global"), ("scratch_", "scratch"), ("s_load", "smem"), ("s_buffer", "smem"),
             ("s_", "salu"))


def kind(name: str) -> str:
    """Which part of the machine runs an instruction. Raises ValueError for what is none."""
    if _WAIT.match(name):
        return "wait"
    for prefix, what in _PREFIXES:
        if name.startswith(prefix):
            return what
    raise ValueError(f"what kind of instruction is {name!r}?")


def flops(name: str) -> int:
    """Of a matrix instruction, all its lanes and blocks."""
    m, n, k, blocks = re.search(r"_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?", name).groups()  # type: ignore[union-attr]
    return 2 * int(m) * int(n) * int(k) * int(blocks or 1)


def flops_rate(name: str, rates: Rates) -> float:
    """Operations a cycle and SIMD."""
    rate = rates.flops / rates.simds
    if re.search(r"fp8|bf8|iu?8|i32_\d+x\d+x\d+_?i8|f8f6f4", name):
        return rate * 2
    if re.search(r"x\d+_?f32(_e64)?$|xf32", name):
        return rate / 2 if "xf32" in name else rate / 8
    return rate


_SIZES = {"b8": 1, "u8": 1, "i8": 1, "ubyte": 1, "sbyte": 1, "byte": 1, "b16": 2, "u16": 2, "i16": 2, "short": 2, "ushort": 2, "sshort": 2, "b32": 4, "dword": 4,
          "u32": 4, "f32": 4, "b64": 8, "dwordx2": 8, "u64": 8, "f64": 8, "b96": 12, "dwordx3": 12, "b128": 16, "dwordx4": 16, "f16": 2, "bf16": 2, "i32": 4}


def bytes_moved(name: str) -> int:
    """A lane's, of an LDS, global or scratch instruction. Raises ValueError where the name does not say."""
    words = name.removesuffix("_e32").split("_")
    sizes = [_SIZES[w] for w in words if w in _SIZES]
    if not sizes:
        if words[0] == "ds" and ("permute" in name or "swizzle" in name):
            return 4
        raise ValueError(f"how many bytes does {name!r} move?")
    return sizes[0] * (2 if "2addr" in words or re.search(r"read2|write2", name) else 1)


@dataclass(frozen=True)
class Block:
    label: str
    code: tuple[str, ...]
    targets: tuple[str, ...]
    falls: bool


@dataclass(frozen=True)
class Program:
    """``resources``: the code object's metadata. ``loops``: the innermost loops' instructions, in the text's order. ``lanes`` of a wave."""

    code: tuple[str, ...]
    loops: tuple[tuple[str, ...], ...]
    resources: Mapping[str, int]
    lanes: int


_FIELDS = {"vgpr_count": "vgprs", "agpr_count": "agprs", "vgpr_spill_count": "spills", "sgpr_spill_count": "sgpr_spills",
           "private_segment_fixed_size": "scratch", "group_segment_fixed_size": "static_lds"}


def parse(text: str) -> Program:
    """Of one kernel's assembly text as LLVM prints it."""
    blocks = _blocks(text)
    resources = {}
    for field, name in _FIELDS.items():
        found = re.search(rf"^\s*-?\s*\.{field}:\s*(\d+)", text, re.M)
        resources[name] = int(found.group(1)) if found else 0
    return Program(tuple(c for b in blocks for c in b.code), tuple(_innermost(blocks)), resources,
                   int(re.search(r"\.wavefront_size:\s*(\d+)", text).group(1)))  # type: ignore[union-attr]


def _blocks(text: str) -> list[Block]:
    body = text[:text.find(".section\t.rodata")] if ".section\t.rodata" in text else text
    label, code, blocks, number = "", [], [], 0

    def end(targets: tuple[str, ...], falls: bool) -> None:
        nonlocal label, code, number
        blocks.append(Block(label, tuple(code), targets, falls))
        number += 1
        label, code = f"#{number}", []

    for line in body.splitlines():
        line = line.split(";")[0].rstrip()
        if match := re.match(r"([.\w$]+):", line):
            if code or label.startswith(".LBB"):
                end((), True)
            if match.group(1).startswith(".LBB") or not blocks and not code:
                label = match.group(1)
            continue
        if not re.match(r"\s+[a-z]", line):
            continue
        words = line.split()
        code.append(words[0])
        if words[0].startswith(("s_cbranch", "s_branch", "s_endpgm", "s_setpc")):
            end((words[1],) if "branch" in words[0] else (), words[0].startswith("s_cbranch"))
    end((), False)
    return blocks


def _innermost(blocks: Sequence[Block]) -> list[tuple[str, ...]]:
    """The natural loops that hold no other."""
    at = {b.label: i for i, b in enumerate(blocks)}
    after = [[at[t] for t in b.targets] + ([i + 1] if b.falls and i + 1 < len(blocks) else []) for i, b in enumerate(blocks)]
    before: list[list[int]] = [[] for _ in blocks]
    for i, targets in enumerate(after):
        for t in targets:
            before[t].append(i)
    everything = frozenset(range(len(blocks)))
    dominators = [everything] * len(blocks)
    dominators[0] = frozenset([0])
    changed = True
    while changed:
        changed = False
        for i in range(1, len(blocks)):
            new = frozenset.intersection(everything, *(dominators[p] for p in before[i])) | {i}
            if new != dominators[i]:
                dominators[i], changed = new, True
    bodies: dict[int, set[int]] = {}
    for i, targets in enumerate(after):
        for head in targets:
            if head in dominators[i] and dominators[i] != everything:
                body, todo = {head}, [i]
                while todo:
                    block = todo.pop()
                    if block not in body:
                        body.add(block)
                        todo += before[block]
                bodies.setdefault(head, set()).update(body)
    inner = [b for h, b in bodies.items() if not any(o != h and o in b for o in bodies)]
    return [tuple(c for i in sorted(b) for c in blocks[i].code) for b in sorted(inner, key=min)]


def by_kind(code: Sequence[str] | Mapping[str, float]) -> dict[str, float]:
    found = dict.fromkeys(KINDS, 0.0)
    for name, count in Counter(code).items():
        found[kind(name)] += count
    return found


def occupancy(arch: str, vgprs: int, lds: int, warps: int) -> int:
    """Waves that a SIMD holds, by registers, LDS and the hardware's own limit."""
    r = RATES[arch]
    waves = min(r.waves, r.registers // max(r.granule, -(-vgprs // r.granule) * r.granule))
    if lds:
        waves = min(waves, r.lds_bytes // lds * warps // r.simds)
    return waves


@dataclass(frozen=True)
class Cost:
    """Cycles of each part of the unit for one step of a work-group."""

    parts: Mapping[str, float]

    @property
    def limit(self) -> str:
        return max(self.parts, key=lambda p: self.parts[p])

    @property
    def cycles(self) -> float:
        return self.parts[self.limit]

    @property
    def serial(self) -> float:
        return sum(self.parts.values())


def cost(arch: str, code: Mapping[str, float], warps: int, lds_conflicts: float = 1.0) -> Cost:
    """Of ``code`` (instruction → how often a wave runs it). ``lds_conflicts``: cycles of LDS over those without bank conflicts."""
    r = RATES[arch]
    a_simd = warps / r.simds
    parts = dict.fromkeys(("matrix", "valu", "salu", "lds", "memory"), 0.0)
    for name, count in code.items():
        what = kind(name)
        if what == "matrix":
            parts["matrix"] += count * flops(name) / flops_rate(name, r) * a_simd
        elif what == "valu":
            parts["valu"] += count * r.vector * (4 if SLOW.match(name) else 1) * a_simd
        elif what in ("salu", "smem"):
            parts["salu"] += count * r.scalar * a_simd
        elif what == "lds":
            parts["lds"] += count * bytes_moved(name) * r.lanes * warps / r.lds * lds_conflicts
        elif what in ("global", "scratch"):
            parts["memory"] += count * bytes_moved(name) * r.lanes * warps / r.memory
    if r.shared_port:
        parts["valu"] += parts.pop("matrix")
    return Cost(parts)
