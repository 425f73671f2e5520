"""The same kernel text under two compilers in one process: ``Framework("tilewright")``, ``Framework("triton")``.

Files of kernels/ take ``tl`` and ``triton`` from switch.py, which names the compiler that the file is being loaded for; each file is
loaded once for each. The examples name their compiler, so the peer gets a copy with the name changed.
"""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parent / "examples"


class Framework:
    """name: "tilewright" or "triton". Raises ImportError where it is not installed."""

    def __init__(self, name: str):
        self.name = self.compiler = name  # a test gives the same compiler another name
        self.triton = importlib.import_module(name)
        self.tl = importlib.import_module(f"{name}.language")
        self.version = self.triton.__version__
        self._files: dict[str, Any] = {}
        self._descriptor: Any = importlib.import_module(f"{name}.tools.tensor_descriptor").TensorDescriptor
        self._copies: pathlib.Path | None = None

    def kernel(self, file: str, name: str) -> Any:
        """The jit function ``name`` of kernels/``file``.py, or of an example as "examples/matmul"."""
        module = self._files.get(file)
        if module is None:
            module = self._files[file] = self._load(file)
        return getattr(module, name)

    def descriptor(self, array: Any, shape: Sequence[int], block: Sequence[int]) -> Any:
        """A TensorDescriptor of contiguous memory seen as ``shape``."""
        strides = [1]
        for size in list(shape)[:0:-1]:
            strides.insert(0, strides[0] * size)
        return self._descriptor(array, list(shape), strides, list(block))

    def _load(self, file: str) -> Any:
        if file.startswith("examples/"):
            return self._load_example(file.removeprefix("examples/"))
        # not through sys.path: kernels/ has a matmul and an attention, as examples/ has
        switch = sys.modules.get("switch") or _execute("switch", HERE / "kernels" / "switch.py")
        switch.triton, switch.tl = self.triton, self.tl  # type: ignore[attr-defined]
        return _execute(f"kernels_{self.compiler}_{file}", HERE / "kernels" / f"{file}.py")

    def _load_example(self, file: str) -> Any:
        if str(EXAMPLES) not in sys.path:
            sys.path.insert(0, str(EXAMPLES))
        if self.compiler == "tilewright":
            return importlib.import_module(file)
        if self._copies is None:
            self._copies = pathlib.Path(tempfile.mkdtemp())
            sys.path.insert(0, str(self._copies))
            for f in EXAMPLES.glob("*.py"):
                text = for_the_peer(f.read_text())
                text = re.sub(r"^from (matmul|common) import", r"from peer_\1 import", text, flags=re.M)
                (self._copies / f"peer_{f.name}").write_text(re.sub(r"^import common$", "import peer_common as common", text, flags=re.M))
        return importlib.import_module(f"peer_{file}")


def for_the_peer(example: str) -> str:
    """An example's text that imports Triton alone."""
    text = example.replace("import tilewright as triton", "import triton").replace("import tilewright.", "import triton.")
    return text.replace("from tilewright.testing import Case", "Case = None").replace("from tilewright.", "from triton.")


def _execute(name: str, path: pathlib.Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# ------------------------------------------------------------------------------------------- compiling without a device
class StandInType:
    """A torch dtype's name and size, to both compilers."""

    SIZES = {"float8_e4m3fn": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}
    is_floating_point = True

    def __init__(self, name: str):
        self._name, self.itemsize = name, self.SIZES[name]

    def __str__(self) -> str:
        return f"torch.{self._name}"

    __repr__ = __str__


_TYPES = {name: StandInType(name) for name in StandInType.SIZES}


class StandIn:
    """In the place of a contiguous array when a kernel is only compiled: a type and a shape, no memory."""

    def __init__(self, shape: Sequence[int], dtype: str):
        self.shape, self.dtype = tuple(shape), _TYPES[dtype]
        strides = [1]
        for size in list(shape)[:0:-1]:
            strides.insert(0, strides[0] * size)
        self._strides = tuple(strides)

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def data_ptr(self) -> int:
        return 0


def stand_in(shape: Sequence[int], dtype: str, fill: str = "") -> StandIn:
    """What ``Case.buffers`` is given where nothing is launched."""
    return StandIn(shape, dtype)


def compile_for(framework: Framework, arch: int, warp_size: int = 32) -> None:
    """From now on this process compiles for NVIDIA's ``arch`` (90), with no device looked at."""
    if framework.compiler == "tilewright":
        import os

        os.environ["TILEWRIGHT_TARGET"] = f"nvidia:sm_{arch}"
        return
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", arch, warp_size)

    class NoDevice:
        """Triton's driver, as far as JITFunction.warmup asks it."""

        get_current_device: Callable[[], int] = staticmethod(lambda: 0)
        get_current_stream: Callable[[int], int] = staticmethod(lambda device=0: 0)
        get_current_target: Callable[[], Any] = staticmethod(lambda: target)

    importlib.import_module("triton.runtime.driver").driver.set_active(NoDevice())


def warmup(framework: Framework, launches: Sequence[Any]) -> list[Any]:
    """The compiled kernels of launches (see cases.Launch) on stand-ins."""
    return [framework.kernel(l.file, l.kernel).run(*l.args, grid=l.grid, warmup=True, **l.options) for l in launches]
