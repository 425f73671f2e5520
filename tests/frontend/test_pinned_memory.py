"""Tensors in page-locked memory of the host beside arrays of a GPU: taken where the target says so, and never confused with pageable ones, which have
the same class, dtype and device."""

from __future__ import annotations

import dataclasses

import fake_target
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.compiler.source import ASTSource
from tilewright.dialects.errors import ArgumentError
from tilewright.runtime.arguments import TensorWrapper
from tilewright.runtime.specialize import FAST, PINNED, describe
from tilewright.targets import registry
from tilewright.tools.tensor_descriptor import TensorDescriptor

torch = pytest.importorskip("torch")


class OnGpu:
    dtype, device = "float32", "gpu"

    def data_ptr(self):
        return 4096


@pytest.fixture
def locked(monkeypatch):
    """Makes a tensor that torch calls pinned, with a GPU in use."""
    found: set[int] = set()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self, *_: self.untyped_storage().data_ptr() in found)
    kept = []

    def make(n=64, dtype=torch.float32):
        memory = torch.zeros(n, dtype=dtype)
        kept.append(memory)
        found.add(memory.untyped_storage().data_ptr())
        return memory

    return make


@pytest.fixture
def targets(monkeypatch, tmp_path):
    """(a target "gpu" that takes pinned memory, "strict" that does not), neither with a device of its own."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_TARGET", raising=False)
    monkeypatch.setattr(ASTSource, "make_module", fake_target.stand_in_module)
    made = []
    for name, takes in (("gpu", True), ("strict", False)):
        target = fake_target.Fake(name, device_types=(name,))
        target.plugin = dataclasses.replace(target.plugin, takes_pinned=takes)
        registry.register(target.plugin)
        made.append(target)
    yield made
    for target in made:
        registry.unregister(target.plugin.name)


def make():
    @triton.jit
    def kernel(x, y, n, BLOCK: tl.constexpr):
        tl.store(x, tl.load(y))

    return kernel


def test_pinned_goes_with_the_other_arguments(targets, locked):
    gpu, kernel, x, y = targets[0], make(), OnGpu(), locked()
    for n in (5, 7, 9):  # full, then warm
        assert kernel[(1,)](x, y, n, BLOCK=8).metadata.target.backend == "gpubackend"
    assert [launch[2] for launch in gpu.driver.launches] == [(4096, y.data_ptr(), n) for n in (5, 7, 9)]


def test_pageable_memory_is_still_refused_after_pinned_was_launched(targets, locked):
    gpu, kernel, x, y = targets[0], make(), OnGpu(), locked()
    for _ in range(3):
        kernel[(1,)](x, y, 5, BLOCK=8)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="argument 'y' of kernel lies on device 'cpu', and target gpu:f1 takes arrays on gpu. Other arguments lie on gpu"):
            kernel[(1,)](x, torch.zeros(64), 5, BLOCK=8)
    assert len(gpu.driver.launches) == 3


@pytest.mark.parametrize("aligns", [True, False])
def test_code_made_for_a_host_tensor_keeps_them_apart(targets, locked, monkeypatch, aligns):
    """The generated code was made for pageable tensors, of which its key has the dtype alone."""
    gpu = targets[0]
    host = fake_target.Fake("host", device_types=("cpu",))
    registry.register(host.plugin)
    try:
        kernel = triton.jit(make().fn, do_not_specialize=[] if aligns else ["x", "y"])
        plain, pinned = torch.zeros(64), locked()
        monkeypatch.setenv("TILEWRIGHT_TARGET", "host")
        for _ in range(2):
            kernel[(1,)](plain, plain, 5, BLOCK=8)
        monkeypatch.setenv("TILEWRIGHT_TARGET", "gpu")
        for _ in range(3):
            kernel[(1,)](pinned, pinned, 5, BLOCK=8)
        with pytest.raises(ArgumentError, match="argument 'y' of kernel lies on device 'cpu'"):
            kernel[(1,)](pinned, plain, 5, BLOCK=8)
        with pytest.raises(ArgumentError, match="argument 'x' of kernel lies on device 'cpu'"):
            kernel[(1,)](plain, plain, 5, BLOCK=8)
        assert len(gpu.driver.launches) == 3 and len(host.driver.launches) == 2
    finally:
        registry.unregister("host")


def test_another_pinned_array_does_not_speak_for_a_tensor(targets, locked, monkeypatch):
    """The key tells of the one in its wrapper that it is pinned, and of the other its dtype."""
    host = fake_target.Fake("host", device_types=("cpu",))
    registry.register(host.plugin)
    try:
        kernel, plain, pinned = make(), torch.zeros(64), locked()
        monkeypatch.setenv("TILEWRIGHT_TARGET", "host")
        for _ in range(2):
            kernel[(1,)](plain, TensorWrapper(plain, "int32"), 5, BLOCK=8)
        monkeypatch.setenv("TILEWRIGHT_TARGET", "gpu")
        for _ in range(3):
            kernel[(1,)](pinned, TensorWrapper(pinned, "int32"), 5, BLOCK=8)
        with pytest.raises(ArgumentError, match="argument 'x' of kernel lies on device 'cpu'"):
            kernel[(1,)](plain, TensorWrapper(pinned, "int32"), 5, BLOCK=8)
    finally:
        registry.unregister("host")


def test_code_made_for_a_pinned_tensor_keeps_them_apart(targets, locked, monkeypatch):
    kernel, pinned = make(), locked()
    monkeypatch.setenv("TILEWRIGHT_TARGET", "gpu")
    for _ in range(3):
        kernel[(1,)](pinned, pinned, 5, BLOCK=8)
    monkeypatch.setattr(kernel, "_run_cold", None)
    kernel[(1,)](locked(), pinned, 6, BLOCK=8)  # warm
    with pytest.raises(TypeError):
        kernel[(1,)](torch.zeros(64), pinned, 6, BLOCK=8)


def test_a_target_that_does_not_take_it_says_so(targets, locked, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "strict")
    with pytest.raises(ArgumentError, match="argument 'x' of kernel lies on device 'pinned host memory', and target strict:f1 takes arrays on strict"):
        make()[(1,)](locked(), locked(), 5, BLOCK=8)


def test_all_kinds_of_arrays_tell_it(locked):
    pinned = locked()
    assert describe(pinned, 3).devices == describe(TensorWrapper(pinned, "int32"), 3).devices == [PINNED]
    assert describe((pinned, 3), 3).devices == describe(TensorDescriptor.from_tensor(pinned, [8]), 3).devices == [PINNED]
    assert describe(torch.zeros(4), 3).devices == describe(TensorWrapper(torch.zeros(4), "int32"), 3).devices == ["cpu"]
    for mode in range(4):
        for wrap in (lambda t: t, lambda t: TensorWrapper(t, "int32"), lambda t: (t,), lambda t: TensorDescriptor.from_tensor(t, [8])):
            keys = [FAST[mode][type(v)](v)[0] for v in (wrap(pinned), wrap(torch.zeros(64)))]
            assert keys[0] != keys[1]


def test_a_gpu_that_is_not_in_use_is_not_asked(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.Tensor, "is_pinned", None)
    assert describe(torch.zeros(4), 3).devices == ["cpu"]


@pytest.mark.parametrize("chosen", ["cpu", "nvidia:sm_80:sim", "interpreter"])
def test_what_runs_on_the_host_takes_it(locked, monkeypatch, chosen):
    monkeypatch.setenv("TILEWRIGHT_INTERPRET" if chosen == "interpreter" else "TILEWRIGHT_TARGET", "1" if chosen == "interpreter" else chosen)

    @triton.jit
    def copy(x, y, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(y + i) + 1)

    for x in (locked(), torch.zeros(64)):
        copy[(1,)](x, locked(), BLOCK=64)
        assert x.tolist() == [1] * 64


@pytest.mark.parametrize("name", ["nvidia", "amd"])
def test_gpus_take_it(name):
    assert registry.get(name).takes_pinned
