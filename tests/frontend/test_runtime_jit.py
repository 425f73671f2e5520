"""jit: parameters, specialisation, look-up, launch, global changes; on a target that records launches."""

from __future__ import annotations

import collections
import pickle

import fake_target
import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.dialects.errors import ArgumentError, TargetNotFoundError
from tilewright.runtime.driver import set_driver
from tilewright.runtime.errors import KernelCallError
from tilewright.targets import registry

FACTOR = tl.constexpr(3)
SCALE = 2


@triton.jit
def helper(x):
    return x * FACTOR


@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    tl.store(y, helper(tl.load(x)) + n + BLOCK)


@triton.jit
def scaled(x):
    tl.store(x, SCALE)


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["x"])
def loose(x, n, m: tl.int64, f: tl.float16, flag=True, *, K: tl.constexpr = 4):
    pass


@triton.jit
def constant_pointer(x: tl.const, y):
    pass


@triton.jit
def many(x, t, flag, other, word: tl.constexpr = "a"):
    pass


@pytest.fixture
def fake(monkeypatch, tmp_path):
    with fake_target.selected(monkeypatch, tmp_path, add, scaled, loose, many, constant_pointer) as target:
        yield target


def aligned(n: int, dtype: str = "float32", offset: int = 0) -> np.ndarray:
    """An array whose address is ``offset`` bytes past a multiple of 64."""
    raw = np.zeros(n * np.dtype(dtype).itemsize + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start:start + n * np.dtype(dtype).itemsize].view(dtype)


def test_attributes():
    assert add.arg_names == ["x", "y", "n", "BLOCK"]
    assert [(p.name, p.num, p.is_constexpr) for p in add.params] == [("x", 0, False), ("y", 1, False), ("n", 2, False), ("BLOCK", 3, True)]
    assert add.src.startswith("def add(x, y, n, BLOCK: tl.constexpr):")
    assert add.raw_src[0] == "@triton.jit\n" and add.file == __file__
    with open(__file__, encoding="utf-8") as f:
        lines = f.read().splitlines()
    assert lines[add.def_line - 1].startswith("def add(") and lines[add.starting_line_number - 1] == "@triton.jit"
    assert add.parse().body[0].name == "add"
    assert add.repr(None).endswith("test_runtime_jit.add")
    assert loose.params[1].do_not_specialize and loose.params[0].do_not_specialize_on_alignment
    assert loose.params[2].annotation_type == "i64" and loose.params[3].annotation_type == "fp16"
    assert loose.params[5].is_constexpr and loose.params[5].default == 4
    assert constant_pointer.params[0].is_const and not constant_pointer.params[1].is_const
    with pytest.raises(KernelCallError, match=r"add\[grid\]"):
        add(1)
    with pytest.warns(UserWarning, match="no parameter 'q'"):  # flag-gems lists names that its kernels have lost
        named = triton.jit(do_not_specialize=["q", "n"])(add.fn)
    assert [p.name for p in named.params if p.do_not_specialize] == ["n"]


def test_launch_compiles_once_and_hands_addresses(fake):
    x, y = aligned(8), aligned(8)
    kernel = add[(4,)](x, y, 5, BLOCK=64)
    assert len(fake.contexts) == 1 and fake.driver.launches == [((4, 1, 1), 100, (x.ctypes.data, y.ctypes.data, 5), "add")]
    assert add[(2, 3, 4)](x, y, 7, BLOCK=64) is kernel
    assert add[lambda meta: (meta["BLOCK"] // 32, meta["n"])](x, y, 9, 64) is kernel
    assert len(fake.contexts) == 1 and len(fake.driver.loads) == 1
    assert [launch[0] for launch in fake.driver.launches[1:]] == [(2, 3, 4), (2, 9, 1)]
    assert kernel.src.signature == {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    assert kernel.src.constants == {(3,): 64}
    assert kernel.src.attrs == {(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]}
    assert fake.driver.signatures == [["*fp32", "*fp32", "i32"]]


def test_specialisations(fake):
    x = aligned(8)

    def signature(*args, **kw):
        kernel = add.warmup(*args, grid=(1,), **kw)
        return list(kernel.src.signature.values()), kernel.src.constants, sorted(kernel.src.attrs)

    assert signature(x, x, 1, 2) == (["*fp32", "*fp32", "constexpr", "constexpr"], {(2,): 1, (3,): 2}, [(0,), (1,)])
    assert signature(x, x, 32, 2)[2] == [(0,), (1,), (2,)]
    assert signature(x, aligned(8, offset=4), 7, 2)[2] == [(0,)]
    assert signature(x, x, 2**31, 2)[0][2] == "i64" and signature(x, x, -2**31, 2)[0][2] == "i32"
    assert signature(x, x, 2**63, 2)[0][2] == "u64" and signature(x, x, -2**63, 2)[0][2] == "i64"
    assert signature(x, x, True, 2)[0][2] == "i1" and signature(x, x, 0.5, 2)[0][2] == "fp32"
    assert signature(x, x, None, 2)[1] == {(2,): None, (3,): 2}
    assert signature(x, x, np.int64(3), 2)[0][2] == "i32" and signature(x, x, np.float64(3), 2)[0][2] == "fp32"
    for dtype, name in (("float16", "fp16"), ("float64", "fp64"), ("int8", "i8"), ("uint8", "u8"), ("int64", "i64"), ("uint16", "u16"), ("bool", "i1")):
        assert signature(aligned(8, dtype), x, 3, 2)[0][0] == f"*{name}"
    assert signature(x, x, tl.constexpr(5), 2) == (["*fp32", "*fp32", "constexpr", "constexpr"], {(2,): 5, (3,): 2}, [(0,), (1,)])
    assert signature(x, x, tl.float16, 2)[1] == {(2,): tl.float16, (3,): 2}
    with pytest.raises(ArgumentError, match="argument 'n' of add: the integer .* 64 bits"):
        add[(1,)](x, x, 2**64, 2)


def test_unspecialised_and_annotated(fake):
    x = aligned(8)
    kernel = loose.warmup(x, 1, 1, 2.0, grid=(1,))
    assert kernel.src.signature == {"x": "*fp32", "n": "i32", "m": "i64", "f": "fp16", "flag": "i1", "K": "constexpr"}
    assert kernel.src.constants == {(5,): 4} and kernel.src.attrs == {}
    loose[(1,)](x, 16, 16, 2.0, K=5)
    assert fake.driver.launches[-1][2] == (x.ctypes.data, 16, 16, 2.0, True)
    assert constant_pointer.warmup(x, x, grid=(1,)).src.signature == {"x": "*kfp32", "y": "*fp32"}


def test_constexprs_of_equal_hash_differ(fake):
    x = aligned(8)
    for value in (1, True, 1.0, 0.0, -0.0, "1", None, (1, 2), (1, True), float("nan")):
        add[(1,)](x, x, 5, value)
        add[(1,)](x, x, 5, value)
    assert len(fake.contexts) == 10
    add[(1,)](x, x, 5, [1, 2])  # unhashable
    add[(1,)](x, x, 5, [1, 2])
    assert len(fake.contexts) == 11


def test_tuples_are_flattened_at_launch(fake):
    x = aligned(8)
    point = collections.namedtuple("point", "a b")
    kernel = many[(1,)](x, (3, 1, (None, x)), True, point(2.5, 7))
    assert kernel.src.signature["t"] == ("i32", "constexpr", ("constexpr", "*fp32"))
    assert kernel.src.signature["other"] == point("fp32", "i32") and type(kernel.src.signature["other"]) is point
    assert kernel.src.constants == {(1, 1): 1, (1, 2, 0): None, (4,): "a"}
    assert (1, 2, 1) in kernel.src.attrs
    assert fake.driver.signatures[-1] == ["*fp32", "i32", "*fp32", "i1", "fp32", "i32"]
    assert fake.driver.launches[-1][2] == (x.ctypes.data, 3, x.ctypes.data, True, 2.5, 7)


def test_pointer_kinds(fake):
    torch = pytest.importorskip("torch")
    t = torch.zeros(16, dtype=torch.bfloat16)
    assert add.warmup(t, t, 3, 2, grid=(1,)).src.signature["x"] == "*bf16"
    add[(1,)](t, t, 3, 2)
    assert fake.driver.launches[-1][2] == (t.data_ptr(), t.data_ptr(), 3)
    add[(1,)](torch.nn.Parameter(torch.zeros(4)), t, 3, 2)
    assert add.warmup(torch.float16, torch.int8, 3, 2, grid=(1,)).src.signature["y"] == "*i8"
    assert add.warmup(triton.MockTensor(tl.float8e5), t, 3, 2, grid=(1,)).src.signature["x"] == "*fp8e5"
    bytes_ = torch.zeros(32, dtype=torch.uint8)
    assert add.warmup(triton.reinterpret(bytes_, tl.float8e4nv), t, 3, 2, grid=(1,)).src.signature["x"] == "*fp8e4nv"
    with pytest.raises(ArgumentError, match="8 bits"):
        triton.reinterpret(bytes_, tl.float16)
    assert add.warmup(torch.zeros(16, dtype=torch.float8_e4m3fn), t, 3, 2, grid=(1,)).src.signature["x"] == "*fp8e4nv"
    with pytest.raises(ArgumentError, match="argument 'x' of add: elements of type torch.complex64"):
        add[(1,)](torch.zeros(2, dtype=torch.complex64), t, 3, 2)

    class DLPack:
        def __init__(self, t):
            self.t = t

        def __dlpack__(self, **kw):
            return self.t.__dlpack__(**kw)

        def __dlpack_device__(self):
            return self.t.__dlpack_device__()

    part = torch.zeros(64, dtype=torch.int16)[8:]
    add[(1,)](DLPack(part), t, 3, 2)
    assert fake.driver.launches[-1][2][0] == part.data_ptr()
    assert add.warmup(DLPack(part), t, 3, 2, grid=(1,)).src.signature["x"] == "*i16"

    class Interface:
        def __init__(self, protocol, a):
            setattr(self, protocol, a.__array_interface__)

    Host = type("Host", (Interface,), {"__array_interface__": None})
    a = aligned(8, "int32")
    add[(1,)](Host("__array_interface__", a), t, 3, 2)
    assert fake.driver.launches[-1][2][0] == a.ctypes.data


def test_wrong_arguments(fake):
    x = aligned(8)
    with pytest.raises(TypeError, match="add: missing 1 required positional argument: 'BLOCK'; its parameters are x, y, n, BLOCK"):
        add[(1,)](x, x, 5)
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        add[(1,)](x, x, 5, 3, x=x)
    with pytest.raises(ArgumentError, match="add: got multiple values for argument 'x'; its parameters are x, y, n, BLOCK"):
        add.run(x, x, 5, 3, x=x, grid=(1,), warmup=False)
    with pytest.raises(ArgumentError, match="add: takes 4 positional arguments but 5 were given; its parameters are"):
        add[(1,)](x, x, 5, 3, 4)
    with pytest.raises(ArgumentError, match="argument 'y' of add: a builtins.object is no kernel argument"):
        add[(1,)](x, object(), 5, 3)
    with pytest.raises(ArgumentError, match="'x'.*>f4"):
        add[(1,)](x.astype(">f4"), x, 5, 3)
    with pytest.raises(ArgumentError, match="'sped' is neither a parameter .* enable_fp_fusion, num_ctas, num_stages, num_warps, sanitize_overflow, speed"):
        add[(1,)](x, x, 5, 3, sped="fast")
    with pytest.raises(ArgumentError, match="num_warps is a power of two; found 3"):
        add[(1,)](x, x, 5, 3, num_warps=3)
    with pytest.raises(ArgumentError, match="num_ctas.*2"):
        add[(1,)](x, x, 5, 3, num_ctas=2)
    assert fake.driver.launches == []
    add[(1,)](x, x, 5, 3, num_ctas=1, maxnreg=None, speed="fast", num_warps=8)
    assert fake.contexts[-1].options == fake_target.Options(num_warps=8, speed="fast")


def test_options_of_another_type(fake):
    x = aligned(8)
    for given, text in [({"enable_fp_fusion": "no"}, "enable_fp_fusion is True or False; found .no."), ({"enable_fp_fusion": 2}, "enable_fp_fusion is True or False"),
                        ({"num_stages": -1}, "num_stages is an integer of 0 or more; found -1"), ({"num_warps": 0}, "num_warps is a positive integer")]:
        with pytest.raises(ArgumentError, match=text):
            add[(1,)](x, x, 5, 3, **given)
    add[(1,)](x, x, 5, 3, enable_fp_fusion=0)
    assert fake.contexts[-1].options.enable_fp_fusion is False


def test_an_array_is_no_constexpr(fake):
    x = aligned(8)
    with pytest.raises(ArgumentError, match=r"^argument 'BLOCK' of add: it is declared tl.constexpr, .*; found an array \(numpy.ndarray\)$"):
        add[(1,)](x, x, 5, x)
    add[(1,)](x, x, 5, np.int64(4))


def test_options_are_part_of_the_key(fake):
    x = aligned(8)
    a = add[(1,)](x, x, 5, 3)
    b = add[(1,)](x, x, 5, 3, num_warps=8)
    assert a is not b and b.metadata.num_warps == 8 and a.metadata.num_warps == 4
    assert add[(1,)](x, x, 5, 3, num_warps=8) is b


def test_settings_are_defaults_of_options(fake, monkeypatch):
    x = aligned(8)
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    add[(1,)](x, x, 5, 3, num_warps=1)
    assert fake.contexts[-1].options.enable_fp_fusion is False
    add[(1,)](x, x, 5, 3, num_warps=1, enable_fp_fusion=True)
    assert fake.contexts[-1].options.enable_fp_fusion is True
    with triton.knobs.language.scope():
        triton.knobs.language.default_fp_fusion = True
        add[(1,)](x, x, 5, 4)
        assert fake.contexts[-1].options.enable_fp_fusion is True


def test_binary_only(fake, monkeypatch):
    x = aligned(8)
    monkeypatch.setenv("TILEWRIGHT_STORE_BINARY_ONLY", "1")
    kernel = add[(1,)](x, x, 5, 3)
    add._entries.clear()
    add._kernels.clear()
    again = add[(1,)](x, x, 5, 3)
    assert again is not kernel and len(fake.contexts) == 1 and list(again.asm) == ["bin"]


@pytest.mark.parametrize("grid", [(0,), (3, 0), (1, 2, 0), lambda meta: (0,)])
def test_empty_grids_launch_nothing(fake, grid):
    add[grid](aligned(8), aligned(8), 5, 3)
    assert fake.driver.launches == []


def test_grids(fake):
    x = aligned(8)
    add[5](x, x, 5, 3)
    add[[5, 6]](x, x, 5, 3)
    add[(np.int64(7),)](x, x, 5, 3)
    assert [launch[0] for launch in fake.driver.launches] == [(5, 1, 1), (5, 6, 1), (7, 1, 1)]
    for grid, text in (((1.5,), "integers; found 1.5"), ((-1,), "not negative"), ((1, -1), "not negative"), ((1, 2, 3, 4), "one to three"), ((), "one to three")):
        with pytest.raises(ArgumentError, match=text):
            add[grid](x, x, 5, 3)


def test_device_of_arguments_is_checked(fake, monkeypatch):
    gpu = fake_target.Fake("gpu", device_types=("gpu",))
    registry.register(gpu.plugin)
    try:
        x = aligned(8)
        monkeypatch.setenv("TILEWRIGHT_TARGET", "gpu")
        with pytest.raises(ArgumentError, match="argument 'x' of add lies on device 'cpu', and target gpu:f1 takes arrays on gpu"):
            add[(1,)](x, x, 5, 3)
        assert gpu.driver.launches == []

        class OnGpu:
            dtype, device = "float32", "gpu"

            def data_ptr(self):
                return 4096

        add[(1,)](OnGpu(), OnGpu(), 5, 3)
        monkeypatch.delenv("TILEWRIGHT_TARGET")
        add[(1,)](OnGpu(), OnGpu(), 5, 3)
        assert [launch[2] for launch in gpu.driver.launches] == [(4096, 4096, 5)] * 2 and fake.driver.launches == []
        with pytest.raises(ArgumentError, match="lies on device 'cpu'|lies on device 'gpu'"):
            add[(1,)](x, OnGpu(), 5, 3)
    finally:
        registry.unregister("gpu")


def test_the_first_launch_is_remembered(fake):
    """What it found serves the second: its key is no change of the code."""
    @triton.jit
    def new(x, n):
        tl.store(x, n + FACTOR)

    x = aligned(8)
    new[(1,)](x, 5)
    found = dict(new._entries)
    new[(1,)](x, 5)
    assert found and found.items() <= new._entries.items()


def test_a_target_set_after_a_launch_is_followed(fake, monkeypatch):
    x = aligned(8)
    monkeypatch.delenv("TILEWRIGHT_TARGET")
    driver = triton.runtime.driver

    class Active:
        """An object with Triton's driver methods, as tools put in its place."""

        def get_current_target(self):
            return triton.backends.compiler.GPUTarget("fakebackend", 1, 32)

    try:
        for chosen, arch in (("fake:f1", 1), ("fake:f2", 2), (Active(), 1), ("fake:f2", 2)):
            driver.set_active(chosen)
            for _ in range(3):
                assert add[(1,)](x, x, 5, 3).metadata.target.arch == arch
        driver.reset_active()
        monkeypatch.setenv("TILEWRIGHT_TARGET", "fake:f1")
        assert add[(1,)](x, x, 5, 3).metadata.target.arch == 1
    finally:
        driver.reset_active()


def test_a_replaced_plugin_is_followed(fake):
    """Kernels compile anew, by the new plugin, and run on its driver, also where it lies at the address of one that is gone."""
    x = aligned(8)
    for _ in range(2):
        add[(1,)](x, x, 5, 3)
    assert len(fake.driver.launches) == 2 and len(fake.contexts) == 1
    for _ in range(20):
        target = fake_target.Fake()
        registry.register(target.plugin)
        for _ in range(2):
            add[(1,)](x, x, 5, 3)
        assert len(target.driver.launches) == 2
        registry.unregister("fake")
    with pytest.raises(TargetNotFoundError, match="no target 'fake'"):
        add[(1,)](x, x, 5, 3)
    assert len(fake.driver.launches) == 2


def test_a_plugin_that_is_replaced_while_compiling_is_followed(fake, monkeypatch):
    """The launch under way goes to the old one; no later one does."""
    x, other = aligned(8), fake_target.Fake()

    def replace(**_):
        monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", None)
        registry.register(other.plugin)

    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", replace)
    for _ in range(3):
        add[(1,)](x, x, 5, 3)
    assert (len(fake.driver.launches), len(other.driver.launches)) == (1, 2)


def test_a_plugin_that_is_replaced_after_a_preload_is_followed(fake, monkeypatch):
    told = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", lambda **kwargs: told.append(kwargs["compile"]["specialization_data"]))
    x, other, kernel = aligned(8), fake_target.Fake(), triton.jit(add.fn)
    add.warmup(x, x, 5, 3, grid=(1,))
    kernel.preload(told[0])
    registry.register(other.plugin)
    kernel[(1,)](x, x, 5, 3)
    assert (len(fake.driver.launches), len(other.driver.launches)) == (0, 1)


def test_a_replaced_driver_is_followed(fake):
    x = aligned(8)
    add[(1,)](x, x, 5, 3)
    other = fake_target.FakeDriver()
    set_driver(registry.parse("fake:f1"), other)
    for _ in range(2):
        add[(1,)](x, x, 5, 3)
    assert len(fake.driver.launches) == 1 and len(other.launches) == len(other.loads) * 2 == 2


def test_target_variable_is_followed(fake, monkeypatch):
    x = aligned(8)
    assert add[(1,)](x, x, 5, 3).metadata.target.arch == 1
    monkeypatch.setenv("TILEWRIGHT_TARGET", "fakebackend:2")
    assert add[(1,)](x, x, 5, 3).metadata.target == triton.backends.compiler.GPUTarget("fakebackend", 2, 32)


def test_each_device_loads(fake):
    x = aligned(8)
    kernel = add[(1,)](x, x, 5, 3)
    fake.driver.device = 1
    assert add[(1,)](x, x, 5, 3) is kernel
    assert [load[2] for load in fake.driver.loads] == [0, 1] and [launch[1] for launch in fake.driver.launches] == [100, 101]
    assert set(add.device_caches) >= {0, 1} and kernel in add.device_caches[1][0].values()


def test_changed_globals_recompile(fake, monkeypatch):
    x = aligned(8)
    first = add[(1,)](x, x, 5, 3)
    key = add.cache_key
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(4))  # read by the helper only
    second = add[(1,)](x, x, 5, 3)
    assert second is not first and second.hash != first.hash and add.cache_key != key
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(3))
    assert add[(1,)](x, x, 5, 3).hash == first.hash and add.cache_key == key
    n = len(fake.contexts)
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(3))  # another object, equal
    add[(1,)](x, x, 5, 3)
    assert len(fake.contexts) == n
    scaled[(1,)](x)
    monkeypatch.setitem(globals(), "SCALE", 5)
    scaled[(1,)](x)
    assert len(fake.contexts) == n + 2


def test_replaced_helper_recompiles(fake, monkeypatch):
    x = aligned(8)
    first = add[(1,)](x, x, 5, 3)

    def helper(x):
        return x - FACTOR

    monkeypatch.setitem(globals(), "helper", triton.jit(helper))
    assert add[(1,)](x, x, 5, 3).hash != first.hash


def test_closures_are_dependencies(fake):
    def make(k):
        @triton.jit
        def kernel(x):
            tl.store(x, k)

        return kernel

    one, two, again = make(tl.constexpr(1)), make(tl.constexpr(2)), make(tl.constexpr(1))
    assert one.cache_key != two.cache_key and one.cache_key == again.cache_key


def test_cache_key_ignores_the_compilers_own_names():
    names = {u.name for u in add._uses} if add.cache_key else set()
    assert names == {"helper"}
    assert {u.name for u in helper._uses} == {"FACTOR"}


def test_recursion_has_a_key():
    @triton.jit
    def loop(n):
        loop(n)

    assert len(loop.cache_key) == 64


def test_hooks(fake):
    x, seen = aligned(8), []
    hook = lambda *args, **kw: seen.append((len(args), kw))  # noqa: E731
    add.add_pre_run_hook(hook)
    enter, leave = (lambda record: seen.append(("enter", record.get()["name"]))), (lambda record: seen.append("leave"))
    triton.knobs.runtime.launch_enter_hook.add(enter)
    triton.knobs.runtime.launch_exit_hook.add(leave)
    try:
        add[(1,)](x, x, 5, BLOCK=3)
    finally:
        add.pre_run_hooks.remove(hook)
        triton.knobs.runtime.launch_enter_hook.remove(enter)
        triton.knobs.runtime.launch_exit_hook.remove(leave)
    assert seen == [(3, {"BLOCK": 3}), ("enter", "add"), "leave"]


def test_jit_cache_hook_and_preload(fake, monkeypatch):
    x, told = aligned(8), []
    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", lambda **kw: told.append(kw))
    kernel = add[(1,)](x, x, 5, 3, num_warps=2)
    data = told[0]["compile"]["specialization_data"]
    add._entries.clear()
    add._kernels.clear()
    again = add.preload(data)
    assert again.hash == kernel.hash and len(fake.contexts) == 1  # from the disk
    add[(1,)](x, x, 5, 3, num_warps=2)
    assert len(told) == 1  # what was preloaded is used
    with pytest.raises(ArgumentError, match="not of"):
        scaled.preload(data)


def test_compiled_kernel(fake):
    x = aligned(8)
    kernel = add[(1,)](x, x, 5, 3)
    assert list(kernel.asm) == ["ttir", "text", "bin"] and "func.func" in kernel.asm["ttir"]
    assert kernel.asm["text"] == "text of add for f1" and kernel.asm["bin"] == b"text of add for f1\x00\xff" == kernel.kernel
    with pytest.raises(KeyError, match="no stage 'sass'; there are ttir, text, bin"):
        kernel.asm["sass"]
    m = kernel.metadata
    assert (m.name, m.num_warps, m.num_stages, m.num_ctas, m.shared, m.hash) == ("add", 4, 3, 1, 64, kernel.hash)
    assert kernel.packed_metadata == (4, 1, 64) and kernel.name == "add"
    assert (kernel.n_regs, kernel.n_spills, kernel.function) == (7, 0, 1234)
    with pytest.raises(AttributeError, match="no 'banana'; it has"):
        _ = m.banana
    copy = pickle.loads(pickle.dumps(kernel))
    assert copy.hash == kernel.hash and dict(copy.asm) == dict(kernel.asm) and copy.metadata == kernel.metadata and copy.function is None
    copy._init_handles()
    assert copy.function == 1234
    copy[(3,)](x, x, 5, 3)
    copy.run(2, 1, 1, 55, copy.function, copy.packed_metadata, None, None, None, x, x, 6, 3)
    assert fake.driver.launches[-2:] == [((3, 1, 1), 100, (x.ctypes.data, x.ctypes.data, 5), "add"),
                                         ((2, 1, 1), 55, (x.ctypes.data, x.ctypes.data, 6), "add")]


def test_source_must_be_readable():
    scope = {}
    exec("def k(x):\n    pass", scope)
    with pytest.raises(KernelCallError, match="cannot be read"):
        triton.jit(scope["k"])
    with pytest.raises(KernelCallError, match="no function defined with def"):
        triton.jit(lambda x: x)


def test_warm_launch_is_quick(fake):
    """Processor time, with room for a loaded machine; the aim is below 8 µs for three arguments, and 5.6 were measured."""
    import time
    import timeit

    x = aligned(8)
    launch = add[(1,)]
    fake.driver.launches = type("Sink", (), {"append": staticmethod(lambda launch: None)})()
    launch(x, x, 5, 64)
    best = min(timeit.repeat(lambda: launch(x, x, 5, 64), number=2000, repeat=5, timer=time.process_time)) / 2000
    assert best < 20e-6
