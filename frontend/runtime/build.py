"""Compile a C source to a Python extension module, as Triton's launchers do. Nothing here needs it: it is for programs that call it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from types import ModuleType

from tilewright import knobs
from tilewright.dialects.errors import TilewrightError
from tilewright.runtime.cache import get_cache_manager


class BuildError(TilewrightError, RuntimeError):
    """There is no C compiler, or it failed; with the first line of what it said."""


def _library_flag(library: str) -> str:
    """``-lname``, or ``-l:file`` where a file's name is given."""
    return f"-l:{library}" if re.search(r"\.so(\.\d+)*$|\.a$", library) else f"-l{library}"


def _build(name: str, src: str, srcdir: str, library_dirs: Sequence[str], include_dirs: Sequence[str], libraries: Sequence[str],
           ccflags: Sequence[str] = ()) -> str:
    """Compile the C file ``src`` to ``srcdir/name`` with Python's extension suffix, by ``knobs.build.impl``, else CC, gcc or clang; its path."""
    if knobs.build.impl is not None:
        return knobs.build.impl(name, src, srcdir, library_dirs, include_dirs, libraries)
    compiler = knobs.build.cc or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        raise BuildError("no C compiler is found: install gcc or clang, name one by CC, or set triton.knobs.build.impl")
    out = os.path.join(srcdir, f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
    includes = [*include_dirs, srcdir, sysconfig.get_paths()["include"], *knobs.build.backend_dirs]
    command = [*compiler.split(), src, "-O3", "-shared", "-fPIC", "-Wno-psabi", "-o", out, *map(_library_flag, libraries),
               *(f"-L{d}" for d in library_dirs), *(f"-I{d}" for d in includes if d is not None), *ccflags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:500])
        raise BuildError(f"{compiler} failed on {os.path.basename(src)}: {said}")
    return out


def platform_key() -> str:
    """What a compiled module depends on beside its source."""
    return ",".join([platform.machine(), platform.system(), *platform.architecture()])


def _load(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BuildError(f"{path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_module_from_src(src: str, name: str, library_dirs: Sequence[str] | None = None, include_dirs: Sequence[str] | None = None,
                            libraries: Sequence[str] | None = None, ccflags: Sequence[str] | None = None) -> ModuleType:
    """The extension module of a C source, compiled once and kept in the disk cache."""
    flags = [*(library_dirs or ()), *(include_dirs or ()), *(libraries or ()), *(ccflags or ())]
    manager = get_cache_manager(hashlib.sha256("\n".join([src, name, platform_key(), *map(str, flags)]).encode()).hexdigest())
    file = f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    path = manager.get_file(file)
    if path is None:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            source = os.path.join(folder, f"{name}.c")
            with open(source, "w", encoding="utf-8") as f:
                f.write(src)
            built = _build(name, source, folder, list(library_dirs or ()), list(include_dirs or ()), list(libraries or ()), list(ccflags or ()))
            with open(built, "rb") as f:
                path = manager.put(f.read(), file, binary=True)
    return _load(name, path)
