"""Modules and names that programs for Triton still import, and that are gone there or cannot exist here: each says what to use."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.dialects.errors import TilewrightError


class RemovedNameError(TilewrightError, ImportError):
    """A name that Triton removed, or that is part of its C++ module; says what takes its place."""


# module (as it is imported from here) → what to use
MODULES = {
    "common": "triton.common was removed in Triton 3.0: triton.common.build is triton.runtime.build now",
    "tools.experimental_descriptor": "triton.tools.experimental_descriptor was removed in Triton 3.4: make tensor descriptors by "
                                     "triton.tools.tensor_descriptor.TensorDescriptor.from_tensor(tensor, block_shape)",
    "tools.triton_to_gluon_translater": "there is no Gluon here, so nothing translates to it: launch the Triton kernel itself",
    "tools.build_extern": "triton.tools.build_extern writes wrappers of a bitcode library's functions; call them by tl.extra.libdevice, or give "
                          "what is missing to tl.extern_elementwise",
    "experimental": "triton.experimental (Gluon) fixes layouts and barriers by hand for each architecture and is not built: write the kernel in "
                    "triton.language, whose tiles are laid out, pipelined and warp-specialised by the compiler",
    "instrumentation": "kernels are not instrumented; triton.profiler times launches",
    "ops": "triton.ops was removed in Triton 3.0: copy the kernel from Triton's tutorials, or use torch's function",
}
LANGUAGE = {"libdevice": "tl.libdevice was removed in Triton 3.0: from triton.language.extra import libdevice"}


def refuse(name: str, text: str) -> NoReturn:
    """Raise the error of a module or name."""
    raise RemovedNameError(f"{name}: {text}", name=name)


def native(name: str) -> Any:
    """An attribute of ``triton._C.libtriton``, of which there is none: Triton's C++ compiler. Names in dunder are absent quietly."""
    if name.startswith("__"):
        raise AttributeError(name)
    refuse(f"triton._C.libtriton.{name}", "this is Triton's C++ module, and Tilewright has no C++ of its own. Compile by triton.compile, look at "
           "kernel.asm; for the vendor's matrix products (a benchmark's baseline) call torch.matmul; environment variables are triton.knobs'")
