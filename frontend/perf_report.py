"""Benchmarks that vary one argument along x and one from line to line: measured, printed, saved as CSV, HTML and plots. See ``tilewright.testing``."""

from __future__ import annotations

import csv
import html
import io
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects.errors import ArgumentError, TilewrightError


class MissingPackageError(TilewrightError, ImportError):
    """What was asked for needs a package that is not installed; names it."""


class Benchmark:
    """What varies along x and from line to line of a plot or table.

    x_names: arguments set to each of ``x_vals`` (a value for all of them, or a tuple with one for each); line_arg: the argument set to each of
    ``line_vals``, shown as ``line_names``; plot_name: of the files; args: further arguments, always the same; xlabel, ylabel, x_log, y_log,
    styles (a colour and a line style a line): of the plot. Raises ArgumentError where line_vals and line_names differ in length.
    """

    def __init__(self, x_names: Sequence[str], x_vals: Sequence[Any], line_arg: str, line_vals: Sequence[Any], line_names: Sequence[str],
                 plot_name: str, args: dict[str, Any], xlabel: str = "", ylabel: str = "", x_log: bool = False, y_log: bool = False,
                 styles: Sequence[tuple[str, str]] | None = None):
        if isinstance(x_names, str) or not hasattr(x_names, "__iter__"):
            raise ArgumentError(f"x_names is a list of arguments' names; found {x_names!r}")
        if not isinstance(args, dict):
            raise ArgumentError(f"args is a dict of further arguments, {{}} for none; found {args!r}")
        if len(line_vals) != len(line_names):
            raise ArgumentError(f"line_vals has {len(line_vals)} entries and line_names {len(line_names)}; they go together")
        self.x_names, self.x_vals, self.x_log = list(x_names), list(x_vals), x_log
        self.line_arg, self.line_vals, self.line_names, self.y_log = line_arg, list(line_vals), list(line_names), y_log
        self.styles, self.xlabel, self.ylabel, self.plot_name, self.args = styles, xlabel, ylabel, plot_name, args

    def heads(self) -> list[str]:
        """The table's columns."""
        unit = f" ({self.ylabel})" if self.ylabel else ""
        return [*self.x_names, *(name + unit for name in self.line_names)]


class _Measured:
    """A benchmark's numbers: a row for each x, with the values along x and a (middle, low or None, high or None) for each line."""

    def __init__(self, bench: Benchmark):
        self.bench = bench
        self.rows: list[tuple[list[Any], list[tuple[Any, Any, Any]]]] = []

    def table(self, diff_col: bool = False) -> tuple[list[str], list[list[Any]]]:
        heads, rows = self.bench.heads(), [[*x, *(middle for middle, _, _ in lines)] for x, lines in self.rows]
        if diff_col and len(heads) == 2:
            heads, rows = [*heads, "Diff"], [[*row, row[1] - row[0]] for row in rows]
        return heads, rows


def _cell(value: Any, precision: int) -> str:
    return f"{value:.{precision}f}" if isinstance(value, float) else "" if value is None else str(value)


def _aligned(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [list(heads), *([_cell(v, 6) for v in row] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(line, widths)) for line in cells)


class Mark:
    """A function with benchmarks; ``run`` measures them. Calling it calls the function."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]):
        self.fn = fn
        self.benchmarks = benchmarks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def _measure(self, bench: Benchmark, **kwargs: Any) -> _Measured:
        measured = _Measured(bench)
        for x in bench.x_vals:
            values = list(x) if isinstance(x, (list, tuple)) else [x] * len(bench.x_names)
            if len(values) != len(bench.x_names):
                raise ArgumentError(f"{bench.plot_name}: {len(values)} values for {len(bench.x_names)} x_names")
            lines = []
            for line in bench.line_vals:
                result = self.fn(**dict(zip(bench.x_names, values)), **{bench.line_arg: line}, **bench.args, **kwargs)
                middle, low, high = (*result, None, None)[:3] if isinstance(result, (tuple, list)) else (result, None, None)
                lines.append((middle, low, high))
            measured.rows.append((values, lines))
        return measured

    def run(self, show_plots: bool = False, print_data: bool = False, save_path: str = "", return_df: bool = False, diff_col: bool = False,
            save_precision: int = 6, **kwargs: Any) -> Any:
        """Measure all benchmarks: the function is called with each x, each line's value and ``kwargs``, and returns a number, or (middle, low, high).

        show_plots: in windows, by matplotlib. print_data: a table each. save_path: a folder for ``plot_name``.csv, .png (where matplotlib is
        installed; a warning where not) and results.html. diff_col: with two columns, their difference. save_precision: digits in the CSV.
        return_df: a pandas DataFrame (a list of them for several benchmarks). Raises MissingPackageError where a package is needed for that.
        """
        single = isinstance(self.benchmarks, Benchmark)
        benches = [self.benchmarks] if isinstance(self.benchmarks, Benchmark) else list(self.benchmarks)
        plot = _pyplot(needed=show_plots) if show_plots or save_path else None
        pandas = _pandas() if return_df else None
        if save_path:
            os.makedirs(save_path, exist_ok=True)
        results: list[_Measured] = []
        try:
            for bench in benches:
                measured = self._measure(bench, **kwargs)
                results.append(measured)
                heads, rows = measured.table(diff_col)
                if bench.plot_name and plot is not None:
                    _draw(plot, measured, show_plots, save_path)
                if print_data:
                    print(f"{bench.plot_name}:\n{_aligned(heads, rows)}")
                if save_path:
                    with open(os.path.join(save_path, f"{bench.plot_name}.csv"), "w", encoding="utf-8", newline="") as f:
                        f.write(_csv(heads, rows, save_precision))
        finally:
            if save_path:
                with open(os.path.join(save_path, "results.html"), "w", encoding="utf-8") as f:
                    f.write(_page(results, plotted=plot is not None))
        if pandas is None:
            return None
        frames = [pandas.DataFrame(rows, columns=heads) for heads, rows in (m.table(diff_col) for m in results)]
        return frames[0] if single else frames


def _csv(heads: Sequence[str], rows: Sequence[Sequence[Any]], precision: int) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_cell(v, precision) for v in row] for row in rows)
    return out.getvalue()


def _page(results: Sequence[_Measured], plotted: bool) -> str:
    parts = ["<html><body>"]
    for measured in results:
        name = html.escape(measured.bench.plot_name)
        heads, rows = measured.table()
        parts.append(f"<h2>{name}</h2>")
        if plotted and measured.bench.plot_name:
            parts.append(f'<img src="{name}.png"/>')
        parts.append("<table><tr>" + "".join(f"<th>{html.escape(h)}</th>" for h in heads) + "</tr>")
        parts += ["<tr>" + "".join(f"<td>{html.escape(_cell(v, 6))}</td>" for v in row) + "</tr>" for row in rows]
        parts.append("</table>")
    return "\n".join([*parts, "</body></html>", ""])


def _pyplot(needed: bool) -> Any:
    try:
        import matplotlib.pyplot as plot
    except ImportError:
        if needed:
            raise MissingPackageError("plots are drawn by matplotlib, which is not installed: pip install matplotlib, or leave show_plots out") from None
        warnings.warn("no plots are saved, since matplotlib is not installed (pip install matplotlib); tables are", stacklevel=4)
        return None
    return plot


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingPackageError("return_df gives pandas DataFrames, and pandas is not installed: pip install pandas, or use save_path") from None
    return pandas


def _draw(plot: Any, measured: _Measured, show: bool, save_path: str) -> None:
    """One plot: a line for each of the benchmark's, and where the function gives them, what lies between low and high."""
    bench = measured.bench
    plot.figure()
    ax = plot.subplot()
    along = [x[0] for x, _ in measured.rows]
    for i, name in enumerate(bench.heads()[len(bench.x_names):]):
        colour, style = bench.styles[i] if bench.styles else (None, None)
        ax.plot(along, [lines[i][0] for _, lines in measured.rows], label=name, color=colour, ls=style)
        bounds = [lines[i][1:] for _, lines in measured.rows]
        if bounds and all(low is not None and high is not None for low, high in bounds):
            ax.fill_between(along, [float(low) for low, _ in bounds], [float(high) for _, high in bounds], alpha=0.15, color=colour)
    ax.legend()
    ax.set_xlabel(bench.xlabel or bench.x_names[0])
    ax.set_ylabel(bench.ylabel)
    ax.set_xscale("log" if bench.x_log else "linear")
    ax.set_yscale("log" if bench.y_log else "linear")
    if show:
        plot.show()
    if save_path:
        plot.savefig(os.path.join(save_path, f"{bench.plot_name}.png"))


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator: the function becomes a Mark, whose ``run`` measures the benchmarks."""
    for benchmark in [benchmarks] if isinstance(benchmarks, Benchmark) or not hasattr(benchmarks, "__iter__") else benchmarks:
        if not isinstance(benchmark, Benchmark):
            raise ArgumentError(f"perf_report takes a Benchmark or a list of them; found {benchmark!r} ({type(benchmark).__name__})")
    return lambda fn: Mark(fn, benchmarks)
