"""What a kernel's code is made of may change between two launches, in another module or in place: the second launch has the new code."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import pickle
import shutil
import types

import fake_target
import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.runtime.cache import CacheEntryError
from tilewright.runtime.dependencies import settled, stable_text

FACTOR, TABLE, ARRAY = 2, {"a": 1}, np.arange(2000)
LIST, NUMBER = tl.constexpr([1, 2]), tl.constexpr(5)


def plain(x, more={"b": 1}):  # noqa: B006
    return x * FACTOR


@tl.constexpr_function
def by_callee(x):
    return [plain(y) for y in (x,)][0]


@tl.constexpr_function
def by_table(x):
    return x + TABLE["a"] + int(ARRAY[1000])


class Rule:
    """Called while compiling."""

    scale = 3

    def __init__(self, n):
        self.n = n

    def __call__(self, x):
        return x * self.n * FACTOR


@dataclasses.dataclass
class Open:
    n: int


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int


class Mode(enum.Enum):
    A = 1


RULE = tl.constexpr(Rule(3))
OPEN = tl.constexpr(Open(3))
settings = types.ModuleType("settings")
settings.inner, settings.V = types.ModuleType("inner"), tl.constexpr(3)
settings.inner.W = tl.constexpr(7)


@triton.jit
def helper(x):
    return x + NUMBER


HELPERS = tl.constexpr((helper,))


def around():
    kept = [3]

    @tl.constexpr_function
    def function(x):
        return x + kept[0]

    return kept, function


KEPT, by_closure = around()


@triton.jit
def callee(o):
    tl.store(o, by_callee(3))


@triton.jit
def table(o):
    tl.store(o, by_table(3))


@triton.jit
def closure(o):
    tl.store(o, by_closure(3))


@triton.jit
def listed(o):
    tl.store(o, LIST[0])


@triton.jit
def helped(o):
    tl.store(o, helper(1))


@triton.jit
def listed_helper(o):
    tl.store(o, HELPERS[0](1))


@triton.jit
def moduled(o):
    tl.store(o, settings.V + settings.inner.W)


@triton.jit
def ruled(o):
    tl.store(o, RULE(1))


@triton.jit
def opened(o):
    tl.store(o, OPEN.n)


@triton.jit
def given(o, f: tl.constexpr):
    tl.store(o, f(1))


def assigned(owner, name, value):
    """(change, undo) of an attribute, an item or a global."""
    if isinstance(owner, (dict, list, np.ndarray)):
        old = owner[name].item() if isinstance(owner, np.ndarray) else owner[name]
        return lambda: owner.__setitem__(name, value), lambda: owner.__setitem__(name, old)
    old = getattr(owner, name)
    return lambda: setattr(owner, name, value), lambda: setattr(owner, name, old)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    with fake_target.selected(monkeypatch, tmp_path) as target:
        yield target


G = globals()
OTHER = Rule(4)
MUTABLE = Open(3)
CHANGES = [
    (callee, (), G, "FACTOR", 10), (callee, (), G, "plain", lambda x, more=None: x - FACTOR), (callee, (), plain.__defaults__[0], "b", 2),
    (table, (), TABLE, "a", 10), (table, (), ARRAY, 1000, 5), (table, (), G, "by_table", tl.constexpr_function(lambda x: x)), (closure, (), KEPT, 0, 30),
    (listed, (), LIST.value, 0, 9), (helped, (), NUMBER, "value", 50), (helped, (), G, "NUMBER", tl.constexpr(6)), (helped, (), helper, "src", "def helper(x): return x"),
    (helped, (), helper, "noinline", True), (helped, (), helped, "src", "def helped(o): tl.store(o, 4)"), (listed_helper, (), G, "NUMBER", tl.constexpr(6)),
    (moduled, (), settings, "V", tl.constexpr(30)), (moduled, (), settings.inner, "W", tl.constexpr(70)), (moduled, (), G, "settings", types.SimpleNamespace(V=1, inner=settings.inner)),
    (moduled, (), settings, "inner", types.SimpleNamespace(W=tl.constexpr(8))), (ruled, (), RULE.value, "n", 4), (ruled, (), G, "FACTOR", 10), (opened, (), OPEN.value, "n", 30),
    (given, (helper,), G, "NUMBER", tl.constexpr(6)), (given, (tl.constexpr_function(plain),), G, "FACTOR", 10), (given, (by_closure,), KEPT, 0, 30), (given, (OTHER,), OTHER, "n", 5),
    (given, (OTHER,), G, "FACTOR", 10), (given, (MUTABLE,), MUTABLE, "n", 4), (given, ((1, [MUTABLE]),), MUTABLE, "n", 4), (given, (Rule,), Rule, "scale", 4),
    (given, (functools.partial(plain, 2),), G, "FACTOR", 10),
]


@pytest.mark.parametrize("kernel, args, owner, name, value", CHANGES, ids=[f"{k.__name__}-{n}-{i}" for i, (k, _, _, n, _) in enumerate(CHANGES)])
def test_what_changes_between_launches_is_compiled_anew(fake, kernel, args, owner, name, value):
    o = np.zeros(1, np.float32)
    change, undo = assigned(owner, name, value)
    first, warm = kernel[(1,)](o, *args), kernel[(1,)](o, *args)
    key = kernel.cache_key
    assert first is warm
    change()
    try:
        if args == ():
            assert kernel.cache_key != key
        assert kernel.warmup(o, *args, grid=(1,)).hash != first.hash
        second = kernel[(1,)](o, *args)
        assert second.hash != first.hash and kernel[(1,)](o, *args) is second
    finally:
        undo()
    assert kernel[(1,)](o, *args).hash == first.hash and kernel.cache_key == key


def test_what_is_computed_while_compiling_is_followed(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    o = np.zeros(1, np.float32)
    for value in (2, 5):
        monkeypatch.setitem(G, "FACTOR", value)
        for _ in range(2):
            callee[(1,)](o)
            assert o[0] == 3 * value
    monkeypatch.setitem(TABLE, "a", 4)
    table[(1,)](o)
    monkeypatch.setitem(TABLE, "a", 8)
    before = o[0]
    table[(1,)](o)
    assert o[0] == before + 4


def test_a_name_that_is_defined_after_the_key_was_asked_for():
    @triton.jit
    def early(o):
        tl.store(o, later_helper(1))  # noqa: F821

    key = early.cache_key
    try:
        G["later_helper"] = helper
        assert early.cache_key != key
    finally:
        del G["later_helper"]
    assert early.cache_key == key


def test_arguments_of_equal_value_and_other_types(fake):
    o = np.zeros(1, np.float32)
    pair = collections.namedtuple("pair", "a b")
    values = [Frozen(1), Frozen(True), Frozen(1.0), (1,), (True,), [1], pair(1, 2), pair(1, 2.0), Mode.A, tl.float16, "tl.float16", 0.0, -0.0, float("nan"), 1, "1", None, Open(1), Open(1.0),
              np.int32(4), 4.0, Rule(1), Rule(1.0)]
    kernels = [given[(1,)](o, v) for v in values]
    assert len({id(k) for k in kernels}) == len({k.hash for k in kernels}) == len(values)
    assert kernels == [given[(1,)](o, copy.deepcopy(v)) for v in values]


def test_texts_hold_all_of_a_value():
    loop = Open(1)
    loop.n = [loop]
    assert stable_text(loop) == stable_text(copy.deepcopy(loop)) and "object at" not in stable_text(Rule(Rule(1)))
    a, b = np.zeros(5000), np.zeros(5000)
    b[2500] = 1
    assert stable_text(a) != stable_text(b) and stable_text(Open(a)) != stable_text(Open(b)) and stable_text([{1: a}]) != stable_text([{1: b}])
    assert stable_text({"a", "b", "c"}) == stable_text({"c", "b", "a"})
    assert all(map(settled, (1, "a", None, (1, (2.0,)), Mode.A, Frozen(1), tl.float16, NUMBER, helper, by_table, np.float32(1))))
    assert not any(map(settled, ([], {}, (1, []), Open(1), Frozen([]), LIST, Rule(1), plain, np.zeros(2))))


def test_copies_of_constexprs_tell_nobody(fake):
    o = np.zeros(1, np.float32)
    helped[(1,)](o)
    entries = dict(helped._entries)
    assert pickle.loads(pickle.dumps(NUMBER)).value == copy.deepcopy(NUMBER).value == copy.copy(NUMBER).value == 5
    assert entries and helped._entries == entries


def test_settings_that_are_assigned_after_a_launch_are_followed(fake, monkeypatch):
    o = np.zeros(1, np.float32)
    settings = triton.knobs

    def options():
        for _ in range(3):
            ran = helped[(1,)](o)
        return ran.metadata.enable_fp_fusion, ran.metadata.debug, ran.metadata.arch

    usual = options()
    assert usual == (True, False, "f1")
    with settings.language.scope(), settings.runtime.scope():
        settings.language.default_fp_fusion = False
        assert options() == (False, False, "f1")
        settings.runtime.debug = True
        assert options() == (False, True, "f1")
        settings.runtime.override_arch = "f2"
        assert options() == (False, True, "f2")
        settings.runtime.reset()
        assert options() == (False, False, "f1")
        monkeypatch.setenv("TILEWRIGHT_DEFAULT_FP_FUSION", "1")
        settings.language.default_fp_fusion = settings.env
        assert options() == usual
    assert options() == usual
    compiled = len(fake.contexts)
    with settings.language.scope():
        settings.language.default_fp_fusion = False
        options()
    with settings.compilation.scope():
        settings.compilation.always_compile = True
        options()
        assert len(fake.contexts) == compiled + 1
    assert options() == usual and len(fake.contexts) == compiled + 1  # and what was compiled before is kept


def test_attributes_that_are_assigned_after_a_launch_are_followed(fake):
    @triton.jit
    def kernel(o):
        tl.store(o, 1)

    o = np.zeros(1, np.float32)
    assert all(kernel[(1,)](o).metadata.debug is False for _ in range(3))
    kernel.debug = True
    assert all(kernel[(1,)](o).metadata.debug is True for _ in range(3))
    kernel.debug = None
    kernel.repr = lambda _: "other"
    assert all(kernel[(1,)](o).name == "other" for _ in range(3))


def test_a_kernel_whose_folder_in_the_cache_is_gone(fake, tmp_path, monkeypatch):
    o = np.zeros(1, np.float32)
    text = helped[(1,)](o).asm["text"]
    helped.device_caches.clear()
    read = [helped.warmup(o, grid=(1,)) for _ in range(2) if helped.device_caches.clear() is None]
    assert len(fake.contexts) == 1
    shutil.rmtree(tmp_path)
    assert read[0].asm["text"] == text and len(fake.contexts) == 2
    assert helped[(1,)](o) is read[1]
    monkeypatch.setitem(G, "NUMBER", tl.constexpr(6))
    with pytest.raises(CacheEntryError, match="globals are others by now"):
        read[1].asm["text"]
    assert helped[(1,)](o).asm["text"]


def test_copies_of_kernels_are_the_kernels_and_pickles_name_them():
    @triton.jit
    def local(o):
        pass

    tuned = triton.autotune([triton.Config({})], key=[])(local)
    ruled = triton.heuristics({})(local)
    for kernel in (local, tuned, ruled):
        assert copy.copy(kernel) is copy.deepcopy(kernel) is kernel
        with pytest.raises(pickle.PicklingError, match="local is not found as .*test_dependencies.*, and a kernel is pickled by its name"):
            pickle.dumps(kernel)
    old = helper
    assert pickle.loads(pickle.dumps(old)) is old
    try:
        G["helper"] = triton.jit(old.fn)  # a cell that was run again
        with pytest.raises(pickle.PicklingError, match="helper is not found as"):
            pickle.dumps(old)
    finally:
        G["helper"] = old


def test_a_file_that_was_edited_since_it_was_read(tmp_path):
    text = "import tilewright as triton\ndef make():\n    @triton.jit\n    def first(x):\n        pass\n    return first\n"
    (tmp_path / "edited.py").write_text(text)
    scope = {"__name__": "edited"}
    exec(compile(text, str(tmp_path / "edited.py"), "exec"), scope)
    assert scope["make"]().src.startswith("def first")
    (tmp_path / "edited.py").write_text(text.replace("def make", "    \n\ndef other(x):\n    pass\n\n\ndef make").replace("first(x)", "second(x)"))
    with pytest.raises(triton.runtime.errors.KernelCallError, match=r"edited.py:3: what stands there is other, not first: the file was edited since Python has read it"):
        scope["make"]()
