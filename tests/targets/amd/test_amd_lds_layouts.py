"""LDS between the global loads and the matrix instructions of the benchmark kernels: no bank conflicts, by enumerating the addresses of all
lanes; every access of 64 or 128 bits; operands turned by a transposing load (gfx950) or in registers before they are written."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.compiler import ASTSource
from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions, type_info
from tilewright.dialects.context import mlir_context
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.shared_layouts import cost, is_transposing
from tilewright.dialects.swizzle import access_vector
from tilewright.targets.amd.capabilities import capabilities
from tilewright.targets.protocol import GPUTarget

ROOT = Path(__file__).parents[3]
# The lanes that one cycle serves, written out: measured by the amd-shark-ai project (docs/empirical-lds) and, for CDNA 3, in AMD's Composable
# Kernel documentation.
_CDNA3_B128 = [[0, 1, 2, 3, 20, 21, 22, 23], [4, 5, 6, 7, 16, 17, 18, 19], [8, 9, 10, 11, 28, 29, 30, 31], [12, 13, 14, 15, 24, 25, 26, 27]]
_CDNA4_B128 = [[0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27], [4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 28, 29, 30, 31]]


def served(arch, lanes, size, write):
    """Groups of lanes that access LDS together with ``size`` bytes each."""
    banks = 64 if arch == "gfx950" else 32
    if size == 16 and not write and not arch.startswith("gfx12"):
        half = _CDNA4_B128 if arch == "gfx950" else _CDNA3_B128
        return [[x + first for x in g] for first in range(0, lanes, 32) for g in half]
    at_once = min(lanes, banks * 4 // max(4, size))
    return [list(range(i, i + at_once)) for i in range(0, lanes, at_once)]


def conflicts(arch, layout, shared, bytes_, vec, write):
    """Cycles beyond one for each group that is served together, by the byte addresses of every access of every warp."""
    inverse = shared.pseudo_invert()
    registers, lanes, warps = (layout.in_size(d) for d in ("register", "lane", "warp"))
    table = np.asarray(layout.compose(inverse).table()).reshape(warps, lanes, registers)
    words = max(1, vec * bytes_ // 4)
    banks = 64 if arch == "gfx950" else 32
    extra = 0
    for w in range(warps):
        for first in sorted({int(o) // vec for o in table[w, 0]}):
            (register,) = [r for r in range(registers) if table[w, 0, r] == first * vec][:1]
            base = table[w, :, register] // vec * vec * bytes_ // 4
            for group in served(arch, lanes, vec * bytes_, write):
                distinct = np.unique(base[group][:, None] + np.arange(words))
                extra += int(np.bincount(distinct % banks).max()) - max(1, -(-len(distinct) // banks))
    return extra


@pytest.fixture(scope="module")
def configs():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return {c.name: c for c in importlib.import_module("configs").CONFIGS}
    finally:
        sys.path.pop(0)


_compiled = {}


def compiled(configs, arch, name):
    if (arch, name) not in _compiled:
        config = configs[name]
        kernel = getattr(importlib.import_module(config.module), config.kernel)
        attrs = {(list(config.signature).index(a),): [["tt.divisibility", 16]] for a in config.aligned}
        source = ASTSource(fn=kernel, signature=dict(config.signature), constexprs=dict(config.constexprs, PRECISION="ieee"), attrs=attrs)
        _compiled[arch, name] = tilewright.compile(source, target=GPUTarget("hip", arch, 0), options=dict(config.options)).asm
    return _compiled[arch, name]


def accesses(text):
    """(register layout, layout of the buffer, bytes of an element) of what is written to buffers and of what is read, as the buffer sees it.

    Loads that go to LDS directly write a lane's 16 bytes after another's and are not among them."""
    writes, reads = [], []
    module = ir.Module.parse(text)
    for function in functions(module):
        for node in function.nodes():
            if node.name in ("ttg.local_alloc", "ttg.local_store") and node.operands:
                memory = (node.results[0] if node.results else node.operands[1]).type
                info = type_info(node.operands[0].type)
                shared = encodings.to_linear_layout(info.shape, memory.encoding)
                writes.append((encodings.to_linear_layout(info.shape, info.encoding), shared, max(8, info.bits) // 8))
            if node.name == "ttg.local_load":
                info, memory, made = type_info(node.results[0].type), node.operands[0].type, function.def_node(node.operands[0])
                if made is not None and made.name == "ttg.memdesc_subslice":  # addresses are those of the whole buffer
                    memory = made.operands[0].type
                shared = encodings.to_linear_layout(memory.shape[-len(info.shape):], memory.encoding)
                read = encodings.to_linear_layout(info.shape, info.encoding)
                reads.append((LinearLayout(read.bases, shared.out_sizes), shared, max(8, info.bits) // 8))
    return writes, reads


ARCHS = ("gfx942", "gfx950", "gfx1100", "gfx1201")


@pytest.mark.parametrize("name", ["matmul", "attention"])
@pytest.mark.parametrize("arch", ARCHS)
def test_no_bank_conflicts(configs, arch, name):
    asm = compiled(configs, arch, name)
    with mlir_context():
        writes, reads = accesses(asm["ttgir"])
        assert len(reads) >= 2 and (len(writes) >= 2 or "amdg.buffer_load_to_local" in asm["ttgir"])
        for written, shared, bytes_ in writes:
            vec = access_vector(written, shared, bytes_, write=True)
            assert vec * bytes_ >= 8 and conflicts(arch, written, shared, bytes_, vec, True) == 0
        for read, shared, bytes_ in reads:
            turned = is_transposing(shared, read, 8 * bytes_, 8) if arch == "gfx950" else None
            vec = 8 // bytes_ if turned is not None else access_vector(read, shared, bytes_)
            assert vec * bytes_ >= 8 and conflicts(arch, turned or read, shared, bytes_, vec, False) == 0


@pytest.mark.parametrize("arch", ARCHS)
def test_the_count_finds_conflicts(arch):
    """A row-major buffer whose columns are read: the enumeration and the algebra agree on how bad that is."""
    lanes = capabilities(arch).warp_size
    model = capabilities(arch).extra["shared_model"]
    bits = lanes.bit_length() - 1
    shared = LinearLayout({"offset": [(0, 1 << i) for i in range(6)] + [(1 << i, 0) for i in range(bits)]}, {"dim0": lanes, "dim1": 64})
    rows = LinearLayout({"register": [(0, 1 << i) for i in range(6)], "lane": [(1 << i, 0) for i in range(bits)], "warp": []},
                        {"dim0": lanes, "dim1": 64})
    counted = conflicts(arch, rows, shared, 2, 8, False) + conflicts(arch, rows, shared, 2, 8, True)
    assert counted > 0
    assert cost(rows, rows, shared, 16, model).conflicts == counted


def loops(text):
    for label in re.findall(r"^(\.LBB\d+_\d+):", text, re.M):
        found = re.search(rf"^{re.escape(label)}:(.*?)s_cbranch_\w+ {re.escape(label)}$", text, re.S | re.M)
        if found and re.search("v_mfma|v_wmma", found.group(1)):
            yield found.group(1)


@pytest.mark.parametrize("name", ["matmul", "attention"])
@pytest.mark.parametrize("arch", ARCHS)
def test_accesses_are_wide(configs, arch, name):
    """No halves are read or written one by one, and P of attention goes through no LDS: what is left are exchanges of row maxima and sums."""
    for loop in loops(compiled(configs, arch, name)["amdgcn"]):
        accesses = re.findall(r"\bds_(?:read|write|load|store)\w*", loop)
        assert accesses and all(re.search("b128|b64", a) for a in accesses), set(accesses)
        assert bool(re.search("ds_read_b64_tr_b16", loop)) == (arch == "gfx950")
        exchanges = len(re.findall(r"ds_bpermute|ds_swizzle", loop))
        rounds = len(re.findall("v_mfma", loop)) // 32  # of gfx942's attention: a loop may do two in a turn
        assert exchanges == (2 * rounds if arch == "gfx942" and name == "attention" else 0)
