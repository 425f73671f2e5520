"""One class per kind of mistake that the simulator finds in a kernel's code. Whoever finds it raises it with what it knows (``wave``:
the index within the waves that step together; ``lanes``); the machine adds kernel, line, instruction, pc and work-group (``at``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.dialects.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves


class SimulationError(TilewrightError):
    """Base of them all. ``str`` of it is the whole message once ``at`` was called; ``what`` only the finding."""

    def __init__(self, what: str, wave: int | None = None, lanes: Sequence[int] | int | None = None):
        self.what, self.wave = what, wave
        self.lanes: list[int] = [] if lanes is None else [lanes] if isinstance(lanes, int) else [int(i) for i in lanes]
        self.place = ""
        super().__init__(what)

    def at(self, place: str) -> SimulationError:
        """Adds where it happened, unless that is known."""
        if not self.place:
            self.place = place
            self.args = (str(self),)
        return self

    def at_waves(self, w: Waves) -> SimulationError:
        """Adds what the waves know: instruction, line, work-group, wave and lanes."""
        place = w.ins.describe() if w.ins is not None else w.machine.kernel.name
        if self.wave is not None:
            place += f", work-group {w.machine.group_name(int(w.group_ids[self.wave]))}, wave {w.machine.wave_in_group(int(w.wave_ids[self.wave]))}"
        if self.lanes:
            place += f", lane{'s' if len(self.lanes) > 1 else ''} {', '.join(map(str, self.lanes[:8]))}{' …' if len(self.lanes) > 8 else ''}"
        return self.at(place)

    def __str__(self) -> str:
        return f"{self.what} [{self.place}]" if self.place else self.what


class UnknownInstruction(SimulationError):
    """An instruction, modifier, operand or directive that the simulator does not have. Raised when the code is decoded."""


class UseBeforeWait(SimulationError):
    """A register is read, or written, that a memory instruction may still write: no wait proves it done."""


class OutOfBounds(SimulationError):
    """Global or scratch memory outside every buffer."""


class Misaligned(SimulationError):
    """An address that the instruction cannot take."""


class LdsOutOfBounds(SimulationError):
    """LDS outside what the work-group has."""


class UninitialisedLds(SimulationError):
    """LDS is read that nobody wrote."""


class LdsRace(SimulationError):
    """Two waves touch the same LDS without a barrier between, one of them writing."""


class GlobalRace(SimulationError):
    """Two waves touch the same global memory, one of them writing, and nothing orders the two."""


class DivergentBarrier(SimulationError):
    """A barrier that not all lanes or not all waves of the work-group reach."""


class Deadlock(SimulationError):
    """All waves wait, or the kernel runs longer than the limit."""


class Trap(SimulationError):
    """s_trap: an assertion of the kernel failed."""
