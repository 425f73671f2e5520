"""The simulator runs the assembly text; the device gets the code object. They are the same code: the text assembled by another LLVM gives the object's bytes."""

import importlib.util
import struct
import subprocess
import sys

import attention
import matmul
import pytest
import softmax

import tilewright
from tilewright.compiler import ASTSource
from tilewright.targets.amd.emit import linker
from tilewright.targets.protocol import GPUTarget

pytestmark = [pytest.mark.skipif(importlib.util.find_spec("ziglang") is None or linker() is None, reason="needs the assembler and linker of ziglang")]

SIGNATURES = {
    "softmax": (softmax.softmax_kernel, "*fp16 *fp16 i32 i32 i32 i32", {"BLOCK": 1024}),
    "matmul": (matmul.matmul_kernel, "*fp16 *fp16 *fp16 *fp16 i32 i32 i32 i32 i32 i32 i32 i32 i32",
               {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "RELU": True, "PRECISION": "ieee"}),
    "attention": (attention.attention_kernel, "*fp16 *fp16 *fp16 *fp16 i32 i32 i32 i32 i32 i32 i32 i32 i32 fp32",
                  {"HEAD_DIM": 64, "BLOCK_M": 64, "BLOCK_N": 32, "CAUSAL": True, "PRECISION": "ieee"}),
}
CASES = [(n, a) for n in SIGNATURES for a in ("gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")]
QUICK = {("softmax", "gfx942"), ("softmax", "gfx1201")}


def symbols(elf):
    """name → bytes, of an ELF64 file's symbols that have a size."""
    shoff, shentsize, shnum = struct.unpack_from("<Q", elf, 40)[0], *struct.unpack_from("<HH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, shoff + i * shentsize) for i in range(shnum)]
    found = {}
    for s in sections:
        if s[1] != 2 and s[1] != 11:  # SHT_SYMTAB, SHT_DYNSYM
            continue
        names = sections[s[6]]
        for at in range(s[4], s[4] + s[5], 24):
            name, _, _, section, value, size = struct.unpack_from("<IBBHQQ", elf, at)
            if size and 0 < section < shnum:
                text = elf[names[4] + name:elf.index(b"\0", names[4] + name)].decode()
                start = sections[section][4] + value - sections[section][3]
                found[text] = elf[start:start + size]
    return found


def assembled(text, arch, folder):
    source, out = folder / "k.s", folder / "k.o"
    source.write_text(text)
    done = subprocess.run([sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-c", str(source), "-o", str(out)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return symbols(out.read_bytes())


@pytest.mark.parametrize("name, arch", [pytest.param(*c, marks=() if c in QUICK else pytest.mark.slow) for c in CASES])
def test_text_and_object_are_the_same_code(name, arch, tmp_path):
    kernel, types, constants = SIGNATURES[name]
    arguments = [a for a in kernel.arg_names if a not in constants]
    source = ASTSource(fn=kernel, signature={**dict(zip(arguments, types.split(), strict=True)), **dict.fromkeys(constants, "constexpr")}, constexprs=constants)
    compiled = tilewright.compile(source, target=GPUTarget("hip", arch, 0), options={"num_warps": 4})
    shipped, text = symbols(compiled.asm["hsaco"]), assembled(compiled.asm["amdgcn"], arch, tmp_path)
    function = f"{name}_kernel"
    assert len(shipped[function]) > 500 and shipped[function] == text[function]
    descriptors = [bytearray(s[function + ".kd"]) for s in (shipped, text)]
    for d in descriptors:
        d[16:24] = bytes(8)  # the entry's distance, which the linker writes
    assert descriptors[0] == descriptors[1]
    # and another text gives other bytes
    changed = compiled.asm["amdgcn"].replace("s_endpgm", "s_nop 3\n\ts_endpgm", 1)
    assert assembled(changed, arch, tmp_path)[function] != shipped[function]
