"""Makes, for one kernel, the Python function that turns launch arguments into a look-up key. It runs on every launch.

``bind(*args, **kwargs) → (key, values, options)``: ``key`` a hashable tuple with one entry a parameter, ``values`` the parameters' values
in order (arrays as addresses), ``options`` the keywords that are no parameters (num_warps, …). It is generated because Python's own
argument binding is the fastest one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.runtime.specialize import FAST, constexpr_key


def make_binder(name: str, params: Sequence[Any]) -> Callable[..., tuple[Any, Any, dict[str, Any]]]:
    """The binder of a kernel with these ``KernelParam``s."""
    scope: dict[str, Any] = {"_tw_constexpr": constexpr_key, "_tw_type": type, "_tw_int": int}  # a parameter may be called type
    heads: list[str] = []
    body, keys, values = [], [], []
    for i, p in enumerate(params):
        if p.has_default:
            scope[f"_tw_default{i}"] = p.default
        star = "*, " if p.keyword_only and not any(h.startswith("*") for h in heads) else ""
        heads.append(f"{star}{p.name}" + (f"=_tw_default{i}" if p.has_default else ""))
        if p.is_constexpr:
            keys.append(f"{p.name} if _tw_type({p.name}) is _tw_int else _tw_constexpr({p.name})")
            values.append(p.name)
        else:
            scope[f"_tw_fast{p.mode}"] = FAST[p.mode]
            body.append(f"    _tw_k{i}, _tw_v{i} = _tw_fast{p.mode}[_tw_type({p.name})]({p.name})")
            keys.append(f"_tw_k{i}")
            values.append(f"_tw_v{i}")
    heads.append("**_tw_options")
    source = "\n".join([
        f"def {name}({', '.join(heads)}):", *body,
        f"    return ({''.join(k + ', ' for k in keys)}), ({''.join(v + ', ' for v in values)}), _tw_options",
    ])
    exec(compile(source, f"<launch of {name}>", "exec"), scope)  # noqa: S102 - text made from identifiers only
    return scope[name]


def make_collector(name: str, params: Sequence[Any]) -> Callable[..., tuple[dict[str, Any], dict[str, Any]]]:
    """``collect(*args, **kwargs) → ({parameter: argument}, options)``, arguments as they were given."""
    scope: dict[str, Any] = {}
    heads: list[str] = []
    for i, p in enumerate(params):
        if p.has_default:
            scope[f"_tw_default{i}"] = p.default
        star = "*, " if p.keyword_only and not any(h.startswith("*") for h in heads) else ""
        heads.append(f"{star}{p.name}" + (f"=_tw_default{i}" if p.has_default else ""))
    heads.append("**_tw_options")
    pairs = ", ".join(f"{p.name!r}: {p.name}" for p in params)
    exec(compile(f"def {name}({', '.join(heads)}):\n    return {{{pairs}}}, _tw_options", f"<launch of {name}>", "exec"), scope)  # noqa: S102
    return scope[name]
