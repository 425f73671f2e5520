"""Faults planted into the assembly of compiled kernels: each is found, by the right error and with the Python line, and the kernel without it is right.

This is what the simulator is for: a barrier, wait or layout that the compiler gets wrong must not pass.
"""

import functools
import inspect
import re
from dataclasses import dataclass, field

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.targets.amd.isa.errors import (
    DivergentBarrier,
    LdsOutOfBounds,
    LdsRace,
    OutOfBounds,
    UninitialisedLds,
    UnknownInstruction,
    UseBeforeWait,
)
from tilewright.targets.amd.simulate import simulate

ARCHS = ("gfx942", "gfx950", "gfx1100", "gfx1201")


@tilewright.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    acc = tl.zeros((M, N), tl.float32)
    for i in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + i + k[None, :])
        y = tl.load(b + (i + k[:, None]) * N + n[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)


@tilewright.jit
def rows(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=-float("inf"))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + tl.program_id(0) * n + i, v / tl.sum(v, axis=0), mask=i < n)


@dataclass
class Compiled:
    """A kernel's text with what it takes to run it: ``make()`` → (arguments, output, expected)."""

    kernel: object
    text: str
    shared: int
    grid: tuple
    make: object
    tolerance: float
    lines: tuple = field(init=False)

    def __post_init__(self):
        source, first = inspect.getsourcelines(self.kernel.fn)
        self.lines = first, first + len(source)

    def error(self, text=None, shared=None):
        """Largest error of the kernel, or of a changed text of it; NaN where an element was not written."""
        args, result, expected = self.make()
        simulate(self.text if text is None else text, self.grid, args, num_warps=4, shared=self.shared if shared is None else shared)
        return np.abs(result - expected).max() / np.abs(expected).max()

    def wrong(self, text):
        """The fault shows in the numbers."""
        assert text != self.text, "nothing was changed"
        assert not self.error(text) < 1e-2

    def caught(self, error, text=None, match=None, **how):
        """The fault is found; the message has the Python line."""
        assert text is None or text != self.text, "nothing was changed"
        with pytest.raises(error, match=match) as found:
            self.error(text, **how)
        line = re.search(r"test_mutations\.py:(\d+), pc \d+: ", str(found.value))
        assert line and self.lines[0] <= int(line[1]) < self.lines[1], str(found.value)
        assert f"[{self.kernel.__name__}, " in str(found.value)


def _product():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((64, 96)).astype(np.float16), rng.standard_normal((96, 64)).astype(np.float16)
    c = np.full((64, 64), np.nan, np.float32)
    return [a, b, c], c, a.astype(np.float64) @ b.astype(np.float64)


def _rows():
    x = np.random.default_rng(2).standard_normal((3, 1000)).astype(np.float32)
    y = np.full_like(x, np.nan)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return [x, y, 1000], y, e / e.sum(axis=1, keepdims=True)


@functools.cache
def compiled(name, arch):
    """Compiled, and found right."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_TARGET", f"amd:{arch}:sim")
        if name in ("product", "direct"):  # operands go to LDS through registers, or, on gfx950, straight
            (a, b, c), _, _ = _product()
            found = product.warmup(a, b, c, 64, 64, 96, 32, grid=(1,), num_warps=4, async_copy=name == "direct")
            result = Compiled(product, found.asm["amdgcn"], found.metadata.shared, (1,), _product, 1e-6)
        else:
            (x, y, n), _, _ = _rows()
            found = rows.warmup(x, y, n, 1024, grid=(3,), num_warps=4)
            result = Compiled(rows, found.asm["amdgcn"], found.metadata.shared, (3,), _rows, 1e-6)
    assert result.error() < result.tolerance
    return result


@pytest.fixture(params=ARCHS)
def arch(request):
    return request.param


@pytest.fixture(params=("product", "rows"))
def kernel(request, arch):
    return compiled(request.param, arch)


# ------------------------------------------------------------------------------------------------- editing the text
LDS_STORE, LDS_LOAD = r"\s+ds_(?:write|store)\w*\s", r"\s+ds_(?:read|load)\w*\s"
DIRECT_TO_LDS = r"\s+(?:global_load_lds_|buffer_load_.*\blds\b)"
BARRIER = r"\s+s_barrier(?:_signal)?\b"
LDS_WAIT = r"\s+s_(?:waitcnt .*lgkmcnt|wait_(?:\w+_)?dscnt)"
GLOBAL_LOAD, GLOBAL_STORE = r"\s+(?:global|buffer)_load_", r"\s+(?:global|buffer)_store_"
GLOBAL_WAIT = r"\s+s_(?:waitcnt .*vmcnt|wait_loadcnt)"
MATRIX = r"\s+v_(?:mfma|wmma)_"


def places(text, pattern, after=0, before=None):
    """Numbers of the lines that match."""
    return [i for i, line in enumerate(text.splitlines()) if re.match(pattern, line) and i >= after and (before is None or i < before)]


def without(text, *numbers):
    return "\n".join(line for i, line in enumerate(text.splitlines()) if i not in numbers) + "\n"


def with_lines(text, at, *new):
    lines = text.splitlines()
    return "\n".join([*lines[:at], *new, *lines[at:]]) + "\n"


def replaced(text, at, line):
    lines = text.splitlines()
    lines[at] = line
    return "\n".join(lines) + "\n"


def barrier_lines(text, first):
    """A barrier is one line, on gfx12 two."""
    lines = text.splitlines()
    if "s_barrier_signal" not in lines[first]:
        return [first]
    return [first, next(i for i in range(first, len(lines)) if "s_barrier_wait" in lines[i])]


def first_hand_over(text):
    """Lines of the last LDS store before the first LDS load, the barrier after it, and that load."""
    load = next(i for i in places(text, LDS_LOAD) if places(text, LDS_STORE, before=i))
    store = places(text, LDS_STORE, before=load)[-1]
    barrier = places(text, BARRIER, after=store, before=load)[-1]
    return store, barrier, load


# ------------------------------------------------------------------------------------------------------ the faults
def test_a_dropped_barrier(kernel):
    _, barrier, _ = first_hand_over(kernel.text)
    kernel.caught(LdsRace, without(kernel.text, *barrier_lines(kernel.text, barrier)), "with no barrier between")


def test_the_barrier_after_the_reads_dropped(kernel):
    """The buffer is written again before all have read it."""
    _, _, load = first_hand_over(kernel.text)
    again = places(kernel.text, LDS_STORE, after=load)
    assert again
    between = places(kernel.text, BARRIER, after=load, before=again[0])
    kernel.caught(LdsRace, without(kernel.text, *(i for b in between for i in barrier_lines(kernel.text, b))), r"writes what (?:wave \d+|several waves) read")


def test_the_wait_before_a_barrier_dropped(kernel):
    """The stores may not have happened when the others go on."""
    store, barrier, _ = first_hand_over(kernel.text)
    waits = places(kernel.text, LDS_WAIT, after=store, before=barrier)
    kernel.caught(LdsRace, without(kernel.text, *waits), "came before that access was waited for")


def test_a_wait_for_lds_dropped(kernel):
    """All waits from the first load to the next barrier or LDS store."""
    _, _, load = first_hand_over(kernel.text)
    end = min([*places(kernel.text, BARRIER, after=load), *places(kernel.text, LDS_STORE, after=load)])
    kernel.caught(UseBeforeWait, without(kernel.text, *places(kernel.text, LDS_WAIT, after=load, before=end)), r"is (?:read|overwritten) while a load may still write it")


def test_a_wait_for_memory_dropped(kernel):
    load = places(kernel.text, GLOBAL_LOAD)[0]
    use = places(kernel.text, GLOBAL_WAIT, after=load)
    kernel.caught(UseBeforeWait, without(kernel.text, *use), "is read while a load may still write it")


def test_a_wait_for_memory_weakened(arch):
    """Each of the four waits of the row's loads lets one more load be in flight."""
    kernel = compiled("rows", arch)
    text = kernel.text
    first, last = places(text, GLOBAL_LOAD)[0], places(text, LDS_STORE)[0]
    waits = places(text, GLOBAL_WAIT, after=first, before=last)
    assert waits
    for at in waits:
        line = text.splitlines()[at]
        weaker = re.sub(r"(vmcnt\(|loadcnt 0x)([0-9a-f]+)", lambda m: m[1] + format(int(m[2], 16) + 1, "x"), line)
        kernel.caught(UseBeforeWait, replaced(text, at, weaker), "is read while a load may still write it")


def test_a_wait_for_arguments_dropped(kernel):
    first = places(kernel.text, r"\s+s_load_")[0]
    wait = places(kernel.text, r"\s+s_(?:waitcnt .*lgkmcnt|wait_(?:\w+_)?kmcnt)", after=first)[0]
    kernel.caught(UseBeforeWait, without(kernel.text, wait), r"s\d+ is read")


def test_a_store_moved_out_of_bounds(kernel):
    """A megabyte beyond: where the descriptor's range does not stop it."""
    at = places(kernel.text, GLOBAL_STORE)[0]
    line = kernel.text.splitlines()[at]
    base = re.search(r"\bs\[(\d+):\d+\]", line)
    assert base, line
    kernel.caught(OutOfBounds, with_lines(kernel.text, at, f"\ts_add_u32 s{base[1]}, s{base[1]}, 0x100000"))


def test_a_launch_larger_than_the_output(arch):
    """The third row of three lies outside an array of two."""
    kernel = compiled("rows", arch)
    x, y = np.ones((3, 1000), np.float32), np.ones((2, 1000), np.float32)
    with pytest.raises(OutOfBounds, match=r"work-group \(2, 0, 0\)") as found:
        simulate(kernel.text, (3,), [x, y, 1000], num_warps=4, shared=kernel.shared)
    assert re.search(r"test_mutations\.py:\d+", str(found.value))


def test_less_lds_than_the_kernel_takes(kernel):
    kernel.caught(LdsOutOfBounds, shared=8)


def test_a_skipped_lds_store(kernel):
    store, _, _ = first_hand_over(kernel.text)
    kernel.caught(UninitialisedLds, without(kernel.text, store))


def test_a_barrier_in_divergent_code(kernel, arch):
    """With half of the lanes, and past some of the waves."""
    text = kernel.text
    _, barrier, _ = first_hand_over(text)
    end = barrier_lines(text, barrier)[-1] + 1
    half = "\ts_mov_b64 exec, 0xffff" if arch.startswith("gfx9") else "\ts_mov_b32 exec_lo, 0xffff"
    back = "\ts_mov_b64 exec, -1" if arch.startswith("gfx9") else "\ts_mov_b32 exec_lo, -1"
    kernel.caught(DivergentBarrier, with_lines(with_lines(text, end, back), barrier, half), r"with \d+ lanes inactive")
    start = next(i for i in places(text, r"\s+[sv]_") if text.splitlines()[i].strip().startswith(("s_", "v_")))
    lanes = 64 if arch.startswith("gfx9") else 32
    new = [f"\tv_readfirstlane_b32 s60, v0\n\ts_cmp_lt_u32 s60, {lanes}\n\ts_cbranch_scc1 .Lover", *([text.splitlines()[i] for i in barrier_lines(text, barrier)]), ".Lover:"]
    first_line = next(i for i in places(text, r"\s+\.loc\s") if i > 0)
    kernel.caught((DivergentBarrier, LdsRace), with_lines(text, max(start, first_line + 1), *new), "ended without reaching|with no barrier between")


def test_swapped_operands_of_a_matrix_instruction(arch):
    """The wrong layout: A where B should be. The numbers show it."""
    kernel = compiled("product", arch)
    at = places(kernel.text, MATRIX)[0]
    line = kernel.text.splitlines()[at]
    swapped = re.sub(r"^(\s*\w+ [^,]+, )([^,]+), ([^,]+), ", r"\1\3, \2, ", line)
    assert swapped != line
    kernel.wrong(replaced(kernel.text, at, swapped))


def test_rows_of_the_accumulator_mixed_up(arch):
    """Two registers of the result change places before the stores: rows or columns in the wrong order."""
    kernel = compiled("product", arch)
    at = places(kernel.text, MATRIX)[-1]
    line = kernel.text.splitlines()[at]
    first = re.search(r"[va]\[(\d+):(\d+)\]", line)
    kind = re.search(r"\s([va])\[", line)[1]
    lines = [f"\tv_swap_b32 v{first[1]}, v{int(first[1]) + 1}"] if kind == "v" else [
        f"\tv_accvgpr_read_b32 v255, a{first[1]}", f"\tv_accvgpr_mov_b32 a{first[1]}, a{int(first[1]) + 1}", f"\tv_accvgpr_write_b32 a{int(first[1]) + 1}, v255"]
    kernel.wrong(with_lines(kernel.text, at + 1, *lines))


def test_a_dropped_matrix_instruction(arch):
    kernel = compiled("product", arch)
    kernel.wrong(without(kernel.text, places(kernel.text, MATRIX)[1]))


def test_an_unknown_instruction(kernel):
    at = places(kernel.text, GLOBAL_STORE)[0]
    kernel.caught(UnknownInstruction, with_lines(kernel.text, at, "\tv_frobnicate_b32 v0, v1"), "v_frobnicate_b32")


# -------------------------------------------------------------------------------------------------- direct-to-LDS
def test_loads_to_lds_that_are_not_waited_for():
    """The wave that issued them reads the bytes, or comes to the barrier, too early."""
    kernel = compiled("direct", "gfx950")
    direct = places(kernel.text, DIRECT_TO_LDS)
    assert direct
    load = places(kernel.text, LDS_LOAD, after=direct[0])[0]
    waits = places(kernel.text, GLOBAL_WAIT, after=direct[0], before=load)
    kernel.caught((UseBeforeWait, LdsRace), without(kernel.text, *waits), "may be in flight")


def test_loads_to_lds_without_a_barrier():
    """Other waves read what one wave's load wrote."""
    kernel = compiled("direct", "gfx950")
    direct = places(kernel.text, DIRECT_TO_LDS)
    load = places(kernel.text, LDS_LOAD, after=direct[0])[0]
    kernel.caught((UseBeforeWait, LdsRace), without(kernel.text, *places(kernel.text, BARRIER, after=direct[0], before=load)))
