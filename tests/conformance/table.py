"""``python -m tilewright.conformance.table REPORT.json… > docs/conformance.md``: what each target covers, name by name.

The reports are those of ``--tilewright-report``, a column each, in the order given; several of one target and device make one column. What stands in docs/conformance.md before the mark is kept when
``--into FILE`` is said instead of a redirection.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tilewright.conformance import names

MARK = "<!-- made by: python -m tilewright.conformance.table; change the tests, not what is below -->"
_KINDS = ("int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15", "fp16", "bf16", "fp32", "fp64")
_FAMILIES = {"uint8 … uint64": ("uint8", "uint16", "uint32", "uint64"), "int8 … int64": ("int8", "int16", "int32", "int64"), "fp16 … fp64": ("fp16", "bf16", "fp32", "fp64"),
             "fp8 (5)": ("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15")}


def types_text(kinds: list[str]) -> str:
    """Types in order, whole families under one name."""
    left = [k for k in _KINDS if k in kinds] + sorted(k for k in kinds if k and k not in _KINDS)
    for name, family in _FAMILIES.items():
        if all(k in left for k in family):
            at = left.index(family[0])
            left = [k for k in left if k not in family]
            left.insert(at, name)
    return ", ".join(left)


def status(kinds: dict[str, dict[str, Any]] | None, note: Any) -> str:
    """One cell: passed, failed, refused or not tested; types that differ from the rest are told in a note."""
    if not kinds:
        return "–"
    by: dict[str, list[str]] = {"failed": [], "refused": []}
    for kind, counts in kinds.items():
        if counts["failed"]:
            by["failed"].append(kind)
        elif counts["refused"] and not counts["passed"]:
            by["refused"].append(kind)
    good = [k for k in kinds if kinds[k]["passed"] and k not in by["failed"]]
    text = "✓" if good else ""
    for outcome, sign in (("failed", "✗"), ("refused", "refused")):
        if by[outcome]:
            which = types_text([k for k in by[outcome] if k])
            text += f"{' ' if text else ''}{sign}{f' {which}' if good and which else ''}{note(kinds[by[outcome][0]].get('reason', ''))}"
    return text


def _title(report: dict[str, Any]) -> str:
    return report["target"] + (f" on {report['device']}" if report["device"] != "cpu" else "")


def merged(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One report a target and device; of a test that ran more than once the last outcome counts, of names all runs."""
    out: dict[str, dict[str, Any]] = {}
    for report in reports:
        key = _title(report)
        if key not in out:
            out[key] = {**report, "names": {}, "tests": {}, "samples": []}
        whole = out[key]
        whole["tests"].update(report["tests"])
        whole["samples"] += [report["sample"]] if report["sample"] not in whole["samples"] else []
        for name, kinds in report["names"].items():
            for kind, counts in kinds.items():
                entry = whole["names"].setdefault(name, {}).setdefault(kind, {"passed": 0, "refused": 0, "failed": 0})
                for outcome in ("passed", "refused", "failed"):
                    entry[outcome] += counts[outcome]
                if "reason" in counts:
                    entry.setdefault("reason", counts["reason"])
    return list(out.values())


def _section(title: str, rows: list[tuple[str, str]], reports: list[dict[str, Any]], note: Any) -> list[str]:
    lines = ["", f"## {title}", "", f"| name | P | types tested | {' | '.join(_title(r) for r in reports)} |", f"| --- | --- | --- |{' --- |' * len(reports)}"]
    for name, priority in rows:
        cells = [r["names"].get(name) for r in reports]
        kinds = {k for c in cells if c for k, v in c.items() if v["passed"]}
        lines.append(f"| `{name}` | {priority} | {types_text(sorted(kinds))} | {' | '.join(status(c, note) for c in cells)} |")
    return lines


def table(reports: list[dict[str, Any]]) -> str:
    """The page's part that is made: how each run went, then the tables."""
    reports = merged(reports)
    notes: dict[str, int] = {}

    def note(reason: str) -> str:
        return f"<sup>{notes.setdefault(reason, len(notes) + 1)}</sup>" if reason else ""

    out = [MARK, "", "| target | what ran | passed | refused | skipped | failed |", "| --- | --- | --- | --- | --- | --- |"]
    for r in reports:
        outcomes = [t["outcome"] for t in r["tests"].values()]
        ran = "; ".join(f"at most {x.partition(':')[0]} cases of each test, seed {x.partition(':')[2] or 'none'}" if x else "all tests but nightly ones" for x in r["samples"])
        out.append(f"| {_title(r)} | {ran} | {outcomes.count('passed') + outcomes.count('partly refused')} | {outcomes.count('refused') + outcomes.count('partly refused')} | "
                   f"{outcomes.count('skipped')} | {outcomes.count('failed')} |")
    used = {n for r in reports for n in r["names"]}
    out += _section("The language", list(names.PRIORITY.items()), reports, note)
    listed = {f"libdevice.{n}" for n in names.LIBDEVICE}
    out += _section("libdevice", [(f"libdevice.{n}", "P1") for n in names.LIBDEVICE] + [(n, "P3") for n in sorted(used) if n.startswith("libdevice.") and n not in listed], reports, note)
    out += _section("Types by name", [(n, "P1") for n in names.DTYPES], reports, note)
    out += _section("Operators", [(n, "P0") for n in sorted(used) if n.startswith("operator ")], reports, note)
    out += _section("Tensor descriptors", [(n, "P1") for n in sorted(used) if n.startswith("tensor_descriptor.")], reports, note)
    out += _section("Methods and attributes", [(f".{n}", "P1") for n in names.METHODS], reports, note)
    out += _section("Keywords that kernels use", [(n, "P1") for n in names.KEYWORDS], reports, note)
    if notes:
        out += ["", "## Notes", "", *(f"{k}. {reason}" for reason, k in notes.items())]
    return "\n".join(out) + "\n"


def main(arguments: list[str]) -> int:
    into = None
    if arguments[:1] == ["--into"]:
        into, arguments = Path(arguments[1]), arguments[2:]
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    text = table([json.loads(Path(a).read_text()) for a in arguments])
    if into is None:
        print(text, end="")
    else:
        before = into.read_text().partition(MARK)[0] if into.exists() else ""
        into.write_text(before + text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
