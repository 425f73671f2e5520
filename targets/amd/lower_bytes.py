"""Bytes of a lane's registers put together into other words by v_perm_b32 (ISA manuals, V_PERM_B32: four bytes of two registers, each by
a selector; bytes 0 to 3 are the second operand's, 4 to 7 the first's). A block of 4 × 4 bytes is turned by 8 of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_Byte = tuple[int, int]  # (word, byte of it)


class Turner:
    """Words of bytes that lie in the registers ``values`` (i8): word i is registers 4·i to 4·i + 3, as they were loaded."""

    def __init__(self, b: Any, values: Sequence[Any]):
        self.b, self.values = b, values
        self.words: dict[int, Any] = {}
        self.made: dict[tuple[Any, ...], Any] = {}

    def word(self, number: int) -> Any:
        if number not in self.words:
            self.words[number] = self.b.bitcast(self.b.pack_vector(list(self.values[4 * number:4 * number + 4])), self.b.t_i32)
        return self.words[number]

    def _perm(self, key: tuple[Any, ...], high: Any, low: Any, selectors: Sequence[int]) -> Any:
        if key not in self.made:
            code = sum(s << 8 * i for i, s in enumerate(selectors))
            self.made[key] = self.b.call_intrinsic("llvm.amdgcn.perm", self.b.t_i32, [high, low, self.b.i32(code)])
        return self.made[key]

    def _pair(self, x: _Byte, y: _Byte) -> tuple[Any, int]:
        """(a register, which half of it) that holds bytes x and y; bytes x + 1 and y + 1 are made along where those are wanted as often."""
        (a, i), (c, j) = x, y
        if a == c and j == i + 1 and i % 2 == 0:
            return self.word(a), i // 2
        if i % 2 != j % 2:
            return self._perm(("one", x, y), self.word(c), self.word(a), (i, 4 + j, i, 4 + j)), 0
        i0, j0 = i & 2, j & 2
        return self._perm(("two", a, c, i0, j0), self.word(c), self.word(a), (i0, 4 + j0, i0 + 1, 5 + j0)), i % 2

    def dword(self, registers: Sequence[int]) -> Any:
        """The four registers' bytes as an i32, the first one lowest."""
        at = [(r // 4, r % 4) for r in registers]
        if at == [(at[0][0], i) for i in range(4)]:
            return self.word(at[0][0])
        sources = sorted({w for w, _ in at})
        if len(sources) <= 2:
            low, high = sources[0], sources[-1]
            return self._perm(("any", *at), self.word(high), self.word(low), [i if w == low else 4 + i for w, i in at])
        (low, first), (high, second) = self._pair(at[0], at[1]), self._pair(at[2], at[3])
        return self._perm(("join", *at), high, low, (2 * first, 2 * first + 1, 4 + 2 * second, 5 + 2 * second))


def pack_bytes(b: Any, values: Sequence[Any], groups: Sequence[Sequence[int]]) -> list[Any] | None:
    """For each group of registers (indices into ``values``, i8) a vector of their bytes; None where groups are no whole words or every
    word lies in the registers as it is."""
    if len(values) % 4 or any(len(g) % 4 for g in groups):
        return None
    if all(g[i] % 4 == 0 and list(g[i:i + 4]) == list(range(g[i], g[i] + 4)) for g in groups for i in range(0, len(g), 4)):
        return None
    turner = Turner(b, values)
    vectors = []
    for g in groups:
        dwords = [turner.dword(g[i:i + 4]) for i in range(0, len(g), 4)]
        vectors.append(b.bitcast(b.pack_vector(dwords), b.vec(len(g), b.t_i8)))
    return vectors
