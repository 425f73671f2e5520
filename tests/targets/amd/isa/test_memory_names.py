"""The simulator has a memory instruction on an arch if and only if LLVM's assembler takes it there, and it knows all of the assembler's but a few."""

import importlib.util
import re
import subprocess
import sys

import pytest
from snippets import kernel_text

import tilewright.targets.amd.isa.instructions  # noqa: F401  (fills the table)
from tilewright.targets.amd.isa.errors import UnknownInstruction
from tilewright.targets.amd.isa.program import parse, parse_instruction
from tilewright.targets.amd.isa.registry import INSTRUCTIONS, DecodeContext, decode

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs the assembler of ziglang")
ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1200", "gfx1201")


def assembled(arch, lines, folder):
    """Those of ``lines`` that the assembler takes."""
    source = folder / "lines.s"
    source.write_text("\n".join(lines) + "\n")
    done = subprocess.run([sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-c", str(source), "-o", str(folder / "lines.o")],
                          capture_output=True, text=True)
    assert "error" in done.stderr or done.returncode == 0, done.stderr
    wrong = {int(n) for n in re.findall(r"lines\.s:(\d+):\d+: error", done.stderr)}
    return {line for number, line in enumerate(lines, 1) if number not in wrong}


def decoded(arch, lines):
    program = parse(kernel_text(arch, "s_nop 0"))
    context, known = DecodeContext(program, program.kernel()), set()
    for line in lines:
        try:
            decode(parse_instruction(line), context)
            known.add(line)
        except UnknownInstruction:
            pass
    return known


def tuples(first):
    """A register tuple of 1 to 4."""
    return [f"v{first}"] + [f"v[{first}:{first + n}]" for n in (1, 2, 3)]


def forms(name):
    """Lines that may be valid with that name: one for each count of data registers."""
    scope, _, rest = name.partition("_")
    if scope == "ds":
        if rest in ("nop",):
            return [name]
        two = any(part in rest for part in ("read2", "write2", "2addr", "wrxchg2"))
        end = " offset0:1 offset1:2" if two else " offset:16"
        if rest.startswith(("read", "load", "swizzle")):
            return [f"{name} {d}, v2{end}" for d in tuples(20)]
        if rest.startswith(("write", "store")) and "xchg" not in rest:
            return [f"{name} v2, {d}{f', {e}' if two else ''}{end}" for d, e in zip(tuples(20), tuples(40))]
        target = "_rtn" in rest or "permute" in rest
        lines = []
        for d, e, f in zip(tuples(20), tuples(40), tuples(50)):
            lines += [f"{name} {d + ', ' if target else ''}v2, {e}{end}", f"{name} {d + ', ' if target else ''}v2, {e}, {f}{end}"]
        if two:
            lines += [f"{name} v[20:21], v2, v40, v50{end}", f"{name} v[20:23], v2, v[40:41], v[50:51]{end}"]
        return lines
    if scope == "buffer":
        if not rest.startswith(("load", "store", "atomic")):
            return [name]
        return [f"{name} {d}, v2, s[4:7], {zero} offen offset:4" for d in tuples(20) for zero in ("0", "null")]
    if not rest.startswith(("load", "store", "atomic")):
        return [name]
    off = ", off" if scope != "flat" else ""
    address = "v2" if scope == "scratch" else "v[2:3]"
    if "_load_lds_" in name:
        return [f"{name} {address}{off}"]
    if rest.startswith("load"):
        lines = [f"{name} {d}, {address}{off}" for d in tuples(20)]
        return lines + [f"{name} {d}, v2, s[4:5] offset:-4" for d in tuples(20)] * (scope == "global") + [f"{name} {d}, off, s9 offset:4" for d in tuples(20)] * (scope == "scratch")
    lines = [f"{name} {address}, {d}{off}" for d in tuples(20)]
    return lines + [f"{name} v2, {d}, s[4:5] offset:-4" for d in tuples(20)] * (scope == "global") + [f"{name} off, {d}, s9 offset:4" for d in tuples(20)] * (scope == "scratch")


NAMES = sorted(n for n in INSTRUCTIONS if n.startswith(("global_", "flat_", "scratch_", "buffer_", "ds_")))
# on CDNA what these leave in the other half of the register depends on SRAM ECC
HALVES = re.compile(r"\w+_(load|read)_(u8|i8|u16|ubyte|sbyte|short)_d16(_hi)?\b")
# names of older generations that gfx12's assembler takes for its own with other rules for NaN
ALIASES = re.compile(r"(\w+_atomic_(fmin|fmax|min_f32|max_f32)|ds_(min|max)(_rtn)?_f(32|64))\b")


@pytest.mark.parametrize("arch", ARCHS)
def test_the_simulator_has_what_the_assembler_takes(arch, tmp_path):
    lines = list(dict.fromkeys(line for name in NAMES for line in forms(name)))
    taken, known = assembled(arch, lines, tmp_path), decoded(arch, lines)
    assert len(taken) > 300
    assert sorted(known - taken) == []
    missing = {line for line in taken - known if not (arch.startswith("gfx9") and HALVES.match(line)) and not (arch.startswith("gfx12") and ALIASES.match(line))}
    assert sorted(missing) == []


MODIFIERS = ["offset:16", "offset:-16", "offset:2047", "offset:2048", "offset:4095", "offset:4096", "offset:8388607", "glc", "slc", "glc slc dlc", "scc", "sc0", "sc0 sc1 nt", "nt",
             "th:TH_LOAD_NT", "scope:SCOPE_SYS", "lds", "tfe", "offen", "nv"]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("line", ["global_load_dword v4, v[2:3], off", "scratch_load_dword v4, v2, off", "flat_load_dword v4, v[2:3]", "buffer_load_dword v4, v2, s[4:7], s9 offen",
                                  "ds_read_b32 v4, v2"])
def test_modifiers(arch, line, tmp_path):
    lines = [f"{line} {m}" for m in MODIFIERS if not (m == "offen" and "offen" in line)]
    if not line.startswith("buffer"):
        lines = [text for text in lines if not text.endswith("lds")]
    taken, known = assembled(arch, lines, tmp_path), decoded(arch, lines)
    assert sorted(known - taken) == []
    # the field of buffers has 12 bits; what the assembler makes of a larger offset is not known
    assert [text for text in taken - known if not text.endswith(("tfe", "lds", "nv", "offen offset:4096"))] == []


def test_returning_and_not(tmp_path):
    for arch, modifier in (("gfx90a", "glc"), ("gfx942", "sc0"), ("gfx1030", "glc"), ("gfx1100", "glc"), ("gfx1201", "th:TH_ATOMIC_RETURN"), ("gfx1201", "th:TH_ATOMIC_NT_RETURN")):
        lines = [f"global_atomic_add {target}v[2:3], v4, off {m}".strip() for target in ("", "v9, ") for m in ("", modifier)]
        assert decoded(arch, lines) == {lines[0], lines[3]} <= assembled(arch, lines, tmp_path), arch
