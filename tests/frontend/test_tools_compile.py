"""Kernels as C source: compiled by a C compiler and run against a stand-in for the driver, which tells what it was asked for."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tilewright.dialects.errors import ArgumentError, TilewrightError
from tilewright.tools.compile import CompileArgs, compile_kernel, main

KERNEL = """
import tilewright as triton
import tilewright.language as tl

@triton.jit
def scale(x, flag, y, n, factor, one, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i * one, tl.load(x + i, mask=i < n) * factor + flag, mask=i < n)
"""
SIGNATURE = "*fp32:16, i8, *fp32:16, i64:16, fp32, i32:1, 128"

STAND_IN = """
#pragma once
#include <stdio.h>
#include <string.h>
#include <stdint.h>
typedef int RESULT; typedef void *MODULE, *FUNCTION, *STREAM; typedef POINTER;
enum { SUCCESS = 0 };
#define BUFFER_POINTER ((void *)1)
#define BUFFER_SIZE ((void *)2)
#define END ((void *)0)
static RESULT LOAD(MODULE *m, const void *code) { *m = (void *)code; printf("load %02x%02x\\n", ((const unsigned char *)code)[1], ((const unsigned char *)code)[2]); return 0; }
static RESULT GET(FUNCTION *f, MODULE m, const char *name) { *f = m; printf("get %s\\n", name); return 0; }
static RESULT UNLOAD(MODULE m) { printf("unload\\n"); return 0; }
static RESULT LAUNCH(FUNCTION f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, STREAM s, void **params, void **extra) {
    unsigned char *b = extra[1]; size_t i, size = *(size_t *)extra[3];
    printf("launch %u %u %u, %u %u %u, %u, %p, %d:", x, y, z, bx, by, bz, shared, s, (int)size);
    for (i = 0; i < 36; i++) printf("%02x", b[i]);
    printf("\\n");
    return (int)(params != 0) + (extra[0] != BUFFER_POINTER) + (extra[2] != BUFFER_SIZE) + (extra[4] != END);
}
"""
NAMES = {
    "cuda.h": {"RESULT": "CUresult", "MODULE": "CUmodule", "FUNCTION": "CUfunction", "STREAM": "CUstream", "SUCCESS": "CUDA_SUCCESS",
               "BUFFER_POINTER": "CU_LAUNCH_PARAM_BUFFER_POINTER", "BUFFER_SIZE": "CU_LAUNCH_PARAM_BUFFER_SIZE", "END": "CU_LAUNCH_PARAM_END",
               "LOAD": "cuModuleLoadData", "GET": "cuModuleGetFunction", "UNLOAD": "cuModuleUnload", "LAUNCH": "cuLaunchKernel",
               "POINTER": "unsigned long long CUdeviceptr"},
    "hip/hip_runtime.h": {"RESULT": "hipError_t", "MODULE": "hipModule_t", "FUNCTION": "hipFunction_t", "STREAM": "hipStream_t", "SUCCESS": "hipSuccess",
                          "BUFFER_POINTER": "HIP_LAUNCH_PARAM_BUFFER_POINTER", "BUFFER_SIZE": "HIP_LAUNCH_PARAM_BUFFER_SIZE", "END": "HIP_LAUNCH_PARAM_END",
                          "LOAD": "hipModuleLoadData", "GET": "hipModuleGetFunction", "UNLOAD": "hipModuleUnload", "LAUNCH": "hipModuleLaunchKernel",
                          "POINTER": "void *hipDeviceptr_t"},
}


@pytest.fixture
def args(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    return CompileArgs(str(path), "scale", SIGNATURE, "(n + 127) / 128, 1, 1", "cuda:80:32", num_warps=4, out_path=tmp_path / "out" / "scale")


@pytest.mark.parametrize("target, header, threads", [("cuda:80:32", "cuda.h", 128), ("nvidia:sm_90a", "cuda.h", 128), ("hip:gfx942:64", "hip/hip_runtime.h", 256)])
def test_the_c_function_launches_the_kernel(args, tmp_path, target, header, threads):
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    args.target, args.out_path = target, tmp_path / "scale"
    name, files = compile_kernel(args)
    assert [f.suffix for f in files] == [".h", ".c"] and name.startswith("scale_") and name.endswith("_0d12d3d45c6")
    text = STAND_IN
    for word, spelt in NAMES[header].items():
        text = __import__("re").sub(rf"\b{word}\b", spelt, text)
    (tmp_path / "include" / header).parent.mkdir(parents=True)
    (tmp_path / "include" / header).write_text(text)
    pointer = "(void *)" if "hip" in header else ""
    main_c = tmp_path / "main.c"
    main_c.write_text(f'#include "{files[1].name}"\n#include "{files[0].name}"\nint main(void) {{\n'
                      f"  int s = {name}((void *)7, {pointer}0x1122334455667788, -2, {pointer}0x10, 300, 1.5f, 1);\n"
                      f"  s += {name}((void *)7, {pointer}0, 0, {pointer}0, 0, 0, 1);\n  return s + unload_{name}();\n}}\n")
    subprocess.run([compiler, "-Wall", "-Wno-unused-function", f"-I{tmp_path / 'include'}", str(main_c), "-o", str(tmp_path / "run")], check=True)
    said = subprocess.run([str(tmp_path / "run")], capture_output=True, text=True)
    assert said.returncode == 0
    lines = said.stdout.splitlines()
    assert lines[:2] == ["load 454c", "get scale"] and lines[3:] == ["unload"]  # an ELF file; a grid of nothing launches nothing
    # pointer, i8, padding, pointer, i64, f32: at their natural alignment
    bits = "8877665544332211" + "fe" + "XX" * 7 + "1000000000000000" + "2c01000000000000" + "0000c03f"
    launched, data = lines[2].split(", 40:")
    assert launched == f"launch 3 1 1, {threads} 1 1, 0, 0x7" and data[:18] + data[32:] == bits[:18] + bits[32:]


def test_the_command_line(args, tmp_path, capsys):
    assert main([args.path, "-n", "scale", "-s", SIGNATURE, "-g", "1, 1, 1", "-t", "cuda:80:32", "-o", str(tmp_path / "a"), "-on", "mine"]) == 0
    name, *files = capsys.readouterr().out.split()
    assert name.startswith("mine_") and len(files) == 2


def test_mistakes(args):
    for changed, text in (({"kernel_name": "no"}, "has no kernel 'no'"), ({"grid": "1, 1"}, "three C expressions"), ({"signature": "*fp32"}, "1 entries"),
                          ({"signature": SIGNATURE.replace("i64:16", "i64:8")}, "hint of n is :1 or :16; found 'i64:8'"),
                          ({"signature": SIGNATURE.replace(" fp32,", " fp16,")}, "no argument of type 'fp16'")):
        with pytest.raises(ArgumentError, match=text):
            compile_kernel(CompileArgs(**{**vars(args), **changed}))
    with pytest.raises(TilewrightError, match="'cpu' does not tell c_source; nvidia, amd do"):
        compile_kernel(CompileArgs(**{**vars(args), "target": "cpu"}))
