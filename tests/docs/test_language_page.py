"""docs/language.md says all that the language has, and its examples compile and run."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
_spec = importlib.util.spec_from_file_location("language_page", DOCS / "language_page.py")
page = importlib.util.module_from_spec(_spec)
sys.modules["language_page"] = page
_spec.loader.exec_module(page)

ENTRIES = [(prefix + e.name, value, e) for prefix, value, e in page.language_entries()]


def test_every_public_name_has_its_place():
    import tilewright.language as tl

    public = {n for n in tl.__all__ if not n.startswith("_")}
    listed = [n for names in page.GROUPS.values() for n in names] + list(page.TYPES) + list(page.OTHER)
    assert sorted(public - set(listed)) == [] and len(listed) == len(set(listed))
    assert all(hasattr(tl, n) for n in listed)


@pytest.mark.parametrize("name, value, e", ENTRIES, ids=[n for n, _, _ in ENTRIES])
def test_every_function_says_types_and_has_an_example(name, value, e):
    assert e.meaning
    if getattr(value, "__triton_builtin__", False) and not (inspect.isclass(value) and hasattr(value, "mangle")):  # types are called too
        assert e.example and len(e.example.split("\n")) <= 8, f"{name} needs an Example:: of a few lines"
        assert e.name.split("_")[0] in e.example
        assert e.types or "descriptor" in name or name == "tl.debug_barrier", f"{name} needs a line Types: …"


def _module(entries, folder):
    """A module with one kernel that runs the examples of ``entries``, each in a function of its own; those that define functions have them at the top."""
    out = ["import tilewright as triton", "import tilewright.language as tl", "from tilewright.language.extra import libdevice", ""]
    for index, (name, _, e) in enumerate(entries):
        head, _, tail = e.example.rpartition("\n\n") if "@triton.jit" in e.example else ("", "", e.example)
        out += [f"# {name}", head, "@triton.jit", f"def example_{index}(p, q, out, n):", textwrap.indent(page.PRELUDE, "    "), textwrap.indent(tail, "    "), ""]
    out += ["@triton.jit", "def kernel(p, q, out, n):", *(f"    example_{index}(p, q, out, n)" for index in range(len(entries)))]
    path = folder / "examples.py"
    path.write_text("\n".join(out))
    spec = importlib.util.spec_from_file_location("language_examples", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_RUN = [t for t in ENTRIES if t[2].example and t[2].targets == "all"]
_STEP = 12


@pytest.mark.parametrize("start", range(0, len(_RUN), _STEP))
@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_the_examples_run(start, target, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_INTERPRET", "1" if target == "interpreter" else "0")
    module = _module(_RUN[start:start + _STEP], tmp_path)
    p, out, q = np.ones(1 << 12, np.float32), np.full(1 << 12, np.nan, np.float32), np.zeros(1 << 12, np.int32)
    module.kernel[(1,)](p, q, out, 13)


def test_every_name_that_kernels_use_is_on_the_page():
    """The names of the usage list, P0 to P2 (tests/conformance has the list)."""
    text = (DOCS / "language.md").read_text()
    used = json.loads((DOCS.parent / "tests" / "conformance" / "names.json").read_text())
    missing = [n for n, priority in used["language"].items() if priority != "P3" and f"`tl.{n}" not in text]
    missing += [n for n, priority in used["libdevice"].items() if priority != "P3" and f"libdevice.{n}(" not in text]
    assert len(used["language"]) > 100 and not missing


def test_the_prelude_is_what_the_page_shows():
    assert page.PRELUDE in (DOCS / "language.md").read_text() and inspect.cleandoc(page.PRELUDE) == page.PRELUDE
