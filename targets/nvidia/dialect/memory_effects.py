"""What ttng ops do to shared memory, told to insert_barriers by name.

An mbarrier's own word counts as written where the mbarrier is made or ended, and as read by all that use it: so a barrier comes
between its making and its first use. What a bulk load writes is announced through an mbarrier; what a bulk store (or a
reduction) reads is read until tma_store_wait, what wgmma reads until warp_group_dot_wait.
"""

from __future__ import annotations

from tilewright.dialects.passes.insert_barriers import register_access, register_async_reads

for _name in ("init_barrier", "inval_barrier"):
    register_access(f"ttng.{_name}", writes=(0,))
for _name in ("barrier_expect", "wait_barrier", "arrive_barrier", "arrive_barrier_remote"):
    register_access(f"ttng.{_name}", reads=(0,))
for _name in ("async_tma_copy_global_to_local", "async_tma_gather"):
    register_access(f"ttng.{_name}", reads=(1,), announced=(2,))
for _name in ("async_tma_copy_local_to_global", "async_tma_reduce", "async_tma_scatter"):
    register_async_reads(f"ttng.{_name}", (1,), wait="ttng.tma_store_wait")
register_async_reads("ttng.warp_group_dot", (0, 1), wait="ttng.warp_group_dot_wait", when="is_async")
