"""The results of ``tilewright matrix`` as a table of text, as data, as JUnit XML and as a page of HTML."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from tilewright._version import tilewright_version
from tilewright.matrix import FORMAT, TargetResult

_COLUMNS = (("cases", 7), ("error", 8), ("registers", 9), ("spills", 6), ("shared", 7))


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _counts(result: TargetResult) -> str:
    good = sum(c["status"] != "failed" for c in result.cases)
    return f"{good}/{len(result.cases)}"


def _matrix(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} ×{count}" for name, count in sorted(row["matrix_instructions"].items())) or "-"


def _shown(kernels: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """At least one line: None where no kernel was compiled."""
    return [*kernels] or [None]


def problems(result: TargetResult) -> list[str]:
    """What failed, in words; cases that failed in the same way are named together."""
    named: dict[str, list[str]] = {}
    for c in result.cases:
        if c["status"] == "failed":
            named.setdefault(c["message"], []).append(c["name"])
    return ([result.failure] if result.failure else []) + [f"{'; '.join(names)}: {message}" for message, names in named.items()]


class Table:
    """Columns of text; one line a target and kernel, and below it what failed."""

    def __init__(self, targets: Sequence[str]):
        self.width = max(len("target"), *map(len, targets))

    def _line(self, target: str, ran: str, cells: Sequence[str], rest: str) -> str:
        middle = "  ".join(c.rjust(w) for c, (_, w) in zip(cells, _COLUMNS))
        return f"{target:<{self.width}}  {ran:<13}  {middle}  {rest}".rstrip()

    def head(self) -> str:
        return self._line("target", "ran on", [n for n, _ in _COLUMNS], "kernel: matrix instructions")

    def rows(self, result: TargetResult) -> str:
        kernels = result.by_kernel()
        lines = []
        for i, k in enumerate(_shown(kernels)):
            first = i == 0
            figures = [_cell(k[f]) for f in ("registers", "spills", "shared")] if k else ["-"] * 3
            lines.append(self._line(result.target if first else "", result.ran if first else "",
                                    [_counts(result) if first else "", _error(result.max_error) if first else "", *figures],
                                    f"{k['name']}: {_matrix(k)}" if k else ""))
        lines += [f"    FAILED {line}" if i == 0 else f"        {line}" for p in problems(result) for i, line in enumerate(p.splitlines())]
        return "\n".join(lines)


def summary(results: Sequence[TargetResult]) -> str:
    """The last line, and why targets were only compiled."""
    lines: list[str] = []
    for reason in dict.fromkeys(r.reason for r in results if r.reason):
        lines.append(f"{', '.join(r.target for r in results if r.reason == reason)}: {reason}")
    bad = [r.target for r in results if not r.passed]
    lines.append(f"{len(results) - len(bad)} of {len(results)} targets passed" + (f"; failed: {', '.join(bad)}" if bad else ""))
    return "\n".join(lines)


def _number(value: Any) -> Any:
    """JSON has no NaN and no infinity: their names stand for them."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_data(file: str, results: Sequence[TargetResult]) -> dict[str, Any]:
    """For ``--json``. Kernels keep all their figures and the compiler's choices in words."""
    def row(r: TargetResult) -> dict[str, Any]:
        kernels = [{k: v for k, v in kernel.items() if k not in ("host", "choices", "variants")} for kernel in r.kernels]
        return {"target": r.target, "passed": r.passed, "ran": r.ran, "reason": r.reason, "failure": r.failure, "seconds": round(r.seconds, 3),
                "max_error": _number(r.max_error), "kernels": kernels, "choices": r.explanations(),
                "cases": [{k: _number(v) for k, v in c.items()} for c in r.cases]}

    return {"format": FORMAT, "tilewright": tilewright_version, "file": file, "passed": all(r.passed for r in results),
            "targets": [row(r) for r in results]}


def as_junit(file: str, results: Sequence[TargetResult]) -> str:
    """JUnit XML: a suite a target, a test case a case. What was only compiled is marked as skipped, with the reason."""
    root = ElementTree.Element("testsuites", name=f"tilewright matrix {os.path.basename(file)}")
    for r in results:
        failed = sum(c["status"] == "failed" for c in r.cases)
        suite = ElementTree.SubElement(root, "testsuite", name=r.target, tests=str(len(r.cases) + bool(r.failure)), failures=str(failed),
                                       errors=str(int(bool(r.failure))), skipped=str(sum(c["status"] == "compiled" for c in r.cases)),
                                       time=f"{r.seconds:.3f}")
        properties = ElementTree.SubElement(suite, "properties")
        ElementTree.SubElement(properties, "property", name="ran", value=r.ran)
        for k in r.by_kernel():
            for figure in ("registers", "spills", "shared"):
                ElementTree.SubElement(properties, "property", name=f"{k['name']}.{figure}", value=_cell(k[figure]))
            ElementTree.SubElement(properties, "property", name=f"{k['name']}.matrix_instructions", value=_matrix(k))
        for c in r.cases:
            case = ElementTree.SubElement(suite, "testcase", classname=r.target, name=c["name"], time=f"{c['seconds']:.3f}")
            if c["status"] == "failed":
                ElementTree.SubElement(case, "failure", message=_xml(c["message"].splitlines()[0])).text = _xml(c["message"])
            elif c["status"] == "compiled":
                ElementTree.SubElement(case, "skipped", message=f"compiled only: {r.reason}")
        if r.failure:
            case = ElementTree.SubElement(suite, "testcase", classname=r.target, name="(the target)")
            ElementTree.SubElement(case, "error", message=_xml(r.failure.splitlines()[0])).text = _xml(r.failure)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """Without the control characters that XML does not have."""
    return "".join(c if c >= " " or c in "\n\t" else "?" for c in text)


_STYLE = """body{font:14px system-ui,sans-serif;margin:2em;color:#222}table{border-collapse:collapse}
th,td{padding:.3em .7em;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}
.good{color:#176b2c}.bad{color:#b00020}pre{white-space:pre-wrap;margin:.2em 0}details{margin-top:.2em}"""


def as_html(file: str, results: Sequence[TargetResult]) -> str:
    """One page without outside parts."""
    e = html.escape
    good = sum(r.passed for r in results)
    out = [f"<!doctype html><html lang=en><meta charset=utf-8><title>{e(os.path.basename(file))}</title><style>{_STYLE}</style>",
           f"<h1>{e(os.path.basename(file))}</h1><p>{good} of {len(results)} targets passed. Tilewright {e(tilewright_version)}.</p>",
           "<table><tr><th>target<th>ran on<th>cases<th>max error<th>kernel<th>registers<th>spills<th>shared bytes<th>matrix instructions</tr>"]
    for r in results:
        kernels = r.by_kernel()
        span = f" rowspan={max(1, len(kernels))}"
        ran = e(r.ran or "-") + (f"<br><small>{e(r.reason)}</small>" if r.reason else "")
        for i, k in enumerate(_shown(kernels)):
            cells = ""
            if i == 0:
                cells = (f"<td{span} class={'good' if r.passed else 'bad'}>{e(r.target)}{_details(r)}<td{span}>{ran}"
                         f"<td{span} class=n>{_counts(r)}<td{span} class=n>{_error(r.max_error)}")
            figures = "".join(f"<td class=n>{_cell(k[f]) if k else '-'}" for f in ("registers", "spills", "shared"))
            out.append(f"<tr>{cells}<td>{e(k['name']) if k else '-'}{figures}<td>{e(_matrix(k)) if k else '-'}</tr>")
    return "\n".join([*out, "</table></html>", ""])


def _details(r: TargetResult) -> str:
    e = html.escape
    failed = "".join(f"<pre class=bad>{e(p)}</pre>" for p in problems(r))
    cases = "".join(f"<tr><td>{e(c['name'])}<td>{e(c['status'])}<td class=n>{_error(c['error'])}<td class=n>{_error(c['tolerance'])}</tr>" for c in r.cases)
    told = "".join(f"<li>{e(line)}" for line in r.explanations())
    return (failed + (f"<details><summary>cases</summary><table><tr><th>case<th>status<th>error<th>bound</tr>{cases}</table></details>" if cases else "")
            + (f"<details><summary>what the compiler chose</summary><ul>{told}</ul></details>" if told else ""))
