"""Where a loop's count has to be for there to be a round a number of steps later, without sums that could pass the type's limits."""

from __future__ import annotations

from typing import Any, Protocol


class Arithmetic(Protocol):
    """What makes integers of the loop's type; sums and differences wrap."""

    def const(self, value: int) -> Any: ...
    def add(self, a: Any, b: Any) -> Any: ...
    def sub(self, a: Any, b: Any) -> Any: ...
    def maximum(self, a: Any, b: Any) -> Any: ...


class BoundsAhead:
    """``bounds(n)``: below which number a count has a round n steps later, of a loop up to ``upper`` by steps above 0. That is ``upper`` less n steps, held at
    the lowest number of the type, below which no count is.

    width, unsigned: of the type. known_upper, known_step: the numbers where they are known, else None. Each bound is made once, where it is asked for first.
    """

    def __init__(self, make: Arithmetic, upper: Any, step: Any, width: int, known_upper: int | None, known_step: int | None, unsigned: bool = False):
        self._make, self._step, self._known_upper, self._known_step = make, step, known_upper, known_step
        self._width, self._lowest = width, lowest_of(width, unsigned)
        self._made: dict[int, Any] = {0: upper}

    def __call__(self, times: int) -> Any:
        if times not in self._made:
            self._made[times] = self._bound(times)
        return self._made[times]

    def _bound(self, times: int) -> Any:
        make, lowest = self._make, self._lowest
        if self._known_step is None:  # as far below as one step from the bound before it
            before = self(times - 1)
            return make.sub(make.maximum(before, make.add(self._step, make.const(lowest))), self._step)
        distance = self._known_step * times
        if self._known_upper is not None:
            return make.const(max(self._known_upper - distance, lowest))
        if distance >> self._width:  # beyond the lowest number whatever the upper one is
            return make.const(lowest)
        return make.sub(make.maximum(self._made[0], make.const(lowest + distance)), make.const(distance))


def lowest_of(width: int, unsigned: bool) -> int:
    """The lowest number of an integer type."""
    return 0 if unsigned else -1 << width - 1


def as_number(value: int, width: int, unsigned: bool) -> int:
    """A constant, however its bits are spelt, as the number that the type has for them."""
    lowest = lowest_of(width, unsigned)
    return (value - lowest) % (1 << width) + lowest
