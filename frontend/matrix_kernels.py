"""Kernels of a file that ``tilewright matrix`` compiles without running: from ``--signature``, or from what the kernel itself says.

A kernel says enough where every run-time parameter has an annotation that is a type (``x: "*fp16:16"``, ``n: tl.int32``), and every constexpr
a default or a value in each configuration of its autotuner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from tilewright.case import CASES
from tilewright.dialects.errors import ArgumentError

_EXAMPLE = f"""    from tilewright.testing import Case

    def {CASES}(device):
        x = torch.randn(1000, device=device)
        yield Case("name", run=lambda: launch(x), reference=lambda: x.double() * 2, tolerance=1e-6)"""


def _unwrapped(value: Any) -> tuple[Any, list[Any]]:
    """(jit function or None, configurations of an autotuner on the way to it)."""
    configs: list[Any] = []
    while value is not None and not hasattr(value, "params") and hasattr(value, "fn"):
        configs = list(getattr(value, "configs", ())) or configs
        value = value.fn
    return (value if hasattr(value, "params") and hasattr(value, "arg_names") else None), configs


def signature_of(kernel: Any) -> dict[str, str] | None:
    """Entries (as ``parse_signature`` reads them) of the run-time parameters from their annotations; None where one has none."""
    entries: dict[str, str] = {}
    for p in kernel.params:
        if p.is_constexpr:
            continue
        text = p.annotation.strip("'\" ")
        if not (p.annotation_type or text.startswith(("*", "tensordesc<"))):
            return None
        entries[p.name] = p.annotation_type or text
    return entries or None


def _source(kernel: Any, text: str, values: Mapping[str, Any]) -> Any:
    from tilewright.cli import parse_signature
    from tilewright.compiler import ASTSource

    signature, constants, attrs = parse_signature(kernel, text)
    return ASTSource(kernel, signature, {**constants, **values}, attrs)


def _split_config(kernel: Any, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(constexpr parameters, options) of a configuration."""
    names = {p.name for p in kernel.params}
    given = config.all_kwargs() if config is not None else {}
    return {k: v for k, v in given.items() if k in names}, {k: v for k, v in given.items() if k not in names}


def compile_kernels(module: ModuleType, request: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[str], Mapping[str, Any]]]]:
    """(name, function that compiles for a target) of what is to be compiled. Raises ArgumentError that says what to write."""
    wanted, text = request.get("kernel"), request.get("signature")
    found = {n: v for n, v in ((n, _unwrapped(v)) for n, v in vars(module).items()) if v[0] is not None and v[0].__module__ == module.__name__}
    if wanted and wanted not in found:
        raise ArgumentError(f"the file has no kernel {wanted!r}; it has {', '.join(found) or 'none'}")
    chosen = {wanted: found[wanted]} if wanted else found
    if text is not None and len(chosen) != 1:
        raise ArgumentError(f"--signature is for one kernel: name it with --kernel ({', '.join(found) or 'the file has none'})")
    jobs = []
    for name, (kernel, configs) in chosen.items():
        entries = text if text is not None else ", ".join(f"{k}={v}" for k, v in (signature_of(kernel) or {}).items())
        if not entries:
            continue
        for config in configs or [None]:
            label = name if config is None or len(configs) == 1 else f"{name} [{config}]"
            values, options = _split_config(kernel, config)
            jobs.append((label, kernel, entries, values, {**options, **request.get("options", {})}))
    if not jobs and wanted:
        raise ArgumentError(f"{wanted} is compiled for --signature: one entry for each of {', '.join(found[wanted][0].arg_names)}, such as '*fp32:16', 'i32' or "
                            "a value; it may be left out where every parameter is annotated with its type")
    if not jobs:
        raise ArgumentError(
            f"it is not said what to run: the file has no function {CASES}(device), and no kernel's parameters are all annotated with their "
            f"types. Write cases:\n{_EXAMPLE}\nor compile one kernel: --kernel NAME --signature '*fp32:16,i32,256' (kernels: {', '.join(found) or 'none'})")
    for label, kernel, entries, values, options in jobs:
        def compile_(target: str, kernel: Any = kernel, entries: str = entries, values: Any = values, options: Any = options) -> Mapping[str, Any]:
            from tilewright.compiler.compiler import compile_selected
            from tilewright.targets import registry

            compile_selected(_source(kernel, entries, values), registry.parse(target), options)
            return {"status": "compiled"}

        yield label, compile_
