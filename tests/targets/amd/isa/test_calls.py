"""Calls in the simulator: s_getpc_b64, s_swappc_b64, s_setpc_b64 and the addresses of functions."""

import numpy as np
import pytest
from snippets import kernel_text

from tilewright.targets.amd.isa.errors import SimulationError
from tilewright.targets.amd.isa.launch import Launch
from tilewright.targets.amd.isa.machine import Machine, load
from tilewright.targets.amd.isa.memory import GlobalMemory
from tilewright.targets.amd.isa.program import parse

CALL = """s_getpc_b64 s[0:1]
s_add_u32 s0, s0, {f}@rel32@lo+4
s_addc_u32 s1, s1, {f}@rel32@hi+12
s_swappc_b64 {link}, s[0:1]
"""
DOUBLE = "s_add_i32 s4, s4, s4\ns_cmp_lt_i32 s4, 100\ns_cbranch_scc1 .small\ns_add_i32 s4, s4, 1\n.small:\ns_setpc_b64 s[30:31]"
TWICE = "s_mov_b64 s[20:21], s[30:31]\n" + CALL.format(f="double", link="s[30:31]") * 2 + "s_setpc_b64 s[20:21]"


def _function(name, body):
    lines = [line if line.endswith(":") else f"\t{line}" for line in body.splitlines()]
    return "\n".join([f"\t.type\t{name},@function", f"{name}:", *lines, f"\t.size\t{name}, 0", ""])


def _run(body, waves=1, functions=(("double", DOUBLE), ("twice", TWICE)), **sgprs):
    kernel = kernel_text("gfx942", body)
    head, rest = kernel.split("\t.type\tk,@function", 1)
    program = parse(head + "".join(_function(n, b) for n, b in functions) + "\t.type\tk,@function" + rest)
    code = load(program, program.kernel())

    def prepare(machine):
        for k, value in sgprs.items():
            machine.batch.s[int(k[1:])] = value

    machine = Machine(code, Launch((1, 1, 1), (64 * waves, 1, 1), np.zeros(64, np.uint8), 0), GlobalMemory(), prepare=prepare)
    machine.run()
    return machine


def test_nested_calls_return_to_where_they_came_from():
    body = CALL.format(f="twice", link="s[30:31]") + "s_add_i32 s5, s4, 7\n" + CALL.format(f="double", link="s[30:31]")
    machine = _run(body, waves=2, s4=np.array([3, 40]))
    assert machine.batch.s[5].tolist() == [3 * 4 + 7, 161 + 7] and machine.batch.s[4].tolist() == [24, 323]
    assert machine.code.kernel.functions == ("twice", "double")


def test_waves_at_one_jump_may_go_to_different_functions():
    body = """s_getpc_b64 s[0:1]
    s_add_u32 s0, s0, double@rel32@lo+4
    s_addc_u32 s1, s1, double@rel32@hi+12
    s_getpc_b64 s[2:3]
    s_add_u32 s2, s2, twice@rel32@lo+4
    s_addc_u32 s3, s3, twice@rel32@hi+12
    s_cmp_eq_u32 s6, 1
    s_cselect_b64 s[0:1], s[0:1], s[2:3]
    s_swappc_b64 s[30:31], s[0:1]
    s_add_i32 s4, s4, 1000"""
    machine = _run(body, waves=3, s4=np.array([1, 2, 3]), s6=np.array([1, 0, 1]))
    assert machine.batch.s[4].tolist() == [1002, 1008, 1006]


def test_a_jump_to_no_instruction_is_an_error():
    with pytest.raises(SimulationError, match=r"a jump to address 0x[0-9a-f]+, where no instruction begins \[k, /src/k.py:2, pc 1: s_setpc_b64"):
        _run("s_getpc_b64 s[0:1]\ns_setpc_b64 s[2:3]", s2=1, s3=2)


def test_lines_are_those_of_the_function():
    with pytest.raises(SimulationError, match="fail, pc"):
        _run("s_nop 0\n" + CALL.format(f="fail", link="s[30:31]"), functions=[("fail", "s_trap 2\ns_setpc_b64 s[30:31]")])
