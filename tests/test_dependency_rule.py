"""Who may import whom, and where the names of vendors may stand (design, section 1)."""

from __future__ import annotations

import ast
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"frontend": "tilewright", "dialects": "tilewright.dialects", "targets": "tilewright.targets"}

VENDOR = re.compile(r"(?<![A-Za-z0-9])(nvidia|cuda|rocm|hip|amd|ptx|gfx\d*\w?|sm_\d+\w?|amdgcn|nvptx|ptxas|cubin|hsaco)(?![A-Za-z0-9])", re.IGNORECASE)

# Names of Triton's public API that hold a vendor's word and must exist: file → words.
ALLOWED: dict[str, set[str]] = {
    "frontend/language/target_info.py": {"cuda", "hip", "gfx942", "gfx950"},  # is_cuda, is_hip_cdna3, …
    "frontend/runtime/autotuner.py": {"cuda"},  # autotune(use_cuda_graph=…)
}

# What frontend may import of targets: the protocol and the registry, never a target.
FRONTEND_MAY = ("tilewright.targets.protocol", "tilewright.targets.registry")


def python_files(folder: str) -> list[Path]:
    return sorted(p for p in (ROOT / folder).rglob("*.py") if "__pycache__" not in p.parts)


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts[0] = PACKAGES[parts[0]]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, dotted name) of every import, with names of ``from x import y`` both as x and as x.y; relative ones resolved."""
    out = []
    package = module_name(path)
    if path.name != "__init__.py":
        package = package.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            out += [(node.lineno, a.name) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, base] if base else parent)
            out += [(node.lineno, f"{base}.{a.name}") for a in node.names]
    return out


def violations() -> list[str]:
    found = []
    for path in python_files("dialects"):
        found += [f"{path.relative_to(ROOT)}:{line}: dialects import {name}" for line, name in imports(path)
                  if name.split(".")[0] == "tilewright" and not name.startswith("tilewright.dialects")]
    for path in python_files("frontend"):
        for line, name in imports(path):
            if name.startswith("tilewright.targets.") and not name.startswith(FRONTEND_MAY) and name not in (
                    "tilewright.targets.registry", "tilewright.targets.protocol"):
                found.append(f"{path.relative_to(ROOT)}:{line}: frontend imports {name}")
    targets = {p.name for p in (ROOT / "targets").iterdir() if p.is_dir() and p.name != "__pycache__"}
    for path in python_files("targets"):
        own = path.relative_to(ROOT / "targets").parts[0]
        for line, name in imports(path):
            parts = name.split(".")
            where = f"{path.relative_to(ROOT)}:{line}"
            if parts[0] != "tilewright":
                continue
            if parts[1:2] not in (["dialects"], ["targets"]):
                found.append(f"{where}: a target imports {name}")
            elif parts[1] == "targets" and len(parts) > 2 and parts[2] in targets and parts[2] != own:
                found.append(f"{where}: {own} imports {name}")
    return found


def test_imports_go_one_way():
    assert violations() == []


def test_the_bindings_are_imported_in_one_place():
    providers = ("torch_mlir", "mlir")
    found = [f"{p.relative_to(ROOT)}:{line}: {name}" for folder in PACKAGES for p in python_files(folder) for line, name in imports(p)
             if name.split(".")[0] in providers and p != ROOT / "dialects" / "_mlir.py"]
    assert found == []


def test_torch_is_imported_by_functions_only():
    """No module needs torch, or a vendor's package, to be imported."""
    found = []
    for folder in PACKAGES:
        for path in python_files(folder):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if not isinstance(node, (ast.Import, ast.ImportFrom)):
                    continue
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                if any(n.split(".")[0] in ("torch", "cupy", "jax", "cuda", "hip", "triton") for n in names) and node.col_offset == 0:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def vendor_words(path: Path) -> list[str]:
    name = str(path.relative_to(ROOT))
    allowed = ALLOWED.get(name, set())
    out = []
    with tokenize.open(path) as f:
        for number, line in enumerate(f, 1):
            out += [f"{name}:{number}: {m.group(0)}" for m in VENDOR.finditer(line) if m.group(0) not in allowed]
    return out


@pytest.mark.parametrize("folder", ["frontend", "dialects"])
def test_vendor_words_stand_under_targets_only(folder):
    assert [w for path in python_files(folder) for w in vendor_words(path)] == []


def test_the_allow_list_is_needed():
    for name, words in ALLOWED.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert {w for w in words if not re.search(rf"(?<![A-Za-z0-9]){w}(?![A-Za-z0-9])", text)} == set()


def test_the_checks_see_what_they_look_for(tmp_path):
    for word in ("nvidia", "CUDA", "sm_90a", "gfx942", "ROCm", "use_cuda_graph", "amd:gfx90a", "PTX", "hip"):
        assert VENDOR.search(f"x = '{word}'"), word
    for word in ("ship", "chip", "hiphop", "amdahl", "barracuda", "cudalike", "small_1"):
        assert not VENDOR.search(word), word
    for folder in PACKAGES:
        assert len(python_files(folder)) > 3
    assert (None, "x") != imports(ROOT / "targets" / "registry.py")
    assert "tilewright.targets.protocol.GPUTarget" in [name for _, name in imports(ROOT / "targets" / "registry.py")]
