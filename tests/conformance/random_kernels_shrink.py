"""Makes a failing kernel small: drops statements, unwraps loops and branches, replaces values by loads, while it fails in the same way."""

from __future__ import annotations

import ast
import base64
import copy
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .harness import TORCH, random_array, rng_of
from .random_kernels_base import FP8, Case, row_major
from .random_kernels_run import TOLERANCE, Outcome, Worker

_NAMES = {d: t for t, d in TORCH.items()}


def _kernel(tree: ast.Module) -> ast.FunctionDef:
    return next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "kernel")


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements under the node, outer ones first."""
    for name in ("body", "orelse"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block
            for statement in block:
                yield from _blocks(statement)


def _used_names(tree: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


class Shrinker:
    """``shrink()`` gives the smallest case found within ``budget`` seconds that fails as ``outcome`` says."""

    def __init__(self, case: Case, outcome: Outcome, worker: Worker, budget: float = 60.0):
        self.case, self.outcome, self.worker = case, outcome, worker
        self.end = time.monotonic() + budget
        self.tries = 0

    def fails(self, source: str, args: dict[str, Any], grid: tuple[int, ...], options: dict[str, Any]) -> bool:
        if time.monotonic() > self.end:
            return False
        self.tries += 1
        found = self.worker.ask((source, args, grid, options))
        if (found.kind, found.mark) != (self.outcome.kind, self.outcome.mark):
            return False
        self.outcome = found
        return True

    def _accept(self, tree: ast.Module, args: dict[str, Any] | None = None) -> bool:
        args = dict(args or self.case.args)
        kernel = _kernel(tree)
        if not kernel.body:
            return False
        used = _used_names(kernel)
        kernel.args.args = [a for a in kernel.args.args if a.arg in used]
        args = {n: v for n, v in args.items() if n in used}
        reachable, names = True, _used_names(kernel)
        while reachable:  # helpers that something still calls
            more = set().union(*(_used_names(n) for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names)) - names
            names, reachable = names | more, bool(more)
        tree.body = [n for n in tree.body if not isinstance(n, ast.FunctionDef) or n.name in names or n.name == "kernel"]
        source = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        if source == self.case.source or not self.fails(source, args, self.case.grid, self.case.options):
            return False
        self.case.source, self.case.args = source, args
        return True

    def shrink(self) -> Case:
        self.case = copy.copy(self.case)
        self._simplify_launch()
        progress = True
        while progress and time.monotonic() < self.end:
            progress = self._drop() | self._unwrap()
            progress |= self._replace()
        self._simplify_launch()
        return self.case

    def _simplify_launch(self) -> None:
        c = self.case
        if c.grid != (1,) and self.fails(c.source, c.args, (1,), c.options):
            c.grid = (1,)
        for name, plain in (("num_warps", 1), ("num_stages", 1)):
            if c.options.get(name, plain) != plain:
                options = {**c.options, name: plain}
                if self.fails(c.source, c.args, c.grid, options):
                    c.options = options

    def _drop(self) -> bool:
        """Statements away, in large pieces first."""
        any_gone = False
        number = 0
        while True:
            blocks = list(_blocks(_kernel(ast.parse(self.case.source))))
            if number >= len(blocks):
                return any_gone
            size = max(1, len(blocks[number]) // 2)
            while size >= 1:
                at = len(blocks[number]) - size
                while at >= 0 and time.monotonic() < self.end:
                    tree = ast.parse(self.case.source)
                    block = list(_blocks(_kernel(tree)))[number]
                    if len(block) > size or (len(block) == size and number == 0):
                        del block[at:at + size]
                    elif len(block) == size:
                        block[:] = [ast.Pass()]
                    if self._accept(tree):
                        any_gone = True
                    at -= size
                    at = min(at, len(list(_blocks(_kernel(ast.parse(self.case.source))))[number]) - size) if number < len(list(_blocks(_kernel(ast.parse(self.case.source))))) else -1
                size //= 2
            number += 1

    def _unwrap(self) -> bool:
        """A branch or loop replaced by its body."""
        done = False
        position = 0
        while time.monotonic() < self.end:
            tree = ast.parse(self.case.source)
            places = [(b, i) for b in _blocks(_kernel(tree)) for i, s in enumerate(b) if isinstance(s, (ast.If, ast.For, ast.While))]
            if position >= len(places):
                return done
            block, i = places[position]
            statement = block[i]
            bodies = [statement.body, *([statement.orelse] if statement.orelse else [])]  # type: ignore[attr-defined]
            for which in range(len(bodies)):
                again = ast.parse(self.case.source)
                block, i = [(b, i) for b in _blocks(_kernel(again)) for i, s in enumerate(b) if isinstance(s, (ast.If, ast.For, ast.While))][position]
                statement = block[i]
                body = statement.body if which == 0 else statement.orelse  # type: ignore[attr-defined]
                lead = [ast.parse(f"{ast.unparse(statement.target)} = 0").body[0]] if isinstance(statement, ast.For) else []
                block[i:i + 1] = [*lead, *body]
                if self._accept(again):
                    done = True
                    break
            else:
                position += 1
        return done

    def _replace(self) -> bool:
        """A computed value replaced by a load of a new array."""
        done = False
        position = 0
        while time.monotonic() < self.end:
            tree = ast.parse(self.case.source)
            kernel = _kernel(tree)
            found = [s for b in _blocks(kernel) for s in b if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) and s.targets[0].id in self.case.facts
                     and "tl.load" not in ast.unparse(s.value)]
            if position >= len(found):
                return done
            statement = found[position]
            name = statement.targets[0].id  # type: ignore[attr-defined]
            type, shape = self.case.facts[name]
            size = max(1, torch.Size(shape).numel())
            rng = rng_of("replaced", name)
            array = random_array("fp32", size, rng, small=True).to(TORCH[type]) if type in FP8 else random_array(type, size, rng, small=True)
            statement.value = ast.parse(f"tl.load(r_{name} + {row_major(shape)})", mode="eval").body
            kernel.args.args.append(ast.arg(f"r_{name}"))
            # parameters in the order that _accept keeps: constexprs last
            kernel.args.args.sort(key=lambda a: a.annotation is not None)
            if self._accept(tree, {**self.case.args, f"r_{name}": array}):
                done = True
            else:
                position += 1
        return done


def shrink(case: Case, outcome: Outcome, worker: Worker, budget: float = 60.0) -> tuple[Case, Outcome]:
    """(the small case, what it comes to)."""
    shrinker = Shrinker(case, outcome, worker, budget)
    return shrinker.shrink(), shrinker.outcome


def _packed(x: torch.Tensor) -> str:
    if x.numel() <= 64 and not x.dtype.is_floating_point:
        return f"torch.tensor({x.tolist()}, dtype={x.dtype})"
    data = base64.b85encode(zlib.compress(x.contiguous().view(torch.uint8).numpy().tobytes(), 9)).decode()
    return f"packed({data!r}, {x.dtype}, {tuple(x.shape)})"


def reproducer(case: Case, outcome: Outcome, target: str, function: Callable[[str], str] = str) -> str:
    """A script of its own that runs the case and says where it differs."""
    lines = [f"  {line}" for line in outcome.text.strip().splitlines()[:12]]
    args = "\n".join(f"    {name!r}: {_packed(v) if isinstance(v, torch.Tensor) else repr(v)}," for name, v in case.args.items())
    return f'''# {outcome.kind}, seed {case.seed}, target {target or "of the device"}
#{(chr(10) + "#").join(lines)}
import base64
import os
import zlib

{f'os.environ.setdefault("TILEWRIGHT_TARGET", {target!r})' if target else ""}
import torch

from tilewright.conformance import harness, random_kernels_run
{function(case.source)}

def packed(data, dtype, shape):
    return torch.frombuffer(bytearray(zlib.decompress(base64.b85decode(data))), dtype=dtype).reshape(shape)


ARGS = {{
{args}
}}

if __name__ == "__main__":
    reference = harness.interpret(kernel, ARGS, {case.grid})
    got = random_kernels_run.launch(kernel, ARGS, {case.grid}, {case.options})
    for name, value in reference.items():
        harness.assert_same(got[name], value, what=name, **{TOLERANCE})
    print("all arrays agree")
'''


__all__ = ["Shrinker", "reproducer", "shrink"]
