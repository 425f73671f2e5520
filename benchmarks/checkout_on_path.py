"""Make a checkout that is importable but not installed known to importlib.metadata: prints a folder to put on PYTHONPATH.

    export PYTHONPATH="$(python benchmarks/checkout_on_path.py):$PYTHONPATH"
"""

from __future__ import annotations

import pathlib
import re
import tempfile


def main() -> None:
    text = (pathlib.Path(__file__).parent.parent / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.*)"', text, re.M)
    sections = re.findall(r'^\[project\.entry-points\."?([\w.]+)"?\]\n((?:["\w.]+ = .*\n)+)', text, re.M)
    assert version and "tilewright.targets" in dict(sections)
    folder = pathlib.Path(tempfile.mkdtemp())
    info = folder / f"tilewright-{version.group(1)}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tilewright\nVersion: {version.group(1)}\n")
    (info / "entry_points.txt").write_text("".join(f"[{name}]\n" + lines.replace('"', "") for name, lines in sections))
    print(folder)


main()
