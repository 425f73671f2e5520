"""Masked stores that LLVM 22 would make too wide, written as stores of single elements.

With AVX-512 a masked store of truncated integers becomes one truncating instruction. Where the mask is a constant with one lane on, LLVM makes a
plain store of it and forgets the truncation: 8 bytes of an i64 are written where 4 of an i32 should be, over the neighbour that is off. The mask
may become constant in LLVM's own passes, so this is looked for in what they leave. All targets of the cpu are treated alike, so that it is tested
on machines without AVX-512 too.
"""

from __future__ import annotations

import re

_STORE = re.compile(
    r"^(?P<space> +)(?:tail )?call void @llvm\.masked\.store\.v\d+i\d+\.p0\(<(?P<n>\d+) x (?P<type>i\d+)> (?P<value>%[\w.\"$-]+), "
    r"ptr (?:align (?P<align>\d+) )?(?P<pointer>%[\w.\"$-]+), <\d+ x i1> <(?P<mask>i1 (?:true|false)(?:, i1 (?:true|false))*)>\)(?P<rest>[^\n]*)$", re.M)


def expand(text: str) -> str:
    """LLVM IR text in which each masked store of a ``trunc`` under a constant mask is one store a lane that is on. Other text is unchanged."""
    if "@llvm.masked.store" not in text:
        return text
    number = 0

    def stores(found: re.Match[str]) -> str:
        nonlocal number
        value, type = found["value"], found["type"]
        if not re.search(rf"^ +{re.escape(value)} = trunc ", text, re.M):
            return found[0]
        size = int(type[1:]) // 8
        align = min(int(found["align"] or 1), size)
        debug = "".join(re.findall(r", !dbg !\d+", found["rest"]))
        out = []
        for lane, on in enumerate(found["mask"].split(", ")):
            if on == "i1 true":
                e, p = f"%masked.{number}.value", f"%masked.{number}.at"
                number += 1
                out += [f"{found['space']}{e} = extractelement <{found['n']} x {type}> {value}, i64 {lane}{debug}",
                        f"{found['space']}{p} = getelementptr i8, ptr {found['pointer']}, i64 {lane * size}{debug}",
                        f"{found['space']}store {type} {e}, ptr {p}, align {align}{debug}"]
        return "\n".join(out)

    return _STORE.sub(stores, text)
