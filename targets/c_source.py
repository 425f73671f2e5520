"""C source that holds a compiled kernel and launches it: what ahead-of-time builds link. Shared by the targets whose drivers have CUDA's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.dialects.errors import ArgumentError

_C_TYPES = {"i1": "bool", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t",
            "u64": "uint64_t", "fp32": "float", "f32": "float", "fp64": "double", "f64": "double"}


@dataclass(frozen=True)
class CApi:
    """A driver's names. ``device_pointer``: the C type of a pointer argument; ``shared_attribute``: a statement that allows {shared} bytes of dynamic shared
    memory to ``{function}``, "" where none is needed."""

    header: str
    result: str
    success: str
    module: str
    function: str
    stream: str
    load: str
    get_function: str
    unload: str
    launch: str
    buffer_pointer: str
    buffer_size: str
    end: str
    device_pointer: str
    shared_attribute: str = ""


def c_type(kind: str, api: CApi) -> str:
    """The C type of an argument. Raises ArgumentError for what C has no type for."""
    if kind.startswith("*"):
        return api.device_pointer
    if kind not in _C_TYPES:
        raise ArgumentError(f"a C function has no argument of type {kind!r}; pass a number of {', '.join(_C_TYPES)}, or a pointer")
    return _C_TYPES[kind]


def generate(api: CApi, name: str, binary: bytes, metadata: Mapping[str, Any], shown: Sequence[tuple[str, str]], passed: Sequence[tuple[str, str]],
             grid: Sequence[str], comment: str) -> dict[str, str]:
    """Ending → text of a header and a C file with ``name(stream, arguments…)``, ``load_name()`` and ``unload_name()``.

    shown: (name, type) of the function's parameters; passed: of those that the kernel is given. grid: three C expressions of the parameters.
    """
    threads = int(metadata.get("total_warps") or metadata["num_warps"]) * int(metadata["warp_size"])
    shared = int(metadata.get("shared", 0))
    # tw_: a user's parameter may have any other name
    parameters = ", ".join([f"{api.stream} tw_stream", *(f"{c_type(kind, api)} {n}" for n, kind in shown)])
    declarations = [f"{api.result} load_{name}(void);", f"{api.result} unload_{name}(void);", f"{api.result} {name}({parameters});"]
    header = "\n".join([f"/* {comment} */", "#pragma once", "#include <stdbool.h>", "#include <stdint.h>", f"#include <{api.header}>", "",
                        "#ifdef __cplusplus", 'extern "C" {', "#endif", *declarations, "#ifdef __cplusplus", "}", "#endif", ""])
    rows = [", ".join(f"0x{b:02x}" for b in binary[i:i + 32]) for i in range(0, len(binary), 32)]
    fields = [f"    {c_type(kind, api)} {n};" for n, kind in passed] or ["    char nothing;"]
    values = ", ".join(n for n, _ in passed) or "0"
    attribute = api.shared_attribute.format(function=f"{name}_function", shared=shared) if api.shared_attribute and shared > 48 * 1024 else ""
    body = f"""/* {comment} */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <{api.header}>

static const unsigned char {name}_code[{len(binary)}] = {{
{(",".join(f"{chr(10)}    {row}" for row in rows)).lstrip(chr(10))}
}};
static {api.module} {name}_module = NULL;
static {api.function} {name}_function = NULL;

{api.result} unload_{name}(void) {{
    {api.result} status = {name}_module ? {api.unload}({name}_module) : {api.success};
    {name}_module = NULL;
    {name}_function = NULL;
    return status;
}}

{api.result} load_{name}(void) {{
    {api.result} status;
    if ({name}_function) return {api.success};
    status = {api.load}(&{name}_module, {name}_code);
    if (status == {api.success}) status = {api.get_function}(&{name}_function, {name}_module, "{metadata['name']}");
    {f"if (status == {api.success}) status = {attribute};" if attribute else ""}
    if (status != {api.success}) {name}_function = NULL;
    return status;
}}

/* The kernel's arguments lie at their natural alignment, as in this struct. */
{api.result} {name}({parameters}) {{
    struct {{
{chr(10).join(fields)}
    }} tw_arguments = {{{values}}};
    size_t tw_size = {'sizeof(tw_arguments)' if passed else '0'};
    void *tw_extra[] = {{{api.buffer_pointer}, &tw_arguments, {api.buffer_size}, &tw_size, {api.end}}};
    unsigned int tw_x = {grid[0]}, tw_y = {grid[1]}, tw_z = {grid[2]};
    {api.result} tw_status = load_{name}();
    if (tw_status != {api.success} || !tw_x || !tw_y || !tw_z) return tw_status;
    return {api.launch}({name}_function, tw_x, tw_y, tw_z, {threads}, 1, 1, {shared}, tw_stream, NULL, tw_extra);
}}
"""
    return {"h": header, "c": body}
