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
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from tilewright import knobs
from tilewright._version import tilewright_version
from tilewright.dialects.errors import TilewrightError

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


class CacheBackendError(TilewrightError):
    """A cache that settings ask for cannot be used: a package or another setting is missing."""


class CacheEntryError(TilewrightError):
    """The file of a kernel's stage is gone, and what the kernel was compiled from has changed since."""


class LazyAsm(MutableMapping[str, Any]):
    """Stage → text or bytes. Files of a cache entry are read when asked for. ``again``: gives all stages where the files are gone then; where there is none,
    that is a CacheEntryError."""

    again: Callable[[], Mapping[str, Any]] | None = None

    def __init__(self, values: Mapping[str, Any] | None = None, files: Mapping[str, tuple[str, bool]] | None = None):
        self._values: dict[str, Any] = dict(values or {})
        self._files: dict[str, tuple[str, bool]] = dict(files or {})
        self._order = list(dict.fromkeys([*self._files, *self._values]))

    def __reduce__(self) -> Any:
        return (LazyAsm, (dict(self),))  # read now: the files may be gone where it is used

    def __getitem__(self, stage: str) -> Any:
        if stage not in self._values:
            if stage not in self._files:
                raise KeyError(f"no stage {stage!r}; there are {', '.join(self._order)}")
            path, binary = self._files[stage]
            try:
                with open(path, "rb") as f:
                    data = f.read()
            except OSError as error:
                made = {} if self.again is None else self.again()
                if stage not in made:
                    raise CacheEntryError(f"stage {stage!r} of a compiled kernel lay in {path}, which cannot be read any more ({error.strerror}), and its source, "
                                          "settings or globals are others by now; launch the kernel, or compile it, and take what that returns") from None
                self._values.update({s: v for s, v in made.items() if s in self._files and s not in self._values})
            else:
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


def safe_name(name: str) -> str:
    """A kernel's name as the beginning of its files' names."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:100] or "kernel"


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
            loaded: dict[str, bytes] = {}
            for stage, (name, size, crc, binary) in index["files"].items():
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    data = f.read()
                if len(data) != size or zlib.crc32(data) != crc:
                    raise ValueError(f"{path} is damaged")
                files[stage] = (path, binary)
                if binary:  # what is loaded, perhaps on another device later, when the folder may be gone
                    loaded[stage] = data
            text = json.dumps(index["metadata"], sort_keys=True)
            if zlib.crc32(text.encode()) != index["metadata_crc"] or index["format"] != FORMAT:
                raise ValueError(f"{folder} is damaged")
            return LazyAsm(loaded, files), index["metadata"]
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
            safe = safe_name(name)
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
        if override and dump:
            raise CacheBackendError("a cache manager is of the dump folder or of the override folder, not of both")
        self.cache_dir = os.path.join(root, key)
        os.makedirs(self.cache_dir, exist_ok=True)

    def _path(self, filename: str) -> str:
        return os.path.join(self.cache_dir, filename)

    def has_file(self, filename: str) -> bool:
        return os.path.exists(self._path(filename))

    def get_file(self, filename: str) -> str | None:
        path = self._path(filename)
        return path if os.path.exists(path) else None

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


class RemoteCacheBackend:
    """Where a RemoteCacheManager keeps files: subclass it, and name the class by ``knobs.cache.remote_manager_class``. ``key``: the entry's."""

    def __init__(self, key: str):
        self.key = key

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """The files that are there, by name."""
        raise NotImplementedError(f"{type(self).__name__} must define get(filenames)")

    def put(self, filename: str, data: bytes) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define put(filename, data)")


class RedisRemoteCacheBackend(RemoteCacheBackend):
    """Files in a Redis server (``knobs.redis``: host, port, key_format). Needs the package redis."""

    def __init__(self, key: str):
        super().__init__(key)
        try:
            import redis
        except ImportError:
            raise CacheBackendError("the Redis cache needs the package redis; pip install redis, or unset TRITON_REMOTE_CACHE_BACKEND") from None
        self._format = knobs.redis.key_format
        self._redis = redis.Redis(host=knobs.redis.host, port=knobs.redis.port)

    def _name(self, filename: str) -> str:
        return self._format.format(key=self.key, filename=filename)

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        found = self._redis.mget([self._name(f) for f in filenames])
        return {f: data for f, data in zip(filenames, found) if data is not None}

    def put(self, filename: str, data: bytes) -> None:
        self._redis.set(self._name(filename), data)


class RemoteCacheManager(FileCacheManager):
    """A cache whose files lie with ``knobs.cache.remote_manager_class``; each is kept in the local folder once it was read."""

    def __init__(self, key: str, override: bool = False, dump: bool = False):
        super().__init__(key, override, dump)
        backend = knobs.cache.remote_manager_class
        if backend is None:
            raise CacheBackendError("RemoteCacheManager asks knobs.cache.remote_manager_class (TRITON_REMOTE_CACHE_BACKEND) where files lie, and it is not set")
        self._backend = backend(key)

    def has_file(self, filename: str) -> bool:
        return self.get_file(filename) is not None

    def get_file(self, filename: str) -> str | None:
        local = super().get_file(filename)
        if local is not None:
            return local
        found = self._backend.get([filename])
        return super().put(found[filename], filename) if filename in found else None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        content = bytes(data) if isinstance(data, (bytes, bytearray)) else str(data).encode()
        self._backend.put(filename, content)
        return super().put(content, filename)

    def get_group(self, filename: str) -> dict[str, str] | None:
        path = self.get_file(f"__grp__{filename}")
        if path is None:
            return None
        with open(path, encoding="utf-8") as f:
            names = json.load(f)["child_paths"]
        found = {name: self.get_file(name) for name in names}
        return {name: path for name, path in found.items() if path is not None}


class ManagedCache:
    """``Cache`` by way of a class of the user's (``knobs.cache.manager_class``) with FileCacheManager's methods: an entry is a group of files."""

    def __init__(self, manager: Callable[[str], Any]):
        self.manager = manager
        self.folder = getattr(manager, "__name__", str(manager))

    def get(self, key: str) -> tuple[LazyAsm, dict[str, Any]] | None:
        """As ``Cache.get``; an entry that is damaged is absent."""
        group = self.manager(_base32(key)).get_group(_INDEX) or {}
        try:
            with open(group[_INDEX], "rb") as f:
                index = json.loads(f.read())
            files: dict[str, tuple[str, bool]] = {}
            loaded: dict[str, bytes] = {}
            for stage, (name, size, crc, binary) in index["files"].items():
                with open(group[name], "rb") as f:
                    data = f.read()
                if len(data) != size or zlib.crc32(data) != crc:
                    return None
                files[stage] = (group[name], binary)
                if binary:
                    loaded[stage] = data
            return (LazyAsm(loaded, files), index["metadata"]) if index["format"] == FORMAT else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: str, asm: Mapping[str, Any], metadata: Mapping[str, Any], name: str) -> LazyAsm:
        manager = self.manager(_base32(key))
        group: dict[str, str] = {}
        listed: dict[str, list[Any]] = {}
        for stage, value in asm.items():
            binary = isinstance(value, (bytes, bytearray))
            data, file = bytes(value) if binary else str(value).encode(), f"{safe_name(name)}.{stage}"
            group[file] = manager.put(data, file, binary=True)
            listed[stage] = [file, len(data), zlib.crc32(data), binary]
        index = json.dumps({"format": FORMAT, "files": listed, "metadata": json.loads(json.dumps(dict(metadata)))})
        group[_INDEX] = manager.put(index, _INDEX, binary=False)
        manager.put_group(_INDEX, group)
        return LazyAsm(files={stage: (group[file], binary) for stage, (file, _, _, binary) in listed.items()})

    def remove(self, key: str) -> None:
        """Nothing: the next ``put`` takes the entry's place."""


def cache_for_settings() -> Cache | ManagedCache:
    """The cache of compiled kernels that the settings name."""
    manager = knobs.cache.manager_class
    return Cache() if manager is None or manager is FileCacheManager else ManagedCache(manager)


def get_cache_manager(key: str) -> Any:
    """The cache manager of a hex key: of the class ``knobs.cache.manager_class``, else a FileCacheManager."""
    return (knobs.cache.manager_class or FileCacheManager)(_base32(key))


def get_dump_manager(key: str) -> Any:
    """A manager of the dump folder."""
    return (knobs.cache.manager_class or FileCacheManager)(_base32(key), dump=True)


def get_override_manager(key: str) -> Any:
    """A manager of the override folder."""
    return (knobs.cache.manager_class or FileCacheManager)(_base32(key), override=True)
