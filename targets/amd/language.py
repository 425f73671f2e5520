"""Functions that kernels have on AMD GPUs only: ``tl.extra.hip.NAME()``. From the RDNA 3 and CDNA 3 ISA manuals: S_MEMREALTIME, S_SENDMSG_RTN."""

from __future__ import annotations

from tilewright.targets.protocol import TargetFunction


def _real_time(arch: str) -> tuple[str, str]:
    if arch.startswith("gfx11"):
        return "s_sendmsg_rtn_b64 $0, sendmsg(MSG_RTN_GET_REALTIME)\ns_waitcnt lgkmcnt(0)", "=s"
    if arch.startswith("gfx12"):
        return "s_sendmsg_rtn_b64 $0, sendmsg(MSG_RTN_GET_REALTIME)\ns_wait_kmcnt 0", "=s"
    return "s_memrealtime $0\ns_waitcnt lgkmcnt(0)", "=s"


LANGUAGE = {"memrealtime": TargetFunction("Ticks of a constant-rate clock that all of the GPU shares, int64.", _real_time, "int64")}
