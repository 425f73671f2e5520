"""Put the table of a gpu.py run into docs/performance.md.

    python benchmarks/write_performance.py RESULTS.json

The section between the two markers is made anew; the section that stood there before goes, under its own date, to the head of the
history (``## Earlier runs on GPUs``), and everything else stays.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from typing import Any

PERFORMANCE = pathlib.Path(__file__).parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- gpu.py begins -->", "<!-- gpu.py ends -->"
HISTORY = "## Earlier runs on GPUs"
COLUMNS = ("kernel", "unit", "Tilewright", "Triton", "ratio", "library", "ratio", "limit", "error", "configuration, and Triton's")
LAUNCHES = {"arguments_3": "launch, 3 arguments", "arguments_7": "launch, 7 arguments", "arguments_19": "launch, 19 arguments",
            "descriptors_2": "launch, 2 descriptors"}


def _rate(row: dict[str, Any], ms: float | None) -> float | None:
    return None if ms is None else row["work"] / ms / (1e6 if row["unit"] == "GB/s" else 1e9)


def _text(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def configuration(config: dict[str, Any]) -> str:
    """"128×256×64 w8 s3 …" of a candidate."""
    blocks = "×".join(str(config[k]) for k in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "BLOCK") if k in config)
    parts = [blocks] if blocks else []
    parts += [f"{k[0].lower()}{config[n]}" for k, n in (("warps", "num_warps"), ("stages", "num_stages")) if n in config]
    for key, value in config.items():
        if key.startswith("BLOCK") or key in ("num_warps", "num_stages"):
            continue
        if key == "FORM":
            parts.append({"p": "pointers", "d": "descriptors", "w": "descriptors, specialised"}[value])
        elif key == "WRAP":
            parts += [] if value else ["masked"]
        elif isinstance(value, bool):
            parts += [key.lower().replace("_", " ")] if value else []
        else:
            parts.append(f"{key.lower()} {'×'.join(str(v) for v in value) if isinstance(value, (list, tuple)) else value}")
    return " ".join(parts)


def table_row(row: dict[str, Any]) -> str:
    """A Markdown line. ``limit``: the fraction of the data sheet's peak, or of the measured copy, that Tilewright reaches."""
    mine, peer = (None if side is None or "wrong" in side else side for side in (row["sides"].get("tilewright"), row["sides"].get("triton")))
    library = next(iter(row["libraries"].items()), None)
    ours, theirs = (_rate(row, s and s["ms"]) for s in (mine, peer))
    lib = _rate(row, library[1]) if library else None
    limit = row["peak"] or row["copy"]
    cells = [row["title"], row["unit"], _text(ours, 0) or "**none**", _text(theirs, 0) or "none", _text(ours / theirs if ours and theirs else None, 2),
             f"{_text(lib, 0)} {library[0]}" if library else "", _text(ours / lib if ours and lib else None, 2), _text(ours / limit if ours else None, 2),
             f"{mine['error']:.1e}" if mine else "", "; ".join(configuration(s["config"]) if s else "-" for s in (mine, peer))]
    return f"| {' | '.join(cells)} |{' WRONG CONFIGURATIONS: ' + str(len(row['notes'])) if row['notes'] else ''}"


def table(data: dict[str, Any]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += [table_row(row).split(" | WRONG")[0] for row in data["rows"].values()]
    for name, row in data.get("launch", {}).items():
        mine, peer = row.get("tilewright"), row.get("triton")
        cells = [LAUNCHES[name], "µs", _text(mine, 1), _text(peer, 1), _text(peer / mine if mine and peer else None, 2), "", "", "", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {row['title']}: {note}" for row in data["rows"].values() for note in row["notes"]]
    others = [f"- {row['title']}: {name} {_rate(row, ms):.0f} {row['unit']}" for row in data["rows"].values()
              for name, ms in list(row["libraries"].items())[1:]]
    text = "\n".join(lines)
    if others:
        text += "\n\nFurther kernels of the library:\n\n" + "\n".join(others)
    if notes:
        text += "\n\nConfigurations that were left out because of their results:\n\n" + "\n".join(notes)
    return text


def section(data: dict[str, Any]) -> str:
    versions = data["versions"]
    peer = f"Triton {versions['triton']}" if "triton" in versions else "no Triton"
    return (f"{data['date']}, one {data['device']} (driver {data['driver']}, torch {data['torch']}, cuDNN {data['cudnn']}), {peer}, "
            f"`python benchmarks/gpu.py`: one process, the same inputs, medians of event pairs in five turns, L2 flushed before each launch, each side's best of "
            f"the same candidates, all outputs checked against float64 first. Device copy {data['copy']:,.0f} GB/s. Limit: the fraction of the data sheet's "
            f"dense peak, or of the measured copy, that Tilewright reaches.\n\n{table(data)}")


def merged(document: str, data: dict[str, Any]) -> str:
    """The document with the new section in place of the old, which is kept as history."""
    new = f"{BEGIN}\n{section(data)}\n{END}"
    found = re.search(f"{re.escape(BEGIN)}\n(.*?)\n{re.escape(END)}", document, re.S)
    if found is None:
        title = "## NVIDIA Hopper, beside Triton"
        first = re.search(r"^## ", document, re.M)
        at = first.start() if first else len(document)
        return f"{document[:at]}{title}\n\n{new}\n\n{document[at:]}"
    old = found.group(1)
    document = document[: found.start()] + new + document[found.end():]
    entry = f"### {old.split(',')[0]}\n\n{old}"
    if HISTORY in document:
        return document.replace(HISTORY, f"{HISTORY}\n\n{entry}", 1)
    return f"{document.rstrip()}\n\n{HISTORY}\n\n{entry}\n"


def write(results: pathlib.Path, performance: pathlib.Path = PERFORMANCE) -> None:
    data = json.loads(results.read_text())
    performance.write_text(merged(performance.read_text(), data))
    print(f"wrote {performance}")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]), *(pathlib.Path(p) for p in sys.argv[2:]))
