"""The five example kernels compiled offline for every architecture to linked code objects, and what their code holds."""

import importlib
import re
import sys
from pathlib import Path

import matmul as matmul_example
import numpy as np
import pytest

import tilewright
from tilewright.compiler import ASTSource
from tilewright.dialects.errors import ArgumentError
from tilewright.targets.amd.emit import kernel_arguments, linker
from tilewright.targets.protocol import GPUTarget

ROOT = Path(__file__).parents[3]
MATRIX = {"gfx90a": "v_mfma_f32", "gfx942": "v_mfma_f32", "gfx950": "v_mfma_f32", "gfx1100": "v_wmma_f32", "gfx1201": "v_wmma_f32",
          "gfx1030": None}
QUICK = ("gfx942", "gfx1201")
ARCHS = [pytest.param(a, marks=() if a in QUICK else pytest.mark.slow) for a in MATRIX]


@pytest.fixture(scope="module")
def configs():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return {c.name: c for c in importlib.import_module("configs").CONFIGS}
    finally:
        sys.path.pop(0)


def compile_config(config, arch):
    kernel = getattr(importlib.import_module(config.module), config.kernel)
    attrs = {(list(config.signature).index(a),): [["tt.divisibility", 16]] for a in config.aligned}
    source = ASTSource(fn=kernel, signature=dict(config.signature), constexprs=dict(config.constexprs), attrs=attrs)
    return tilewright.compile(source, target=GPUTarget("hip", arch, 0), options=dict(config.options))


def check(kernel, arch):
    text = kernel.asm["amdgcn"]
    assert f"amdgcn-amd-amdhsa--{arch}" in text
    assert linker() is not None and kernel.asm["hsaco"][:4] == b"\x7fELF"
    facts = kernel.metadata
    assert 0 < facts.registers <= 512 and facts.spills >= 0 and facts.warp_size == (32 if arch.startswith("gfx1") else 64)
    assert facts.registers == int(re.search(r"\.vgpr_count:\s*(\d+)", text).group(1))
    assert (facts.scratch_bytes > 0) == (facts.spills > 0)
    if arch.startswith("gfx9"):
        assert facts.agprs >= 0 and facts.spills == 0
    return text


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["add", "softmax", "layer_norm"])
def test_plain_kernels(configs, arch, name):
    kernel = compile_config(configs[name], arch)
    text = check(kernel, arch)
    assert kernel.metadata.spills == 0
    arguments = [t for t in configs[name].signature.values() if t != "constexpr"]
    assert [a["kind"] for a in kernel_arguments(text)] == ["global_buffer" if t[0] == "*" else "by_value" for t in arguments]


@pytest.mark.slow
@pytest.mark.parametrize("arch", MATRIX)
@pytest.mark.parametrize("name", ["matmul", "attention", "attention_causal"])
def test_matrix_kernels(configs, arch, name):
    config = configs[name]
    if arch == "gfx1030":  # the tutorials' blocks are unrolled multiply-adds here: smaller ones
        size = dict(BLOCK_M=32, BLOCK_N=32, BLOCK_K=16) if name == "matmul" else dict(BLOCK_M=32, BLOCK_N=16, HEAD_DIM=16)
        config = config.__class__(**{**config.__dict__, "constexprs": {**config.constexprs, **size}})
    kernel = compile_config(config, arch)
    text = check(kernel, arch)
    assert (MATRIX[arch] in text) if MATRIX[arch] else not re.search("v_(mfma|wmma)", text)


def compile_matmul(arch, block=(64, 64, 32), dtype="fp16", **options):
    signature = {f"{p}_ptr": "*" + dtype for p in "xwby"}
    signature |= {name: "i32" for name in ("M", "N", "K", "stride_xm", "stride_wk", "stride_ym")}
    constants = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block), GROUP_M=8, RELU=True, PRECISION="ieee", stride_xk=1, stride_wn=1,
                     stride_yn=1)
    kernel = matmul_example.matmul_kernel
    attributes = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if name in signature}
    return tilewright.compile(ASTSource(kernel, signature, constants, attributes), target=GPUTarget("hip", arch, 0), options=options)


def test_matrix_instr_nonkdim_chooses_the_instruction():
    for size in (16, 32):
        text = compile_matmul("gfx942", matrix_instr_nonkdim=size).asm["amdgcn"]
        assert set(re.findall(r"v_mfma_f32_(\d+)x", text)) == {str(size)}


def test_waves_per_eu_limits_registers():
    free = compile_matmul("gfx942", (128, 128, 64)).metadata.registers
    limited = compile_matmul("gfx942", (128, 128, 64), waves_per_eu=4).metadata
    assert limited.registers <= 128 < free


def test_operands_are_read_128_bits_at_a_time_and_more_with_kpack():
    texts = [compile_matmul(arch, kpack=k).asm["ttgir"] for arch, k in (("gfx942", 1), ("gfx950", 1), ("gfx950", 2))]
    widths = [{int(w) for w in re.findall(r"#ttg\.dot_op<\d : i32, #mma\w*, (\d+) : i32>", t)} for t in texts]
    assert widths == [{8}, {8}, {16}]  # the instructions hold 4 and 8 consecutive k


@pytest.mark.parametrize("options", [dict(matrix_instr_nonkdim=32), dict(kpack=2), dict(matrix_instr_nonkdim=16, kpack=2)])
def test_options_keep_the_product(monkeypatch, options):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx942:sim")
    rng = np.random.default_rng()
    x, w, b = (rng.standard_normal(s).astype(np.float16) for s in ((60, 70), (70, 40), 40))
    y = np.full((60, 40), np.nan, np.float16)
    matmul_example.matmul_kernel[(2,)](x, w, b, y, 60, 40, 70, 70, 1, 40, 1, 40, 1, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32, GROUP_M=8,
                                       RELU=False, PRECISION="ieee", num_warps=2, **options)
    expected = x.astype(np.float64) @ w + b
    assert np.abs(y - expected).max() < 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize("arch, options, message", [
    ("gfx942", dict(matrix_instr_nonkdim=8), "matrix_instr_nonkdim is 8; allowed are 0"),
    ("gfx1100", dict(matrix_instr_nonkdim=32), "instructions of gfx1100 are 16 × 16"),
    ("gfx942", dict(kpack=4), "kpack is 4; allowed are 1 and 2"),
    ("gfx942", dict(waves_per_eu=9), r"waves_per_eu is 9; gfx942 allows 0 \(automatic\) to 8"),
    ("gfx942", dict(num_warps=32), "gfx942 has waves of 64 lanes and work-groups of up to 1024"),
    ("gfx942", dict(num_ctas=2), "no clusters"),
    ("gfx942", dict(maxnreg=64), "does not have option 'maxnreg'"),
    ("gfx942", dict(block=(16, 64, 16), matrix_instr_nonkdim=32), r"matrix_instr_nonkdim is 32, and the kernel has a dot of 16 × 64"),
])
def test_unsupported_options_say_what_is_allowed(arch, options, message):
    with pytest.raises(ArgumentError, match=message):
        compile_matmul(arch, **options)


def loops(text):
    """Texts from a label to a later jump back to it."""
    for label in re.findall(r"^(\.LBB\d+_\d+):", text, re.M):
        found = re.search(rf"^{re.escape(label)}:(.*?)s_cbranch_\w+ {re.escape(label)}$", text, re.S | re.M)
        if found:
            yield found.group(1)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_barriers_do_not_wait_for_global_loads(arch):
    """The next tiles' loads are issued before the products and waited for only when they are written to LDS, behind the barrier."""
    text = compile_matmul(arch, (64, 64, 32), num_stages=3).asm["amdgcn"]
    loop = next(t for t in loops(text) if MATRIX[arch] in t)
    instructions = [line.strip() for line in loop.splitlines() if line.startswith("\t") and not line.strip().startswith(";")]
    kinds = [k for i in instructions for k, pattern in (
        ("wait", r"s_waitcnt.*vmcnt|s_wait_loadcnt"), ("barrier", r"s_barrier(?:_wait)?\b"), ("load", "(?:global|buffer)_load"),
        ("write", "ds_(?:write|store)"), ("read", "ds_(?:read|load)"), ("multiply", MATRIX[arch])) if re.match(pattern, i)]
    assert kinds.count("barrier") == 2
    done = len(kinds) - 1 - kinds[::-1].index("multiply")  # a loop may begin anywhere: here behind the products
    kinds = kinds[done + 1:] + kinds[:done + 1]
    loaded = len(kinds) - 1 - kinds[::-1].index("load")
    assert loaded < kinds.index("multiply") and "wait" not in kinds[loaded:], kinds


def test_command_line(capsys):
    from tilewright.cli import main

    kernel = f"{ROOT / 'examples' / 'vector_add.py'}:add_kernel"
    assert main(["compile", kernel, "--target", "amd:gfx942", "--signature", "*fp32:16,*fp32:16,*fp32:16,i32:16,1024", "--emit", "amdgcn"]) == 0
    text = capsys.readouterr().out
    assert "gfx942" in text and "buffer_load_dwordx4" in text and "s_endpgm" in text


def test_target_from_the_environment(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx1100")
    signature = dict.fromkeys(("x_ptr", "y_ptr", "z_ptr"), "*fp16") | {"n": "i32"}
    import vector_add

    kernel = tilewright.compile(ASTSource(vector_add.add_kernel, signature, {"BLOCK": 64}))
    assert "gfx1100" in kernel.asm["amdgcn"] and kernel.metadata.warp_size == 32 and kernel.metadata.shared == 0
