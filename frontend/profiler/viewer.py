"""Show a profile: ``python -m tilewright.profiler.viewer FILE.hatchet [--metric "time (ns)"]``, or ``print_tree``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from tilewright.dialects.errors import ArgumentError
from tilewright.perf_report import MissingPackageError
from tilewright.profiler.session import TIME


def inclusive(node: dict[str, Any], metric: str) -> float:
    """A metric of a node and all below it."""
    return float(node["metrics"].get(metric, 0)) + sum(inclusive(c, metric) for c in node["children"])


def names(node: dict[str, Any]) -> set[str]:
    """The metrics of a node and all below it."""
    return set(node["metrics"]).union(*(names(c) for c in node["children"]))


def tree(path: str, metric: str = TIME, depth: int = 100) -> str:
    """The profile as text: a line for each scope and kernel, with the metric of it and all below it. Raises ArgumentError for an unknown metric."""
    with open(path, encoding="utf-8") as f:
        root = json.load(f)[0]
    if metric not in names(root):
        raise ArgumentError(f"{path} has no metric {metric!r}; it has {', '.join(sorted(names(root))) or 'none'}")
    lines: list[str] = []

    def show(node: dict[str, Any], level: int) -> None:
        lines.append(f"{inclusive(node, metric):>16.6g}  {'  ' * level}{node['frame']['name']}")
        if level < depth:
            for child in sorted(node["children"], key=lambda c: -inclusive(c, metric)):
                show(child, level + 1)

    show(root, 0)
    return "\n".join([f"{metric:>16}", *lines])


def print_tree(path: str, metric: str = TIME, depth: int = 100) -> None:
    """Print ``tree``."""
    print(tree(path, metric, depth))


def parse(metrics: Any, filename: str, *args: Any, **kwargs: Any) -> Any:
    """Triton's, which gives a GraphFrame of the package hatchet and derived metrics: (graph frame, derived metrics). Here the frame alone is
    made, of the metrics that the file has."""
    if args or kwargs:
        raise ArgumentError("viewer.parse takes metrics and a file here; include, exclude and threshold are hatchet's own queries")
    try:
        import hatchet
    except ImportError:
        raise MissingPackageError("viewer.parse gives a GraphFrame of hatchet, which is not installed: pip install llnl-hatchet, or use viewer.tree") from None
    with open(filename, encoding="utf-8") as f:
        return hatchet.GraphFrame.from_literal(json.load(f)[:1]), [metrics] if isinstance(metrics, str) else list(metrics)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.profiler.viewer", description="Show a profile of launches.")
    parser.add_argument("file")
    parser.add_argument("-m", "--metric", default=TIME)
    parser.add_argument("-d", "--depth", type=int, default=100)
    parser.add_argument("-l", "--list", action="store_true", help="list the metrics and stop")
    given = parser.parse_args(argv)
    if given.list:
        with open(given.file, encoding="utf-8") as f:
            print("\n".join(sorted(names(json.load(f)[0]))))
    else:
        print_tree(given.file, given.metric, given.depth)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
