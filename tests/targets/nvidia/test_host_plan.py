"""Host expressions, guards and descriptors: exact values, intervals that hold all values taken, and each reason against a launch."""

import itertools
import random

import pytest
from launch_samples import APART, GOOD, SIGNATURE, Nodes, matrix_host

from tilewright.targets.host_expressions import BINARY, Expressions, UndefinedExpression, divide, remainder
from tilewright.targets.nvidia import tensor_maps
from tilewright.targets.nvidia.host_plan import Bounded, HostPlan, MemoryUnknown
from tilewright.targets.nvidia.tensor_maps import TensorMap


def values(nodes, e, args, grid, program):
    """Every value that ``e`` takes in one program, its loops' variables being independent; a check of intervals by enumeration."""
    op, *rest = nodes[e]
    if op == "arg":
        return {args[rest[0]]}
    if op == "const":
        return {rest[0]}
    if op == "program_id":
        return {program[rest[0]]}
    if op == "num_programs":
        return {grid[rest[0]]}
    parts = [values(nodes, o, args, grid, program) for o in rest]
    if op == "loop":
        return {v for lo, hi, step in itertools.product(*parts) for v in range(lo, hi, step)}
    function = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: int(a / b),
                "rem": lambda a, b: a - int(a / b) * b, "min": min, "max": max}[op]
    return {function(a, b) for a, b in itertools.product(*parts)}


@pytest.mark.parametrize("seed", range(100))
def test_programs_alike_and_different(seed):
    """Against each program's values, which have one element where there are no loops."""
    rng = random.Random(seed)
    nodes, args, grid = Nodes(), [rng.randint(-9, 9) for _ in range(2)], tuple(rng.randint(1, 4) for _ in range(3))
    for i in range(2):
        nodes("arg", i)
    for axis in range(3):
        nodes("program_id", axis)
    nodes("num_programs", 0), nodes("const", rng.choice([-3, 1, 2, 4]))
    for _ in range(4):
        nodes(rng.choice(("add", "sub", "mul", "min", "max", *["div", "rem"] * (0 not in args))), rng.randrange(len(nodes)), rng.choice([0, 1, 6, 3]) if 0 not in args else 6)
    wanted = [rng.randrange(len(nodes)) for _ in range(rng.randint(1, 3))]
    try:
        all_programs = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
        rows = [tuple(next(iter(values(nodes, e, args, grid, p))) for e in wanted) for p in all_programs]
    except ZeroDivisionError:
        rows = []
    x = Expressions(nodes)
    assert x.different_in_all(wanted, args, grid) == (bool(rows) and len(set(rows)) == len(rows))
    assert x.alike_in_pairs(wanted, args, grid) == (bool(rows) and len(rows) % 2 == 0 and rows[::2] == rows[1::2])


@pytest.mark.parametrize("number", [1 << 31, -(1 << 31) - 1, 1 << 63, (1 << 64) - 1])
def test_nothing_is_told_of_programs_with_a_number_beyond_32_bits(number):
    x = Expressions([["program_id", 0], ["arg", 0], ["min", 0, 1]])
    assert x.different_in_all([0], [number], (4, 1, 1)) and x.different_in_all([2], [9], (4, 1, 1))
    assert not x.different_in_all([2], [number], (4, 1, 1)) and not x.alike_in_pairs([1], [number], (4, 1, 1)) and x.alike_in_pairs([1], [9], (4, 1, 1))


@pytest.mark.parametrize("seed", range(300))
def test_intervals_hold_all_values(seed):
    rng = random.Random(seed)
    nodes, args, grid = Nodes(), [rng.randint(-20, 20) for _ in range(3)], (rng.randint(1, 4), rng.randint(1, 3), 1)
    for i in range(3):
        nodes("arg", i)
    nodes("program_id", 0), nodes("program_id", 1), nodes("num_programs", 0), nodes("const", rng.randint(-5, 5))
    nodes("loop", rng.randrange(len(nodes)), rng.randrange(len(nodes)), nodes("const", rng.choice([-3, -1, 1, 2, 4])))
    nodes("loop", nodes("const", 0), rng.randrange(3), nodes("num_programs", 0))
    for _ in range(6):
        nodes(rng.choice(BINARY), rng.randrange(len(nodes)), rng.randrange(len(nodes)))
    x = Expressions(nodes)
    memo = {}
    for e in range(len(nodes)):
        try:
            found = x.interval(e, args, grid, memo)
        except UndefinedExpression:
            continue  # a divisor or a step that may be 0
        taken = set().union(*(values(nodes, e, args, grid, p) for p in itertools.product(*map(range, grid))))
        assert found.empty or found.exact is not None or found.step > 0
        for v in taken:
            assert found.lo <= v <= found.hi and (v - found.lo) % (found.step or 1) == 0, (nodes, e, args, grid, v, found)
        assert taken or found.empty or nodes[e][0] != "const"
        if not x.varies(e):
            assert x.evaluator([e])(args, grid) == tuple(taken) and found.exact == next(iter(taken))


def test_intervals_are_tight_where_it_matters():
    n = Nodes()
    pid, size, block, group, zero, one = (n("program_id", 0), n("arg", 0), n("const", 128), n("const", 8), n("const", 0), n("const", 1))
    tiles = n("div", n("add", size, n("sub", block, one)), block)
    first = n("mul", n("div", pid, n("mul", tiles, group)), group)
    rows = n("min", n("sub", tiles, first), group)
    row = n("add", first, n("rem", n("rem", pid, n("mul", tiles, group)), rows))
    offset = n("mul", row, block)
    k = n("mul", n("loop", zero, n("div", n("arg", 1), n("const", 64)), one), n("const", 64))
    x = Expressions(n)
    assert x.interval(offset, [8192, 4096], (64 * 64, 1, 1)).lo == 0
    assert x.interval(offset, [8192, 4096], (64 * 64, 1, 1)).hi <= 2 * 8192
    assert (lambda v: (v.lo, v.hi, v.step))(x.interval(k, [0, 4096], (1, 1, 1))) == (0, 4032, 64)
    assert x.interval(k, [0, 63], (1, 1, 1)).empty
    tile = n("loop", pid, tiles, n("num_programs", 0))
    x = Expressions(n)
    assert (x.interval(tile, [8192, 1], (132, 1, 1)).lo, x.interval(tile, [8192, 1], (132, 1, 1)).hi) == (0, 63)
    assert x.uses_grid(tile) and not x.uses_grid(k) and x.arguments(offset) == {0}


def test_division_truncates():
    for a, b in itertools.product((-7, -6, 0, 6, 7), (-3, -2, 2, 3)):
        assert divide(a, b) == int(a / b) and remainder(a, b) == a - int(a / b) * b
    with pytest.raises(UndefinedExpression, match="division by zero"):
        divide(1, 0)
    with pytest.raises(UndefinedExpression, match="'program_id' has no single value"):
        Expressions([["program_id", 0]]).evaluator([0])


def reasons(args=GOOD, grid=(1, 1, 1), memory=APART, signature=SIGNATURE, **changes):
    return HostPlan(matrix_host(**changes), signature).evaluate(args, grid, memory).reasons


def test_a_launch_that_may_use_tensor_maps():
    plan = HostPlan(matrix_host(), SIGNATURE)
    assert plan.arguments == (0, 1, 2, 3, 4) and plan.uses_grid and plan.needs_memory
    answer = plan.evaluate(GOOD, (1, 1, 1), APART)
    assert answer.reasons == () and answer.maps == (TensorMap(0x1000, (128, 64), (64, 1), (128, 64), "fp16", 2, 128, "zero"),)
    with pytest.raises(MemoryUnknown):
        plan.evaluate(GOOD, (1, 1, 1))
    assert tensor_maps.byte_range(answer.maps[0]) == (0x1000, 0x1000 + 128 * 64 * 2)


@pytest.mark.parametrize("change, text", [
    ({"args": [0x1000, 0x9000, 128, 64, 68]}, "begin at 16 bytes: 136 is no multiple of 16"),
    ({"args": [0x1008, 0x9000, 128, 64, 64]}, "a_ptr: its address 0x1008 is no multiple of 16"),
    ({"args": [0x1000, 0x9000, 100, 64, 64]}, "rows wrap: 100 is no multiple of 64"),
    ({"args": [0x1000, 0x9000, 0, 64, 64]}, "a dim has 0 elements"),
    ({"args": [0x1000, 0x9000, 128, 64, -64]}, "a stride is -128 bytes"),
    ({"grid": (1 << 25, 1, 1)}, "the row of a_ptr: the values are 0 to 4294967168, and must lie within 0 to 2147483647"),
    ({"box": [512, 64]}, "512 elements along a dim"), ({"box": [128, 4], "swizzle": 0}, "8 bytes, and must have a multiple of 16"),
    ({"box": [128, 128]}, "256 bytes, more than the swizzle's 128"), ({"dtype": "i16", "padding": "nan"}, "cannot be filled with NaN"),
    ({"memory": {0x1000: (0x1000, 0x6000)}}, "how far the memory at 0x9000 reaches is not known"),
    ({"memory": {0x1000: (0x0, 0x10000), 0x9000: (0x0, 0x10000)}}, "both arguments lie in one array's memory"),
    ({"memory": {0x1000: (0x1000, 0x6000), 0x9000: (0x4000, 0xA000)}}, "0x1000 to 0x5000 and 0x4000 to 0xa000 may overlap"),
    ({"args": [0x1000, 0x1000, 128, 64, 64]}, "both arguments lie in one array's memory"),
])
def test_each_reason_against_tensor_maps(change, text):
    found = reasons(**change)
    assert len(found) == 1 and text in found[0], found


def test_memory_apart_is_proven_by_storage_or_by_the_tensors_extent():
    assert reasons(memory={0x9000: (0x5000, 0xA000)}) == ()  # a is a bare address whose tensor ends at 0x5000
    assert reasons(memory={0x9000: (0x4FFF, 0xA000)}) != ()
    assert reasons(args=[0x9000, 0x1000, 128, 64, 64], memory={0x1000: (0x800, 0x9000)}) == ()
    unbounded = [0x1000, 0x9000, 2147483647, 64, 64]
    host = matrix_host()
    host["guards"] = host["guards"][3:]
    plan = HostPlan(host, SIGNATURE)
    assert plan.evaluate(unbounded, (1, 1, 1), APART).reasons == ()
    assert "0x1000 and on and 0x9000 to 0xa000 may overlap" in plan.evaluate(unbounded, (1, 1, 1), {0x9000: (0x9000, 0xA000)}).reasons[0]
    assert plan.evaluate(unbounded, (1, 1, 1), {0x9000: (0x0, 0x1000)}).reasons == ()
    assert plan.evaluate(unbounded, (1, 1, 1), {0x1000: (0x800, 0x9000), 0x9000: (0x9000, 0x9000)}).reasons == ()  # an empty array


def test_a_division_by_zero_is_a_reason_and_not_an_error():
    n = Nodes()
    size = n("div", n("const", 64), n("arg", 1))
    host = {"expressions": n, "descriptors": [{"base": n("arg", 0), "dtype": "fp32", "itemsize": 4, "shape": [size], "strides": [n("const", 1)],
                                               "box": [32], "swizzle": 0, "padding": "zero"}],
            "guards": [{"kind": "range", "expr": size, "min": 0, "max": 9, "why": "size"}]}
    plan = HostPlan(host, ["*fp32", "i32"])
    assert plan.evaluate([16, 8], (1, 1, 1)).maps[0].shape == (8,)
    assert plan.evaluate([16, 0], (1, 1, 1)).reasons == ("size: it depends on a division by what may be zero (0 to 0)",
                                                         "a descriptor depends on a division by zero")
    assert plan.evaluate([16, 3], (1, 1, 1)).reasons == ("size: the values are 21 to 21, and must lie within 0 to 9",)


def test_an_unknown_guard_is_refused():
    with pytest.raises(ValueError, match="unknown kind 'moon'"):
        HostPlan({"guards": [{"kind": "moon"}]}, [])


def test_types():
    assert [tensor_maps.type_name(t) for t in ("fp16", "bf16", "fp32", "f8e4m3", "fp8e5", "i8", "u8", "i1", "i32")] == [
        "FLOAT16", "BFLOAT16", "FLOAT32", "UINT8", "UINT8", "UINT8", "UINT8", "UINT8", "INT32"]
    with pytest.raises(KeyError, match="no elements of type 'i4'"):
        tensor_maps.type_name("i4")


def test_bounded_forgets_the_oldest():
    kept = Bounded(2)
    for i in range(3):
        assert kept.put(i, -i) == -i
    kept.put(2, 5)
    assert kept == {1: -1, 2: 5}
