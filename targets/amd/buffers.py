"""Facts about buffer resources: the descriptor's words, and where the hardware's range check begins."""

from __future__ import annotations

from typing import NamedTuple

# Offsets are compared, unsigned, with the descriptor's num_records, in bytes where its stride is 0 (CDNA 3 ISA manual, 9.1.5.1; RDNA 3,
# 9.4.2). Offsets that count end below MOST_BYTES; OUTSIDE is beyond any num_records, and stays there with what an instruction adds.
MOST_BYTES = 2**31 - 16
OUTSIDE = 2**31
WIDEST = 16  # bytes of one access
READ_FIRST_LANE = "amdg.read_first_lane"  # of buffer operations (unit): LLVM may have the descriptor's values in vector registers
COPY_BYTES = {"gfx950": 16, "gfx942": 4}  # bytes a lane of a load that goes to LDS, at most (CDNA 3 and 4 manuals, "Memory buffer load to LDS")
# Word 3. The data format only has to be a valid one for raw accesses: 32-bit float. RDNA: bit 24 is 1 on gfx10 (and ignored after), and
# bits 28-29 are 3: compare the offset, not an index (RDNA 3 ISA manual, table "Buffer Resource Constant").
_FORMAT = 7 << 12 | 4 << 15
_RDNA = 1 << 24 | 3 << 28


def flags(arch: str) -> int:
    """Word 3 of a raw buffer's descriptor."""
    return _FORMAT if arch.startswith("gfx9") else _FORMAT | _RDNA


# Cache policy bits of the instructions' auxiliary operand: glc, slc on GFX9 (sc0, nt on gfx940) and dlc on RDNA; on gfx12 a temporal hint.
def streaming(arch: str, store: bool) -> int:
    """The auxiliary operand of an access whose data is not used again: as LLVM's nontemporal ones (AMDGPU user guide, memory model)."""
    if arch in ("gfx942", "gfx950"):
        return 2  # nt
    if arch.startswith("gfx12"):
        return 1  # TH_NT
    if arch.startswith("gfx11"):
        return 7 if store else 6
    return 3 if store or arch == "gfx90a" else 2


class AtomicInstruction(NamedTuple):
    """``name`` as in llvm.amdgcn.raw.ptr.buffer.atomic.NAME, ``elements`` that it takes at once, whether it works on their ``bits`` as integers."""

    name: str
    elements: int = 1
    bits: bool = False


_INTEGER = {"add": "add", "and": "and", "or": "or", "xor": "xor", "max": "smax", "min": "smin", "umax": "umax", "umin": "umin"}
# Floating-point sums: type → beginnings of the archs' names. Fewer than have the instructions: where LLVM would not take one for an atomicrmw either, adders
# of fp32 flush denormals (gfx90a, gfx11), or what the host sees at the same time (fine-grained memory, scope "sys") may not be added to at all.
_SUMS = {"f32": ("gfx942", "gfx950", "gfx12"), "f64": ("gfx942", "gfx950"), "f16": ("gfx942", "gfx950", "gfx12"), "bf16": ("gfx950", "gfx12")}


def atomic_instruction(arch: str, kind: str, element: str, scope: str = "gpu") -> AtomicInstruction | None:
    """The buffer instruction of ``arch`` for tt.atomic_rmw's ``kind``, or "cas", of an MLIR type and a scope; None where there is none to be taken."""
    if kind == "fadd" and scope != "sys" and arch.startswith(_SUMS.get(element, ("none",))):
        return AtomicInstruction("fadd", 2 if element in ("f16", "bf16") else 1)
    if kind in ("xchg", "cas") and element in ("i32", "i64", "f32", "f64"):
        return AtomicInstruction("swap" if kind == "xchg" else "cmpswap", bits=True)
    return AtomicInstruction(_INTEGER[kind]) if kind in _INTEGER and element in ("i32", "i64") else None


def atomic_scope(arch: str, scope: str) -> int:
    """The auxiliary operand of an atomic of a scope (cta, gpu, sys), as LLVM's have it (AMDGPU user guide, memory model): sc1 of the system's on
    gfx940, the scope's bits on gfx12; no other arch tells them apart."""
    if arch in ("gfx942", "gfx950"):
        return 16 if scope == "sys" else 0
    return (24 if scope == "sys" else 16) if arch.startswith("gfx12") else 0


def waitcnt(vm: int = 63, lgkm: int = 15) -> int:
    """s_waitcnt's operand on GFX9 (CDNA 3 ISA manual, section 4.4): at most so many loads, and LDS or scalar accesses, may be left."""
    return vm & 15 | 7 << 4 | lgkm << 8 | vm >> 4 << 14
