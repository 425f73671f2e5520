"""schedule_warp_group_dots: where products are waited for, and that nothing is read before, or overwritten while they run."""

import pytest
from kernel_texts import attention, matmul
from test_pipeline_loops import matmul_arguments
from warp_group_harness import (
    ALL,
    DOT,
    SCHEDULED,
    WAIT,
    WarpGroupMachine,
    after,
    check_values,
    named,
    nvidia_context,
    order,
    product,
    product_arguments,
    warp_context,
)

from tilewright.dialects.analysis.liveness import Liveness
from tilewright.dialects.analysis.structure import functions


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_sum_over_a_loop_keeps_one_product_in_flight(stages):
    """One stage more than the copies are ahead by: the copy may then go before the product, into what the last but one read."""
    with nvidia_context():
        _, f = after(matmul(64, 64, 32), ALL, warp_context(4, stages))
        assert order(f) == ["arrived", "fence", "barrier", "copy", "copy", "dot", "wait1"]
        (loop,) = named(f, "scf.for")
        following = loop.region.ops[loop.region.ops.index(loop) + 1]
        assert following.name == WAIT and following.int_attr("pendings") == 0 and loop.results[0] in following.operands
        assert not any(loop.results[0] in n.operands for n in f.nodes() if n is not following)
        assert [n.results[0].type.shape[0] for n in named(f, "ttg.local_alloc")] == [stages + 1] * 2
        assert all(d.bool_attr("is_async") for d in named(f, DOT))


def test_short_of_shared_memory_copies_wait_for_the_product_before():
    with nvidia_context():
        _, f = after(matmul(128, 256, 64), ALL, warp_context(8, 4))
        assert [n.results[0].type.shape[0] for n in named(f, "ttg.local_alloc")] == [4, 4]
        assert order(f) == ["arrived", "fence", "barrier", "dot", "wait1", "barrier", "copy", "copy"]


def test_without_stages_the_product_ends_before_its_buffer_is_filled_again():
    with nvidia_context():
        _, f = after(matmul(64, 64, 32), SCHEDULED, warp_context(4, 1))
        assert order(f) == ["alloc", "alloc", "dot", "wait0"]


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("k", [0, 32, 64, 70, 200])
def test_matmul_values_are_kept(k, stages, late):
    ctx = warp_context(4, stages)
    check_values(matmul(64, 64, 32), matmul_arguments(k, 64, 64), ALL, ctx, late, proxies=True)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("kind", [{}, {"twice": True, "init": "3.0"}, {"cast": ("i8", None)}, {"cast": (None, "i8"), "trans": (True, True)},
                                  {"element": "f8E4M3FN", "imprecise": 32}], ids=str)
def test_values_of_single_products_are_kept(kind, late):
    check_values(product(64, 32, 128, **kind), product_arguments(64, 32, 128), ALL, warp_context(), late, proxies=True)


def test_products_that_add_up_run_on_one_after_the_other():
    with nvidia_context():
        _, f = after(product(64, 64, 64, twice=True), SCHEDULED, warp_context())
        assert order(f, 0) == ["alloc", "alloc", "dot", "dot", "wait0"]


def test_a_result_is_waited_for_with_the_later_products_running():
    with nvidia_context():
        _, f = after(product(64, 64, 128, "f8E4M3FN", imprecise=64), SCHEDULED, warp_context())
        # the second product begins before the first is waited for, and both end before they are added up
        assert order(f, 0) == ["alloc", "alloc", "dot", "dot", "wait0", "addf"]
        text = product(64, 64, 128, "f8E4M3FN", imprecise=32)
        _, f = after(text, SCHEDULED, warp_context())
        assert [x for x in order(f, 0) if x != "alloc"] == ["dot", "dot", "wait0", "addf", "dot", "wait0", "addf", "dot", "wait0", "addf"]


def test_attention_computes_what_products_read_with_none_in_flight():
    with nvidia_context():
        _, f = after(attention(64, 64, 64), ALL, warp_context(4, 2))
        found = [x for x in order(f) if x in ("dot", "truncf", "reduce") or x.startswith("wait")]
        assert found == ["dot", "wait0", "reduce", "reduce", "truncf", "dot", "wait0", "wait0"]
        last = [n for n in named(f, WAIT) if n.depth][-2:]
        p = named(f, DOT)[1].operands[0]
        assert any(p in w.operands for w in last)  # P is not written before the product has ended


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_attention_values_are_kept(stages, late):
    import numpy as np
    from test_pipeline_loops import data, poisoned

    def arguments():
        n = 200 * 64
        return [data(n, 1) / 8, data(n, 2) / 8, data(n, 3), poisoned(n), 64, 200, 0.125]

    with nvidia_context():
        from tilewright.dialects._mlir import ir

        expected, got = arguments(), arguments()
        from test_pipeline_loops import Machine

        Machine(functions(ir.Module.parse(attention(64, 64, 64)))[0], expected, False)
        _, f = after(attention(64, 64, 64), ALL, warp_context(4, stages))
        WarpGroupMachine(f, got, late, proxies=True)
        rows = slice(0, 64 * 64)  # of the first program
        np.testing.assert_allclose(got[3][rows], expected[3][rows], rtol=1e-12)
        assert np.isfinite(got[3][rows]).all()


def test_buffers_live_until_the_product_has_ended():
    with nvidia_context():
        _, f = after(product(64, 64, 64), SCHEDULED, warp_context())
        live = Liveness(f)
        (wait,) = named(f, WAIT)
        assert all(i.end >= live.start[id(wait)] for i in live.buffers())
        _, f = after(matmul(64, 64, 32), SCHEDULED, warp_context(4, 3))
        live = Liveness(f)
        last = [n for n in named(f, WAIT) if not n.depth][-1]
        assert all(i.end >= live.start[id(last)] for i in live.buffers())


def test_the_machine_of_these_tests_sees_a_missing_wait():
    """A product whose wait is taken away gives NaN, and one left in flight is told."""
    with nvidia_context():
        _, f = after(product(64, 64, 64), SCHEDULED, warp_context())
        (wait,) = named(f, WAIT)
        for v, r in zip(wait.operands, wait.results):
            f.replace_uses(r, v)
        f.erase(wait)
        with pytest.raises(AssertionError, match="left in flight"):
            WarpGroupMachine(f, product_arguments(64, 64, 64)())
