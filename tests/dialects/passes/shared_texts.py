"""Small ttg programs on shared memory, for the tests of allocation and barriers."""

from __future__ import annotations

from tilewright.dialects import pass_runner
from tilewright.dialects.pipeline import PassContext

BLOCKED = "#ttg.blocked<array<i32: 1, 4>, array<i32: 4, 8>, array<i32: 4, 1>, array<i32: 1, 0>>"
SHARED = "#ttg.swizzled_shared<1 : i32, 1 : i32, 1 : i32, array<i32: 1, 0>>"
ONE = "array<i32: 1, 0, 0, 0, 0, 0, 0, 0>"


def tensor(shape="32x32", element="f32"):
    return f"tensor<{shape}x{element}, {BLOCKED}>"


def memdesc(*shape, element="f32"):
    return f"!ttg.memdesc<array<i64: {', '.join(map(str, shape or (32, 32)))}>, {element}, {SHARED}, true>"


T, M, PTRS = tensor(), memdesc(), tensor(element="!tt.ptr<f32, 1 : i32>")


def alloc(name, *shape, src=None):
    given, sizes = (src or ""), (f"({T})" if src else "()")
    return f'{name} = "ttg.local_alloc"({given}) {{operandSegmentSizes = array<i32: {int(bool(src))}>}} : {sizes} -> {memdesc(*shape)}\n'


def load(name, src, token=None):
    t = f", {token}" if token else ""
    tt = ", !ttg.async_token" if token else ""
    return f'{name} = "ttg.local_load"({src}{t}) {{operandSegmentSizes = array<i32: 1, {int(bool(token))}>}} : ({M}{tt}) -> {T}\n'


def store(src, dst):
    return f'"ttg.local_store"({src}, {dst}) : ({T}, {M}) -> ()\n'


def copy(token, dst):
    return (f'{token} = "ttg.async_copy_global_to_local"(%ptrs, {dst}) {{cache = "none", evict = "normal", is_volatile = false, '
            f'operandSegmentSizes = array<i32: 1, 1, 0, 0>}} : ({PTRS}, {M}) -> !ttg.async_token\n')


def commit(token, *inputs):
    return f'{token} = "ttg.async_commit_group"({", ".join(inputs)}) : ({", ".join(["!ttg.async_token"] * len(inputs))}) -> !ttg.async_token\n'


def wait(token, num, *inputs):
    return (f'{token} = "ttg.async_wait"({", ".join(inputs)}) {{num = {num} : i32}} : '
            f'({", ".join(["!ttg.async_token"] * len(inputs))}) -> !ttg.async_token\n')


def index(name, src, i, stages):
    return f'{name} = "ttg.memdesc_index"({src}, {i}) : ({memdesc(stages, 32, 32)}, i32) -> {M}\n'


def use(value):
    """Keep a tensor alive without touching shared memory."""
    return f'"tt.print"({value}) {{prefix = "", hex = false, is_signed = array<i32: 1>, operandSegmentSizes = {ONE}}} : ({T}) -> ()\n'


def scratch(name, src):
    """An op that the tests give scratch."""
    return f'{name} = "ttg.convert_layout"({src}) : ({T}) -> {T}\n'


def kernel(body):
    return f"""module {{ func.func @k(%t: {T}, %ptrs: {PTRS}, %n: i32, %c: i1) attributes {{tt.kernel}} {{
      %c0 = arith.constant 0 : i32
      %c1 = arith.constant 1 : i32
      {body}
      return
    }} }}"""


def context(max_shared=1 << 20):
    return PassContext(None, "generic", pass_runner.GenericCapabilities(max_shared_bytes=max_shared), pass_runner.GenericOptions())
