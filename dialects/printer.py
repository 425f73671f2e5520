"""MLIR text for people: ext attributes are given aliases (``#blocked = #ttg.blocked<…>``), locations are left out.

The bindings print an ext encoding in full at every use, which makes a matmul kernel unreadable. ``print_module`` names
each such attribute once, at the top, nested ones too (``#slice = #ttg.slice<0 : i32, #blocked>``); what it writes is
parsed by ``ir.Module.parse`` to an equal module. The substitution is textual (one regular expression a nesting level),
because asking every value for its type costs more than printing does.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from tilewright.dialects import context

_STRING = r'"(?:[^"\\]|\\.)*"'
_STEMS = {"swizzled_shared": "shared", "padded_shared": "shared", "panel_shared": "shared"}  # shorter names for aliases


@functools.lru_cache(maxsize=8)
def _pattern(namespaces: tuple[str, ...], strings: bool) -> re.Pattern[str]:
    """Matches an attribute of these dialects that holds no other one of them, or (with ``strings``) a string to be skipped."""
    names = "|".join(map(re.escape, namespaces))
    leaf = rf'[^<>"#]|#(?!(?:{names})\.)|{_STRING}'
    inner = leaf
    for _ in range(3):  # array<i32: …>, and two levels more
        inner = rf"{leaf}|<(?:{inner})*>"
    attribute = rf"#(?:{names})\.(\w+)<(?:{inner})*>"
    return re.compile(rf"{_STRING}|{attribute}" if strings else attribute)


def _alias_name(mnemonic: str, counts: dict[str, int]) -> str:
    stem = _STEMS.get(mnemonic, mnemonic)
    if stem[-1].isdigit():  # a name that ends in a digit would run into its number
        stem += "_"
    number = counts[stem] = counts.get(stem, -1) + 1
    return f"#{stem}{number or ''}"


def _strings_mention(text: str) -> bool:
    """Whether a string literal might hold what looks like an attribute, so that str.replace would change it."""
    if r"\"" in text:
        return True
    return any("#" in literal for literal in text.split('"')[1::2])


def alias_attributes(text: str) -> str:
    """``text`` with an alias for each attribute of the loaded ext dialects; the definitions come first."""
    namespaces = tuple(sorted(context.loaded_namespaces()))
    if not any(f"#{n}." in text for n in namespaces):
        return text
    aliases: dict[str, str] = {}
    counts: dict[str, int] = {}
    if _strings_mention(text):
        pattern = _pattern(namespaces, True)

        def substitute(match: re.Match[str]) -> str:
            body = match.group(0)
            if match.group(1) is None:  # a string
                return body
            if body not in aliases:
                aliases[body] = _alias_name(match.group(1), counts)
            return aliases[body]

        before = -1
        while len(aliases) != before:
            before = len(aliases)
            text = pattern.sub(substitute, text)
    else:  # the usual case: one C-speed replacement for each distinct attribute
        pattern, position = _pattern(namespaces, False), 0
        while match := pattern.search(text, position):
            body = match.group(0)
            aliases[body] = alias = _alias_name(match.group(1), counts)
            # an enclosing attribute begins before this one: look again from the line's start
            position = max(text.rfind("\n", 0, match.start()), 0)
            text = text[:position] + text[position:].replace(body, alias)
    return "".join(f"{alias} = {body}\n" for body, alias in aliases.items()) + text


def print_module(op: Any, locations: bool = False) -> str:
    """Text of a module or operation (an ``ir.Module``, ``ir.Operation`` or view), with aliases.

    With ``locations`` each op carries its source place; without, the text is for reading and comparing.
    """
    operation = op.operation
    return alias_attributes(operation.get_asm(enable_debug_info=locations, assume_verified=True))
