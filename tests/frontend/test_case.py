"""What a case of `tilewright matrix` is measured by, and that memory nobody wrote is seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright.case import max_error, poisoned_memory
from tilewright.testing import Case


def test_error_is_relative_to_the_largest_reference():
    assert max_error(np.array([1.0, 2.5]), np.array([1.0, 2.0])) == 0.25
    assert max_error((np.zeros(2), np.array([3])), (np.zeros(2), np.array([2]))) == 0.5
    assert max_error(np.array([0.5]), np.array([0.0])) == 0.5  # nothing to be relative to
    assert max_error(np.zeros(0), np.zeros(0)) == 0.0
    assert max_error(np.float32(1), 1) == 0.0


def test_special_values():
    inf, nan = math.inf, math.nan
    assert max_error(np.array([inf, nan, 1]), np.array([inf, nan, 1])) == 0.0
    assert math.isnan(max_error(np.array([nan, 1]), np.array([1.0, 1])))
    assert math.isnan(max_error((np.array([9.0]), np.array([nan])), (np.array([1.0]), np.array([1.0]))))
    assert max_error(np.array([1.0, 1]), np.array([1.0, inf])) == inf
    assert max_error(np.array([-inf]), np.array([inf])) == inf
    assert math.isnan(max_error(np.array([1.0]), np.array([nan])))


def test_other_shapes_are_no_results():
    with pytest.raises(ValueError, match=r"shape \(3,\), its reference one of \(1, 3\)"):
        max_error(np.zeros(3), np.zeros((1, 3)))
    with pytest.raises(ValueError, match="returns 2 arrays, its reference 1"):
        max_error((1, 2), 1)
    with pytest.raises(ValueError, match="the case returns None"):
        max_error(None, None)
    with pytest.raises(ValueError, match="the reference returns None"):
        max_error((1, 2), (1, None))


def test_imaginary_parts_count():
    assert max_error(np.array([1j, 2]), np.array([1j, 2])) == 0.0
    assert max_error(np.array([1j]), np.array([0.0])) == 1.0
    torch = pytest.importorskip("torch")
    assert max_error(torch.ones(3, dtype=torch.complex64) * 1j, torch.zeros(3)) == 1.0
    assert max_error(torch.tensor([1j]).conj(), torch.tensor([-1j])) == 0.0


def test_new_memory_is_poisoned_for_the_file_alone():
    with poisoned_memory():
        assert np.isnan(np.empty(3)).all() and np.isnan(np.empty_like(np.zeros(2, np.float16))).all()
        assert (np.empty(2, np.int8) == 127).all() and (np.empty(2, np.uint16) == 65535).all() and np.empty(1, bool).all()
        space = {"__name__": "tilewright.somewhere", "np": np}
        exec("x = np.empty(1 << 16)", space)
    assert not np.isnan(space["x"]).all()
    assert np.empty.__name__ == "empty" and not np.isnan(np.empty(1 << 16)).all()


def test_new_torch_memory_is_poisoned():
    torch = pytest.importorskip("torch")
    with poisoned_memory():
        like = torch.zeros(2, 3, dtype=torch.bfloat16)
        made = [torch.empty(3), torch.empty_like(like), like.new_empty(4), torch.empty_strided((2,), (1,)), torch.empty(2, dtype=torch.float8_e4m3fn),
                torch.empty(2, dtype=torch.float8_e4m3fnuz), torch.empty(2, dtype=torch.float8_e5m2)]
        assert all(m.double().isnan().all() for m in made)
        assert (torch.empty(2, dtype=torch.int32) == 2**31 - 1).all() and torch.empty(2, dtype=torch.bool).all()
    assert max_error(torch.ones(2, dtype=torch.bfloat16), torch.ones(2)) == 0.0


def test_a_case_is_data():
    case = Case("a", lambda: 1, lambda: 2, 0.5)
    assert (case.name, case.run(), case.reference(), case.tolerance, case.measure) == ("a", 1, 2, 0.5, max_error)
