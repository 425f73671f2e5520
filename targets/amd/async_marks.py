"""Alias metadata of loads that go to LDS directly, put into LLVM IR text: MLIR's calls of intrinsics have no place for it."""

from __future__ import annotations

import re

_METADATA = re.compile(r"^!(\d+) = ", re.M)
_LDS_ACCESS = re.compile(r"^\s+(%\S+ = load .*ptr addrspace\(3\)|store .*ptr addrspace\(3\)|%\S+ = (tail )?call .*@llvm\.amdgcn\.ds\.read\.tr)")


def mark_async_copies(text: str) -> str:
    """The LLVM IR ``text`` in which loads to LDS and LDS accesses are said not to touch the same memory while both are in flight, as waits
    and barriers see to. Without that LLVM waits for all loads before any access of LDS."""
    if "@llvm.amdgcn.raw.ptr.buffer.load.lds(" not in text:
        return text
    first = max([int(n) for n in _METADATA.findall(text)], default=-1) + 1
    out = []
    for line in text.splitlines():
        if "call void @llvm.amdgcn.raw.ptr.buffer.load.lds(" in line:
            line += f", !alias.scope !{first + 2}"
        elif _LDS_ACCESS.search(line):
            line += f", !noalias !{first + 2}"
        out.append(line)
    domain, scope = first, first + 1
    return "\n".join([*out, f"!{domain} = distinct !{{!{domain}}}", f"!{scope} = distinct !{{!{scope}, !{domain}}}", f"!{first + 2} = !{{!{scope}}}", ""])
