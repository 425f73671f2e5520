"""Which ops are matrix products, and liveness of what such an op goes on reading."""

import pytest

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis import liveness
from tilewright.dialects.analysis.dots import is_asynchronous_dot, is_dot, register_dot
from tilewright.dialects.analysis.liveness import Liveness, register_reads_go_on
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import mlir_context


def test_registered_names():
    assert is_dot("tt.dot") and not is_asynchronous_dot("tt.dot") and not is_dot("toy.dot")
    register_dot("toy.product", asynchronous=True)
    register_dot("toy.product", asynchronous=True)
    assert is_dot("toy.product") and is_asynchronous_dot("toy.product")
    with pytest.raises(ValueError, match="asynchronous = True"):
        register_dot("toy.product")


BUFFER = '!ttg.memdesc<array<i64: 16, 16>, f16, #ttg.swizzled_shared<1 : i32, 1 : i32, 1 : i32, array<i32: 1, 0>>, true>'
ALLOC = f'"ttg.local_alloc"() {{operandSegmentSizes = array<i32: 0>}} : () -> {BUFFER}'
READ = '"ttg.local_dealloc"({})' + f" : ({BUFFER}) -> ()"


@pytest.mark.parametrize("waits, ends", [
    ([0], 0), ([1, 0], 0), ([2, 1, 0], 1), ([5], None), ([], None),
])
def test_a_buffer_lives_until_the_wait_for_its_reader(monkeypatch, waits, ends):
    """The reader of the first buffer is followed by one other reader: a wait that leaves at most one going on has ended it."""
    monkeypatch.setattr(liveness, "_reads_go_on", {})
    register_reads_go_on("ttg.local_dealloc", (0,), "ttg.async_wait")  # any op on a buffer will do, and any with an integer
    body = "".join(f'%w{i} = "ttg.async_wait"() {{num = 7 : i32, pendings = {n} : i32}} : () -> !ttg.async_token\n' for i, n in enumerate(waits))
    with mlir_context():
        module = ir.Module.parse(f'''func.func @k() {{
          %a = {ALLOC}
          %b = {ALLOC}
          {READ.format("%a")}
          {READ.format("%b")}
          {body}
          return }}''')
        (function,) = functions(module)
        live = Liveness(function)
        first = live.buffers()[0]
        found = [live.start[id(n)] for n in function.nodes() if n.name == "ttg.async_wait"]
        assert first.end == (len(live.order) if ends is None else found[ends])
