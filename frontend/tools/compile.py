"""Compile a kernel ahead of time to C source: ``python -m tilewright.tools.compile --kernel-name K --signature "*fp32:16, i32, 128" --grid "n/128, 1, 1" FILE.py``.

The C file holds the code and a function that launches it; link it with the vendor's driver library. ``tilewright compile --bundle`` makes one file
for several archs instead, which Python loads.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.dialects.errors import ArgumentError


@dataclass
class CompileArgs:
    """path: the Python file; kernel_name: in it; signature: for each parameter a type ("*fp32", "i32"), with ":16" where its value is divisible by 16 and
    ":1" where it is 1, or the value of a constexpr; grid: three C expressions of the parameters; target: "backend:arch:warp size" as Triton writes it,
    or as Tilewright does ("NAME:ARCH"), None: this machine's; out_name: of the C function; out_path: of the files, whose ending is replaced."""

    path: str = ""
    kernel_name: str = ""
    signature: str = ""
    grid: str = ""
    target: str | None = None
    num_warps: int = 1
    num_stages: int = 3
    out_name: str | None = None
    out_path: Path | None = None


def _constant(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return {"True": True, "False": False, "None": None}.get(text, _NONE)


_NONE = object()


def _target(text: str | None) -> Any:
    from tilewright.targets import registry
    from tilewright.targets.protocol import GPUTarget

    if text is None:
        return registry.select()
    parts = text.split(":")
    if len(parts) == 3 and parts[2].isdigit():
        return registry.select(GPUTarget(parts[0], int(parts[1]) if parts[1].isdigit() else parts[1], int(parts[2])))
    return registry.select(text)


def compile_kernel(args: CompileArgs) -> tuple[str, list[Path]]:
    """Write the header and the C file; (the C function's name, their paths). The name ends in a hash of the signature, so that several specialisations
    can be linked together. Raises ArgumentError for a wrong signature, and where the target's drivers cannot be called from C."""
    from tilewright._utils import load_file
    from tilewright.compiler.compiler import ASTSource, compile_selected
    from tilewright.testing import _utility

    kernel: Any = getattr(load_file(str(args.path)), args.kernel_name, None)
    while kernel is not None and not hasattr(kernel, "params") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    if not hasattr(kernel, "params"):
        raise ArgumentError(f"{args.path} has no kernel {args.kernel_name!r}")
    grid = [part.strip() for part in args.grid.split(",")]
    entries = [part.strip() for part in args.signature.split(",")]
    if len(grid) != 3 or not all(grid):
        raise ArgumentError(f"the grid is three C expressions, separated by commas; found {args.grid!r}")
    if len(entries) != len(kernel.arg_names):
        raise ArgumentError(f"{args.kernel_name} has the parameters {', '.join(kernel.arg_names)}, and the signature {len(entries)} entries: {args.signature!r}")
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attrs: dict[tuple[int, ...], list[list[Any]]] = {}
    shown: list[tuple[str, str]] = []
    for i, (name, entry) in enumerate(zip(kernel.arg_names, entries)):
        kind, _, hint = entry.partition(":")
        value = _constant(entry)
        if hint not in ("", "1", "16"):
            raise ArgumentError(f"the hint of {name} is :1 or :16; found {entry!r}")
        signature[name] = "constexpr" if value is not _NONE or hint == "1" else kind
        if value is not _NONE:
            constants[name] = value
            continue
        shown.append((name, kind))
        if hint == "1":
            constants[name] = 1
        elif hint == "16":
            attrs[(i,)] = [["tt.divisibility", 16]]
    selection = _target(args.target)
    make = _utility("c_source", selection.plugin)
    source = ASTSource(kernel, signature, constants, attrs)
    options: dict[str, Any] = {"num_warps": args.num_warps, "num_stages": args.num_stages}
    compiled = compile_selected(source, selection, options)
    for variant in compiled.metadata._asdict().get("launch_variants") or ():  # a C function checks no arguments and makes no tensor maps
        options.update(variant)
    if len(options) > 2:
        compiled = compile_selected(source, selection, options)
    facts = compiled.metadata._asdict()
    if (facts.get("host") or {}).get("guards") or (facts.get("host") or {}).get("descriptors") or facts.get("persistent"):
        raise ArgumentError(f"{args.kernel_name}: its launches need work of the host, which C source does not do; use `tilewright compile --bundle`")
    binary = compiled.asm[selection.plugin.binary_stage]
    digest = hashlib.sha256(" ".join([*entries, str(selection), f"warps{args.num_warps}xstages{args.num_stages}"]).encode()).hexdigest()[:8]
    suffix = "".join(f"{i}{ {'1': 'c', '16': 'd'}.get(e.partition(':')[2], '')}" for i, e in enumerate(entries))
    name = f"{args.out_name or args.kernel_name}_{digest}_{suffix}"
    comment = f"{args.kernel_name}({', '.join(entries)}) for {selection}, num_warps={args.num_warps}"
    texts = make(name, binary, facts, shown, [(n, k) for n, k in shown if signature[n] != "constexpr"], grid, comment)
    base = Path(args.out_path) if args.out_path else Path(args.out_name or args.kernel_name)
    files = []
    for ending, text in texts.items():
        path = base.with_suffix(f".{digest}_{suffix}.{ending}")
        path.write_text(text, encoding="utf-8")
        files.append(path)
    return name, files


def main(argv: Sequence[str] | None = None) -> int:
    """The command line, with Triton's flags."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.tools.compile", description="Compile a kernel to C source.")
    parser.add_argument("path")
    parser.add_argument("--kernel-name", "-n", required=True)
    parser.add_argument("--target", "-t", default=None)
    parser.add_argument("--num-warps", "-w", type=int, default=1)
    parser.add_argument("--num-stages", "-ns", type=int, default=3)
    parser.add_argument("--out-name", "-on", default=None)
    parser.add_argument("--out-path", "-o", type=Path, default=None)
    parser.add_argument("--signature", "-s", required=True)
    parser.add_argument("--grid", "-g", required=True)
    name, files = compile_kernel(CompileArgs(**vars(parser.parse_args(argv))))
    print(name, *files)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
