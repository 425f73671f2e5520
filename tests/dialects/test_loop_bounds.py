"""Where counts have a round some steps on, in numbers of few bits, all of them."""

import itertools

import pytest

from tilewright.dialects.loop_bounds import BoundsAhead, as_number, lowest_of

WIDTH = 5


class Wrapping:
    """Python's numbers as those of a type of WIDTH bits."""

    def __init__(self, unsigned):
        self.unsigned = unsigned

    def const(self, value):
        return as_number(value, WIDTH, self.unsigned)

    def add(self, a, b):
        return self.const(a + b)

    def sub(self, a, b):
        return self.const(a - b)

    maximum = staticmethod(max)


@pytest.mark.parametrize("unsigned", [False, True])
def test_bounds_tell_whether_there_is_a_round(unsigned):
    low = lowest_of(WIDTH, unsigned)
    numbers = range(low, low + (1 << WIDTH))
    for upper, step in itertools.product(numbers, range(1, numbers[-1] + 1, 3)):
        for known_upper, known_step in itertools.product((upper, None), (step, None)):
            bounds = BoundsAhead(Wrapping(unsigned), upper, step, WIDTH, known_upper, known_step, unsigned)
            for times in (0, 3, 1, 2):
                bound = bounds(times)
                assert bound in numbers
                assert all((count < bound) == (count + times * step < upper) for count in numbers if count < upper), (upper, step, times)


def test_constants_are_the_numbers_that_their_bits_are():
    assert [as_number(v, 8, False) for v in (127, 128, 255, -128, -129, 256)] == [127, -128, -1, -128, 127, 0]
    assert [as_number(v, 8, True) for v in (127, 128, 255, -1, -128, 256)] == [127, 128, 255, 255, 128, 0]
