"""Settings of the NVIDIA target, under Triton's names: ``tilewright.knobs.nvidia``."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from typing import Any

from tilewright.dialects.errors import ArgumentError
from tilewright.dialects.settings import Group, Setting, flag, text


class NvidiaTool:
    """A program of NVIDIA's toolkit: its ``path``, and its ``version`` ("13.0"), asked of it when read."""

    def __init__(self, path: str):
        self.path = path
        self._version: str | None = None

    @property
    def version(self) -> str:
        if self._version is None:
            said = subprocess.run([self.path, "--version"], capture_output=True, text=True).stdout
            found = re.search(r"release (\d+\.\d+)", said)
            self._version = found.group(1) if found else "unknown"
        return self._version

    @staticmethod
    def from_path(path: str) -> NvidiaTool | None:
        """The tool there, or None where no program is."""
        return NvidiaTool(path) if os.access(path, os.X_OK) and os.path.isfile(path) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NvidiaTool) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"NvidiaTool({self.path!r})"


def _is_tool(value: Any) -> None:
    path = value.path if isinstance(value, NvidiaTool) else value
    if path is not None and (not isinstance(path, (str, os.PathLike)) or not os.access(path, os.X_OK)):
        raise ArgumentError(f"a tool is set to the path of a program, or a NvidiaTool; {value!r} is none that can be run")


class _ToolSetting(Setting):
    """A tool: set to a path or a NvidiaTool, else from the variable, else where ``find`` finds it."""

    def __init__(self, name: str, find: Callable[[str], str | None], variables: tuple[str, ...] = (), **kw: Any):
        self.tool = name
        upper = name.upper().replace("-", "_")
        super().__init__(upper, NvidiaTool, lambda: self._found(find), spelt=f"TRITON_{upper}_PATH", check=_is_tool,
                         write=lambda value: getattr(value, "path", None) or str(value), **kw)

    def _found(self, find: Callable[[str], str | None]) -> NvidiaTool | None:
        path = find(self.tool)
        return None if path is None else NvidiaTool(path)

    def __set__(self, obj: Any, value: Any) -> None:
        if isinstance(value, (str, os.PathLike)):
            _is_tool(value)
            value = NvidiaTool(os.fspath(value))
        super().__set__(obj, value)


def _find(name: str) -> str | None:
    from tilewright.targets.nvidia.emit import installed

    return installed(name)


class NvidiaKnobs(Group):
    """ptxas, ptxas_blackwell (of sm_100 and later; ptxas where it is not set), cuobjdump, nvdisasm: tools. ptxas_options: further options of
    ptxas, as one text. disable_ptxas_opt: ptxas -O0. dump_nvptx, dump_ptxas_log: print the PTX, and what ptxas says, on stderr."""

    ptxas = _ToolSetting("ptxas", _find)
    ptxas_blackwell = _ToolSetting("ptxas-blackwell", lambda name: None)
    cuobjdump = _ToolSetting("cuobjdump", _find)
    nvdisasm = _ToolSetting("nvdisasm", _find)
    dump_nvptx = flag("NVPTX_ENABLE_DUMP", spelt="NVPTX_ENABLE_DUMP")
    disable_ptxas_opt = flag("DISABLE_PTXAS_OPT", spelt="DISABLE_PTXAS_OPT", code=True)
    ptxas_options = text("PTXAS_OPTIONS", spelt="PTXAS_OPTIONS", code=True)
    dump_ptxas_log = flag("DUMP_PTXAS_LOG")
    mock_ptx_version = text("MOCK_PTX_VERSION", without_effect="the PTX version is the one that the arch's features need")
    libdevice_path = text("LIBDEVICE_PATH", without_effect="no bitcode of libdevice is linked: its functions are lowered here, the same on every target")
    libcuda_path = text("LIBCUDA_PATH", without_effect="the driver's library is opened by its name; LD_LIBRARY_PATH says where it lies")

    def code_key(self) -> str:
        """Of the assembler its path too: each assembles its own code."""
        tools = [f"{n}={t.path}" for n in ("ptxas", "ptxas_blackwell") if self.given(n) and (t := getattr(self, n)) is not None]
        return ", ".join(filter(None, [super().code_key(), *tools]))

    def assembler(self, arch: str) -> str | None:
        """Path of the ptxas that assembles for ``arch`` where a setting names one; None where none does."""
        blackwell = int("".join(c for c in arch if c.isdigit()) or 0) >= 100
        for name in ("ptxas_blackwell", "ptxas") if blackwell else ("ptxas",):
            if self.given(name) and (tool := getattr(self, name)) is not None:
                return str(tool.path)
        return None


KNOBS = NvidiaKnobs()
