"""What the host decides before it launches a kernel that loads by TMA: do the guards hold, and what are the tensor maps?

``metadata["host"]`` (written by the passes host_descriptors and promote_to_descriptors) lists expressions, guards and descriptors. A
``HostPlan`` evaluates them for one launch. All of it is a function of the arguments in ``HostPlan.arguments`` and, where ``uses_grid``,
of the grid, so the launcher keeps the answer by those.

Aliasing. A kernel that stores while TMA reads must not store to what TMA reads. What a store reaches is not known here, but a kernel
without mistakes stays inside the memory that its arguments' arrays belong to (an array's *storage*). So two pointers are apart where
their storages are, or where the tensor that TMA reads lies outside the other's storage. Where a storage is not known (a bare address was
passed), they are taken to overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.targets.host_expressions import Expressions, UndefinedExpression
from tilewright.targets.host_guards import check
from tilewright.targets.nvidia.tensor_maps import TensorMap, byte_range, problems

Memory = Mapping[int, "tuple[int, int]"]  # address of an argument's array → first byte and end of its storage


FIRST_STREAM = 8  # of the flags' bits: those below are for metadata["host"]["pairs"], those from it on for ["streams"]
# tiles mostly outside (HostPlan._mostly_filled): rows that are filled at little cost, programs of a grid from which on the time counts, and rows of the
# largest tile for which loads with masks have registers
MOST_FILLED, FEW_PROGRAMS, MOST_ROWS = 32, 32, 128
STREAMED_BYTES = 32 << 20  # L2 (50 MiB on an H100 and an H200) may keep less than that until somebody reads it again


class MemoryUnknown(Exception):
    """The answer depends on the arguments' storages, and they were not given."""


@dataclass(frozen=True)
class Answer:
    """For one launch: the tensor maps, in the order of the kernel's parameters, or the reasons why the kernel must not be launched."""

    maps: tuple[TensorMap, ...]
    reasons: tuple[str, ...]
    flags: int = 0  # the bits of metadata["host"]["pairs"] and ["streams"] that hold


class Bounded(dict[Any, Any]):
    """A dict that forgets its oldest entry where it would hold more than ``limit``. Not locked."""

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit

    def put(self, key: Any, value: Any) -> Any:
        if len(self) >= self.limit and key not in self:
            del self[next(iter(self))]
        self[key] = value
        return value


class HostPlan:
    """``host``: metadata["host"]; ``signature``: Triton types of the kernel's run-time arguments."""

    def __init__(self, host: Mapping[str, Any], signature: Sequence[str]):
        self.expressions = x = Expressions(host.get("expressions", ()))
        self.descriptors = list(host.get("descriptors", ()))
        self.guards = list(host.get("guards", ()))
        for guard in self.guards:
            if guard["kind"] not in ("aligned", "range", "multiple", "no_alias"):
                raise ValueError(f"the kernel has a guard of the unknown kind {guard['kind']!r}")
        self._recipe = [e for d in self.descriptors for e in (d["base"], *d["shape"], *d["strides"])]
        self.pairs = [list(p) for p in host.get("pairs", ())]
        streams = [(s["expressions"], self.descriptors[s["descriptor"]]) for s in host.get("streams", ())]
        self.streams = [(places, x.evaluator(d["shape"]), d["itemsize"]) for places, d in streams]
        self.fills = list(host.get("fills", ()))
        self._evaluate = x.evaluator(self._recipe)
        flagged = [e for p in self.pairs for e in p] + [e for places, d in streams for e in (*places, *d["shape"])]
        used = self._recipe + [e for g in self.guards for e in _expressions_of(g)] + flagged
        aliases = [g for g in self.guards if g["kind"] == "no_alias"]
        self.needs_memory = bool(aliases)
        self.arguments = tuple(sorted(frozenset(g["arg"] for g in aliases).union(*(x.arguments(e) for e in used))))
        self.uses_grid = bool(self.pairs or self.streams or self.fills) or any(x.uses_grid(e) for e in used)
        # the pointer argument that a descriptor's address starts from, where it is one
        self._bases = [next(iter(p)) if len(p) == 1 else None
                       for p in ({i for i in x.arguments(d["base"]) if signature[i].startswith("*")} for d in self.descriptors)]
        # guards on sizes alone are kept by those sizes: a new pointer is frequent, a new size is not
        self._sized = [g for g in self.guards if g["kind"] in ("range", "multiple")]
        self._pointed = [g for g in self.guards if g["kind"] == "aligned"]
        self._sizes = tuple(sorted(frozenset().union(*(x.arguments(e) for g in self._sized for e in _expressions_of(g)))))
        self._size_reasons = Bounded(256)
        self._flag_sizes = tuple(sorted(frozenset().union(*(x.arguments(e) for e in flagged))))
        self._flags = Bounded(256)

    def evaluate(self, args: Sequence[int], grid: Sequence[int], memory: Memory | None = None) -> Answer:
        """``args``: all run-time arguments, pointers as addresses. Raises MemoryUnknown where ``memory`` is None and must be known."""
        key = (tuple([args[i] for i in self._sizes]), tuple(grid) if self.uses_grid else None)
        reasons = self._size_reasons.get(key)
        if reasons is None:
            reasons = self._size_reasons.put(key, check(self.expressions, self._sized, args, grid))
        reasons = [*reasons, *check(self.expressions, self._pointed, args, grid)]
        try:
            values = self._evaluate(args, grid)
        except UndefinedExpression as e:
            return Answer((), (*reasons, f"a descriptor depends on {e}"))
        maps, at = [], 0
        for d in self.descriptors:
            rank = len(d["shape"])
            base, shape, strides = values[at], values[at + 1:at + 1 + rank], values[at + 1 + rank:at + 1 + 2 * rank]
            at += 1 + 2 * rank
            m = TensorMap(base, shape, strides, tuple(d["box"]), d["dtype"], d["itemsize"], d["swizzle"], d["padding"], d.get("l2", 128))
            maps.append(m)
        reasons = reasons or [f"{self.name(d)}: {problem}" for d, m in zip(self.descriptors, maps) for problem in problems(m)]
        reasons = reasons or self._mostly_filled(maps, grid)
        if reasons:
            return Answer((), tuple(reasons))
        if self.needs_memory and memory is None:
            raise MemoryUnknown
        reasons = [r for g in self.guards if g["kind"] == "no_alias" and (r := self._alias(g, maps, args, {} if memory is None else memory))]
        return Answer((), tuple(reasons)) if reasons else Answer(tuple(maps), (), self.flags(args, grid))

    def flags(self, args: Sequence[int], grid: Sequence[int]) -> int:
        """Which descriptors' tiles every two neighbouring programs (2q, 2q + 1; x counts fastest) read alike, and which large tensors no two
        programs read the same tiles of: their bits set."""
        if not self.pairs and not self.streams:
            return 0
        key = (tuple([args[i] for i in self._flag_sizes]), tuple(grid))
        found = self._flags.get(key)
        if found is None:
            x = self.expressions
            found = sum(1 << bit for bit, p in enumerate(self.pairs) if x.alike_in_pairs(p, args, grid))
            for bit, (places, shape, itemsize) in enumerate(self.streams, FIRST_STREAM):
                found |= (prod(shape(args, grid)) * itemsize >= STREAMED_BYTES and x.different_in_all(places, args, grid)) << bit
            self._flags.put(key, found)
        return int(found)

    def _mostly_filled(self, maps: Sequence[TensorMap], grid: Sequence[int]) -> list[str]:
        """Reasons against copies of which more than MOST_FILLED rows are always outside, in a grid large enough for the time to count, and
        where loads with masks take 16 bytes at a time (sizes and strides are multiples of 16). Not of tiles that those have no registers for."""
        fills = [(f, maps[f["descriptor"]]) for f in self.fills]
        if grid[0] * grid[1] * grid[2] < FEW_PROGRAMS or any(n % 16 for _, m in fills for n in (*m.strides[:-1], m.shape[-1])):
            return []
        found = ((self.name(self.descriptors[f["descriptor"]]), m.shape[f["dim"]], f["rows"]) for f, m in fills)
        return [f"{name} has {there} rows and its tiles {rows}: filling the others takes longer than masks do" for name, there, rows in found
                if rows - there > MOST_FILLED and rows <= MOST_ROWS]

    def name(self, descriptor: Mapping[str, Any]) -> str:
        return str(descriptor.get("name") or f"descriptor {self.descriptors.index(descriptor)}")

    def _alias(self, g: Mapping[str, Any], maps: Sequence[TensorMap], args: Sequence[int], memory: Memory) -> str | None:
        base = self._bases[g["descriptor"]]
        theirs = memory.get(args[g["arg"]])
        if theirs is None:
            return f"{g['why']}: how far the memory at {args[g['arg']]:#x} reaches is not known"
        mine = memory.get(args[base]) if base is not None else None
        first, end = byte_range(maps[g["descriptor"]])
        if _apart(first, end, theirs) or (mine is not None and _apart(*mine, theirs)):
            return None
        if mine == theirs:
            return f"{g['why']}: both arguments lie in one array's memory"
        return f"{g['why']}: {_span(first, end)} and {_span(*theirs)} may overlap"


def _apart(lo: int, hi: int | None, other: tuple[int, int]) -> bool:
    """Whether bytes lo to hi (None: all that follow) share none with ``other``."""
    return other[0] == other[1] or other[1] <= lo or (hi is not None and (hi <= other[0] or hi == lo))


def _span(lo: int, hi: int | None) -> str:
    return f"{lo:#x} to {hi:#x}" if hi is not None else f"{lo:#x} and on"


def _expressions_of(guard: Mapping[str, Any]) -> list[int]:
    return [guard[k] for k in ("expr", "of") if k in guard and isinstance(guard[k], int)]
