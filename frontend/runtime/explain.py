"""What the compiler chose for a kernel, and why: lines of text made from a compiled kernel's metadata, for any target.

``metadata["variants"]``: options that the compiler set itself, and why. ``metadata["choices"]`` = [{"line", "what", "chosen", "why"}]: what passes
told ``PassContext.explain``, shared ones and targets' alike. A target writes ``metadata["host"]`` = {"choices": [{"line", "what", "chosen", "why"}], "guards": [{"kind", "why", …}], "descriptors":
[{"name", "dtype", "base", "shape", "strides", "box", …}], "expressions": [[op, …]]}: what the host checks and makes before a launch. With
``TILEWRIGHT_EXPLAIN=1`` each choice is printed once, on stderr, when a kernel is first launched.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright import knobs

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "//", "rem": "%"}
_UNBOUNDED = 2147483647
_INTERNAL = frozenset({"name", "base", "dtype", "shape", "strides", "itemsize", "argument", "placed"})  # said elsewhere, or the compiler's own
_told: set[Any] = set()


def expression(nodes: Sequence[Sequence[Any]], e: int, names: Sequence[str]) -> str:
    """Text of a host expression. ``names``: of the kernel's run-time arguments."""
    op, *rest = nodes[e]
    if op == "arg":
        return names[rest[0]] if rest[0] < len(names) else f"argument {rest[0]}"
    if op == "const":
        return str(rest[0])
    if op in ("program_id", "num_programs"):
        return f"{op}({rest[0]})"
    parts = [expression(nodes, o, names) for o in rest]
    if op == "loop":
        return f"range({', '.join(parts)})"
    if op not in _SIGNS:
        return f"{op}({', '.join(parts)})"
    inner = [nodes[o][0] in _SIGNS and op != "add" for o in rest]
    return f" {_SIGNS[op]} ".join(f"({p})" if wrap else p for p, wrap in zip(parts, inner))


def run_time_names(signature: Mapping[str, Any]) -> list[str]:
    """Names of a kernel's run-time arguments in order; ``t[1]`` for a tuple's element, ``d.shape[0]`` for a part of a descriptor."""
    def flat(name: str, kind: Any) -> list[str]:
        if isinstance(kind, (tuple, list)):
            return [n for i, k in enumerate(kind) for n in flat(f"{name}[{i}]", k)]
        if kind.startswith("tensordesc<"):
            from tilewright.compiler.compiled import flat_types

            rank = len(flat_types([kind])) // 2  # the base, the sizes, the strides without the last
            return [name, *(f"{name}.shape[{i}]" for i in range(rank)), *(f"{name}.strides[{i}]" for i in range(rank - 1))]
        return [] if kind == "constexpr" else [name]

    return [n for name, kind in signature.items() for n in flat(name, kind)]


def named(text: str, names: Sequence[str]) -> str:
    """``text`` with the user's names for what a target, which knows numbers only, calls "argument 3"."""
    return re.sub(r"\bargument (\d+)\b", lambda m: names[int(m[1])] if int(m[1]) < len(names) else m[0], text)


def _guard(g: Mapping[str, Any], nodes: Sequence[Any], names: Sequence[str], descriptors: Sequence[Mapping[str, Any]]) -> str:
    kind = g["kind"]
    if kind == "no_alias":
        arg = names[g["arg"]] if g["arg"] < len(names) else f"argument {g['arg']}"
        name = descriptors[g["descriptor"]].get("name") or f"descriptor {g['descriptor']}"
        return f"{arg} does not overlap {name} ({g['why']})"
    text = expression(nodes, g["expr"], names)
    rule = {"aligned": lambda: f"{text} is a multiple of {g['to']}", "range": lambda: f"{g['min']} <= {text} <= {g['max']}",
            "multiple": lambda: f"{text} is a multiple of {expression(nodes, g['of'], names)}"}.get(kind, lambda: f"{kind} {text}")
    return f"{rule()} ({g['why']})"


def _descriptor(d: Mapping[str, Any], nodes: Sequence[Any], names: Sequence[str]) -> str:
    shape = [expression(nodes, e, names) for e in d["shape"]]
    shape = ["unbounded" if s == str(_UNBOUNDED) else s for s in shape]
    strides = [expression(nodes, e, names) for e in d["strides"]]
    facts = {k: v for k, v in d.items() if k not in _INTERNAL}
    return (f"{d.get('name') or 'descriptor'}: {d['dtype']} [{', '.join(shape)}] at {expression(nodes, d['base'], names)}, strides "
            f"[{', '.join(strides)}]; {', '.join(f'{k} {v}' for k, v in facts.items())}")


def choices(metadata: Mapping[str, Any]) -> list[str]:
    """One line a choice: its line in the kernel's file, what it is about, what was chosen and why."""
    out = [f"compiled with {listed(v['options'])} ({v['reason']})" for v in metadata.get("variants") or ()]
    told = [*(metadata.get("host") or {}).get("choices", ()), *(metadata.get("choices") or ())]
    for c in sorted(told, key=lambda c: c.get("line") or sys.maxsize):  # in the order of the source; what has no line comes last
        line = f"line {c['line']}: " if c.get("line") else ""
        out.append(f"{line}{c['what']}: {c['chosen']}{' (' + c['why'] + ')' if c.get('why') else ''}")
    return out


def report(metadata: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """All that is known of how a kernel was compiled to run: choices, how it is launched, guards and descriptors."""
    host = metadata.get("host") or {}
    nodes, descriptors, guards = host.get("expressions", ()), host.get("descriptors", ()), host.get("guards", ())
    warps = metadata.get("num_warps")
    launch = f"{warps} warps a program"
    if metadata.get("total_warps") and metadata["total_warps"] != warps:
        launch += f", {metadata['total_warps']} launched"
    launch += f", {metadata.get('shared', 0)} bytes of shared memory"
    if metadata.get("persistent"):
        launch += f"; persistent, {metadata['persistent']['ctas_per_sm']} blocks a multiprocessor"
    out = [f"launch: {launch}", "choices:" if choices(metadata) else "choices: none recorded", *("    " + c for c in choices(metadata))]
    if descriptors:
        out += ["descriptors made at launch:", *("    " + _descriptor(d, nodes, names) for d in descriptors)]
    if guards:
        out += ["checked at launch (else the version without is launched):", *("    " + _guard(g, nodes, names, descriptors) for g in guards)]
    return out


def listed(options: Mapping[str, Any]) -> str:
    """``num_warps=4, num_stages=2``"""
    return ", ".join(f"{k}={v}" for k, v in options.items())


def tell(key: Any, kernel: str, lines: Sequence[str]) -> None:
    """With TILEWRIGHT_EXPLAIN=1, print lines once a key. Off the path of warm launches."""
    if key in _told or not knobs.environment_flag("EXPLAIN"):
        return
    _told.add(key)
    for line in lines:
        print(f"tilewright: {kernel}: {line}", file=sys.stderr)
