"""Settings of the AMD target, under Triton's names: ``tilewright.knobs.amd``."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.settings import Group, flag, text


class AmdKnobs(Group):
    """use_buffer_ops, use_buffer_atomics, use_async_copy, use_block_pingpong: defaults of the launch options buffer_ops, buffer_atomics, async_copy
    and block_pingpong. dump_amdgcn: print the assembly on stderr."""

    use_buffer_ops = flag("AMDGCN_USE_BUFFER_OPS", True, spelt="AMDGCN_USE_BUFFER_OPS")
    use_async_copy = flag("HIP_USE_ASYNC_COPY", None)
    dump_amdgcn = flag("AMDGCN_ENABLE_DUMP", spelt="AMDGCN_ENABLE_DUMP")
    use_buffer_atomics = flag("AMDGCN_USE_BUFFER_ATOMICS", True, spelt="AMDGCN_USE_BUFFER_ATOMICS")
    buffer_ops_analyze_small_tensor_range = flag("AMDGCN_ANALYZE_SMALL_TENSOR_RANGE", spelt="AMDGCN_ANALYZE_SMALL_TENSOR_RANGE",
                                                 without_effect="what the arguments' memory allows is checked at each launch")
    libhip_path = text("LIBHIP_PATH", without_effect="the runtime's library is found by ROCM_PATH and LD_LIBRARY_PATH")
    use_block_pingpong = flag("HIP_USE_BLOCK_PINGPONG", None)
    use_in_thread_transpose = flag("HIP_USE_IN_THREAD_TRANSPOSE", None, without_effect="LDS layouts are chosen by their cost instead")
    scalarize_packed_fops = flag("AMDGCN_SCALARIZE_PACKED_FOPS", spelt="AMDGCN_SCALARIZE_PACKED_FOPS",
                                 without_effect="whether f32 operations are packed is LLVM's choice, and packing pays around matrix instructions only")

    def option_defaults(self) -> dict[str, Any]:
        """The launch options that settings stand for, where they are set."""
        pairs = (("buffer_ops", "use_buffer_ops"), ("buffer_atomics", "use_buffer_atomics"), ("async_copy", "use_async_copy"), ("block_pingpong", "use_block_pingpong"))
        return {option: getattr(self, name) for option, name in pairs if self.given(name)}


KNOBS = AmdKnobs()
