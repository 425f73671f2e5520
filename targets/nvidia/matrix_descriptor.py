"""How wgmma reads an operand from shared memory: the 64-bit matrix descriptor, computed from the buffer's linear layout.

From the PTX ISA manual, "Asynchronous warpgroup-level matrix instructions": "Shared memory matrix layout", "Strides", "Matrix
descriptor format". An operand tile is made of core matrices of 8 rows of 16 bytes. Byte addresses, s being the swizzle in bytes
and T = 16 bytes' elements; then, with s > 0, the bits above bit 7 that number the 8 rows of the pattern are xor-ed into the bits
from 4 up (3, 2, 1 of them for s = 128, 64, 32):

- K-major, s > 0: row mn lies at (mn % 8)·s + (mn / 8)·SBO; k runs along the row. LBO is not read.
- K-major, no swizzle: row mn at (mn % 8)·16 + (mn / 8)·SBO; the second 16 bytes of k lie LBO further.
- MN-major, s > 0: s bytes of mn are consecutive, the next ones lie LBO further; k at (k % 8)·s + (k / 8)·SBO.
- MN-major, no swizzle: 16 bytes of mn are consecutive, the next ones lie SBO further; k at (k % 8)·16 + (k / 8)·LBO.

The descriptor of a tile differs from that of another by the start address alone. Which of the layouts a buffer has is found by
comparing all bases, so nothing here knows the name of an encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dialects import encodings
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.lowering.context import SharedMemory
from tilewright.dialects.lowering.shared_ops import View

SWIZZLES = (128, 64, 32, 0)
_MODE = {0: 0, 128: 1, 64: 2, 32: 3}  # bits 62-63
_K_BYTES = 32  # of one instruction


def swizzled(address: int, swizzle: int) -> int:
    """What the hardware makes of a byte address (or of a basis of addresses: it is linear over xor)."""
    return address ^ ((address >> 7 & swizzle // 16 - 1) << 4) if swizzle else address


def encode(value: int) -> int:
    """matrix-descriptor-encode of the manual: bits 4 to 17."""
    return (value & 0x3FFFF) >> 4


@dataclass(frozen=True)
class OperandDescriptor:
    """An operand [mn, k] (or [k, mn]) in shared memory, for instructions of ``tile`` elements along mn and 32 bytes along k.

    swizzle: 0, 32, 64 or 128. lbo, sbo: bytes. mn, k: for each bit of the element's coordinate the bytes that it adds (xors);
    origin: bytes from the buffer's base to element (0, 0).
    """

    swizzle: int
    mn_major: bool
    lbo: int
    sbo: int
    tile: int
    mn: tuple[int, ...]
    k: tuple[int, ...]
    origin: int

    @property
    def constant(self) -> int:
        """The descriptor but for the address; as an unsigned 64-bit number."""
        return encode(self.lbo) << 16 | encode(self.sbo) << 32 | _MODE[self.swizzle] << 62

    def start(self, mn: int, k: int) -> int:
        """Bytes from the buffer's base to the tile that begins at these coordinates."""
        return self.origin ^ _xor(self.mn, mn) ^ _xor(self.k, k)


def _xor(columns: Sequence[int], bits: int) -> int:
    out = 0
    for i, column in enumerate(columns):
        if bits >> i & 1:
            out ^= column
    return out


def describe(memory: SharedMemory, k_dim: int, tile: int, element_bits: int) -> OperandDescriptor:
    """The descriptor of a view of rank 2 whose dim ``k_dim`` is k; ``tile``: one instruction's elements along the other dim.

    Raises UnsupportedOnTargetError where no descriptor says how the view lies, telling why.
    """
    found, reasons = _find(memory, k_dim, tile, element_bits)
    if found is None:
        text = "; ".join(reasons)
        raise UnsupportedOnTargetError(f"nvidia: wgmma cannot read a tile of {tile} x {_K_BYTES * 8 // element_bits} elements of {element_bits} "
                                       f"bits from {list(memory.shape)} of layout {memory.encoding}: {text}")
    return found


def _find(memory: SharedMemory, k_dim: int, tile: int, element_bits: int) -> tuple[OperandDescriptor | None, list[str]]:
    size = element_bits // 8
    k_tile = _K_BYTES // size
    if len(memory.shape) != 2:
        return None, [f"an operand has 2 dims, found {len(memory.shape)}"]
    view = View(memory)
    if view.padding:
        return None, ["padding has no place in a descriptor"]
    row_bits = memory.shape[1].bit_length() - 1
    columns = [c * size for c in view.columns]
    by_dim = (tuple(columns[row_bits:]), tuple(columns[:row_bits]))
    mn, k = by_dim[1 - k_dim], by_dim[k_dim]
    if memory.shape[1 - k_dim] % tile or memory.shape[k_dim] % k_tile:
        return None, [f"its size is no multiple of the tile's {tile} (m or n) and {k_tile} (k)"]
    mn_tile, k_in = mn[:tile.bit_length() - 1], k[:k_tile.bit_length() - 1]
    reasons = []
    alignment = encodings.shared_alignment(memory.encoding)
    if k_in[:1] == (size,):
        majors: tuple[bool, ...] = (False,)
    elif mn_tile[:1] == (size,):
        majors = (True,)
        if element_bits != 16:
            return None, [f"operands of {element_bits} bits must have k as the fastest dim; only 16-bit types may have m or n"]
    else:
        return None, ["neither of its dims is the fastest one in memory"]
    for major in majors:
        for swizzle in SWIZZLES:
            strides = _mn_major(mn_tile, k_in, swizzle, size) if major else _k_major(mn_tile, k_in, swizzle, size)
            if strides is None:
                continue
            if alignment < max(16, 8 * swizzle):
                reasons.append(f"a swizzle of {swizzle} bytes needs buffers at multiples of {8 * swizzle} bytes, this encoding promises {alignment}")
                continue
            origin = view.constant * size
            found = OperandDescriptor(swizzle, major, *strides, tile, mn, k, origin)
            # Tiles must begin where the pattern does, and at addresses that a descriptor can name.
            starts = [origin, *mn[len(mn_tile):], *k[len(k_in):]]
            if any(s & 15 or swizzled(s, swizzle) != s for s in starts):
                reasons.append(f"with a swizzle of {swizzle} bytes a tile would begin inside the pattern")
                continue
            return found, []
    major_name = "m or n" if majors[0] else "k"
    return None, reasons or [f"its rows along {major_name} are none of the manual's layouts of 128, 64, 32 or 16 bytes for this tile"]


def _strided(columns: Sequence[int], swizzle: int, default: int) -> int | None:
    """The stride whose doublings these bases are (``default`` where there are none), or None."""
    if not columns:
        return default
    stride = swizzled(columns[0], swizzle)  # its own inverse
    if stride & 15 or any(swizzled(stride << i, swizzle) != c for i, c in enumerate(columns)):
        return None
    return stride


def _runs(columns: Sequence[int], first: int, swizzle: int) -> bool:
    return all(c == swizzled(first << i, swizzle) for i, c in enumerate(columns))


def _k_major(mn: Sequence[int], k: Sequence[int], swizzle: int, size: int) -> tuple[int, int] | None:
    """(LBO, SBO), or None where the tile is not laid out so."""
    row = swizzle or 16
    chunk = (16 // size).bit_length() - 1  # bits of k within 16 bytes
    if not _runs(mn[:3], row, swizzle) or not _runs(k[:chunk], size, swizzle):
        return None
    sbo = _strided(mn[3:], swizzle, 8 * row)
    if swizzle:
        return (16, sbo) if sbo is not None and _runs(k, size, swizzle) else None
    lbo = _strided(k[chunk:], swizzle, 16)
    return (lbo, sbo) if lbo is not None and sbo is not None else None


def _mn_major(mn: Sequence[int], k: Sequence[int], swizzle: int, size: int) -> tuple[int, int] | None:
    row = swizzle or 16
    chunk = (row // size).bit_length() - 1
    if len(mn) < chunk or not _runs(mn[:chunk], size, swizzle) or not _runs(k[:3], row, swizzle):
        return None
    along_mn, along_k = _strided(mn[chunk:], swizzle, 8 * row), _strided(k[3:], swizzle, 8 * row)
    if along_mn is None or along_k is None:
        return None
    return (along_mn, along_k) if swizzle else (along_k, along_mn)
