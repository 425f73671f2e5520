"""One file with a kernel compiled for several targets, and what loads it: ``tilewright compile … --target A,B --bundle FILE``, ``load_bundle``.

    relu = tilewright.load_bundle("relu.tilewright")
    relu[(grid,)](x, y, n)            # the code of the device that x and y lie on

A zip archive. ``index.json``: {"format": 1, "tilewright": version, "kernel": name, "parameters": [names], "specialisations": [{"types": [of each
parameter, "constexpr" for constants], "constants": {name: value}, "divisible": [names of those divisible by 16], "code": [{"target", "arch",
"metadata", "files": {stage: [path, is binary]}, "options", "made_on" (of code for the host's own processor), "variants": [{"options", "metadata",
"files"}]}]}]}. The archive's own CRC-32 guards every file.
Nothing of the compiler is imported to load and launch.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright._version import tilewright_version
from tilewright.compiler.compiled import CompiledKernel
from tilewright.dialects.errors import ArgumentError, BundleError
from tilewright.language.const import constexpr
from tilewright.runtime.cache import LazyAsm
from tilewright.runtime.errors import LaunchSignatureError
from tilewright.runtime.specialize import ALIGN, ALIGNMENT, describe, element_name
from tilewright.targets import registry

FORMAT = 1
_INDEX = "index.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same input gives the same file
_RANGES = {f"{sign}{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) if sign == "i" else (0, (1 << bits) - 1) for sign in "iu" for bits in (8, 16, 32, 64)}


# ------------------------------------------------------------------------------------------------------------------ writing
def _constant(value: Any) -> Any:
    """A constexpr's value as JSON has it; a type by its name."""
    if isinstance(value, (tuple, list)):
        return [_constant(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    try:
        return {"dtype": element_name(value)}
    except ArgumentError:
        raise ArgumentError(f"a bundle holds constexpr values of numbers, text, None, types and tuples of these; found {value!r}") from None


def _entry(kernel: CompiledKernel, folder: str, put: Callable[[str, bytes], None]) -> dict[str, Any]:
    files = {}
    for stage, code in kernel.asm.items():
        path = f"{folder}/{stage}"
        put(path, code if isinstance(code, bytes) else code.encode())
        files[stage] = [path, isinstance(code, bytes)]
    return {"metadata": kernel.metadata._asdict() | {"target": None}, "files": files}


def write_bundle(path: str, kernels: Sequence[Sequence[CompiledKernel]]) -> dict[str, Any]:
    """Write kernels, per specialisation one for each target, compiled from ``ASTSource``s of one jit function. Returns the index.

    What a target's launcher may ask to be compiled otherwise (``metadata["launch_variants"]``) is compiled and written too. Raises
    BundleError where a target leaves no code that can be loaded, ArgumentError where a signature cannot be kept in a file.
    """
    contents: dict[str, bytes] = {}
    first = kernels[0][0].src
    index: dict[str, Any] = {"format": FORMAT, "tilewright": tilewright_version, "kernel": first.name, "parameters": list(first.fn.arg_names),
                             "specialisations": []}
    for i, row in enumerate(kernels):
        source = row[0].src
        types = source.types()
        if any(not isinstance(t, str) for t in types) or any(len(path) != 1 for path in (*source.constants, *source.attrs)):
            raise ArgumentError(f"{source.name}: a bundle does not hold kernels with parameters that are tuples")
        names = index["parameters"]
        listed = {"types": types, "constants": {names[n]: _constant(v) for (n,), v in source.constants.items()},
                  "divisible": [names[n] for (n,) in source.attrs], "code": []}
        for kernel in row:
            plugin, arch = kernel.selection.plugin, kernel.selection.arch
            if plugin.binary_stage not in kernel.asm and plugin.source_stage not in kernel.asm:
                raise BundleError(f"{kernel.name} for {kernel.selection}: there is neither {plugin.binary_stage} nor {plugin.source_stage}")
            folder = f"{i}/{plugin.name}/{arch}"
            entry = {"target": plugin.name, "arch": arch, "options": _plain(kernel.given), **_entry(kernel, folder, contents.__setitem__), "variants": []}
            if _is_host(plugin, arch):
                entry["made_on"] = plugin.fingerprint()
            facts = kernel.metadata._asdict()
            if (facts.get("host") or {}).get("guards") and not facts.get("launch_variants"):
                raise BundleError(f"{kernel.name} for {kernel.selection} is checked at each launch, and the target does not tell (metadata launch_variants) "
                                  "what is launched where a check fails")
            for j, options in enumerate(facts.get("launch_variants") or ()):
                variant = kernel.variant(options)
                entry["variants"].append({"options": dict(options), **_entry(variant, f"{folder}/{j}", contents.__setitem__)})
            listed["code"].append(entry)
        index["specialisations"].append(listed)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in ((_INDEX, json.dumps(index, indent=1, default=list).encode()), *sorted(contents.items())):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "wb") as f:
        f.write(data.getvalue())
    os.replace(temporary, path)
    return index


def _is_host(plugin: Any, arch: str) -> bool:
    """Whether code for ``arch`` is for the very processor that it was compiled on."""
    return bool(plugin.name == registry.FALLBACK and arch == plugin.default_arch)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v if v is None or isinstance(v, (bool, int, float, str)) else str(v) for k, v in options.items()}


# ------------------------------------------------------------------------------------------------------------------ reading
class _Source:
    """What a CompiledKernel asks of its source: names and types."""

    def __init__(self, name: str, signature: Mapping[str, Any]):
        self.name, self.signature = name, dict(signature)


class BundledKernel(CompiledKernel):
    """A kernel of a bundle. What its launcher asks to be compiled otherwise must be in the bundle too."""

    def variant(self, options: Mapping[str, Any]) -> CompiledKernel:
        found = self.variants.get(tuple(sorted(options.items())))
        if found is None:
            listed = ", ".join(f"{k}={v}" for k, v in options.items())
            raise BundleError(f"{self.name}: this launch needs the kernel compiled with {listed}, which the bundle does not hold; make it again")
        return found


def _same(value: Any, held: Any) -> bool:
    """Whether an argument is the constant that was compiled in: True is not 1, and 1.0 is not."""
    given = _constant(value.value if isinstance(value, constexpr) else value)
    return type(given) is type(held) and bool(given == held)


def misfit(kind: str, divisible: bool, value: Any) -> str:
    """Why ``value`` cannot be passed to a parameter of a signature's type; "" where it can."""
    if kind in _RANGES or kind == "i1":
        if not hasattr(value, "__index__") or hasattr(value, "data_ptr"):
            return f"it is {kind}; found {type(value).__name__}"
        low, high = _RANGES.get(kind, (0, 1))
        number = int(value)
        if not low <= number <= high:
            return f"it is {kind}, from {low} to {high}; found {number}"
        return f"the code is for multiples of {ALIGNMENT}; found {number}" if divisible and number % ALIGNMENT else ""
    if not kind.startswith(("*", "tensordesc<")):  # a float
        return "" if isinstance(value, (int, float)) or (hasattr(value, "__float__") and not getattr(value, "ndim", 0)) else f"it is {kind}; found {type(value).__name__}"
    if kind.startswith("*") and isinstance(value, int) and not isinstance(value, bool):  # an address
        return f"the code is for addresses divisible by {ALIGNMENT}" if divisible and value % ALIGNMENT else ""
    found = describe(value, ALIGN)
    wanted = "*" + kind[2:] if kind.startswith("*k") else kind
    if found.type != wanted:
        return f"it is {wanted}; found {found.type if isinstance(found.type, str) and found.type != 'constexpr' else type(value).__name__}"
    if divisible and not found.attrs:
        return f"the code is for {'addresses' if kind.startswith('*') else 'last sizes'} divisible by {ALIGNMENT}"
    return ""


class Specialisation:
    """The kernel for one signature: parameters, constants, and code for several archs."""

    def __init__(self, bundle: Bundle, data: Mapping[str, Any]):
        self.bundle = bundle
        self.types: list[str] = list(data["types"])
        self.constants: dict[str, Any] = dict(data["constants"])
        self.divisible = frozenset(data["divisible"])
        self.code = {(e["target"], e["arch"]): e for e in data["code"]}
        self._kernels: dict[registry.Selection, BundledKernel] = {}

    def values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """One value a parameter, constants filled in. Raises ArgumentError where the arguments are not those the code is for."""
        names, run_time = self.bundle.parameters, [n for n, t in zip(self.bundle.parameters, self.types) if t != "constexpr"]
        given: dict[str, Any] = {}
        if len(args) > len(names):
            raise LaunchSignatureError(f"{self.bundle.name} takes {len(names)} arguments ({', '.join(names)}); {len(args)} were given")
        given.update(zip(names, args))
        for name, value in kwargs.items():
            if name not in names:
                raise LaunchSignatureError(f"{self.bundle.name} has no parameter {name!r}; it has {', '.join(names)}; options are compiled in")
            if name in given:
                raise LaunchSignatureError(f"{self.bundle.name}: {name!r} is given twice")
            given[name] = value
        missing = [n for n in run_time if n not in given]
        if missing:
            raise LaunchSignatureError(f"{self.bundle.name}: no argument is given for {', '.join(missing)}")
        values = []
        for name, kind in zip(names, self.types):
            if kind == "constexpr":
                held = self.constants[name]
                if name in given and not _same(given[name], held):
                    raise ArgumentError(f"argument {name!r} of {self.bundle.name}: the code is for {held!r}; found {given[name]!r}")
                values.append(held)
                continue
            why = misfit(kind, name in self.divisible, given[name])
            if why:
                raise ArgumentError(f"argument {name!r} of {self.bundle.name}: {why}")
            values.append(given[name])
        return values

    def kernel(self, selection: registry.Selection) -> BundledKernel:
        """The kernel for a target's arch. Raises BundleError where the file has none."""
        found = self._kernels.get(selection)
        if found is None:
            entry = self.code.get((selection.plugin.name, selection.arch))
            if entry is None:
                raise BundleError(f"{self.bundle.path} has no code for {selection.plugin.name}:{selection.arch}; it has code for "
                                  f"{', '.join(':'.join(key) for key in self.code)}. Compile it with --target {selection.plugin.name}:{selection.arch} too")
            if _is_host(selection.plugin, selection.arch) and entry.get("made_on") != (here := selection.plugin.fingerprint()):
                raise BundleError(f"{self.bundle.path}: its code for {selection} was made on another machine ({entry.get('made_on')}; here: {here}). Compile "
                                  f"it here, or for a named arch ({', '.join(a for a in selection.plugin.archs if a != selection.arch)}) that TILEWRIGHT_TARGET then selects")
            found = self._made(entry, entry["options"], selection)
            for v in entry["variants"]:
                found.variants[tuple(sorted(v["options"].items()))] = self._made(v, {**entry["options"], **v["options"]}, selection)
            self._kernels[selection] = found
        return found

    def _made(self, entry: Mapping[str, Any], options: Mapping[str, Any], selection: registry.Selection) -> BundledKernel:
        bundle = self.bundle
        asm = LazyAsm({stage: bundle.read(path) if binary else bundle.read(path).decode() for stage, (path, binary) in entry["files"].items()})
        metadata = {**entry["metadata"], "bundled": True}
        triple = selection.gpu_target
        metadata["target"] = {"backend": triple.backend, "arch": triple.arch, "warp_size": triple.warp_size}
        return BundledKernel(_Source(bundle.name, dict(zip(bundle.parameters, self.types))), asm, metadata, metadata["hash"], selection, self.types, options)


class Bundle:
    """A file of compiled code. ``bundle[grid](*args, **kwargs)`` launches as the jit function would: arguments by position stand in the order of
    all its parameters; constants may be left out, and must be what was compiled where they are given. ``targets``: what it holds ("NAME:ARCH")."""

    def __init__(self, path: str):
        self.path = path
        try:
            with open(path, "rb") as f:
                self._archive = zipfile.ZipFile(io.BytesIO(f.read()))
            index = json.loads(self.read(_INDEX))
        except OSError as error:
            raise BundleError(f"{path}: the bundle cannot be read: {error.strerror or error}") from error
        except (zipfile.BadZipFile, ValueError) as error:
            raise BundleError(f"{path} is no bundle, or damaged: {error}") from error
        if not isinstance(index, dict) or index.get("format") != FORMAT:
            found = index.get("format") if isinstance(index, dict) else None
            raise BundleError(f"{path} is a bundle of format {found!r}; this Tilewright reads format {FORMAT}. Make it again, or update Tilewright")
        try:
            self.name: str = index["kernel"]
            self.parameters: list[str] = list(index["parameters"])
            self.specialisations = [Specialisation(self, s) for s in index["specialisations"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise BundleError(f"{path} is damaged: its index lacks {error}") from error
        self._chosen: dict[Any, registry.Selection] = {}

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(":".join(key) for s in self.specialisations for key in s.code))

    def __repr__(self) -> str:
        return f"Bundle({self.name}, {', '.join(self.targets)})"

    def read(self, name: str) -> bytes:
        """A file of the archive. Raises BundleError where it is missing or its CRC is wrong."""
        try:
            return self._archive.read(name)
        except KeyError:
            raise BundleError(f"{self.path} is damaged: it lacks {name}") from None
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise BundleError(f"{self.path} is damaged: {name}: {error}") from error

    def _selection(self, kinds: Sequence[Any], values: Sequence[Any]) -> registry.Selection:
        from tilewright.runtime.driver import driver
        from tilewright.runtime.launch_target import check_devices, choose

        places = {name: describe(v, ALIGN).devices for name, kind, v in zip(self.parameters, kinds, values)
                  if kind.startswith(("*", "tensordesc<")) and not isinstance(v, int)}
        devices = frozenset(d for found in places.values() for d in found)
        key = (devices, os.environ.get("TILEWRIGHT_TARGET"), driver.selected())
        selection = self._chosen.get(key)
        if selection is None:
            selection = choose(driver, devices)
            check_devices(self.name, selection, places)
            self._chosen[key] = selection
        return selection

    def kernel(self, *args: Any, **kwargs: Any) -> tuple[BundledKernel, list[Any]]:
        """(the code that these arguments are launched with, one value a parameter). Raises ArgumentError, BundleError."""
        refused: list[str] = []
        for s in self.specialisations:
            try:
                values = s.values(args, kwargs)
            except ArgumentError as error:
                if len(self.specialisations) == 1:
                    raise
                refused.append(str(error))
                continue
            return s.kernel(self._selection(s.types, values)), values
        raise ArgumentError(f"{self.name} was compiled for {len(refused)} signatures, and these arguments fit none: {'; '.join(refused)}")

    def __getitem__(self, grid: Any) -> Callable[..., BundledKernel]:
        def launch(*args: Any, **kwargs: Any) -> BundledKernel:
            from tilewright.runtime.driver import driver

            kernel, values = self.kernel(*args, **kwargs)
            kernel[grid(dict(zip(self.parameters, values))) if callable(grid) else grid](*values)
            driver.recent = kernel
            return kernel

        return launch


def load_bundle(path: Any) -> Bundle:
    """What ``tilewright compile --bundle`` wrote. Raises BundleError where the file is missing, cannot be read, is damaged or of another format."""
    return Bundle(os.fspath(path))
