"""Races in LDS: two waves of a work-group touch the same bytes, one of them writing, and no barrier stands between.

Time is counted in epochs, which barriers end. For each granule of LDS the last write and the last read are kept as one number each:
epoch, instruction, wave, and whether it was atomic. Two accesses of one epoch by different waves conflict unless both only read, or both
are atomic, or a write leaves the bytes as they are (layouts that replicate data store the same value from several waves).
Lanes of one store, of the same wave or not, have to agree on bytes that they share: no manual says which of them would stay.

An access that its wave has not waited for when it comes to the barrier may happen after it, so it counts for the next epoch too. A
direct-to-LDS load (``asynchronous``) owns its bytes from its issue to the wait of the wave that issued it, and is a write of that wave
from then on: nobody may touch them between, and other waves not before the next barrier.

Granules are as large as the accesses so far allow, and are split when a smaller one comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.errors import LdsRace, UseBeforeWait

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.machine import Machine
    from tilewright.targets.amd.isa.state import Waves

Array = Any

# one access as an int64: epoch << 32 | pc << 8 | atomic << 7 | wave; 0: none
_WAVE, _ATOMIC, _PC, _EPOCH = np.int64(127), np.int64(128), np.int64(8), np.int64(32)
_PLACE = np.int64((1 << 32) - 1)
_MANY = np.int64(127)  # more than one wave, of one epoch
_NEVER = np.int64(1) << np.int64(62)


@dataclass(eq=False)
class Access:
    """What one instruction touched while it may be in flight; a row for each active lane."""

    index: Array  # flat granules (rows, granules of one access)
    wave: Array  # machine-wide wave of each row
    code: Array  # pc, atomic and wave bits of each row
    number: Array  # how many instructions of the stream the row's wave must know done
    stream: tuple[str, str]
    write: bool

    def take(self, rows: Array) -> Access:
        return Access(self.index[rows], self.wave[rows], self.code[rows], self.number[rows], self.stream, self.write)

    def split(self, factor: int) -> None:
        """The same bytes in granules ``factor`` times smaller."""
        self.index = (self.index[:, :, None] * factor + np.arange(factor)).reshape(len(self.index), -1)


class Races:
    """Of the machine's work-groups (machine-wide wave = group · waves of a group + wave in its group)."""

    def __init__(self, machine: Machine):
        self.waves, self.groups = machine.waves_per_group, machine.batch.waves // machine.waves_per_group
        self.waits, self.instructions = machine.waits, machine.kernel.instructions
        self.granule = 16
        self._cells = -(-max(machine.lds_bytes, 1) // 16)
        self.reset()

    def reset(self) -> None:
        """Other work-groups begin."""
        cells = self.groups * self._cells
        self._writes, self._reads, self._scratch = np.zeros(cells, np.int64), np.zeros(cells, np.int64), np.zeros(cells, np.int64)
        self._owned = np.zeros(cells, bool)  # by a direct-to-LDS load in flight
        self._epoch = np.ones(self.groups, np.int64)
        self._open: list[Access] = []
        self._loads: list[Access] = []
        self._signalled = np.zeros(self.groups * self.waves, bool)  # between the two halves of a split barrier

    # -- what LDS instructions call
    def lds_access(self, w: Waves, addresses: Array, size: int, mask: Array | None, write: bool, atomic: bool = False,
                   data: Array | None = None, memory: Array | None = None, asynchronous: bool = False) -> None:
        """The waves' lanes touch ``size`` bytes each at ``addresses`` (int (n, lanes)), within the allocation, where ``mask`` (None:
        everywhere). Call it after ``waits.issue`` of the instruction and before memory changes.

        ``data``: the bytes to be written (uint8 (n, lanes, size)), ``memory``: LDS (uint8 (groups, bytes)): with both, a write that
        changes nothing is no race. ``asynchronous``: a direct-to-LDS load."""
        if self.waits.current[0] is not w.ins:
            raise RuntimeError(f"{w.ins.text}: waits.issue has to come before races.lds_access")
        rows = slice(None) if mask is None or mask.all() else np.flatnonzero(mask)
        lanes = addresses.shape[1]
        where = np.ascontiguousarray(addresses, np.int64).reshape(-1)[rows]
        if not len(where):
            return
        self._fit(where, size)
        group = np.repeat(w.group_ids, lanes)[rows]
        wave = np.repeat(w.wave_ids, lanes)[rows]
        index = (where // self.granule + group * self._cells)[:, None]
        if size > self.granule:
            index = index + np.arange(size // self.granule)
        code = (np.int64(w.ins.index) << _PC | (_ATOMIC if atomic else np.int64(0)) | wave % self.waves).astype(np.int64)
        stream = self.waits.current[1]
        access = Access(index, wave, code, np.where(self._signalled[wave], _NEVER, self.waits.issued(stream)[wave]), stream, write)
        if self._loads:
            self._settle()
            owned = self._owned[index]
            if owned.any():
                raise self._use_of_load(access, owned, write, lanes, rows)
        stamp = (self._epoch[group] << _EPOCH | code)[:, None]
        try:
            if write:
                self._write(index, stamp, atomic, _bytes_of(data, rows, size, self.granule), memory)
            else:
                self._read(index, stamp)
        except _Conflict as conflict:
            raise self._race(conflict, access, write, rows, lanes, w) from None
        if asynchronous:
            self._owned[index] = True
            self._loads.append(access)
        else:
            self._open.append(access)
            if len(self._open) > 64:
                self._open = [a for a in self._open if not self._done(a).all()]

    # -- what barriers call
    def arrive(self, w: Waves) -> None:
        """The waves come to a barrier, or to gfx12's s_barrier_signal: what these waves do from here to the barrier's end is not ordered by it."""
        self._signalled[w.wave_ids] = True

    def barrier(self, group_ids: Array) -> None:
        """All waves of these work-groups have met."""
        groups = np.unique(group_ids)
        self._settle()
        late = []
        for access in self._open:
            rows = ~self._done(access)
            if rows.any():
                late.append(access.take(rows))
        self._open = late
        self._epoch[groups] += 1
        self._signalled[np.isin(np.arange(self.groups * self.waves) // self.waves, groups)] = False
        for access in late:
            again = np.isin(access.wave // self.waves, groups)
            if not again.any():
                continue
            part = access.take(again)
            stamp = (self._epoch[part.wave // self.waves] << _EPOCH | part.code)[:, None]
            if part.write:
                self._writes[part.index] = stamp
            else:
                self._merge_reads(part.index, stamp)
            access.number = np.where(access.number == _NEVER, self.waits.issued(access.stream)[access.wave], access.number)

    # -- inside
    def _done(self, access: Access) -> Array:
        return access.number <= self.waits.proven(access.stream)[access.wave]

    def _fit(self, where: Array, size: int) -> None:
        """Split granules until accesses of this size at these addresses cover whole ones."""
        bits = int(np.bitwise_or.reduce(where)) | size | self.granule
        fine = bits & -bits
        if fine == self.granule:
            return
        factor = self.granule // fine
        self._writes, self._reads, self._owned = (np.repeat(a, factor) for a in (self._writes, self._reads, self._owned))
        self._scratch = np.zeros(len(self._writes), np.int64)
        self._cells *= factor
        self.granule = fine
        for access in (*self._open, *self._loads):
            access.split(factor)

    def _settle(self) -> None:
        """Direct-to-LDS loads whose waves have waited are writes of this epoch."""
        left = []
        for access in self._loads:
            done = self._done(access)
            if done.any():
                over = access.take(done)
                self._owned[over.index] = False
                self._writes[over.index] = (self._epoch[over.wave // self.waves] << _EPOCH | over.code)[:, None]
            if not done.all():
                left.append(access.take(~done))
        self._loads = left

    def _read(self, index: Array, stamp: Array) -> None:
        old = self._writes[index]
        clash = _other_wave(old, stamp)
        if clash.any():
            raise _Conflict(clash, old, "wrote")
        self._merge_reads(index, stamp)

    def _merge_reads(self, index: Array, stamp: Array) -> None:
        old = self._reads[index]
        self._reads[index] = np.where(_other_wave(old, stamp), stamp | _MANY, stamp)
        # waves of this very instruction that read one granule: the last of them stands there
        lost = _other_wave(self._reads[index], stamp)
        if lost.any():
            self._reads[index[lost]] |= _MANY

    def _write(self, index: Array, stamp: Array, atomic: bool, data: Array | None, memory: Array | None) -> None:
        old, read = self._writes[index], self._reads[index]
        clash = _other_wave(old, stamp)
        together = clash & (old & _ATOMIC != 0) if atomic else None
        if together is not None:
            clash &= ~together
        read_clash = _other_wave(read, stamp)
        for found, before, how in ((clash, old, "wrote"), (read_clash, read, "read")):
            if found.any():
                if data is not None and memory is not None:
                    found = found & (data != self._contents(memory, index)).any(axis=-1)
                if found.any():
                    raise _Conflict(found, before, how)
        self._writes[index] = stamp
        if together is not None and together.any():
            self._writes[index[together]] |= _MANY
        if not atomic and data is not None:
            self._alike(index, stamp, data)
            return
        now = self._writes[index]
        lost = _other_wave(now, stamp)
        if lost.any():
            if not atomic:
                raise _Conflict(lost, now, "wrote")
            self._writes[index[lost]] |= _MANY

    def _alike(self, index: Array, stamp: Array, data: Array) -> None:
        """Rows of this instruction that write one granule write the same: nothing says which of them stays."""
        flat, rows = index.reshape(-1), data.reshape(index.size, -1)
        order = np.arange(len(flat))
        self._scratch[flat] = order
        last = self._scratch[flat]
        if (last == order).all():
            return
        differ = (rows != rows[last]).any(axis=1).reshape(index.shape)
        if differ.any():
            now = self._writes[index]
            other = differ & _other_wave(now, stamp)
            raise _Conflict(other, now, "wrote") if other.any() else _Conflict(differ, now, "wrote in the same instruction")

    def _contents(self, memory: Array, index: Array) -> Array:
        """Bytes of these granules, uint8 (rows, granules, granule)."""
        group, cell = np.divmod(index, self._cells)
        at = cell[..., None] * self.granule + np.arange(self.granule)
        return memory[group[..., None], np.minimum(at, memory.shape[1] - 1)]

    # -- errors
    def _byte(self, flat: int) -> int:
        return flat % self._cells * self.granule

    def _tell(self, code: int) -> tuple[str, str]:
        """Who and where."""
        ins = self.instructions[code >> 8 & 0xFFFFFF]
        wave = code & int(_WAVE)
        line = f"line {ins.line}, " if ins.line else ""
        return ("several waves" if wave == int(_MANY) else f"wave {wave}"), f"{line}pc {ins.index}: {ins.text}"

    def _race(self, conflict: _Conflict, access: Access, write: bool, rows: Any, lanes: int, w: Waves) -> LdsRace:
        at = tuple(int(i[0]) for i in np.nonzero(conflict.where))
        other, place = self._tell(int(conflict.before[at] & _PLACE))
        mine, _ = self._tell(int(access.code[at[0]]))
        position = at[0] if isinstance(rows, slice) else int(rows[at[0]])
        byte = self._byte(int(access.index[at]))
        if conflict.how == "wrote in the same instruction":
            text = f"LDS byte {byte}: two lanes of {mine} write different values there with one instruction, and nothing says which of them stays"
        else:
            text = (f"LDS byte {byte}: {mine} {'writes' if write else 'reads'} what {other} {conflict.how} ({place}) with no barrier between, or with one that came "
                    "before that access was waited for")
        return LdsRace(text, wave=position // lanes, lanes=position % lanes)

    def _use_of_load(self, access: Access, owned: Array, write: bool, lanes: int, rows: Any) -> UseBeforeWait | LdsRace:
        at = tuple(int(i[0]) for i in np.nonzero(owned))
        granule = access.index[at]
        load = next(a for a in self._loads if (a.index == granule).any())
        row = int(np.nonzero((load.index == granule).any(axis=1))[0][0])
        who, place = self._tell(int(load.code[row]))
        kind = UseBeforeWait if load.wave[row] == access.wave[at[0]] else LdsRace
        position = at[0] if isinstance(rows, slice) else int(rows[at[0]])
        return kind(f"LDS byte {self._byte(int(granule))} is {'written' if write else 'read'} while a load of {who} into LDS may be in flight ({place}): that wave first "
                    "has to wait for it" + ("" if kind is UseBeforeWait else ", then both for a barrier"), wave=position // lanes, lanes=position % lanes)


class _Conflict(Exception):
    """Where the new access clashes (bool (rows, granules)), with which older ones, and what those did."""

    def __init__(self, where: Array, before: Array, how: str):
        super().__init__(how)
        self.where, self.before, self.how = where, before, how


def _other_wave(old: Array, new: Array) -> Array:
    """Are these accesses of one epoch, by different waves?"""
    return (old >> _EPOCH == new >> _EPOCH) & (old & _WAVE != new & _WAVE)


def _bytes_of(data: Array | None, rows: Any, size: int, granule: int) -> Array | None:
    """uint8 (rows, granules, bytes)."""
    if data is None:
        return None
    return np.ascontiguousarray(data).reshape(-1, size)[rows].reshape(-1, size // granule, granule)
