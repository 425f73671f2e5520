"""What the AMD target offers tools (``TargetPlugin.utilities``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilewright.targets.c_source import CApi, generate

C_API = CApi(header="hip/hip_runtime.h", result="hipError_t", success="hipSuccess", module="hipModule_t", function="hipFunction_t", stream="hipStream_t",
             load="hipModuleLoadData", get_function="hipModuleGetFunction", unload="hipModuleUnload", launch="hipModuleLaunchKernel",
             buffer_pointer="HIP_LAUNCH_PARAM_BUFFER_POINTER", buffer_size="HIP_LAUNCH_PARAM_BUFFER_SIZE", end="HIP_LAUNCH_PARAM_END",
             device_pointer="hipDeviceptr_t")

UTILITIES: dict[str, Callable[..., Any]] = {"c_source": functools.partial(generate, C_API)}
