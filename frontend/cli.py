"""The command line: ``tilewright demo | targets | compile | matrix | run | opt``."""

from __future__ import annotations

import argparse
import ast
import json
import os
import runpy
import sys
from collections.abc import Sequence
from typing import Any

from tilewright._version import __version__, tilewright_version
from tilewright.dialects.errors import ArgumentError, TilewrightError


# -------------------------------------------------------------------------------------------------------------------- demo
def _demo(args: argparse.Namespace) -> int:
    from tilewright import demo

    rows = []
    if not args.json:
        print(f"{demo.KERNEL}: y = relu(x @ w + b), fp16, {'x'.join(map(str, demo.SHAPE))}")
    for selected in demo.selections(args.target or ()):
        row = selected if isinstance(selected, dict) else demo.row(selected)
        rows.append(row)
        if not args.json:
            _print_row(row)
    if args.json:
        print(json.dumps([{k: v for k, v in row.items() if k != "note"} for row in rows], indent=1))
    return 1 if any("error" in row for row in rows) or not rows else 0


def _print_row(row: dict[str, Any]) -> None:
    if row["compiled"]:
        facts = [" ".join(f"{stage} {size}" for stage, size in row["stages"].items())]
        facts += [f"{row[k]} {word}" for k, word in (("registers", "registers"), ("spills", "spills"), ("shared_bytes", "shared bytes"))
                  if row[k] is not None]
        if row["ran"]:
            facts.append(f"ran, max error {row['max_error']:.1e}")
        else:
            facts.append(row.get("note", "not run: no such device here"))
        print(f"{row['target']:<18} {'; '.join(facts)}", flush=True)
    if "error" in row:
        print(f"{row['target']:<18} FAILED: {row['error'].splitlines()[0]}", flush=True)


# ----------------------------------------------------------------------------------------------------------------- targets
def _targets(args: argparse.Namespace) -> int:
    from tilewright.targets import registry

    out = []
    for entry in registry.entries():
        item: dict[str, Any] = {"name": entry.name, "origin": entry.origin}
        if entry.plugin is None:
            item["error"] = f"{type(entry.error).__name__}: {entry.error}"
        else:
            p = entry.plugin
            item.update(aliases=list(p.aliases), archs=list(p.archs), default_arch=p.default_arch, device_types=list(p.device_types),
                        simulator=p.simulator is not None, fingerprint=_tools(p),
                        devices=[{"index": d.index, "name": d.name, "arch": d.arch} for d in registry.probe(p)])
        out.append(item)
    if args.json:
        print(json.dumps(out, indent=1))
        return 0
    try:
        chosen = str(registry.select())
    except TilewrightError as error:
        chosen = f"none ({error})"
    for item in out:
        if "error" in item:
            print(f"{item['name']}: BROKEN ({item['origin']}): {item['error']}")
            continue
        also = f" ({', '.join(item['aliases'])})" if item["aliases"] else ""
        print(f"{item['name']}{also}: {', '.join(item['archs'])}{'; simulator' if item['simulator'] else ''}")
        for device in item["devices"]:
            print(f"    device {device['index']}: {device['name']}, {device['arch']}")
        if not item["devices"]:
            print(f"    no device; compiles for {item['default_arch']} unless told")
        print(f"    tools: {item['fingerprint']}")
    print(f"selected now: {chosen}")
    return 0


def _tools(plugin: Any) -> str:
    try:
        return plugin.fingerprint()
    except Exception as error:
        return f"unknown ({type(error).__name__}: {error})"


# ----------------------------------------------------------------------------------------------------------------- compile
def load_kernel(place: str) -> Any:
    """The jit function of ``FILE.py:NAME`` (under its autotuner or heuristics, if any)."""
    path, _, name = place.rpartition(":")
    if not path or not name:
        raise ArgumentError(f"a kernel is given as FILE.py:NAME; found {place!r}")
    if not os.path.isfile(path):
        raise ArgumentError(f"there is no file {path!r}")
    from tilewright._utils import load_file

    module = load_file(path)
    kernel = getattr(module, name, None)
    while kernel is not None and not hasattr(kernel, "params") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    if kernel is None or not hasattr(kernel, "params"):
        known = [n for n, v in vars(module).items() if hasattr(v, "arg_names")]
        raise ArgumentError(f"{path} has no kernel {name!r}; it has {', '.join(known) or 'none'}")
    return kernel


def _split(text: str) -> list[str]:
    """At commas outside brackets and quotes."""
    parts, depth, quote, current = [], 0, "", ""
    for c in text:
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if c == "," and depth == 0 and not quote:
            parts.append(current.strip())
            current = ""
        else:
            current += c
    if current.strip():
        parts.append(current.strip())
    return parts


def parse_signature(kernel: Any, text: str) -> tuple[dict[str, Any], dict[str, Any], dict[Any, Any]]:
    """(signature, constexprs, attrs) of "*fp32:16,*fp32:16,i32,256": one entry a parameter, in order or as NAME=ENTRY.

    An entry is a type ("*fp16", "i32", "tensordesc<fp16[128,64]>"), a type with ":16" (divisible by 16; of a descriptor its last
    size is), "i32:1" (the value 1), or a constexpr's value as Python
    writes it (256, True, 'name', None; a type's name for a constexpr parameter that takes one).
    """
    from tilewright.language.dtypes import str_to_ty

    names = [p.name for p in kernel.params]
    given: dict[str, str] = {}
    for i, entry in enumerate(_split(text)):
        name, eq, rest = entry.partition("=")
        if eq and name.strip() in names:
            key, value = name.strip(), rest.strip()
        elif i < len(names):
            key, value = names[i], entry
        else:
            raise ArgumentError(f"the signature has more entries than the {len(names)} parameters {', '.join(names)}")
        if key in given:
            raise ArgumentError(f"the signature gives {key!r} twice")
        given[key] = value
    signature: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    attrs: dict[Any, Any] = {}
    for p in kernel.params:
        if p.name not in given:
            continue
        kind, _, hint = given[p.name].partition(":")
        try:
            parsed = str_to_ty(kind)
        except TilewrightError as error:
            if kind.startswith("tensordesc"):  # meant as a type, and no value
                raise ArgumentError(f"{p.name}: {error}") from None
            parsed = None
        if parsed is not None and not p.is_constexpr:
            if hint not in ("", "1", "16"):
                raise ArgumentError(f"{p.name}: after a type stands :16 (divisible by 16) or :1 (the value 1); found :{hint}")
            if hint == "1":
                constants[p.name] = 1
                continue
            signature[p.name] = kind
            if hint:
                attrs[(p.num,)] = [["tt.divisibility", 16]]
            continue
        if parsed is not None:
            constants[p.name] = parsed
            continue
        try:
            constants[p.name] = ast.literal_eval(given[p.name])
        except (ValueError, SyntaxError):
            raise ArgumentError(f"{p.name}: {given[p.name]!r} is neither a type (*fp32, i32, fp16, …) nor a value") from None
    return signature, constants, attrs


def _options(args: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in ("num_warps", "num_stages", "num_ctas"):
        if getattr(args, name, None) is not None:
            options[name] = getattr(args, name)
    for text in args.option or ():
        name, eq, value = text.partition("=")
        if not eq:
            raise ArgumentError(f"an option is given as NAME=VALUE; found {text!r}")
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options


def _signatures(args: argparse.Namespace, kernel: Any) -> list[str]:
    if not args.signature:
        raise ArgumentError(f"--signature is needed: one entry for each of {', '.join(kernel.arg_names)}, such as '*fp32:16', 'i32' or a value")
    return list(args.signature)


def _bundle(args: argparse.Namespace) -> int:
    """Compile for several targets into one file (``tilewright.bundle``)."""
    from tilewright.bundle import write_bundle
    from tilewright.compiler import ASTSource, compile
    from tilewright.targets import registry

    wrong = [flag for flag, value in (("--emit", args.emit), ("--output", args.output)) if value]
    if wrong:
        raise ArgumentError(f"--bundle writes all stages; leave {wrong[0]} out")
    if not args.target:
        raise ArgumentError("--bundle needs --target A,B,…")
    if not os.path.isdir(os.path.dirname(os.path.abspath(args.bundle))) or os.path.isdir(args.bundle):
        raise ArgumentError(f"--bundle: {args.bundle!r} is a folder" if os.path.isdir(args.bundle) else f"--bundle: there is no folder for {args.bundle!r}")
    selections = [registry.parse(name.strip()) for name in args.target.split(",")]
    if len({(s.plugin.name, s.arch) for s in selections}) < len(selections):
        raise ArgumentError(f"--target names an arch twice: {args.target}")
    if args.kernel.endswith((".ttir", ".ttgir", ".mlir")):
        raise ArgumentError("a bundle is made of FILE.py:KERNEL, whose parameters have names")
    kernel = load_kernel(args.kernel)
    sources = [ASTSource(kernel, *parse_signature(kernel, text)) for text in _signatures(args, kernel)]
    rows = [[compile(source, target=s, options=_options(args)) for s in selections] for source in sources]
    if args.explain:
        print("\n".join(compiled.explain() for row in rows for compiled in row))
    index = write_bundle(args.bundle, rows)
    print(f"{args.bundle}: {index['kernel']} for {', '.join(f'{s.plugin.name}:{s.arch}' for s in selections)}, {os.path.getsize(args.bundle)} bytes")
    return 0


def _compile(args: argparse.Namespace) -> int:
    from tilewright.compiler import ASTSource, compile
    from tilewright.targets import registry

    if args.bundle:
        return _bundle(args)
    if args.target and "," in args.target:
        raise ArgumentError("several targets are compiled into one file: --bundle FILE")
    if args.signature and len(args.signature) > 1:
        raise ArgumentError("several signatures are compiled into one file: --bundle FILE")
    selection = registry.select(args.target)
    if args.kernel.endswith((".ttir", ".ttgir", ".mlir")):
        source: Any = args.kernel
    else:
        kernel = load_kernel(args.kernel)
        source = ASTSource(kernel, *parse_signature(kernel, _signatures(args, kernel)[0]))
    compiled = compile(source, target=selection, options=_options(args))
    if args.explain:
        alone = args.emit is None and args.output is None
        print(compiled.explain(), file=sys.stdout if alone else sys.stderr)
        if alone:
            return 0
    if args.emit == "list" or (args.emit is None and args.output is None and selection.plugin.source_stage not in compiled.asm):
        for name, text in compiled.asm.items():
            print(f"{name:<10} {len(text)} {'bytes' if isinstance(text, bytes) else 'characters'}")
        return 0
    stage = args.emit or (selection.plugin.binary_stage if args.output else selection.plugin.source_stage)
    if stage == "metadata":
        code: Any = json.dumps(compiled.metadata._asdict(), indent=1, default=str)
    elif stage not in compiled.asm:
        raise ArgumentError(f"no stage {stage!r} was made for {selection}; there are {', '.join(compiled.asm)}, metadata, list")
    else:
        code = compiled.asm[stage]
    data = code if isinstance(code, bytes) else code.encode()
    if args.output:
        with open(args.output, "wb") as f:
            f.write(data)
    elif isinstance(code, bytes):
        sys.stdout.buffer.write(data)
    else:
        print(code, end="" if code.endswith("\n") else "\n")
    return 0


# ------------------------------------------------------------------------------------------------------------------ matrix
def _matrix(args: argparse.Namespace) -> int:
    from tilewright import matrix

    return matrix.main(args, _options(args), lambda text: print(text, flush=True))


# --------------------------------------------------------------------------------------------------------------- run, opt
def _run(args: argparse.Namespace) -> int:
    from tilewright.dropin import install_as_triton

    script = args.script
    if not args.module and not os.path.exists(script):  # said without a traceback; what the script itself raises keeps its own
        print(f"error: there is no file {script!r}", file=sys.stderr)
        return 1
    install_as_triton()
    if args.module:
        sys.argv = [script, *args.args]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(script, run_name="__main__", alter_sys=True)
        return 0
    sys.argv = [script, *args.args]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    runpy.run_path(script, run_name="__main__")
    return 0


def _resolve_target(text: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """Context and pipeline of a target, for ``opt``."""
    from tilewright.compiler.compiler import load_target, pass_context
    from tilewright.compiler.options import make_options
    from tilewright.dialects.context import mlir_context
    from tilewright.targets import registry

    selection = registry.parse(text)
    made = make_options(selection, options)
    with mlir_context():
        load_target(selection.plugin)
    return pass_context(selection, made), selection.plugin.pipeline(selection.arch, made)


def _opt(argv: Sequence[str]) -> int:
    from tilewright.dialects.pass_runner import opt_main

    return opt_main(argv, _resolve_target)


def _count(text: str) -> int:
    """A number of 0 or more, for argparse."""
    if (number := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"a number of 0 or more; found {text}")
    return number


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"a number of 1 or more; found {text}")
    return number


def _seconds(text: str) -> float:
    if not 0 < (seconds := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"a number of seconds above 0; found {text}")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tilewright", description="Kernels in the Triton language, compiled for several vendors.")
    parser.add_argument("--version", action="version", version=f"tilewright {tilewright_version} (Triton API {__version__})")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="compile one kernel for every target, and launch it where there is a device")
    demo.add_argument("--json", action="store_true", help="print a list of rows")
    demo.add_argument("--target", action="append", metavar="NAME[:ARCH]", help="only this target (may be repeated)")
    demo.set_defaults(call=_demo)

    targets = commands.add_parser("targets", help="list the targets with their devices, archs and errors")
    targets.add_argument("--json", action="store_true")
    targets.set_defaults(call=_targets)

    compile_ = commands.add_parser("compile", help="compile a kernel without a device, and print a stage")
    compile_.add_argument("kernel", help="FILE.py:KERNEL, or an IR file (.ttir, .ttgir)")
    compile_.add_argument("--target", metavar="NAME[:ARCH]", help="what to compile for; the active target if left out; several, with commas, for --bundle")
    compile_.add_argument("--signature", action="append", help="one entry a parameter: '*fp32:16,*fp32:16,i32,256'; NAME=ENTRY out of order "
                          "(may be repeated for --bundle)")
    compile_.add_argument("--bundle", metavar="FILE", help="write one file with the code for all targets, for tilewright.load_bundle")
    compile_.add_argument("--emit", metavar="STAGE", help="stage to print (ttir, ttgir, llir, …, metadata, list); the target's assembly if left out")
    compile_.add_argument("--explain", action="store_true", help="print what the compiler chose and why, and what a launch checks and makes")
    compile_.add_argument("--num-warps", type=int)
    compile_.add_argument("--num-stages", type=int)
    compile_.add_argument("--num-ctas", type=int)
    compile_.add_argument("--option", action="append", metavar="NAME=VALUE", help="another option of the target (may be repeated)")
    compile_.add_argument("-o", "--output", help="write the stage (without --emit: the binary) to this file")
    compile_.set_defaults(call=_compile)

    matrix = commands.add_parser("matrix", help="run a file's kernels on every target: compiled, resources, error against float64")
    matrix.add_argument("file", metavar="FILE.py", help="has tilewright_cases(device), which yields tilewright.testing.Case objects (docs/ci.md)")
    matrix.add_argument("--targets", metavar="A,B,…", help="NAME[:ARCH[:sim]] or interpreter; all if left out. A device is used where it is there, "
                        "else the simulator, else kernels are only compiled")
    matrix.add_argument("--cases", metavar="PATTERN", help="only cases whose names match, such as '*float16*'")
    matrix.add_argument("--compile-only", action="store_true", help="run nothing")
    matrix.add_argument("--kernel", metavar="NAME", help="compile this kernel alone, without cases")
    matrix.add_argument("--signature", help="of --kernel, as for compile; else what its annotations say")
    matrix.add_argument("--option", action="append", metavar="NAME=VALUE", help="a launch option of --kernel (may be repeated)")
    matrix.add_argument("--json", metavar="FILE", help="write all figures as JSON; - for standard output, in place of the table")
    matrix.add_argument("--junit", metavar="FILE", help="write JUnit XML")
    matrix.add_argument("--html", metavar="FILE", help="write a page")
    matrix.add_argument("--max-spills", type=_count, metavar="N", help="more spilled registers than these are a failure")
    matrix.add_argument("--timeout", type=_seconds, default=600.0, metavar="SECONDS", help="of each target (600)")
    matrix.add_argument("--jobs", type=_at_least_one, metavar="N", help="targets at a time; up to 4 by the processors if left out")
    matrix.set_defaults(call=_matrix)

    run = commands.add_parser("run", help="run a script that says `import triton`")
    run.add_argument("-m", "--module", action="store_true", help="the script is a module's name")
    run.add_argument("script")
    run.add_argument("args", nargs=argparse.REMAINDER)
    run.set_defaults(call=_run)

    commands.add_parser("opt", help="run compiler passes on MLIR text (see tilewright opt --help)", add_help=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit status: 0, 1 for a failure that is named on stderr, 2 for wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["opt"]:
        return _opt(arguments[1:])
    args = _parser().parse_args(arguments)
    if args.command == "run":
        return _run(args)
    try:
        return args.call(args)
    except (TilewrightError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
