"""Random programs of branches, loops and jumps: the generated IR, executed, gives what Python gives for the same text."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tt_execution import compile_tt, define, execute


class Program:
    """The text of a kernel(p, a, b), and of a helper that it calls which returns from anywhere."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.loops = self.names = 0

    def fresh(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def value(self, names: list[str]) -> str:
        r = self.rng
        a, b = r.choice(names), r.choice(names)
        return r.choice([f"({a} * 3 + {b}) & 63", f"({a} + {r.randint(0, 9)}) & 63", f"{a} ^ {r.randint(0, 31)}", f"({a} + {b}) & 63", b])

    def test(self, names: list[str]) -> str:
        r = self.rng
        a, b = r.choice(names), r.choice(names)
        return r.choice([f"{a} > {r.randint(0, 40)}", f"{a} < {b}", f"({a} & {r.choice([1, 2, 3, 4])}) == {r.randint(0, 2)}", f"{a} != {b}",
                         f"{a} > 5 and {b} < 50", f"not {a} == {b}"])

    def block(self, names: list[str], depth: int, in_loop: bool, returns: bool, out: list[str], indent: str) -> None:
        r = self.rng
        inner = indent + "    "
        for _ in range(r.randint(1, 4)):
            kind = r.random()
            if kind < 0.35 or depth == 0:
                name = self.fresh("t") if r.random() < 0.2 else r.choice("abc")
                out.append(f"{indent}{name} = {self.value(names)}")
                names = names if name in names else [*names, name]
            elif kind < 0.65:
                out.append(f"{indent}if {self.test(names)}:")
                self.block(names, depth - 1, in_loop, returns, out, inner)
                if r.random() < 0.4:
                    out.append(f"{indent}else:")
                    self.block(names, depth - 1, in_loop, returns, out, inner)
            elif kind < 0.78 and self.loops < 4:
                self.loops += 1
                counter = self.fresh("i")
                items = r.choice([f"range({r.randint(1, 5)})", f"range({r.choice('abc')} & 7)", f"range(6, 0, -{r.randint(1, 2)})",
                                  f"tl.static_range({r.randint(1, 3)})", f"range({r.choice('abc')} & 3, 9, 2)"])
                out.append(f"{indent}for {counter} in {items}:")
                self.block([*names, counter], depth - 1, True, returns, out, inner)
            elif kind < 0.84 and self.loops < 4:
                self.loops += 1
                count, most = self.fresh("w"), r.randint(1, 6)
                endless = r.random() < 0.5
                out.append(f"{indent}{count} = 0\n{indent}while {'True' if endless else f'{count} < {most}'}:")
                if endless:
                    out.append(f"{inner}if {count} > {most}:\n{inner}    break")
                out.append(f"{inner}{count} += 1")
                self.block([*names, count], depth - 1, True, returns, out, inner)
            elif in_loop and kind < 0.96:
                jump = r.choice(["break", "continue"])
                out.append(f"{indent}if {self.test(names)}:\n{inner}{jump}" if r.random() < 0.8 else indent + jump)
            elif returns:
                out.append(f"{indent}if {self.test(names)}:\n{inner}return {self.value(names)}")
            else:
                out.append(f"{indent}c = {self.value(names)}")

    def text(self) -> str:
        helper: list[str] = []
        self.block(["a", "b", "c"], 4, False, True, helper, "    ")
        kernel: list[str] = []
        self.loops = 1
        self.block(["a", "b", "c"], 3, False, False, kernel, "    ")
        return "\n".join(["@triton.jit", "def helper(a, b, c):", *helper, "    return (a + b * 2 + c * 4) & 255", "", "@triton.jit", "def kernel(p, a, b):",
                          "    c = a ^ b", *kernel, "    c = helper(a, b, c)", "    tl.store(p, a)", "    tl.store(p + 1, b)", "    tl.store(p + 2, c)", ""])


class _Language:
    """What the text calls, in Python."""

    static_range = range

    def __init__(self) -> None:
        self.memory: dict[int, int] = {}

    def store(self, at: int, value: int) -> None:
        self.memory[at] = int(value)


def check(seed: int) -> None:
    text = Program(seed).text()
    module = compile_tt(define(text), {"p": "*i32", "a": "i32", "b": "i32"})
    for a, b in ((3, 7), (20, 41), (50, 0)):
        language = _Language()
        scope: dict[str, Any] = {"tl": language}
        exec(text.replace("@triton.jit\n", ""), scope)
        scope["kernel"](0, a, b)
        got = np.full(4, -1, np.int32)
        execute(module, [got, a, b])
        assert got.tolist() == [language.memory[0], language.memory[1], language.memory[2], -1], f"seed {seed} with {a}, {b}:\n{text}"


@pytest.mark.parametrize("seed", [1, 6, 26, 87, 101, 110, 148, 307])
def test_program(seed):
    check(seed)


@pytest.mark.nightly
def test_many_programs():
    for seed in range(1000, 1500):
        check(seed)
