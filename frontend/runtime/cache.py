"""The disk cache of compiled kernels: one folder an entry, complete or absent.

An entry is written under a temporary name in the same folder and renamed, so readers and other processes see all of it or nothing. Its
``entry.json`` lists every file with size and CRC-32; an entry that does not agree is removed and compiled again. Nothing of MLIR or LLVM is imported here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from tilewright import knobs
from tilewright._version import tilewright_version

FORMAT = "1"
_INDEX = "entry.json"
_stamp: str | None = None


def folder_stamp(folder: str) -> str:
    """Hash of the names, sizes and times of the Python files below a folder: the identity of code under development (1 ms)."""
    parts: list[str] = []
    stack = [folder]
    while stack:
        here = stack.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if entry.is_dir():
                        if entry.name != "__pycache__":
                            stack.append(entry.path)
                    elif entry.name.endswith(".py"):
                        facts = entry.stat()
                        parts.append(f"{entry.path[len(folder):]} {facts.st_size} {facts.st_mtime_ns}")
        except OSError:
            continue
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def compiler_stamp() -> str:
    """Identity of the compiler: versions of Tilewright, of the MLIR bindings and llvmlite, and the state of Tilewright's files."""
    global _stamp
    if _stamp is None:
        from importlib import metadata, util

        versions = [tilewright_version]
        for distribution in ("mlir-python-bindings", "mlir", "torch-mlir", "llvmlite"):
            try:
                versions.append(f"{distribution} {metadata.version(distribution)}")
            except metadata.PackageNotFoundError:
                pass
        package = __name__.split(".")[0]
        for name in (package, f"{package}.dialects", f"{package}.targets"):
            spec = util.find_spec(name)
            for folder in (spec.submodule_search_locations or ()) if spec else ():
                versions.append(folder_stamp(folder))
        _stamp = "\n".join(versions)
    return _stamp


def triton_key() -> str:
    """Triton's name for ``compiler_stamp``."""
    return compiler_stamp()


def _base32(key: str) -> str:
    """A hex key in base 32, as Triton names its folders."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


class LazyAsm(MutableMapping[str, Any]):
    """Stage → text or bytes. Files of a cache entry are read when asked for."""

    def __init__(self, values: Mapping[str, Any] | None = None, files: Mapping[str, tuple[str, bool]] | None = None):
        self._values: dict[str, Any] = dict(values or {})
        self._files: dict[str, tuple[str, bool]] = dict(files or {})
        self._order = list(dict.fromkeys([*self._files, *self._values]))

    def __getitem__(self, stage: str) -> Any:
        if stage not in self._values:
            if stage not in self._files:
                raise KeyError(f"no stage {stage!r}; there are {', '.join(self._order)}")
            path, binary = self._files[stage]
            with open(path, "rb") as f:
                data = f.read()
            self._values[stage] = data if binary else data.decode()
        return self._values[stage]

    def __setitem__(self, stage: str, value: Any) -> None:
        if stage not in self._order:
            self._order.append(stage)
        self._values[stage] = value

    def __delitem__(self, stage: str) -> None:
        self._order.remove(stage)
        self._values.pop(stage, None)
        self._files.pop(stage, None)

    def __contains__(self, stage: object) -> bool:
        return stage in self._order

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __repr__(self) -> str:
        return f"LazyAsm({', '.join(self._order)})"


def cache_dir() -> str:
    """The folder of the cache: TILEWRIGHT_CACHE_DIR, TRITON_CACHE_DIR, or ~/.tilewright/cache."""
    return knobs.cache.dir


class Cache:
    """Entries by hex key."""

    def __init__(self, folder: str | None = None):
        self.folder = folder or cache_dir()

    def path(self, key: str) -> str:
        return os.path.join(self.folder, key)

    def get(self, key: str) -> tuple[LazyAsm, dict[str, Any]] | None:
        """(asm, metadata) of an entry that is whole; None where it is absent or damaged (it is then removed)."""
        folder = self.path(key)
        try:
            with open(os.path.join(folder, _INDEX), "rb") as f:
                index = json.loads(f.read())
            files: dict[str, tuple[str, bool]] = {}
            for stage, (name, size, crc, binary) in index["files"].items():
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    data = f.read()
                if len(data) != size or zlib.crc32(data) != crc:
                    raise ValueError(f"{path} is damaged")
                files[stage] = (path, binary)
            text = json.dumps(index["metadata"], sort_keys=True)
            if zlib.crc32(text.encode()) != index["metadata_crc"] or index["format"] != FORMAT:
                raise ValueError(f"{folder} is damaged")
            return LazyAsm(files=files), index["metadata"]
        except FileNotFoundError:
            if os.path.isdir(folder):
                self.remove(key)
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, binascii.Error):
            self.remove(key)
            return None

    def put(self, key: str, asm: Mapping[str, Any], metadata: Mapping[str, Any], name: str) -> LazyAsm | None:
        """Write an entry; the asm that reads from it, or None where the folder cannot be written. Another process may have won."""
        temporary = ""
        try:
            os.makedirs(self.folder, exist_ok=True)
            temporary = tempfile.mkdtemp(prefix=f".{key[:12]}-", dir=self.folder)
            os.chmod(temporary, 0o755)
            listed: dict[str, list[Any]] = {}
            safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:100] or "kernel"
            for stage, value in asm.items():
                binary = isinstance(value, (bytes, bytearray))
                data = bytes(value) if binary else str(value).encode()
                file = f"{safe}.{stage}"
                with open(os.path.join(temporary, file), "wb") as f:
                    f.write(data)
                listed[stage] = [file, len(data), zlib.crc32(data), binary]
            plain = json.loads(json.dumps(dict(metadata)))
            index = {"format": FORMAT, "files": listed, "metadata": plain,
                     "metadata_crc": zlib.crc32(json.dumps(plain, sort_keys=True).encode())}
            with open(os.path.join(temporary, _INDEX), "w", encoding="utf-8") as f:
                json.dump(index, f)
            final = self.path(key)
            for _ in range(3):
                try:
                    os.rename(temporary, final)
                    temporary = ""
                    break
                except OSError:
                    theirs = self.get(key)  # removes one that is damaged
                    if theirs is not None:  # another process was first
                        return theirs[0]
            else:
                return None
            return LazyAsm(files={stage: (os.path.join(final, file), binary) for stage, (file, _, _, binary) in listed.items()})
        except OSError:
            return None
        finally:
            if temporary:
                shutil.rmtree(temporary, ignore_errors=True)

    def remove(self, key: str) -> None:
        """Drop an entry, whole or not. It is renamed first, so that no reader meets half of it."""
        folder = self.path(key)
        try:
            trash = tempfile.mkdtemp(prefix=".trash-", dir=self.folder)
            os.rename(folder, os.path.join(trash, "entry"))
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            return
        shutil.rmtree(trash, ignore_errors=True)


class FileCacheManager:
    """Triton's file cache by key, for programs that keep files of their own beside the kernels."""

    def __init__(self, key: str, override: bool = False, dump: bool = False):
        self.key = key
        root = knobs.cache.dump_dir if dump else knobs.cache.override_dir if override else cache_dir()
        self.cache_dir = os.path.join(root, key)
        os.makedirs(self.cache_dir, exist_ok=True)

    def _path(self, filename: str) -> str:
        return os.path.join(self.cache_dir, filename)

    def has_file(self, filename: str) -> bool:
        return os.path.exists(self._path(filename))

    def get_file(self, filename: str) -> str | None:
        return self._path(filename) if self.has_file(filename) else None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        """Write a file under a temporary name and rename it; returns its path."""
        content = data if isinstance(data, (bytes, bytearray)) else str(data).encode()
        handle, temporary = tempfile.mkstemp(prefix=f".{filename}-", dir=self.cache_dir)
        with os.fdopen(handle, "wb") as f:
            f.write(content)
        os.replace(temporary, self._path(filename))
        return self._path(filename)

    def get_group(self, filename: str) -> dict[str, str] | None:
        path = self.get_file(f"__grp__{filename}")
        if path is None:
            return None
        with open(path, encoding="utf-8") as f:
            group = json.load(f)["child_paths"]
        return {name: p for name, p in group.items() if os.path.exists(p)}

    def put_group(self, filename: str, group: Mapping[str, str]) -> str:
        return self.put(json.dumps({"child_paths": dict(group)}), f"__grp__{filename}", binary=False)


def get_cache_manager(key: str) -> FileCacheManager:
    return FileCacheManager(_base32(key))


def get_dump_manager(key: str) -> FileCacheManager:
    return FileCacheManager(_base32(key), dump=True)


def get_override_manager(key: str) -> FileCacheManager:
    return FileCacheManager(_base32(key), override=True)
