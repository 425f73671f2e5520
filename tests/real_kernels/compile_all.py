"""Compile every kernel of an unpacked package with guessed arguments, on each target, and print what was refused, by class. Run by hand:

    python tests/real_kernels/compile_all.py FOLDER --targets cpu,nvidia:sm_90a,amd:gfx942 --out results.jsonl
    python tests/real_kernels/compile_all.py --report results.jsonl [--reference PYTHON_WITH_TRITON]

FOLDER is what goes on ``sys.path`` (a wheel unpacked, nothing installed). What the package imports and this machine lacks is replaced by
stand-ins, and a package whose ``__init__`` fails is taken as far as it came: only the kernels' text counts. A kernel is a jit function
that the package launches, or that tunes itself. Each is compiled twice, with arguments guessed from names and from use: float32 arrays and
flags off, then float16 arrays and flags on. A guess may well make no sense; so ``--reference`` compiles with Triton what was refused
here, with the same arguments, and the report counts apart what both refuse. ``frontend`` as a target stops at the Triton dialect.
"""

from __future__ import annotations

import argparse
import ast
import collections
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import traceback
from pathlib import Path
from typing import Any

SECONDS = int(os.environ.get("COMPILE_ALL_SECONDS", "120"))  # for one kernel on one target
_FLAGS = re.compile(r"^(is|has|use|store|apply|enable|with|return|output|do|add|save|causal|need|reverse|head_first|trans|even|allow|fuse|norm|compute|"
                    r"need|check|write|load|accum|in_place|inplace|want|skip|per|tf32|fp8|transpose|varlen|gated|safe|sparse)(_|$)|_flag$|causal|varlen", re.I)
_INDICES = re.compile(r"idx|ind(ex|ices|ptr)|offset|offs|lens?$|_len|seqlen|ids?$|table|cu_|slot|label|order|pos|start|map|page|count|num_|loc$|perm|expert|bins", re.I)
_REALS = re.compile(r"eps|scale|alpha|beta|gamma|temperature|softcap|cap$|^p$|_p$|dropout|prob|momentum|^lr$|slope|clip|limit|decay|weight|ratio|thresh|sigma|value|norm", re.I)
_SIZES = re.compile(r"^(D|K|V|DK|DV|C|E|N|M|S|T|R|L)$|dim|size|width|hidden|head_d|cols|channels|^BLOCK|^B[A-Z]$|TILE|CHUNK", re.I)


# ------------------------------------------------------------------------------------------------------------ importing
class _Stand(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing

    def __iter__(cls) -> Any:
        return iter(())

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__


class _Nothing(metaclass=_Stand):
    """Stands for any name of a package that is not here: a class, a decorator, a function."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else object.__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __iter__(self) -> Any:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __lt__(self, other: Any) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__


def tolerate(root: str, own: set[str]) -> None:
    """Imports under ``root`` never fail for what lies outside of it."""
    import importlib.abc
    import importlib.machinery
    import types

    class StandModule(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name in ("__path__", "__file__", "__spec__") or name.startswith("__"):
                raise AttributeError(name)
            return "0.0.0" if name == "version" else _Nothing

    class StandLoader(importlib.abc.Loader):
        def create_module(self, spec: Any) -> Any:
            module = StandModule(spec.name)
            module.__path__ = []  # type: ignore[attr-defined]
            module.__version__ = "99.0"  # type: ignore[attr-defined]
            return module

        def exec_module(self, module: Any) -> None:
            pass

    class Last(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
            top = name.split(".")[0]
            if top in own or top in ("triton", "tilewright", "torch") or top in sys.stdlib_module_names:
                return None
            frame = sys._getframe(1)
            while frame is not None and ("importlib" in frame.f_code.co_filename or frame.f_code.co_filename == __file__):
                frame = frame.f_back  # type: ignore[assignment]
            if frame is None or not frame.f_code.co_filename.startswith(root):
                return None  # what others look for and do without
            return importlib.machinery.ModuleSpec(name, StandLoader(), is_package=True)

    class Careful(importlib.abc.Loader):
        def __init__(self, inner: Any):
            self.inner = inner

        def create_module(self, spec: Any) -> Any:
            return self.inner.create_module(spec)

        def exec_module(self, module: Any) -> None:
            try:
                self.inner.exec_module(module)
            except Exception:  # whatever a package does when it is imported here
                pass

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    class First(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
            if name.split(".")[0] not in own:
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec is not None and spec.submodule_search_locations is not None and spec.loader is not None and spec.origin:
                spec.loader = Careful(spec.loader)  # type: ignore[assignment]
            return spec

    sys.path.insert(0, root)
    sys.meta_path.insert(0, First())
    sys.meta_path.append(Last())


def pretend_device() -> None:
    """What packages ask of torch's device when they are imported."""
    import torch

    class Properties:
        name, major, minor, multi_processor_count, total_memory = "H100", 9, 0, 132, 80 << 30
        shared_memory_per_block_optin, max_shared_memory_per_block_optin, warp_size, regs_per_multiprocessor, gcnArchName = 232448, 232448, 32, 65536, ""
        L2_cache_size = 50 << 20

    for name, value in dict(get_device_capability=(9, 0), get_device_properties=Properties, current_device=0, get_device_name="NVIDIA H100",
                            device_count=1).items():
        setattr(torch.cuda, name, lambda *a, _value=value, **k: _value)


def pretend_driver(triton: Any) -> None:
    """An active driver for Triton without a device."""
    from triton.backends.compiler import GPUTarget

    class Utils:
        def get_device_properties(self, *a: Any) -> Any:
            return {"max_shared_mem": 232448, "multiprocessor_count": 132, "warpSize": 32, "max_num_regs": 65536, "sm_clock_rate": 1, "mem_clock_rate": 1, "mem_bus_width": 1}

    class Active:
        utils, binary_ext = Utils(), "cubin"

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self) -> int:
            return 0

        def get_device_interface(self) -> Any:
            import torch

            return torch.cuda

        def get_benchmarker(self) -> Any:
            return None

        def get_active_torch_device(self) -> Any:
            import torch

            return torch.device("cpu")

    triton.runtime.driver.set_active(Active())


# ------------------------------------------------------------------------------------------------------------- guessing
def unwrap(value: Any) -> tuple[Any, dict[str, Any], dict[str, Any], bool]:
    """(jit function, options of the first configuration, heuristics, whether it was wrapped)."""
    config: dict[str, Any] = {}
    heuristics: dict[str, Any] = {}
    wrapped = False
    for _ in range(8):
        if hasattr(value, "arg_names") and hasattr(value, "params"):
            return value, config, heuristics, wrapped
        if getattr(value, "configs", None) and isinstance(value.configs, list):
            config = {**dict(value.configs[0].kwargs), **config}
            config.setdefault("num_warps", value.configs[0].num_warps)
        if isinstance(getattr(value, "values", None), dict):
            heuristics.update(value.values)
        wrapped = True
        value = getattr(value, "fn", None)
        if value is None:
            break
    return None, {}, {}, False


def _base_names(node: ast.AST) -> list[str]:
    """The names at the left end of an address."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return _base_names(node.left) or _base_names(node.right)
    if isinstance(node, ast.IfExp):
        return _base_names(node.body) + _base_names(node.orelse)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if any("pointer_type" in ast.dump(a) for a in node.args):
            return []
        if node.func.attr in ("to", "broadcast_to", "multiple_of", "max_contiguous", "make_block_ptr", "advance") and node.args:
            inner = node.func.value
            return _base_names(inner if node.func.attr == "to" else node.args[0])
        for k in node.keywords:
            if k.arg == "base":
                return _base_names(k.value)
    return []


_ACCESS = {"load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg", "atomic_or", "atomic_and", "atomic_xor", "make_block_ptr",
           "make_tensor_descriptor", "advance"}


class Uses:
    """Which parameters of a jit function are pointers or descriptors."""

    known: dict[int, Uses] = {}

    def __init__(self, fn: Any, depth: int = 0):
        self.pointers: set[str] = set()
        self.descriptors: set[str] = set()
        self.returns = False
        self.calls: set[str] = set()
        self.programs = False
        try:
            tree = ast.parse(textwrap.dedent(fn.src))
        except SyntaxError:
            return
        from_what: dict[str, set[str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for t in targets:
                    if isinstance(t, ast.Name):
                        from_what.setdefault(t.id, set()).update(_base_names(node.value))
            elif isinstance(node, ast.Return) and node.value is not None:
                self.returns = True
            elif isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                self.programs |= name in ("program_id", "num_programs")
                base = next((k.value for k in node.keywords if k.arg in ("base", "pointer")), node.args[0] if node.args else None)
                if name in _ACCESS and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id in fn.arg_names:
                    self.descriptors.add(node.func.value.id)
                elif name in ("load_tensor_descriptor", "store_tensor_descriptor") and base is not None:
                    self.descriptors.update(_base_names(base))
                elif name in _ACCESS and base is not None:
                    self.pointers.update(_base_names(base))
                elif isinstance(node.func, ast.Name):
                    self.calls.add(name)
                    callee = unwrap(fn.fn.__globals__.get(name))[0] if hasattr(fn, "fn") else None
                    if callee is not None and depth < 6 and callee is not fn:
                        inner = Uses.of(callee, depth + 1)
                        given = dict(zip(callee.arg_names, node.args)) | {k.arg: k.value for k in node.keywords if k.arg}
                        for parameter, value in given.items():
                            if parameter in inner.pointers:
                                self.pointers.update(_base_names(value))
                            if parameter in inner.descriptors:
                                self.descriptors.update(_base_names(value))
        for _ in range(8):
            more = {n for p in self.pointers for n in from_what.get(p, ())} - self.pointers
            if not more:
                break
            self.pointers |= more

    @classmethod
    def of(cls, fn: Any, depth: int = 0) -> Uses:
        if id(fn) not in cls.known:
            cls.known[id(fn)] = cls(fn, depth)
        return cls.known[id(fn)]


def guess_constexpr(name: str, variant: int) -> Any:
    low = name.lower()
    if "dtype" in low or low.endswith("type"):
        return {"dtype": "fp16" if variant else "fp32"}
    if low in ("num_warps", "num_stages", "num_ctas"):
        return {"num_warps": 4, "num_stages": 2, "num_ctas": 1}[low]
    if "stride" in low:
        return 1
    if low == "stage":
        return 1
    if _FLAGS.search(name):
        return bool(variant)
    if re.search(r"^block|^b[a-z]$|^b[a-z]_|_block|tile|chunk", low):
        return 32
    if re.search(r"eps|scale|alpha|beta|softcap|cap$|slope", low):
        return 0.5
    if re.search(r"group|^g$|^gqa|ratio|splits?$|stages|num_b", low):
        return 2
    if _SIZES.search(name):
        return 64
    if re.match(r"^(h|hq|hv|hk|heads|num_.*heads|n_heads|b|nt|nk|nv|z)$", low):
        return 4
    return 16


def guess(value: Any, variant: int) -> dict[str, Any] | None:
    """{"signature", "constexprs", "options"} for a kernel, of JSON's types."""
    fn, config, heuristics, _ = unwrap(value)
    uses = Uses.of(fn)
    signature: dict[str, Any] = {}
    constexprs: dict[str, Any] = {}
    pending = []
    sample: dict[str, Any] = {}
    for parameter in fn.params:
        name = parameter.name
        if parameter.is_constexpr or name in config or name in heuristics:
            signature[name] = "constexpr"
            if name in heuristics:
                pending.append(name)
            elif name in config:
                constexprs[name] = config[name]
            elif parameter.has_default and _plain(parameter.default):
                constexprs[name] = getattr(parameter.default, "value", parameter.default)
            else:
                constexprs[name] = guess_constexpr(name, variant)
            sample[name] = constexprs.get(name)
        elif name in uses.descriptors:
            signature[name] = "tensordesc<fp16[64,64]>"
            sample[name] = object()
        elif name in uses.pointers or re.search(r"_ptr$|^ptr_|_ptrs$", name):
            kind = "i1" if "mask" in name.lower() else "i32" if _INDICES.search(name) else "fp16" if variant else "fp32"
            signature[name] = "*" + kind
            sample[name] = object()
        else:
            signature[name] = "fp32" if _REALS.search(name) and not re.search("stride|size|num|dim", name) else "i32"
            sample[name] = 0.5 if signature[name] == "fp32" else 64
    for name in pending:
        try:
            found = heuristics[name](sample)
        except Exception:
            found = None
        if not isinstance(found, (bool, int, float)):
            found = guess_constexpr(name, variant)
        constexprs[name] = sample[name] = found
    options = {"num_warps": config["num_warps"]} if isinstance(config.get("num_warps"), int) else {}
    if any(not _plain(v) and not (isinstance(v, dict) and "dtype" in v) for v in constexprs.values()):
        return None
    return {"signature": signature, "constexprs": constexprs, "options": options}


def _plain(value: Any) -> bool:
    value = getattr(value, "value", value)
    return value is None or isinstance(value, (bool, int, float, str))


# ------------------------------------------------------------------------------------------------------------ compiling
class Timeout(BaseException):
    pass


def _late(*_: Any) -> None:
    raise Timeout()


def compile_one(triton: Any, fn: Any, spec: dict[str, Any], target: str, reference: bool) -> None:
    tl = triton.language
    names = {"fp16": tl.float16, "fp32": tl.float32}
    constexprs = {k: names[v["dtype"]] if isinstance(v, dict) else v for k, v in spec["constexprs"].items()}
    source = triton.compiler.ASTSource(fn, dict(spec["signature"]), constexprs)
    if reference:
        from triton.backends.compiler import GPUTarget

        chip = GPUTarget("hip", "gfx942", 64) if target.startswith("amd") else GPUTarget("cuda", 90, 32)
        if target == "frontend":
            from triton._C.libtriton import ir

            backend = triton.compiler.make_backend(chip)
            options = backend.parse_options(dict(spec["options"]))
            context = ir.context()
            ir.load_dialects(context)
            backend.load_dialects(context)
            source.make_ir(chip, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)
        else:
            triton.compile(source, chip, dict(spec["options"]))
        return
    if target == "frontend":
        from tilewright.compiler.compiler import load_target, make_options
        from tilewright.dialects.context import mlir_context
        from tilewright.targets import registry

        selection = registry.select("nvidia:sm_90a")
        with mlir_context():
            load_target(selection.plugin)
            source.make_module(selection, make_options(selection, dict(spec["options"])))
        return
    triton.compile(source, target, dict(spec["options"]))


def worker(args: argparse.Namespace, todo: list[tuple[str, str | None]], done: set[str], out: Any, specs: dict[str, Any] | None) -> None:
    """In a process of its own: import and compile, one line of JSON a result."""
    def say(**line: Any) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    devnull = os.open(os.devnull, os.O_WRONLY)
    if not args.verbose:
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
    import importlib
    import logging

    logging.disable(logging.CRITICAL)
    import triton

    signal.signal(signal.SIGALRM, _late)
    for module_name, text in todo:
        if f"import {module_name}" in done:
            continue
        say(start=f"import {module_name}")
        signal.alarm(SECONDS)
        try:
            module = importlib.import_module(module_name)
        except (Exception, SystemExit, Timeout) as error:
            signal.alarm(0)
            say(kernel=f"import {module_name}", error=type(error).__name__, text=str(error)[:300])
            continue
        signal.alarm(0)
        for name, value in list(vars(module).items()):
            fn, _, _, wrapped = unwrap(value)
            if fn is None or getattr(getattr(fn, "fn", None), "__module__", None) != module_name or (args.match and not re.search(args.match, f"{module_name}:{name}")):
                continue
            if "@gluon" in fn.src.partition("def ")[0]:
                continue
            launched = wrapped or re.search(rf"\b{re.escape(name)}\s*\[", args.texts) is not None
            if not launched and not (Uses.of(fn).programs and not re.search(rf"\b{re.escape(name)}\(", args.texts.replace(f"def {name}(", ""))):
                continue
            if args.sample > 1 and int.from_bytes(hashlib.sha256(f"{module_name}:{name}".encode()).digest()[:4], "little") % args.sample:
                continue
            for variant in (0, 1):
                for target in args.targets.split(","):
                    key = f"{module_name}:{name}/{variant}@{target}"
                    if key in done or (specs is not None and key not in specs):
                        continue
                    try:
                        spec = specs[key] if specs is not None else guess(value, variant)
                    except Exception as error:
                        say(kernel=key, error="guess", text=f"{type(error).__name__}: {error}")
                        continue
                    if spec is None:
                        say(kernel=key, error="guess", text="a compile-time value that is no plain value")
                        continue
                    say(start=key)
                    begin = time.time()
                    signal.alarm(SECONDS)
                    try:
                        compile_one(triton, fn, spec, target, specs is not None)
                        signal.alarm(0)
                        say(kernel=key, ok=True, seconds=round(time.time() - begin, 2))
                    except Timeout:
                        say(kernel=key, error="Timeout", text=f"more than {SECONDS} s", spec=spec)
                    except BaseException as error:
                        signal.alarm(0)
                        where = traceback.format_exc().strip().splitlines()[-4:]
                        root: BaseException = error
                        while specs is not None and root.__cause__ is not None:
                            root = root.__cause__
                        told = str(error) if root is error else f"{error}\n  because {type(root).__name__}: {root}"
                        say(kernel=key, error=type(error).__name__, text=told[:1500], where=where if type(error).__module__ == "builtins" else None, spec=spec)
    say(end=True)


def run(args: argparse.Namespace) -> None:
    root = os.path.abspath(args.folder)
    own = {p.name.removesuffix(".py") for p in Path(root).iterdir() if (p.is_dir() and not p.name.endswith(".dist-info")) or p.suffix == ".py"}
    texts, todo = [], []
    for path in sorted(Path(root).rglob("*.py")):
        text = path.read_text(errors="replace")
        relative = path.relative_to(root)
        if not re.search(r"triton\.jit|@jit|triton_jit", text) and "[" not in text:
            continue
        texts.append(text)
        if re.search(r"triton\.jit|@jit\b|triton_jit", text) and not (args.leave and re.search(args.leave, str(relative))):
            module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
            if not args.only or re.search(args.only, module):
                todo.append((module, None))
    args.texts = "\n".join(texts)
    specs = None
    if args.specs:
        specs = {}
        for line in open(args.specs):
            found = json.loads(line)
            if found.get("error") and found.get("spec"):
                specs[found["kernel"]] = found["spec"]
        wanted = {k.split(":")[0] for k in specs}
        todo = [t for t in todo if t[0] in wanted]
        args.targets = ",".join(sorted({k.split("@")[1] for k in specs}))
    done: set[str] = set()
    if os.path.exists(args.out) and not args.again:
        done = {json.loads(line)["kernel"] for line in open(args.out) if '"kernel"' in line}
    out = open(args.out, "a")
    if specs is not None:
        sys.path.append(args.torch) if args.torch else None
        import triton

        pretend_driver(triton)
    else:
        import tilewright

        tilewright.install_as_triton()
    import torch  # noqa: F401

    pretend_device()
    tolerate(root, own)
    while True:
        size = os.path.getsize(args.out)
        child = os.fork()
        if child == 0:
            try:
                worker(args, todo, done, out, specs)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        out.flush()
        lines = [json.loads(line) for line in open(args.out).read()[size:].splitlines()] if not size else [json.loads(x) for x in _tail(args.out, size)]
        done |= {x["kernel"] for x in lines if "kernel" in x}
        if lines and lines[-1].get("end"):
            break
        started = lines[-1].get("start") if lines else None
        if started is None:
            raise SystemExit(f"the worker died (status {status}) before it began")
        done.add(started)
        out.write(json.dumps({"kernel": started, "error": "Crash", "text": f"the process ended with status {status}"}) + "\n")
        out.flush()


def _tail(path: str, offset: int) -> list[str]:
    with open(path) as f:
        f.seek(offset)
        return f.read().splitlines()


# ------------------------------------------------------------------------------------------------------------ reporting
def kind_of(line: dict[str, Any]) -> str:
    """The refusal without the names in it."""
    text = (line.get("text") or "").splitlines()[0] if line.get("text") else ""
    text = re.sub(r"^\S+\.py:\d+:\d+: ", "", text)
    return f"{line['error']}: " + re.sub(r"0x\w+|\d+", "#", re.sub(r"'[^']*'|`[^`]*`|\"[^\"]*\"", "'…'", text))[:110]


def report(args: argparse.Namespace) -> None:
    for path in args.report:
        lines = {}
        for line in open(path):
            found = json.loads(line)
            if "kernel" in found:
                lines[found["kernel"]] = found
        reference = {}
        if os.path.exists(path + ".reference"):
            for line in open(path + ".reference"):
                found = json.loads(line)
                if "kernel" in found:
                    reference[found["kernel"]] = found
        imports = [x for x in lines.values() if x["kernel"].startswith("import ")]
        table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        kinds: dict[str, list[str]] = collections.defaultdict(list)
        for key, line in lines.items():
            if key.startswith("import "):
                continue
            target = key.split("@")[1]
            if line.get("ok"):
                table[target]["compiled"] += 1
            elif line["error"] == "guess":
                table[target]["not tried"] += 1
            else:
                theirs = reference.get(key)
                verdict = "refused" if theirs is None else "Triton takes it" if theirs.get("ok") else "Triton refuses it too"
                table[target][verdict] += 1
                if verdict != "Triton refuses it too":
                    kinds[f"[{verdict}] {kind_of(line)}"].append(key)
        print(f"{os.path.basename(path)}: {len({k.split('/')[0] for k in lines if not k.startswith('import ')})} kernels"
              + (f", {len(imports)} modules not imported" if imports else ""))
        for target, counts in sorted(table.items()):
            print(f"  {target:16}", ", ".join(f"{n} {what}" for what, n in counts.most_common()))
        if args.kinds:
            for kind, keys in sorted(kinds.items(), key=lambda x: -len(x[1])):
                print(f"    {len(keys):4} {kind}\n         {keys[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--targets", default="cpu,nvidia:sm_90a,amd:gfx942")
    parser.add_argument("--out", default="compile_all.jsonl")
    parser.add_argument("--only", default="", help="modules whose name matches")
    parser.add_argument("--match", default="", help="kernels whose module:name matches")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="one kernel in N, always the same ones")
    parser.add_argument("--leave", default="", help="leave out files whose path matches")
    parser.add_argument("--again", action="store_true", help="do not go on where the file of results ends")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--reference", default="", help="a Python with Triton: compile there what is refused in --out")
    parser.add_argument("--specs", default="", help=argparse.SUPPRESS)
    parser.add_argument("--torch", default="", help=argparse.SUPPRESS)
    parser.add_argument("--report", nargs="+", default=[])
    parser.add_argument("--kinds", action="store_true", help="print the kinds of refusal too")
    args = parser.parse_args()
    if args.report:
        return report(args)
    if args.reference:
        import torch

        command = [args.reference, os.path.abspath(__file__), args.folder, "--specs", args.out, "--out", args.out + ".reference", "--leave", args.leave,
                   "--torch", str(Path(torch.__file__).parent.parent)] + (["--verbose"] if args.verbose else [])
        subprocess.run(command, check=True)
        return None
    return run(args)


if __name__ == "__main__":
    main()
