"""Options of launches that an architecture has or lacks, and what assertions say in the code that the device gets."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.compiler import options as options_module
from tilewright.dialects.errors import ArgumentError
from tilewright.targets.protocol import GPUTarget


@triton.jit
def plus_one(x, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(x + i, tl.load(x + i) + 1)


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch, tmp_path):
    monkeypatch.setattr(options_module, "_warned", set())
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))


def test_num_ctas_is_a_hint_where_there_are_clusters(monkeypatch):
    """The numbers are the same, the metadata says what runs, and the user hears of it once a kernel; explain says it each time."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90:sim")
    x = np.arange(32, dtype=np.int32)
    with pytest.warns(triton.OptionNotHonouredWarning, match="plus_one: num_ctas=2 is a hint that was not followed") as told:
        kernel = plus_one[(1,)](x, N=32, num_ctas=2)
    assert len(told) == 1 and told[0].filename == __file__
    assert kernel.metadata.num_ctas == 1 and tuple(kernel.metadata.cluster_dims) == (1, 1, 1)
    assert "num_ctas=2: not followed" in plus_one.explain_last_launch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plus_one[(1,)](x, N=32, num_ctas=2)
        plus_one[(1,)](x, N=32, num_ctas=4)
        assert "num_ctas=4: not followed" in plus_one.explain_last_launch()
        plus_one[(1,)](x, N=32)
        assert "num_ctas" not in plus_one.explain_last_launch()
    assert x.tolist() == list(range(4, 36))


def test_warnings_of_warm_launches_have_the_users_line(monkeypatch):
    """The code of warm launches is made from text; it is the package's, and not where the user looks."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90:sim")
    x = np.zeros(16, dtype=np.int32)
    for _ in range(2):
        plus_one[(1,)](x, N=16)
    with pytest.warns(triton.OptionNotHonouredWarning) as told:
        plus_one[(1,)](x, N=16, num_ctas=2)
    assert told[0].filename == __file__


@pytest.mark.parametrize("arch, ctas, message", [
    (90, 3, "num_ctas is 3; nvidia:sm_90a has clusters of 1, 2, 4, 8, 16 blocks"), (90, 32, "num_ctas is 32; nvidia:sm_90a has clusters of 1, 2, 4, 8, 16 blocks"),
    (90, 0, "num_ctas is a positive integer; found 0"), (80, 2, "num_ctas is 2, and nvidia:sm_80 has no clusters of blocks"), (89, 4, "num_ctas is 4, and nvidia:sm_89")])
def test_num_ctas_beyond_what_there_is(arch, ctas, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        triton.compile(ASTSource(plus_one, {"x": "*i32", "N": "constexpr"}, {"N": 32}), target=GPUTarget("cuda", arch, 32), options={"num_ctas": ctas})


def test_configurations_with_num_ctas_are_tuned(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90:sim")
    timed = []

    def bench(call, quantiles=None):
        call()
        timed.append(1)
        return [1.0 / len(timed)] * 3

    tuned = triton.autotune([triton.Config({}, num_ctas=1), triton.Config({}, num_ctas=2), triton.Config({}, num_ctas=64)], key=["N"],
                            do_bench=bench, restore_value=["x"])(plus_one)
    x = np.zeros(32, np.int32)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        tuned[(1,)](x, N=32)
    assert len(timed) == 2 and tuned.best_config.num_ctas == 2 and (x == 1).all()


def test_assertions_of_overflows_have_the_users_line():
    compiled = triton.compile(ASTSource(plus_one, {"x": "*i32", "N": "constexpr"}, {"N": 32}), target=GPUTarget("cuda", 80, 32), options={"debug": True})
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "tl.load(x + i) + 1" in text)
    texts = [bytes.fromhex("".join(f"{int(n):02x}" for n in found.split(","))) for found in re.findall(r"\.b8 str_\w+\[\d+\] = \{([\d, ]+)\}", compiled.asm["ptx"])]
    assert any(t.startswith(b"int32 overflow detected for operation add") for t in texts) and any(t.startswith(__file__.encode()) for t in texts)
    assert re.search(rf"st\.param\.b32\s+\[param2\], {line};", compiled.asm["ptx"])
    silent = triton.compile(ASTSource(plus_one, {"x": "*i32", "N": "constexpr"}, {"N": 32}), target=GPUTarget("cuda", 80, 32),
                            options={"debug": True, "sanitize_overflow": False})
    assert "__assertfail" not in silent.asm["ptx"]
