"""The pages generated from docstrings are what the docstrings say, and what the README and docs name exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_generated_pages_are_up_to_date():
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_linked_files_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.name} links to {link}, which does not exist"


def test_the_kernel_in_the_readme_runs(tmp_path):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    script = tmp_path / "readme.py"
    script.write_text(code.group(1))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", re.findall(r"`(tilewright (?:compile|targets|matrix)[^`]*)`", (ROOT / "README.md").read_text()))
def test_commands_in_the_readme_run(command, tmp_path):
    import shlex

    (tmp_path / "examples").symlink_to(ROOT / "examples")  # what a command writes is not left in the sources

    done = subprocess.run([sys.executable, "-m", "tilewright.cli", *shlex.split(command)[1:]], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "TILEWRIGHT_VERIFY": "0"})
    assert done.returncode == 0 and done.stdout.strip(), done.stdout + done.stderr


def test_the_cases_in_the_docs_run(tmp_path):
    """docs/ci.md's file, as it stands there, on a host and a simulated target; and its workflow names only targets that there are."""
    pytest.importorskip("torch")
    from tilewright import matrix

    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(), re.S)
    script = tmp_path / "kernels.py"
    script.write_text(code.group(1))
    for target in ("cpu", "amd:gfx1100:sim"):
        result = matrix.run_target(target, {"file": str(script)}, 120.0)
        assert result.passed and len(result.cases) == 3, (result.failure, result.cases)
    workflow = (ROOT / "docs" / "ci" / "kernels.yml").read_text()
    listed = re.findall(r"^          - (\S+)$", workflow, re.M)
    assert len(listed) >= 4 and all(matrix.targets_of(text) for text in listed)
    assert not any("matrix.targets" in key for key in re.findall(r"(?:key|keys|name): (.*)", workflow))  # commas: actions/cache refuses such keys
    commands = re.findall(r"tilewright (matrix [^\n]*)", workflow)
    parser = __import__("tilewright.cli", fromlist=["cli"])._parser()
    import shlex

    assert len(commands) == 3 and all(parser.parse_args(shlex.split(c)).command == "matrix" for c in commands)
