"""Shared memory, barriers, axis facts and layouts across calls of functions."""

from __future__ import annotations

import pytest
from shared_texts import T, alloc, context, load, scratch, store, use

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.call_graph import callers_first, name_of
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import InternalCompilerError, TilewrightError
from tilewright.dialects.passes import allocate_shared_memory, insert_barriers, verify_layouts

SIZE = 32 * 32 * 4
SHORT = {"ttg.local_alloc": "alloc", "ttg.local_load": "load", "ttg.local_store": "store", "ttg.barrier": "BARRIER", "func.call": "call",
         "ttg.convert_layout": "convert"}


@pytest.fixture(autouse=True)
def _scratch(monkeypatch):
    for module in (allocate_shared_memory, insert_barriers):
        monkeypatch.setattr(module, "scratch_of", lambda node, hooks: 512 if node.name == "ttg.convert_layout" else 0)


def text(**bodies):
    """A module of functions of one tensor ``%t``; the first one is the kernel."""
    out = []
    for i, (name, body) in enumerate(bodies.items()):
        head = f"func.func @{name}(%t: {T}) attributes {{tt.kernel}}" if i == 0 else f"func.func private @{name}(%t: {T})"
        out.append(f"{head} {{\n%c0 = arith.constant 0 : i32\n%c1 = arith.constant 1 : i32\n%c9 = arith.constant 9 : i32\n{body}\nreturn\n}}")
    return "module {\n" + "\n".join(out) + "\n}"


def call(name, value="%t"):
    return f"func.call @{name}({value}) : ({T}) -> ()\n"


def placed(**bodies):
    """({function: offsets}, total)."""
    ctx = context(1 << 20)
    with mlir_context():
        module = ir.Module.parse(text(**bodies))
        allocate_shared_memory.run(module, ctx)
        return {name_of(f): [n.int_attr("allocation.offset") for n in f.nodes() if "allocation.offset" in n.op.attributes]
                for f in functions(module)}, ctx.metadata["shared"]


def order(**bodies):
    with mlir_context():
        module = ir.Module.parse(text(**bodies))
        allocate_shared_memory.run(module, context())
        insert_barriers.run(module, context())
        assert module.operation.verify()
        return {name_of(f): " ".join(SHORT[n.name] for n in f.nodes() if n.name in SHORT) for f in functions(module)}




def held(inside):
    """A buffer that lives around ``inside``."""
    return alloc("%a", src="%t") + inside + load("%x", "%a") + use("%x")


OWN = alloc("%b", src="%t") + load("%y", "%b") + use("%y")


def test_a_called_function_lies_behind_what_its_caller_holds():
    assert placed(k=held(call("f")), f=OWN) == ({"k": [0], "f": [SIZE]}, 2 * SIZE)
    assert placed(k=held("") + call("f"), f=OWN) == ({"k": [0], "f": [0]}, SIZE)


def test_of_all_calls_the_one_that_holds_most_counts():
    offsets, total = placed(k=call("f") + held(call("g")) + call("g"), g=held(call("f")), f=scratch("%s", "%t") + use("%s"))
    assert offsets == {"k": [0], "g": [SIZE], "f": [2 * SIZE]} and total == 2 * SIZE + 512


def test_chains_that_hold_nothing_take_no_room():
    offsets, total = placed(k=held(call("f")), f=call("g"), g=OWN)
    assert offsets == {"k": [0], "f": [], "g": [SIZE]} and total == 2 * SIZE


def test_what_does_not_live_at_the_call_is_used_again():
    body = alloc("%a", src="%t") + load("%x", "%a") + use("%x") + alloc("%e", src="%t") + call("f") + load("%z", "%e") + use("%z")
    assert placed(k=body, f=OWN) == ({"k": [0, 0], "f": [SIZE]}, 2 * SIZE)


def test_barriers_stand_around_calls_that_touch_the_same_bytes():
    found = order(k=OWN + call("f") + call("f") + OWN.replace("%b", "%c").replace("%y", "%z"), f=scratch("%s", "%t") + use("%s"))
    assert found["k"] == "alloc BARRIER load BARRIER call BARRIER call BARRIER alloc BARRIER load"
    # a function that leaves nothing in shared memory needs none
    assert order(k=OWN + call("f") + OWN.replace("%b", "%c").replace("%y", "%z"), f=use("%t"))["k"] == "alloc BARRIER load call BARRIER alloc BARRIER load"


def test_a_call_touches_what_the_functions_that_it_calls_touch():
    found = order(k=call("f") + call("g"), f=call("g"), g=OWN)
    assert found == {"k": "call BARRIER call", "f": "call", "g": "alloc BARRIER load"}


def test_held_buffers_need_no_barrier_around_calls():
    assert order(k=alloc("%a") + store("%t", "%a") + call("f") + load("%x", "%a") + use("%x"), f=OWN)["k"] == "alloc store call BARRIER load"


def test_calls_in_loops_meet_themselves():
    loop = "scf.for %i = %c0 to %c9 step %c1 : i32 {\n" + call("f") + "}\n"
    assert order(k=loop, f=OWN) == {"k": "BARRIER call", "f": "alloc BARRIER load"}


def test_recursion_and_unknown_functions():
    with mlir_context():
        with pytest.raises(TilewrightError, match="recursion: f calls g calls f"):
            callers_first(functions(ir.Module.parse(text(k=call("f"), f=call("g"), g=call("f")))))
        module = ir.Module.parse(text(k="") + "\n")
        assert [name_of(f) for f in callers_first(functions(module))] == ["k"]
        module = ir.Module.parse(text(k=call("f") + call("g"), f="", g=call("f")))
        assert [name_of(f) for f in callers_first(functions(module))] == ["k", "g", "f"]


def test_what_is_known_of_arguments_holds_at_all_calls():
    with mlir_context():
        module = ir.Module.parse("""module {
          func.func @k(%n: i32) attributes {tt.kernel, arg_attrs = [{tt.divisibility = 16 : i32}]} {
            %c8 = arith.constant 8 : i32
            %c1 = arith.constant 1 : i32
            %m = arith.addi %n, %c8 : i32
            func.call @g(%c8, %n) : (i32, i32) -> ()
            func.call @f(%n, %c8) : (i32, i32) -> ()
            scf.for %i = %c8 to %n step %c8 : i32 {
              func.call @f(%i, %c8) : (i32, i32) -> ()
            }
            return
          }
          func.func private @f(%a: i32, %b: i32) {
            return
          }
          func.func private @g(%a: i32, %b: i32) {
            func.call @f(%b, %a) : (i32, i32) -> ()
            return
          }
        }""")
        info = AxisInfoAnalysis(module)
        f = next(f for f in functions(module) if name_of(f) == "f")
        a, b = (info.get(v) for v in f.body.args)
    assert (a.divisibility, a.constant) == ((8,), None) and (b.divisibility, b.constant) == ((8,), 8)


def test_types_at_calls_are_checked():
    other = T.replace("array<i32: 1, 0>>", "array<i32: 0, 1>>")
    module = text(k=call("f"), f=use("%t")).replace("module {", 'module attributes {"ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 32 : i32} {')
    with mlir_context():
        parsed = ir.Module.parse(module)
        verify_layouts.run(parsed)
        f = next(f for f in functions(parsed) if name_of(f) == "f")
        f.body.args[0].set_type(ir.Type.parse(other))
        with pytest.raises(InternalCompilerError, match="func.call .*: f has"):
            verify_layouts.run(parsed)
