"""A pipeline as data: named stages, each a list of named passes and, past MLIR, a translation.

It can be printed, edited (``pipeline.insert_after("coalesce", my_pass)``) and hashed into the cache key. It is run by
``dialects.pass_runner``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass
class PassContext:
    """What a pass may read besides the IR. ``target`` is a TargetPlugin, ``options`` its options dataclass.

    ``metadata`` collects what the launcher needs: name, shared (bytes), num_warps, registers, spills, …; and what ``explain`` is told.
    ``replace(stage name, code) → code or None``: a user's own code in place of what a stage left (IR text for a stage of MLIR).
    """

    target: Any
    arch: str
    capabilities: Any
    options: Any
    kernel_name: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    line_tables: bool = True  # whether code names the source's lines
    replace: Callable[[str, Any], Any] | None = None

    def explain(self, op: Any, what: str, chosen: str, why: str = "") -> None:
        """Record a choice for ``--explain``: how ``what`` ("tl.dot 64×64×32 of f16 and f16") is done (``chosen``) and why.

        op: the operation, or a location (its source line is told), or None. Name kernel arguments by number ("argument 3"): readers see the user's names.
        Equal choices, of loops unrolled or passes that run twice, are told once. Kept in ``metadata["choices"]``.
        """
        place = None
        if op is not None:
            from tilewright.dialects.pass_runner import place_of  # which imports this module

            place = place_of(getattr(op, "location", op))
        choice = {"line": place[1] if place else 0, "what": what, "chosen": chosen, "why": why}
        kept = self.metadata.setdefault("choices", [])
        if choice not in kept:
            kept.append(choice)

    @property
    def num_warps(self) -> int:
        return int(self.options.num_warps)

    @property
    def num_stages(self) -> int:
        return int(self.options.num_stages)

    @property
    def warp_size(self) -> int:
        return int(self.capabilities.warp_size)


@dataclass(frozen=True)
class Pass:
    """One named pass: ``run(module, ctx)`` changes the module in place. ``doc`` says what holds before and after."""

    name: str
    run: Callable[[Any, PassContext], None]
    doc: str = ""


@dataclass(frozen=True)
class Stage:
    """A named stage. ``passes`` run on the MLIR module; then, where given, ``translate(code, ctx)`` turns the module (or
    the previous stage's str/bytes) into this stage's str/bytes. What the stage leaves is ``asm[name]``; a translation
    that returns None (no assembler found) leaves nothing. ``is_source``: the next stage is made from exactly this text, so that a user's own
    text may stand in its place."""

    name: str
    passes: tuple[Pass, ...] = ()
    translate: Callable[[Any, PassContext], Any] | None = None
    is_source: bool = True


@dataclass(frozen=True)
class Pipeline:
    """Stages in order. Editing methods return a new pipeline and raise KeyError for an unknown pass."""

    stages: tuple[Stage, ...]

    def passes(self) -> Iterator[tuple[str, Pass]]:
        for stage in self.stages:
            for p in stage.passes:
                yield stage.name, p

    def _edit(self, name: str, change: Callable[[Pass], list[Pass]]) -> Pipeline:
        if all(p.name != name for _, p in self.passes()):
            raise KeyError(f"no pass {name!r}; the pipeline has {', '.join(p.name for _, p in self.passes())}")
        return Pipeline(tuple(
            replace(s, passes=tuple(q for p in s.passes for q in (change(p) if p.name == name else [p])))
            for s in self.stages))

    def insert_after(self, name: str, new: Pass) -> Pipeline:
        return self._edit(name, lambda p: [p, new])

    def insert_before(self, name: str, new: Pass) -> Pipeline:
        return self._edit(name, lambda p: [new, p])

    def replace(self, name: str, new: Pass) -> Pipeline:
        return self._edit(name, lambda p: [new])

    def remove(self, name: str) -> Pipeline:
        return self._edit(name, lambda p: [])

    def describe(self) -> str:
        """One line a stage: ``ttgir: coalesce, …``. Part of the cache key."""
        return "\n".join(f"{s.name}: {', '.join(p.name for p in s.passes) or '(translation)'}" for s in self.stages)
