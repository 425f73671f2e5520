"""Runs a pipeline: MLIR passes on a PassManager, then translations. Dumps, verification, timing and reproducers are here.

Environment: ``MLIR_ENABLE_DUMP=1`` (or ``=kernel_name``) prints the IR before and after every pass to stderr;
``TILEWRIGHT_VERIFY=1`` verifies after every pass (tests; else after the frontend and before lowering: verifying ops that
Python declares costs about 20 µs each); ``TILEWRIGHT_PRINT_TIMES=1`` prints the milliseconds of every pass to stderr.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import ArgumentError, CompilationError, InternalCompilerError, TilewrightError
from tilewright.dialects.pipeline import Pass, PassContext, Pipeline, Stage
from tilewright.dialects.printer import print_module
from tilewright.dialects.settings import from_variable, truth

LOWERING_PASS = "lower_to_llvm"
_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')


# ------------------------------------------------------------------------------------------------------- places
def place_of(location: Any) -> tuple[str, int, int] | None:
    """(file, line, 0-based column) of an MLIR location, the innermost where calls were inlined; None if unknown."""
    found = _PLACE.search(str(location))
    return (found.group(1), int(found.group(2)), max(int(found.group(3)) - 1, 0)) if found else None


def error_at(error: CompilationError, op: Any) -> CompilationError:
    """``error`` with the place of ``op``'s source line, for ``raise error_at(ShapeMismatchError("…"), op)``."""
    place = place_of(op.location)
    return error.at(*place) if place else error


def _ops_of(module: Any) -> list[Any]:
    from tilewright.dialects._mlir import ir

    ops: list[Any] = []
    advance = ir.WalkResult.ADVANCE

    def collect(op: Any) -> Any:
        ops.append(op)
        return advance

    module.operation.walk(collect, ir.WalkOrder.PRE_ORDER)
    return ops


def _same(op: Any, other: Any) -> bool:
    try:
        return bool(op == other)
    except RuntimeError:  # erased
        return False


def _place_of_failure(error: BaseException, module: Any) -> tuple[str, int, int] | None:
    """Where in the user's source: of the ``op`` that the innermost frame worked on, else of the kernel."""
    ops = _ops_of(module)
    tb, candidates = error.__traceback__, []
    while tb is not None:
        candidates.append(tb.tb_frame.f_locals.get("op"))
        tb = tb.tb_next
    for candidate in reversed(candidates):
        operation = getattr(candidate, "operation", None)
        # an op is asked for its location only when it is still in the module: an erased one would be a dangling pointer
        alive = next((op for op in ops if operation is not None and _same(op, operation)), None)
        if alive is not None and alive.name not in ("builtin.module", "func.func") and (place := place_of(alive.location)):
            return place
    return next((p for op in ops if op.name == "func.func" and (p := place_of(op.location))), None)


# -------------------------------------------------------------------------------------------------------- runner
def _wants_dump(kernel_name: str) -> bool:
    value = os.environ.get("MLIR_ENABLE_DUMP", "")
    return value not in ("", "0") and value in ("1", kernel_name)


@dataclass
class _Settings:
    dump: bool
    verify_each: bool
    times: list[tuple[str, float]] | None

    @staticmethod
    def of(ctx: PassContext) -> _Settings:
        dump = _wants_dump(ctx.kernel_name)
        return _Settings(dump, dump or from_variable(("TILEWRIGHT_VERIFY",), truth, False),
                         [] if from_variable(("TILEWRIGHT_PRINT_TIMES",), truth, False) else None)


def _verify(module: Any, when: str) -> None:
    from tilewright.dialects._mlir import ir

    try:
        module.operation.verify()
    except ir.MLIRError as e:
        raise InternalCompilerError(f"the IR {when} is not valid: {e}") from e


def _verify_layouts(module: Any, when: str) -> None:
    from tilewright.dialects.passes import verify_layouts

    try:
        verify_layouts.run(module)
    except InternalCompilerError as e:
        raise InternalCompilerError(f"the IR {when} breaks a rule of layouts: {e}") from e


def _write_reproducer(snapshot: Any, passes: Sequence[Pass], ctx: PassContext) -> str:
    target = f" --target {ctx.target.name}:{ctx.arch}" if getattr(ctx.target, "name", None) else ""
    names = ",".join(p.name for p in passes)
    options = "".join(f" --{flag.replace('_', '-')} {getattr(ctx.options, flag)}"
                      for flag in ("num_warps", "num_stages") if hasattr(ctx.options, flag))
    if not target and hasattr(ctx.capabilities, "warp_size"):
        options += f" --warp-size {ctx.capabilities.warp_size}"
    folder = tempfile.mkdtemp(prefix="tilewright-reproducer-")
    path = os.path.join(folder, f"{ctx.kernel_name or 'kernel'}.mlir")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"// tilewright opt {path} --passes {names}{target}{options}\n")
        f.write(print_module(snapshot, locations=True))
    return path


def run_passes(module: Any, passes: Sequence[Pass], ctx: PassContext) -> None:
    """Run MLIR passes on ``module`` in place, in order, on one PassManager.

    A TilewrightError comes out as itself (a CompilationError with its place where the failing op has one); any other
    exception as an InternalCompilerError that names the pass, the user's line and a reproducer file.
    """
    _run_passes(module, passes, ctx, _Settings.of(ctx))


def _run_passes(module: Any, passes: Sequence[Pass], ctx: PassContext, settings: _Settings) -> None:
    from tilewright.dialects._mlir import PassManager

    if not passes:
        return
    snapshot = module.operation.clone()  # 0.1 ms for 300 ops; printed only when a pass fails
    state: dict[str, Any] = {"done": 0, "error": None}

    def wrap(p: Pass) -> Callable[[Any, Any], None]:
        def call(op: Any, handle: Any) -> None:
            try:
                if settings.dump:
                    _dump(module, f"Before {p.name}", ctx)
                if p.name == LOWERING_PASS and not settings.verify_each:
                    _verify(module, "before lowering")
                start = time.perf_counter()
                p.run(module, ctx)
                if settings.times is not None:
                    settings.times.append((p.name, time.perf_counter() - start))
                if settings.dump:
                    _dump(module, f"After {p.name}", ctx)
                if settings.verify_each:
                    _verify(module, f"after {p.name}")
                    _verify_layouts(module, f"after {p.name}")
                state["done"] += 1
            except BaseException as e:  # noqa: BLE001 - carried over the C++ frames and raised below
                state["error"] = e
                handle.signal_pass_failure()

        return call

    manager = PassManager()
    manager.enable_verifier(False)
    for p in passes:
        manager.add(wrap(p), name=p.name, argument=p.name, description=p.doc)
    try:
        manager.run(module.operation)
    except BaseException as e:
        error = state["error"] or e
        _raise(error, module, snapshot, passes[: state["done"] + 1], ctx)


def _raise(error: BaseException, module: Any, snapshot: Any, passes: Sequence[Pass], ctx: PassContext) -> None:
    if not isinstance(error, Exception):  # KeyboardInterrupt
        raise error
    if isinstance(error, TilewrightError) and not isinstance(error, InternalCompilerError):
        if isinstance(error, CompilationError) and not error.file and (place := _place_of_failure(error, module)):
            raise error.at(*place) from error
        raise error
    name = passes[-1].name
    path = _write_reproducer(snapshot, passes, ctx)
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = (f"pass {name} failed: {type(error).__name__}: {getattr(error, 'message', None) or error} "
               f"({os.path.basename(last.filename)}:{last.lineno}).\n"
               f"This is a mistake in the compiler, not in the kernel. To run it again: tilewright opt {path} "
               f"--passes {','.join(p.name for p in passes)}")
    failure = InternalCompilerError(message)
    if place := _place_of_failure(error, module):
        failure = failure.at(*place)  # type: ignore[assignment]
    raise failure from error


def _dump(module: Any, what: str, ctx: PassContext) -> None:
    print(f"// -----// IR Dump {what} ({ctx.kernel_name or 'kernel'}) //----- //\n{print_module(module)}",
          file=sys.stderr, flush=True)


def run_pipeline(pipeline: Pipeline, module: Any, ctx: PassContext) -> dict[str, Any]:
    """Run every stage; the result maps a stage's name to its str or bytes (MLIR stages: text with aliases).

    ``module`` is an ``ir.Module`` of tt, verified first, and is changed in place. A stage's passes need the MLIR module, so they come
    before the first translation. A translation that returns None leaves nothing and hands its input on.
    """
    settings = _Settings.of(ctx)
    asm: dict[str, Any] = {}
    code: Any = module
    with mlir_context():
        _verify(module, "from the frontend")
        for stage in pipeline.stages:
            if stage.passes:
                if code is not module:
                    raise ValueError(f"stage {stage.name!r} has passes, but an earlier stage has left MLIR already")
                _run_passes(module, stage.passes, ctx, settings)
            if stage.translate is None:
                if code is module:
                    asm[stage.name] = print_module(module)
                    if (given := _replacement(stage, asm[stage.name], pipeline, ctx)) is not None:
                        asm[stage.name] = given
                        code = module = _parsed(stage.name, given)
                        measure_allocation(module, ctx)
                continue
            start = time.perf_counter()
            produced = _translate(stage, code, module, ctx)
            if settings.times is not None:
                settings.times.append((f"{stage.name} (translation)", time.perf_counter() - start))
            if produced is not None:
                given = _replacement(stage, produced, pipeline, ctx)
                asm[stage.name] = code = produced if given is None else given
    if settings.times is not None:
        for name, seconds in settings.times:
            print(f"{seconds * 1e3:9.2f} ms  {name}", file=sys.stderr)
    return asm


def _replacement(stage: Stage, produced: Any, pipeline: Pipeline, ctx: PassContext) -> Any:
    """The user's code in place of what a stage left, or None. Raises ArgumentError where later stages would not be made from it."""
    given = None if ctx.replace is None else ctx.replace(stage.name, produced)
    if given is not None and not stage.is_source:
        others = ", ".join(s.name for s in pipeline.stages if s.is_source)
        raise ArgumentError(f"the code of stage {stage.name} cannot be replaced: what follows is not made from its text. Replace one of {others}")
    return given


def measure_allocation(module: Any, ctx: PassContext) -> None:
    """Let the metadata agree with IR text of a user's, whose buffers have their places already; nothing where they have none."""
    if any("allocation.offset" in op.attributes for op in _ops_of(module)):
        from tilewright.dialects.allocated_bytes import measure

        measure(module, ctx)


def _parsed(stage: str, text: str) -> Any:
    """A user's IR in place of a stage's."""
    from tilewright.dialects._mlir import ir

    try:
        return ir.Module.parse(text)
    except ir.MLIRError as error:
        raise CompilationError(f"the IR given in place of stage {stage} does not parse: {error}") from error


def _translate(stage: Stage, code: Any, module: Any, ctx: PassContext) -> Any:
    assert stage.translate is not None
    try:
        return stage.translate(code, ctx)
    except TilewrightError:
        raise
    except Exception as e:
        folder = tempfile.mkdtemp(prefix="tilewright-reproducer-")
        text = print_module(module) if code is module else code
        path = os.path.join(folder, f"{ctx.kernel_name or 'kernel'}.before-{stage.name}")
        with open(path, "wb") as f:
            f.write(text if isinstance(text, bytes) else str(text).encode())
        failure = InternalCompilerError(f"stage {stage.name} failed: {type(e).__name__}: {e}. Its input is in {path}")
        place = _place_of_failure(e, module)
        raise (failure.at(*place) if place else failure) from e


# ------------------------------------------------------------------------------------------------ tilewright opt
@dataclass(frozen=True)
class GenericCapabilities:
    """What `tilewright opt` assumes without ``--target``: the fields of targets.protocol.Capabilities that passes read."""

    arch: str = "generic"
    warp_size: int = 32
    max_shared_bytes: int = 64 * 1024
    max_threads: int = 1024
    registers_per_thread: int = 255
    matrix_ops: tuple[str, ...] = ()
    async_copy_bytes: tuple[int, ...] = ()
    max_vector_bits: int = 128
    shared_banks: int = 32
    max_num_ctas: int = 1
    float8_types: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GenericOptions:
    """The launch options that shared passes read."""

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    enable_fp_fusion: bool = True


ResolveTarget = Callable[[str, dict[str, Any]], tuple[PassContext, Pipeline]]


def opt_main(argv: Sequence[str], resolve_target: ResolveTarget | None = None) -> int:
    """``tilewright opt FILE.mlir --passes a,b``: run passes on MLIR text and print the result.

    ``resolve_target("NAME:ARCH", {"num_warps": 4, "num_stages": 3})`` gives the context and pipeline of a target, whose own
    passes can then be named too; without ``--target`` a generic GPU is assumed, set by flags. Returns the exit status; mistakes
    in the text or the flags are printed to stderr (status 1; argparse's own 2).
    """
    from tilewright.dialects.passes import SHARED_PASSES, pass_doc, shared_pass

    parser = argparse.ArgumentParser(prog="tilewright opt", description="Run compiler passes on MLIR text.")
    parser.add_argument("file", nargs="?", help="MLIR text; - for standard input")
    parser.add_argument("--passes", default="", help="comma-separated names, run in this order; none: parse and print")
    parser.add_argument("--target", help="NAME or NAME:ARCH, for its capabilities and its own passes")
    parser.add_argument("--num-warps", type=int, default=4)
    parser.add_argument("--num-stages", type=int, default=3)
    parser.add_argument("--warp-size", type=int, default=32, help="lanes of a warp (without --target)")
    parser.add_argument("--max-shared-bytes", type=int, default=64 * 1024, help="without --target")
    parser.add_argument("--async-copy-bytes", default="", help="comma-separated sizes, e.g. 4,8,16 (without --target)")
    parser.add_argument("--locations", action="store_true", help="print source locations")
    parser.add_argument("--list", action="store_true", help="list the passes and stop")
    args = parser.parse_args(list(argv))

    known = {name: shared_pass(name) for name in SHARED_PASSES}
    try:
        if args.target:
            if resolve_target is None:
                parser.error("--target needs the command line tool: run `tilewright opt`")
            ctx, pipeline = resolve_target(args.target, {"num_warps": args.num_warps, "num_stages": args.num_stages})
            known.update({p.name: p for _, p in pipeline.passes()})
        else:
            sizes = tuple(int(s) for s in args.async_copy_bytes.split(",") if s)
            ctx = PassContext(target=None, arch="generic", options=GenericOptions(args.num_warps, args.num_stages),
                              capabilities=GenericCapabilities(warp_size=args.warp_size, async_copy_bytes=sizes,
                                                               max_shared_bytes=args.max_shared_bytes))
        if args.list:
            for name in known:
                print(f"{name:28} {pass_doc(name) if name in SHARED_PASSES else known[name].doc}")
            return 0
        if not args.file:
            parser.error("the file is missing")
        names = [n for n in args.passes.split(",") if n]
        if unknown := [n for n in names if n not in known]:
            print(f"error: no pass {unknown[0]!r}; there are {', '.join(known)}", file=sys.stderr)
            return 1
        text = sys.stdin.read() if args.file == "-" else _read(args.file)
        print(run_text(text, [known[n] for n in names], ctx, args.locations))
        return 0
    except UnicodeDecodeError as e:
        print(f"error: {args.file} is no UTF-8 text ({e}); opt reads MLIR text, not bytecode or objects", file=sys.stderr)
        return 1
    except (TilewrightError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as f:
        return f.read()


def run_text(text: str, passes: Sequence[Pass], ctx: PassContext, locations: bool = False) -> str:
    """MLIR text after ``passes``. Raises CompilationError where the text does not parse."""
    from tilewright.dialects._mlir import ir

    with mlir_context():
        if not ctx.kernel_name and (found := re.search(r"func\.func\s+(?:\w+\s+)?@([\w$.]+)", text)):
            ctx.kernel_name = found.group(1)
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as e:
            raise CompilationError(f"the text does not parse as MLIR: {e}") from e
        run_passes(module, passes, ctx)
        return print_module(module, locations)
