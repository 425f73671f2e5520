"""flag-gems from PyPI, unchanged, with Tilewright for ``triton``: its operators on torch CPU tensors, compared with torch's. Run by hand:

    pip install --no-deps flag-gems sqlalchemy pyyaml expecttest packaging
    python tests/real_kernels/flag_gems_values.py --out results.jsonl [--ops REGEX] [--dtypes float32,bfloat16,int64,bool] [--samples 4]

torch's own sample inputs of every operator (its OpInfo table) run under a dispatch mode: each aten call that flag-gems has an operator for
goes to that operator too, on copies of the arguments, and result and arguments written in place are compared; for float32 the backward pass as
well. The package thinks of its NVIDIA settings with the device's name "cpu", and of an autotuned kernel the first configuration is taken.
``wrong`` and ``error`` may be the package's own faults (KNOWN says which are); ``refused`` is an error of Tilewright's.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import importlib.util
import itertools
import json
import os
import re
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6, torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.complex64: 1e-4}
RANDOM = {"rand", "randn", "rand_like", "randn_like", "randperm", "multinomial", "normal", "uniform_", "bernoulli_", "exponential_", "native_dropout", "normal_"}
# what the package itself does otherwise than torch, each read in its source
KNOWN = {
    "addmv": "fractional alpha and beta with integers", "atan2": "integers stay integers", "log": "integers stay integers",
    "sum": "the dtype of int32 sums", "logspace": "exp2(x · log2 base) is truncated for integers", "index_add_": "strided sources",
    "masked_scatter": "does not broadcast", "var_mean.correction": "empty inputs", "native_batch_norm": "saves what torch's CPU does not",
    "nll_loss_forward": "total_weight is not set", "nll_loss2d_forward": "total_weight is not set", "native_group_norm": "masks by channels, not by the group's",
    "native_group_norm_backward": "masks by channels, not by the group's", "avg_pool2d": "ceil_mode's divisor", "avg_pool2d_backward": "ceil_mode's divisor",
    "upsample_bicubic2d": "a scale that is not the sizes' ratio", "addmm.out": "bias and out may be one tensor, and are two copies here",
    "pow.Tensor_Tensor": "integers go through fp32",
    "topk": "integers have no value for what is masked", "div.Tensor_mode": "div_rz of bf16, which Triton refuses too", "cummax": "bool", "cummin": "bool", "randn_like": "complex",
    **dict.fromkeys(("addmm", "baddbmm", "bmm", "mm"), "dots of int64, which Triton refuses too"),
}


def prepare() -> Any:
    """flag_gems, imported with its idea of a device led to the CPU."""
    found = importlib.util.find_spec("flag_gems")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("flag-gems is not installed: pip install --no-deps flag-gems sqlalchemy pyyaml expecttest packaging")
    import tilewright
    from tilewright.runtime.autotuner import Autotuner

    tilewright.install_as_triton()
    os.environ.update(GEMS_VENDOR="nvidia", ARCH="")
    sys.path.append(str(Path(found.submodule_search_locations[0]) / "runtime" / "backend"))
    vendor = importlib.import_module("_nvidia").vendor_info
    vendor.device_name, vendor.triton_extra_name = "cpu", "cuda"

    class Properties:
        name, major, minor, multi_processor_count, warp_size = "cpu", 8, 0, 4, 32
        total_memory, L2_cache_size, shared_memory_per_block_optin = 8 << 30, 1 << 20, 163840

    for module in (torch.cpu, torch.cuda):
        for name, value in dict(get_device_properties=Properties, get_device_capability=(8, 0), get_device_name="cpu", device_count=1, current_device=0).items():
            setattr(module, name, lambda *a, _value=value: _value)
        module.device = lambda *a: contextlib.nullcontext()
    torch.Tensor.is_cuda = property(lambda self: True)
    make = Autotuner.__init__

    def first(self: Any, fn: Any, arg_names: Any, configs: Any, *args: Any, **kwargs: Any) -> None:
        make(self, fn, arg_names, list(configs or [])[:1], *args, **kwargs)

    Autotuner.__init__ = first  # type: ignore[method-assign]
    flag_gems = importlib.import_module("flag_gems")
    count = itertools.count(7)
    for module in list(sys.modules.values()):  # a CPU generator's state is none of Philox's
        if getattr(module, "__name__", "").startswith("flag_gems") and hasattr(module, "philox_backend_seed_offset"):
            module.philox_backend_seed_offset = lambda increment, generator=None: (1234, next(count) * 1000)
    return flag_gems


def copied(value: Any) -> Any:
    """A tensor of the same strides in memory of its own."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    made = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage().clone(), value.storage_offset(), value.size(), value.stride())
    made = made.conj() if value.is_conj() else made
    return torch._neg_view(made) if value.is_neg() else made


def shown(value: Any) -> Any:
    return f"{str(value.dtype)[6:]}{list(value.shape)}, strides {list(value.stride())}" if isinstance(value, torch.Tensor) else value


def difference(got: Any, expected: Any) -> str | None:
    """What is wrong, or None. Shapes that hold the same elements in order are the same."""
    if isinstance(expected, (tuple, list)):
        if not isinstance(got, (tuple, list)) or len(got) != len(expected):
            return f"{len(expected)} results expected"
        return next((d for d in map(difference, got, expected) if d), None)
    if not isinstance(expected, torch.Tensor):
        return None
    if not isinstance(got, torch.Tensor) or got.numel() != expected.numel():
        return f"shape {list(getattr(got, 'shape', ()))}, not {list(expected.shape)}"
    if got.dtype != expected.dtype:
        return f"{got.dtype}, not {expected.dtype}"
    got, expected, kind = got.detach().reshape(expected.shape), expected.detach(), expected.dtype
    if not (kind.is_floating_point or kind.is_complex):
        return None if torch.equal(got, expected) else f"{int((got != expected).sum())} of {expected.numel()} differ"
    wide = torch.complex128 if kind.is_complex else torch.float64
    got, expected = got.to(wide), expected.to(wide)
    finite = torch.isfinite(expected)
    if not torch.equal(torch.nan_to_num(got[~finite], nan=7.0), torch.nan_to_num(expected[~finite], nan=7.0)):
        return "other infinities or NaN"
    if not finite.any():
        return None
    error, bound = float((got[finite] - expected[finite]).abs().max()), TOLERANCE.get(kind, 1e-4) * max(1.0, float(expected[finite].abs().max()))
    return None if error <= bound else f"off by {error:.3g}, allowed {bound:.3g}"


class Both(TorchDispatchMode):
    """Runs an aten call, and flag-gems' operator of that name on copies. ``tell(key, status, text, call)`` gets what came of it."""

    def __init__(self, table: dict[str, Any], tell: Any):
        super().__init__()
        self.table, self.tell = table, tell
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, overload = func._schema.name.split("::")[1], func._schema.overload_name
        key = f"{name}.{overload}" if overload else name
        call = json.dumps([key, tree_map(shown, args), tree_map(shown, kwargs)], default=str)
        empty = any(isinstance(a, torch.Tensor) and not a.numel() for a in tree_flatten((args, kwargs))[0])
        if key not in self.table or call in self.seen or empty:  # mm of no columns reads before its arrays, batch_norm's backward past them
            return func(*args, **kwargs)
        self.seen.add(call)
        mine = tree_map(copied, (args, kwargs))
        expected = func(*args, **kwargs)
        status, text = "ok", None
        signal.alarm(60)
        try:
            with torch.no_grad():
                got = self.table[key](*mine[0], **mine[1])
            signal.alarm(0)
            if name not in RANDOM:
                text = difference(got, expected)
                if text is None and func._schema.is_mutable:
                    text = difference(tree_flatten(mine)[0], tree_flatten((args, kwargs))[0])
                status = "wrong" if text else "ok"
        except Exception as error:
            signal.alarm(0)
            frames = traceback.extract_tb(error.__traceback__)
            status = "refused" if not isinstance(error, TimeoutError) and type(error).__module__.startswith("tilewright") else "error"
            text = f"{type(error).__name__}: {str(error)[:600]} @ {frames[-1].filename}:{frames[-1].lineno}"
        self.tell(key, status, text, call)
        return expected


def sweep(pattern: str, kinds: list[Any], samples: int, tell: Any, table: dict[str, Any]) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if not re.fullmatch(pattern, name):
            continue
        for kind in (k for k in kinds if k in op.supported_dtypes("cpu")):
            backward = kind == torch.float32 and op.supports_autograd
            cases = list(op.sample_inputs("cpu", kind, requires_grad=backward))
            for case in cases[:: max(1, len(cases) // samples)][:samples]:
                try:
                    with Both(table, lambda *what, _name=name, _kind=kind: tell(_name, str(_kind)[6:], *what)):
                        results = [r for r in tree_flatten(op.op(case.input, *case.args, **case.kwargs))[0] if isinstance(r, torch.Tensor) and r.requires_grad]
                        if backward and results:
                            torch.autograd.backward(results, [torch.randn_like(r) for r in results])
                except (RuntimeError, TypeError, ValueError) as error:  # torch cannot run the sample so
                    tell(name, str(kind)[6:], "", "sample", str(error)[:200], "")


def too_long(*_: Any) -> None:
    raise TimeoutError("more than a minute")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--ops", default=".*")
    parser.add_argument("--dtypes", default="float32,bfloat16,int64,bool")
    parser.add_argument("--samples", type=int, default=4)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, too_long)
    flag_gems = prepare()
    table = {entry[0]: entry[1] for entry in flag_gems._FULL_CONFIG if len(entry) < 3 or entry[2]()}
    table.pop("copy_", None)  # used by torch inside everything
    counts: collections.Counter[str] = collections.Counter()
    with open(given.out, "w") as out:
        def tell(op: str, kind: str, key: str, status: str, text: str | None, call: str) -> None:
            known = KNOWN.get(key) if status in ("wrong", "refused") else None
            counts["known" if known else status] += 1
            print(json.dumps(dict(op=op, dtype=kind, key=key, status="known" if known else status, text=known or text, call=call[:600])), file=out, flush=True)
            if status in ("wrong", "refused") and not known:
                print(f"{status}: {op} {kind} {key}: {text}\n    {call[:300]}")

        sweep(given.ops, [getattr(torch, k) for k in given.dtypes.split(",")], given.samples, tell, table)
    print(", ".join(f"{n} {status}" for status, n in counts.most_common()))
    return 1 if counts["wrong"] or counts["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
