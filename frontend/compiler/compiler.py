"""``compile``: from a source to a ``CompiledKernel``, by way of the disk cache.

On a hit nothing of MLIR or LLVM is imported. The key holds the source with all that it depends on, the specialisation, the options, the
target and its tools, and the compiler itself (design, section 6).
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
import time
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

from tilewright import knobs
from tilewright.compiler.compiled import CompiledKernel, KernelMetadata, LazyDict
from tilewright.compiler.options import make_options, options_dict, warn_ignored_ctas
from tilewright.compiler.source import ASTSource, IRSource
from tilewright.dialects.errors import (
    ArgumentError,
    CompilationError,
    CompileTimeAssertionFailure,
    InternalCompilerError,
    OutOfResources,
    UnsupportedLanguageConstruct,
    VariantNeeded,
)
from tilewright.runtime.cache import (
    FORMAT,
    Cache,
    LazyAsm,
    cache_for_settings,
    compiler_stamp,
    folder_stamp,
    safe_name,
    triton_key,
)
from tilewright.runtime.compile_ahead import compiling
from tilewright.runtime.dependencies import stable_text
from tilewright.targets import registry
from tilewright.targets.protocol import GPUTarget

_plugin_stamps: dict[int, tuple[Any, str]] = {}
_warned = False


def _plugin_stamp(plugin: Any, arch: str, options: Any) -> str:
    """Identity of the target's code. Of an installed plugin: its tools and files. Of one registered in the process: its pipeline."""
    if registry.is_in_process(plugin):
        pipeline = plugin.pipeline(arch, options)
        functions = [f"{p.name} {stable_text(p.run)}" for _, p in pipeline.passes()]
        functions += [f"{s.name} {stable_text(s.translate)}" for s in pipeline.stages if s.translate is not None]
        return "\n".join([pipeline.describe(), *functions, plugin.fingerprint()])
    known = _plugin_stamps.get(id(plugin))
    if known is None:
        folder = registry.origin_folder(plugin)
        # shipped targets lie in Tilewright's own folders, which compiler_stamp covers
        stamp = folder_stamp(folder) if folder else ""
        known = _plugin_stamps[id(plugin)] = (plugin, f"{stamp}\n{plugin.fingerprint()}")
    return known[1]


def get_cache_key(src: Any, selection: registry.Selection, options: Any, ir_override: str | os.PathLike[Any] | None = None) -> str:
    """The hex key of a compilation. ``ir_override``: the path of a user's code in place of a stage's."""
    plugin = selection.plugin
    parts = [FORMAT, compiler_stamp(), src.hash(), plugin.name, selection.arch]
    parts += [f"{name}={stable_text(value)}" for name, value in sorted(options_dict(options).items())]
    parts.append(_plugin_stamp(plugin, selection.arch, options))
    if settings := knobs.code_key(plugin):
        parts.append(settings)
    if ir_override is not None:
        parts.append(f"{ir_override} {hashlib.sha256(_read(ir_override)).hexdigest()}")
    return hashlib.sha256("\n\n".join(parts).encode()).hexdigest()


def compile(src: Any, target: Any = None, options: Mapping[str, Any] | None = None, _env_vars: Any = None) -> CompiledKernel:  # noqa: A001
    """Compile for a target; no device is needed.

    src: an ASTSource, an IRSource, or the path of an IR file (".ttir", ".ttgir"). target: a GPUTarget, text ("NAME:ARCH"), or None for
    the active one. options: what a launch may set on that target (num_warps, num_stages, …). Raises CompilationError for a mistake
    in the kernel, ArgumentError for an unknown option, UnsupportedArchError, TargetNotFoundError, OutOfResources.
    """
    if isinstance(src, (str, os.PathLike)):
        src = IRSource(src)
    if not callable(getattr(src, "hash", None)):
        raise ArgumentError(f"compile takes an ASTSource, an IRSource or the path of an IR file, not {src!r}")
    if options is not None and not isinstance(options, Mapping):
        raise ArgumentError(f"options is a dict, such as {{'num_warps': 8}}; found {options!r} ({type(options).__name__})")
    if target is None:
        from tilewright.runtime.driver import driver

        selection = driver.selected() or registry.select()
    else:
        selection = registry.select(target)
    return compile_selected(src, selection, dict(options or {}))


def compile_selected(src: Any, selection: registry.Selection, given: Mapping[str, Any]) -> CompiledKernel:
    """``compile`` for a target that is already chosen."""
    with compiling():
        kernel = _compile_selected(src, selection, given)
    warn_ignored_ctas(selection, kernel.name, src, given)
    return kernel


def _compile_selected(src: Any, selection: registry.Selection, given: Mapping[str, Any]) -> CompiledKernel:
    knobs.tell_without_effect(selection.plugin)
    if knobs.runtime.override_arch:
        selection = dataclasses.replace(selection, arch=selection.plugin.resolve_arch(knobs.runtime.override_arch))
    if isinstance(src, IRSource):
        given = src.options(given, selection.plugin.capabilities(selection.arch).warp_size)
    ir_override = given.get("ir_override")
    if ir_override is not None and not isinstance(ir_override, (str, os.PathLike)):
        raise ArgumentError(f"ir_override is the path of a file with a stage's code; found {ir_override!r} ({type(ir_override).__name__})")
    options = make_options(selection, {k: v for k, v in given.items() if k != "ir_override"})
    replace = None if ir_override is None else _replacements(selection, options, "", src.name, ir_override)
    key = get_cache_key(src, selection, options, ir_override)
    if replace is None and knobs.compilation.override:
        replace = _replacements(selection, options, key, src.name, None)
    if replace is not None and ir_override is None:  # files of the override folder, which the key does not know
        asm_values, metadata = _compile(src, selection, options, key, replace)
        return CompiledKernel(src, LazyAsm(asm_values), metadata, key, selection, _types(metadata["types"]), given)
    cache = cache_for_settings()
    dumping = os.environ.get("MLIR_ENABLE_DUMP", "0") in ("1", src.name) or knobs.environment_flag("PRINT_TIMES")
    listener = knobs.compilation.listener
    start = time.perf_counter()
    if not (knobs.compilation.always_compile or dumping):
        found = cache.get(key)
        if found is not None:
            asm, metadata = found
            asm.again = partial(_again, src, selection, options, key, ir_override, replace)
            if knobs.compilation.dump_ir:
                Cache(knobs.cache.dump_dir).put(key, asm, metadata, metadata["name"])
            if listener is not None:
                listener(src=src, metadata=metadata, metadata_group={}, times={"total": time.perf_counter() - start}, cache_hit=True)
            return CompiledKernel(src, asm, metadata, key, selection, _types(metadata["types"]), given)
    asm_values, metadata = _compile(src, selection, options, key, replace)
    if knobs.compilation.dump_ir:
        Cache(knobs.cache.dump_dir).put(key, asm_values, metadata, metadata["name"])
    if knobs.compilation.always_compile:
        cache.remove(key)
    kept = asm_values
    if knobs.compilation.store_binary_only:
        kept = {stage: code for stage, code in asm_values.items() if stage == selection.plugin.binary_stage} or asm_values
    stored = cache.put(key, kept, metadata, metadata["name"])
    if stored is None:
        _warn_unwritable(cache.folder)
    if listener is not None:
        listener(src=src, metadata=metadata, metadata_group={}, times={"total": time.perf_counter() - start}, cache_hit=False)
    asm = LazyAsm(asm_values, stored._files if stored is not None else None)
    return CompiledKernel(src, asm, metadata, key, selection, _types(metadata["types"]), given)


def _again(src: Any, selection: registry.Selection, options: Any, key: str, ir_override: Any, replace: Any) -> dict[str, Any]:
    """The stages of a compilation whose files in the cache are gone; none where it would not be the same."""
    return _compile(src, selection, options, key, replace)[0] if get_cache_key(src, selection, options, ir_override) == key else {}


def is_cached(src: Any, selection: registry.Selection, given: Mapping[str, Any]) -> bool:
    """Whether the disk cache seems to hold what ``compile_selected`` would make; True also where nobody could put it there beforehand."""
    if knobs.compilation.always_compile or knobs.compilation.override or knobs.runtime.override_arch or given.get("ir_override") is not None:
        return True
    key = get_cache_key(src, selection, make_options(selection, given))
    cache = cache_for_settings()
    return not isinstance(cache, Cache) or os.path.isdir(cache.path(key))


def load_compiler(selection: registry.Selection) -> None:
    """Import what compiling for a target needs."""
    from tilewright.dialects.context import mlir_context

    with mlir_context():
        load_target(selection.plugin)


def _read(path: str | os.PathLike[Any]) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as error:
        raise ArgumentError(f"ir_override: {path} cannot be read ({error.strerror})") from None


def _replacements(selection: registry.Selection, options: Any, key: str, name: str, ir_override: str | os.PathLike[Any] | None) -> Any:
    """``replace(stage, code) → a user's code or None`` for ``PassContext``, or None where there is none: the file ``ir_override``, whose ending
    names its stage, or those of the override folder's entry ``key`` (laid out as the dump folder's), where KERNEL_OVERRIDE is set."""
    stages = [s.name for s in selection.plugin.pipeline(selection.arch, options).stages]
    found: dict[str, str] = {}
    if ir_override is not None:
        ending = os.path.splitext(ir_override)[1].removeprefix(".")
        if ending not in stages:  # before the file is read for the key
            raise ArgumentError(f"ir_override is a file whose ending names a stage of target {selection}: {', '.join(stages)}; found {ir_override!r}")
        found[ending] = os.fspath(ir_override)
    else:
        folder = os.path.join(knobs.cache.override_dir, key)
        found = {s: path for s in stages if os.path.isfile(path := os.path.join(folder, f"{safe_name(name)}.{s}"))}
    if not found:
        return None

    def replace(stage: str, code: Any) -> Any:
        if stage not in found:
            return None
        data = _read(found[stage])
        return data if isinstance(code, (bytes, bytearray)) else data.decode()

    return replace


def _types(listed: Any) -> list[Any]:
    return [tuple(_types(t)) if isinstance(t, (list, tuple)) else t for t in listed]


def _plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return int(value) if hasattr(value, "__index__") else str(value)


def load_target(plugin: Any) -> None:
    """Make the target's dialects and matrix instructions known. Inside ``mlir_context()``."""
    from tilewright.dialects.context import ensure_dialects
    from tilewright.dialects.matrix_ops import register_rows

    ensure_dialects(*plugin.dialects())
    register_rows(plugin.matrix_ops())


def pass_context(selection: registry.Selection, options: Any, kernel_name: str = "") -> Any:
    """The PassContext of a compilation."""
    from tilewright.dialects.pipeline import PassContext

    return PassContext(target=selection.plugin, arch=selection.arch, capabilities=selection.plugin.capabilities(selection.arch),
                       options=options, kernel_name=kernel_name)


def _stages_from(pipeline: Any, ext: str) -> Any:
    """The pipeline's stages after the one that IR text is at."""
    names = [stage.name for stage in pipeline.stages]
    if ext in ("mlir", ""):
        return pipeline
    if ext not in names:
        raise CompilationError(f"IR of stage {ext!r} does not belong to this target's stages {', '.join(names)}")
    if ext == "ttir":
        return pipeline
    return type(pipeline)(pipeline.stages[names.index(ext) + 1:])


def _compile(src: Any, selection: registry.Selection, options: Any, key: str, replace: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stages' code and metadata. A pass may ask for other options (VariantNeeded); metadata["variants"] then says which and why."""
    variants: list[dict[str, Any]] = []
    while True:
        try:
            asm, metadata = _compile_once(src, selection, options, key, replace)
        except VariantNeeded as needed:
            changed = dataclasses.replace(options, **needed.options)
            if changed == options:
                raise InternalCompilerError(f"the options asked for are set already: {needed}") from needed
            options = changed
            variants.append({"options": dict(needed.options), "reason": needed.reason})
        else:
            if variants:
                metadata["variants"] = variants
            return asm, metadata


def _compile_once(src: Any, selection: registry.Selection, options: Any, key: str, replace: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    from tilewright.dialects.context import mlir_context
    from tilewright.dialects.pass_runner import measure_allocation, run_pipeline

    plugin = selection.plugin
    ctx = pass_context(selection, options, src.name)
    ctx.line_tables, ctx.replace = not knobs.compilation.disable_line_info, replace
    pipeline = plugin.pipeline(selection.arch, options)
    if isinstance(src, IRSource):
        pipeline = _stages_from(pipeline, src.ext)
    limit = sys.getrecursionlimit()
    with mlir_context():
        load_target(plugin)
        begin = time.perf_counter()
        module = src.make_module(selection, options)
        if knobs.environment_flag("PRINT_TIMES"):
            print(f"{(time.perf_counter() - begin) * 1e3:9.2f} ms  frontend", file=sys.stderr)
        if isinstance(src, IRSource):
            measure_allocation(module, ctx)
        asm = run_pipeline(pipeline, module, ctx)
        if isinstance(src, IRSource):
            asm = {src.ext: src.src, **asm}
    if sys.getrecursionlimit() != limit:
        sys.setrecursionlimit(limit)
    triple = selection.gpu_target
    metadata: dict[str, Any] = {"num_warps": 1, "num_stages": 1, "num_ctas": 1, "shared": 0, "warp_size": ctx.capabilities.warp_size,
                                "cluster_dims": (1, 1, 1), "global_scratch_size": 0, "profile_scratch_size": 0,
                                "registers": None, "spills": None}
    metadata.update(options_dict(options))
    metadata["name"] = src.name
    metadata.update(ctx.metadata)
    metadata.update(hash=key, types=src.types(), arch=selection.arch,
                    target={"backend": triple.backend, "arch": triple.arch, "warp_size": triple.warp_size})
    if not metadata.get("name"):
        metadata["name"] = src.name
    return asm, _plain(metadata)


def _warn_unwritable(folder: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"compiled kernels cannot be kept in {folder}; every process compiles them again. "
                      "Set TILEWRIGHT_CACHE_DIR to a folder that can be written.", stacklevel=4)


class Backend:
    """A target under the names that Triton's backends have."""

    def __init__(self, selection: registry.Selection):
        self.selection = selection
        self.target = selection.gpu_target
        self.binary_ext = selection.plugin.binary_stage

    def parse_options(self, options: Mapping[str, Any]) -> Any:
        return make_options(self.selection, options)

    def hash(self) -> str:
        return f"{self.selection}-{self.selection.plugin.fingerprint()}"

    @staticmethod
    def parse_attr(text: str) -> list[list[Any]]:
        return [["tt.divisibility", 16]] if "D" in text else []

    def load_dialects(self, context: Any) -> None:
        """Every context has the target's."""

    def get_codegen_implementation(self, options: Any = None) -> dict[str, Any]:
        """What Triton's code generator takes from a backend: nothing here."""
        return {}

    def get_module_map(self) -> dict[str, Any]:
        """Modules of the target's that stand in for others: none."""
        return {}


def make_backend(target: Any) -> Backend:
    """The backend of a GPUTarget."""
    return Backend(registry.select(target))


__all__ = [
    "ASTSource", "Backend", "CompilationError", "CompileTimeAssertionFailure", "CompiledKernel", "GPUTarget", "IRSource", "KernelMetadata",
    "LazyDict", "OutOfResources", "UnsupportedLanguageConstruct", "compile", "compile_selected", "get_cache_key", "load_target",
    "make_backend", "pass_context", "triton_key",
]
