"""How profile_kernel.py reads Nsight Compute's output (written here after its manual's CSV format)."""

from __future__ import annotations

import profile_kernel
import pytest

LISTING = """Device NVIDIA H200 (GH100)
l1tex__data_bank_conflicts_pipe_lsu_mem_shared            Counter         # of data bank conflicts
sm__pipe_tensor_cycles_active                             Counter         # of cycles
sm__inst_executed                                         Counter         # of warp instructions executed
smsp__average_warps_issue_stalled_barrier_per_issue_active Ratio          average
"""
CSV = '''==PROF== Connected to process 12
==PROF== Profiling "k" - 0: 0%....100%
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","12","matmul (32, 1, 1)","GPU Speed Of Light Throughput","Duration","us","1,234.5"
"0","12","matmul (32, 1, 1)","Occupancy","Block Limit SM","block","32"
"0","12","matmul (32, 1, 1)","Command line profiler metrics","smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio","","0.25"
"0","12","matmul (32, 1, 1)","Command line profiler metrics","smsp__average_warps_issue_stalled_wait_per_issue_active.ratio","","1.5"
"1","12","delta","GPU Speed Of Light Throughput","Duration","us","3"
==PROF== Disconnected
'''


def test_takes_the_metrics_that_the_chip_has():
    assert profile_kernel.extra_metrics(LISTING) == ["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
                                                     "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
                                                     "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"]


def test_reports_each_launch():
    launches = profile_kernel.parse(CSV)
    assert [k for k, _ in launches] == ["matmul (32, 1, 1)", "delta"] and launches[1][1] == {"Duration": "3 us"}
    text = profile_kernel.report(launches, everything=False)
    assert "1,234.5 us" in text and "Block Limit" not in text and text.index("wait") < text.index("barrier")
    assert "Block Limit SM" in profile_kernel.report(launches, everything=True)


def test_says_when_there_is_no_table():
    with pytest.raises(SystemExit, match="no table"):
        profile_kernel.parse("==ERROR== nothing")
