"""Tilewright under Triton's module names: as an import alias, and as ``triton`` itself."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap

import pytest

import tilewright

# what Triton's programs and libraries name (docs of the survey: sections 5 and 8)
NAMES = {
    "": ["__version__", "jit", "compile", "Config", "JITFunction", "set_allocator", "knobs", "cdiv", "next_power_of_2", "language", "runtime",
         "compiler", "backends", "testing", "autotune", "heuristics", "MockTensor", "TensorWrapper", "reinterpret", "KernelInterface",
         "OutOfResources", "CompilationError", "TritonError", "constexpr_function", "InterpreterError", "AsyncCompileMode", "FutureKernel",
         "must_use_result", "errors", "profiler"],
    "language": ["load", "store", "arange", "constexpr", "dtype", "tensor", "float32", "program_id", "dot", "extra", "math"],
    "language.extra": [],
    "compiler": ["CompiledKernel", "ASTSource", "IRSource", "compile", "make_backend", "LazyDict", "CompilationError"],
    "compiler.compiler": ["ASTSource", "make_backend", "CompiledKernel"],
    "compiler.errors": ["CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"],
    "errors": ["TritonError"],
    "backends": ["backends"],
    "backends.compiler": ["GPUTarget", "BaseBackend"],
    "runtime": ["driver", "Autotuner", "JITFunction", "KernelInterface", "OutOfResources", "Config", "Heuristics", "MockTensor", "build", "cache", "errors",
                "RemoteCacheBackend", "RedisRemoteCacheBackend", "AsyncCompileMode"],
    "runtime._allocation": ["NullAllocator", "set_allocator"],
    "runtime._async_compile": ["AsyncCompileMode", "FutureKernel", "active_mode"],
    "runtime.build": ["_build", "compile_module_from_src", "platform_key"],
    "profiler": ["start", "finalize", "activate", "deactivate", "scope", "cpu_timed_scope", "enter_scope", "exit_scope", "profile", "state", "viewer",
                 "DEFAULT_PROFILE_NAME"],
    "_C.libtriton": ["getenv", "get_cache_invalidating_env_vars"],
    "tools.disasm": ["get_sass"],
    "runtime.autotuner": ["Autotuner", "Heuristics", "Config", "autotune", "OutOfResources", "PTXASError"],
    "runtime.jit": ["ConstexprFunction", "constexpr_function", "JITFunction", "KernelInterface", "MockTensor", "TensorWrapper", "reinterpret"],
    "runtime.cache": ["triton_key", "_base32", "FileCacheManager", "RemoteCacheManager", "get_cache_manager", "get_dump_manager", "get_override_manager"],
    "runtime.driver": ["driver"],
    "runtime.errors": ["OutOfResources", "PTXASError", "AutotunerError"],
    "runtime.interpreter": ["InterpretedFunction"],
    "knobs": ["HookChain", "runtime", "cache", "compilation", "autotuning", "language"],
    "testing": ["do_bench", "do_bench_cudagraph", "perf_report", "Benchmark", "Mark", "assert_close", "get_dram_gbps", "get_max_simd_tflops",
                "get_max_tensorcore_tflops", "nvsmi", "set_gpu_clock", "cuda_memcheck"],
    "tools.tensor_descriptor": ["TensorDescriptor"],
    "_utils": ["find_paths_if", "get_iterable_path"],
}


@pytest.mark.parametrize("module", NAMES)
def test_names(module):
    found = importlib.import_module(".".join(filter(None, ("tilewright", module))))
    missing = [n for n in NAMES[module] if not hasattr(found, n)]
    assert missing == []


REMOVED = {
    "common": "triton.runtime.build", "common.build": "triton.runtime.build", "tools.experimental_descriptor": "TensorDescriptor.from_tensor",
    "ops": "removed in Triton 3.0", "experimental": "Gluon", "experimental.gluon": "Gluon", "tools.build_extern": "extern_elementwise",
    "tools.triton_to_gluon_translater": "Gluon", "instrumentation": "triton.profiler",
}


@pytest.mark.parametrize("module", REMOVED)
def test_removed_modules_say_what_to_use(module):
    with pytest.raises(ImportError, match=REMOVED[module]) as found:
        importlib.import_module(f"tilewright.{module}")
    assert type(found.value).__name__ == "RemovedNameError"


def test_removed_names_say_what_to_use():
    with pytest.raises(ImportError, match="from triton.language.extra import libdevice"):
        from tilewright.language import libdevice  # noqa: F401
    with pytest.raises(ImportError, match=r"libtriton.nvidia: this is Triton's C\+\+ module.*torch.matmul"):
        from tilewright._C.libtriton import nvidia  # noqa: F401
    from tilewright._C import libtriton

    assert libtriton.getenv("TILEWRIGHT_NOT_SET", 3) == 3 and isinstance(libtriton.get_cache_invalidating_env_vars(), dict)
    assert not hasattr(libtriton, "__path__")


def test_c_modules_are_built_and_kept(tmp_path, monkeypatch):
    import shutil

    from tilewright import knobs
    from tilewright.runtime import build

    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    source = """
    #include <Python.h>
    static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "seven_of_mine", 0, -1, 0};
    PyMODINIT_FUNC PyInit_seven_of_mine(void) { PyObject *m = PyModule_Create(&def); PyModule_AddIntConstant(m, "seven", 7); return m; }
    """
    with knobs.build.scope():
        asked = []

        def impl(name, src, srcdir, *folders):
            asked.append((name, *folders))
            path = os.path.join(srcdir, "made.so")
            with open(path, "w") as f:
                f.write("no module")
            return path

        knobs.build.impl = impl
        with pytest.raises(ImportError):
            build.compile_module_from_src(source, "of_impl", libraries=["m"])
        assert asked == [("of_impl", [], [], ["m"])]
        knobs.build.impl = None
        if (knobs.build.cc or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")) is None:
            with pytest.raises(build.BuildError, match="install gcc or clang"):
                build.compile_module_from_src(source, "seven_of_mine")
            return
        assert build.compile_module_from_src(source, "seven_of_mine").seven == 7
        knobs.build.cc = "/nowhere/cc"
        assert build.compile_module_from_src(source, "seven_of_mine").seven == 7  # kept
        knobs.build.cc = knobs.env
        with pytest.raises(build.BuildError, match="failed on broken.c: .*error"):
            build.compile_module_from_src("int main( {", "broken")


def test_version_is_tritons_form():
    assert [int(p) for p in tilewright.__version__.split(".")][:2] == [3, 6]
    from pathlib import Path

    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert tilewright.tilewright_version == project["version"]


def run(script: str, *args: str, env: dict | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *args, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **(env or {})})


def test_import_is_quick_and_light(tmp_path):
    """0.1 s of processor time is the aim, with bytecode in place as after an installation. A busy machine takes up to three times as much, so the
    quickest of some runs counts, against twice the aim."""
    script = """
        import sys, time
        there = set(sys.modules)  # of site's own
        began = time.process_time()
        import tilewright as triton
        import tilewright.language as tl
        triton.jit, triton.cdiv, triton.autotune
        took = time.process_time() - began
        heavy = ("torch_mlir", "mlir", "llvmlite", "numpy", "torch", "importlib.metadata", "hashlib", "json", "difflib", "subprocess", "asyncio")
        print(took, [m for m in heavy if m in sys.modules and m not in there])
    """
    quickest = float("inf")
    for _ in range(8):
        result = run(script, env={"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""})
        assert result.returncode == 0, result.stderr
        took, heavy = result.stdout.split(" ", 1)
        assert heavy.strip() == "[]"
        quickest = min(quickest, float(took))
        if quickest < 0.2:
            break
    assert quickest < 0.2


def test_what_torch_compile_copies_of_a_users_kernel():
    """It asks ConstexprFunction for its source, and names annotations by their classes' modules in a module that imports triton alone."""
    @tilewright.constexpr_function
    def twice(n):
        return n * 2

    assert isinstance(twice, tilewright.runtime.jit.ConstexprFunction)
    assert twice.src == "def twice(n):\n    return n * 2\n"
    result = run("""
        import tilewright
        tilewright.install_as_triton()
        import triton.language as tl
        kind = tl.constexpr
        scope = {}
        exec(f"import triton\\nimport triton.language as tl\\nX: {kind.__module__}.{kind.__name__} = tl.constexpr(3)", scope)
        try:
            __import__("triton")._C.libtriton.passes.ttir
        except ImportError as e:
            print(scope["X"].value, type(e).__name__)
    """)
    assert result.stdout.split() == ["3", "RemovedNameError"], result.stderr


def test_install_as_triton():
    result = run("""
        import tilewright
        tilewright.install_as_triton()
        tilewright.install_as_triton()
        import triton
        import triton.language as tl
        from triton.backends.compiler import GPUTarget
        from triton.runtime import driver
        import triton.runtime.driver
        from triton.tools.tensor_descriptor import TensorDescriptor
        import triton.testing
        assert triton is tilewright and tl is tilewright.language
        assert GPUTarget is tilewright.backends.compiler.GPUTarget
        assert driver is tilewright.runtime.driver and hasattr(driver, "active")
        assert tilewright.language.__spec__.name == "tilewright.language" == tilewright.language.__name__
        import sys
        assert sys.modules["triton.runtime.driver"] is sys.modules["tilewright.runtime.driver"]
        try:
            import triton.no_such_module
        except ModuleNotFoundError as e:
            assert "triton.no_such_module" in str(e)
        else:
            raise SystemExit("no error")
        from tilewright import dropin
        dropin.uninstall()
        import importlib.util
        assert "triton" not in sys.modules
    """)
    assert result.returncode == 0, result.stderr


TUTORIAL = """
    import torch
    import triton
    import triton.language as tl

    DEVICE = triton.runtime.driver.active.get_active_torch_device()

    @triton.jit
    def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
        pid = tl.program_id(axis=0)
        block_start = pid * BLOCK_SIZE
        offsets = block_start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + offsets)
        y = tl.load(y_ptr + offsets)
        output = x + y
        tl.store(output_ptr + offsets, output)

    x, y = torch.rand(4096, device=DEVICE), torch.rand(4096, device=DEVICE)
    output = torch.full_like(x, float("nan"))
    grid = lambda meta: (triton.cdiv(output.numel(), meta["BLOCK_SIZE"]),)
    add_kernel[grid](x, y, output, output.numel(), BLOCK_SIZE=1024)
    assert torch.equal(output, x + y)
    print("right,", triton.__name__)
"""


@pytest.mark.parametrize("way", ["run", "install_as_triton"])
def test_the_first_tutorial(tmp_path, way):
    """Triton's vector add, without a mask, in a file that says ``import triton``."""
    pytest.importorskip("torch")
    script = tmp_path / "tutorial.py"
    script.write_text(textwrap.dedent(TUTORIAL))
    how = (["-m", "tilewright.cli", "run", str(script)] if way == "run" else
           ["-c", f"import runpy, tilewright; tilewright.install_as_triton(); runpy.run_path({str(script)!r})"])
    result = subprocess.run([sys.executable, *how], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "right, tilewright\n"


def test_another_triton_is_not_replaced():
    result = run("""
        import sys, types
        sys.modules["triton"] = types.ModuleType("triton")
        import tilewright
        try:
            tilewright.install_as_triton()
        except ImportError as e:
            assert isinstance(e, tilewright.TilewrightError) and "imported already" in str(e)
        else:
            raise SystemExit("no error")
    """)
    assert result.returncode == 0, result.stderr


def test_interpret_variable(tmp_path):
    file = tmp_path / "k.py"
    file.write_text("import tilewright as triton\n@triton.jit\ndef k(x):\n    pass\nprint(type(k).__name__)\n")
    for name in ("TILEWRIGHT_INTERPRET", "TRITON_INTERPRET"):
        out = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env={**os.environ, name: "1"})
        assert out.stdout.strip() == "InterpretedFunction", out.stderr
    out = subprocess.run([sys.executable, str(file)], capture_output=True, text=True)
    assert out.stdout.strip() == "JITFunction", out.stderr


def test_tensor_descriptor_checks():
    import numpy as np

    from tilewright.dialects.errors import ArgumentError
    from tilewright.tools.tensor_descriptor import TensorDescriptor

    raw = np.zeros(64 * 64 + 16, np.float32)
    start = -raw.ctypes.data % 16 // 4
    a = raw[start:start + 4096].reshape(64, 64)
    d = TensorDescriptor.from_tensor(a, [16, 32])
    assert (d.shape, d.strides, d.block_shape, d.padding) == ([64, 64], [64, 1], [16, 32], "zero")
    for kwargs, text in (
        (dict(block_shape=[16, 24]), "powers of two"), (dict(block_shape=[16]), "one entry a dim"), (dict(strides=[64, 2]), "last stride"),
        (dict(strides=[63, 1]), "multiples of 16 bytes"), (dict(padding="one"), "padding"),
        (dict(shape=[], strides=[], block_shape=[]), "one to five"), (dict(base=raw[start + 1:]), "multiple of 16 bytes"),
    ):
        with pytest.raises(ArgumentError, match=text):
            TensorDescriptor(**{**dict(base=a, shape=[64, 64], strides=[64, 1], block_shape=[16, 32]), **kwargs})
    with pytest.raises(ArgumentError, match="floating-point"):
        TensorDescriptor(a.view(np.int32), [64, 64], [64, 1], [16, 32], "nan")


def test_processes_with_this_path_inherit_it(tmp_path):
    """torch.compile's workers, and multiprocessing's, get sys.path: ``import triton`` in them is Tilewright. uninstall takes it from the path."""
    before = list(sys.path)
    tilewright.install_as_triton()
    try:
        path = list(sys.path)
    finally:
        tilewright.dropin.uninstall()
    assert sys.path == before and len(path) == len(before) + 1
    code = "import triton.language as tl, triton; from triton.runtime import JITFunction; print(triton.__name__, tl.__name__, JITFunction.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(path)}, cwd=tmp_path)
    assert done.stdout.split() == ["tilewright", "tilewright.language", "tilewright.runtime.jit"], done.stderr
