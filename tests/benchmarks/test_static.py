"""Registers, spills and serialised WGMMAs of the benchmark configurations on sm_90a, beside Triton's committed figures; no GPU.

We spill no more than Triton; every block fits; ptxas serialises no WGMMA (its warnings C7510 to C7515). The first candidate of each
case runs always, the others as slow tests. ``python benchmarks/static_figures.py`` prints all the figures.
"""

from __future__ import annotations

import json
from functools import cache

import pytest
import static_figures
from frameworks import Framework
from static_figures import PEER, REGISTERS, SHARED, configurations

from tilewright.targets.nvidia.emit import ptxas

DATA = json.loads(PEER.read_text())
TRITON = DATA["configurations"]
ALL = configurations()

# The one list of what does not hold: a label (case and candidate), or a case → why. A label that is listed and holds fails, so that the list shrinks.
NOT_YET: dict[str, str] = dict.fromkeys(
    ("backward128 4", "backward128c 4"),
    "dk, dv, s, dp and p in bf16 of 128×128 are 73,728 words, a multiprocessor has 65,536 registers: Triton spills 1.7 KB, we 0.8 KB and serialise")

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="no ptxas: pip install nvidia-cuda-nvcc")


@cache
def tilewright() -> Framework:
    return Framework("tilewright")


def not_yet(label: str) -> str:
    return NOT_YET.get(label) or NOT_YET.get(label.split()[0], "")


def labels() -> list:
    return [pytest.param(label, marks=[] if label.endswith(" 0") else [pytest.mark.slow]) for label in ALL]


def faults(rows: list[dict], peer: list[dict]) -> list[str]:
    """What is wrong with a configuration's kernels."""
    found = []
    for row, other in zip(rows, peer, strict=True):
        assert row["kernel"] == other["kernel"]
        if row["spills"] > other["spills"]:
            found.append(f"{row['kernel']} spills {row['spills']} bytes at {row['regs']} registers; Triton {other['spills']} at {other['regs']}")
        if row["serialised"]:
            found.append(f"{row['kernel']}: {row['serialised']}")
        threads = 32 * row["warps"]
        if -(-row["regs"] // 8) * 8 * threads > REGISTERS:
            found.append(f"{row['kernel']}: {threads} threads of {row['regs']} registers do not fit a block's {REGISTERS}")
        if row["shared"] > SHARED >= other["shared"]:
            found.append(f"{row['kernel']}: {row['shared']} bytes of shared memory, Triton {other['shared']}")
    return found


@needs_ptxas
@pytest.mark.parametrize("label", labels())
def test_no_more_spills_than_triton(label, monkeypatch, record_property):
    peer = TRITON[label]
    if isinstance(peer, str):
        pytest.skip(f"Triton does not compile it: {peer}")
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a")
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    try:
        rows = static_figures.ours(tilewright(), label)
        found = faults(rows, peer)
        record_property("figures", json.dumps(rows))
    except Exception as error:
        if not not_yet(label):
            raise
        found = [static_figures.first_line(error)]
    if found and not_yet(label):
        pytest.xfail(f"{not_yet(label)}: {'; '.join(found)}")
    assert not found
    assert label not in NOT_YET, "it holds: take it off the list"


def test_the_peer_file_is_of_these_configurations():
    """The file is remade when the kernels' configurations change: ``static_figures.py --remake``."""
    assert set(TRITON) == set(ALL)
    assert DATA["triton"] == "3.6.0" and DATA["arch"] == "sm_90a"
    assert set(NOT_YET) <= {*ALL, *(case for case, _ in ALL.values())}
    compiled = [rows for rows in TRITON.values() if isinstance(rows, list)]
    assert len(compiled) > 0.9 * len(ALL) and all(row["regs"] > 0 for rows in compiled for row in rows)


def test_faults_are_found():
    good = {"kernel": "k", "regs": 168, "spills": 0, "serialised": "", "shared": 1000, "warps": 12}
    assert faults([good], [good]) == []
    assert "spills 8 bytes" in faults([{**good, "spills": 8}], [good])[0]
    assert "Triton 4 at" in faults([{**good, "spills": 8}], [{**good, "spills": 4}])[0]
    assert faults([{**good, "spills": 4}], [{**good, "spills": 8}]) == []
    assert "C7510" in faults([{**good, "serialised": "warning C7510"}], [good])[0]
    assert "do not fit" in faults([{**good, "regs": 169}], [good])[0]
    assert "shared memory" in faults([{**good, "shared": SHARED + 1}], [good])[0]


@needs_ptxas
def test_spills_are_read_from_ptxas():
    """A kernel with more live values than it may have registers spills, and the figures say so."""
    values = range(64)
    ptx = "\n".join([
        ".version 8.0", ".target sm_90a", ".address_size 64", ".visible .entry k(.param .u64 p)", ".maxnreg 32", "{",
        ".reg .u64 %p; .reg .f32 %f<65>;", "ld.param.u64 %p, [p];",
        *(f"ld.volatile.global.f32 %f{i}, [%p+{4 * i}];" for i in values), *(f"st.volatile.global.f32 [%p+{4 * i}], %f{i};" for i in reversed(values)),
        "ret;", "}"])
    found = static_figures.figures(ptx, str(ptxas()))
    assert found["spills"] > 0 and 0 < found["regs"] <= 32 and found["serialised"] == ""
    assert static_figures.figures(ptx.replace(".maxnreg 32\n", ""), str(ptxas()))["spills"] == 0
