"""What nvidia's passes write for the launch beside dialects.analysis.host_recipe: descriptors, and the rules of tensor maps.

A guard that does not hold sends the launch to the version compiled with ``tma=False``; so does a descriptor that the TMA unit cannot be
given (alignment, strides, sizes: tensor_maps.problems), for which there are no guards.
"""

from __future__ import annotations

from tilewright.dialects.analysis.host_recipe import INT32_MAX, Host, Refused

__all__ = ["ALIGNED_END", "ALIGNED_START", "ALIGNMENT", "INT32_MAX", "NO_ALIAS", "UNBOUNDED", "WHAT", "Host", "Refused"]

UNBOUNDED = INT32_MAX  # a dim's shape where nothing bounds it
ALIGNMENT = 16  # bytes, of bases and strides; strides are below 2^40 (CUDA driver API, cuTensorMapEncodeTiled)
# What an H200 does with bulk copies at the edges of a tensor (2026-11-30): a store writes whole units of 16 bytes, also where the innermost
# dim ends within one, over what lies behind; a store below 0 and a load that begins within a unit ended with "illegal instruction".
ALIGNED_END = "what is stored must end at a multiple of 16 bytes in the innermost dim"
ALIGNED_START = "copies must begin at a multiple of 16 bytes in the innermost dim"
NO_ALIAS = "tt.no_alias"  # of a tt.make_tensor_descriptor: the arguments whose memory must not overlap it (array<i32>)
WHAT = "tt.what"  # of a tt.make_tensor_descriptor: what it describes, for messages
