"""What holds for the whole process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ProfilerFlags:
    """command_line: ``tilewright.profiler.proton`` profiles the whole script, whose own sessions are left out."""

    command_line: bool = False

    @property
    def profiling_on(self) -> bool:
        from tilewright.profiler.session import profiling

        return profiling()


flags = ProfilerFlags()
