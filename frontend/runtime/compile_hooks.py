"""What the hooks of compilations (``knobs.runtime.jit_cache_hook``, ``jit_post_compile_hook``) are told, and the text by which ``JITFunction.preload`` compiles the same again."""

from __future__ import annotations

import json
from typing import Any

from tilewright.runtime.errors import ArgumentError
from tilewright.runtime.specialize import shown

_NAMED = ("num_warps", "num_ctas", "num_stages", "enable_fp_fusion", "launch_cooperative_grid")  # the options that hooks see by their names


class _Function:
    """What hooks are told of the function."""

    def __init__(self, fn: Any):
        self.jit_function, self.module, self.name, self.fn = fn, fn.module, fn.__name__, fn


def call_hook(hook: Any, function: Any, source: Any, selection: Any, options: dict[str, Any], warmup: bool) -> bool:
    """Whether a hook of the settings (or None) says True to this compilation of ``function``."""
    if not hook:
        return False
    from tilewright.compiler.options import make_options, options_dict

    given = {k: v for k, v in options.items() if k != "ir_override"}
    wanted = {**dict.fromkeys((*_NAMED, "extern_libs")), **options_dict(make_options(selection, given))}
    types = ", ".join(f"{name}: {kind}" for name, kind in source.signature.items())
    text = f"{function.__qualname__}[{', '.join(f'{n}={wanted[n]}' for n in _NAMED)}]({types})"
    key = source.hash()
    facts = {"key": key, "signature": source.signature, "device": 0, "constants": source.constants, **{n: wanted[n] for n in _NAMED},
             "extern_libs": wanted["extern_libs"], "configs": [source.attrs], "specialization_data": _as_text(source, selection, options), "is_warmup": warmup}
    return hook(key=key, repr=text, fn=_Function(function), compile=facts, is_manual_warmup=warmup, already_compiled=False) is True


def _as_text(source: Any, selection: Any, options: dict[str, Any]) -> str | None:
    """A specialisation as JSON; None where a constexpr is of what JSON does not have."""
    try:
        return json.dumps({
            "name": source.fn._fn_name, "signature": source.signature, "options": options, "target": str(selection), "key": source.hash(),
            "constants": [[list(k), v] for k, v in source.constants.items()],
            "attrs": [[list(k), v] for k, v in source.attrs.items()]})
    except TypeError:
        return None


def from_text(function: Any, text: Any) -> tuple[Any, Any, dict[str, Any]]:
    """(source, selection, options) of a specialisation of ``function`` that a hook was told of. Raises ArgumentError for what is no such text, or another's."""
    from tilewright.compiler.compiler import ASTSource
    from tilewright.targets import registry

    try:
        data = json.loads(text)
        if not {"name", "signature", "constants", "attrs", "target", "options"} <= data.keys():
            raise ValueError("parts are missing")
    except (ValueError, TypeError, AttributeError) as error:
        raise ArgumentError(f"preload takes the specialization_data that a jit_cache_hook was handed; found {shown(text)} ({error})") from None
    if data["name"] != function._fn_name:
        raise ArgumentError(f"the specialisation is that of {data['name']}, not of {function._fn_name}")
    source = ASTSource(function, data["signature"], {tuple(k): v for k, v in data["constants"]}, {tuple(k): v for k, v in data["attrs"]})
    return source, registry.parse(data["target"]), data["options"]
