"""The list of slow tests is made from times, and obeyed."""

from __future__ import annotations

from pathlib import Path

import choose_slow
import pytest

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.a.test_x.TestGroup" name="test_long[1]" file="tests/a/test_x.py" time="9.5"/>
<testcase classname="tests.a.test_x.TestGroup" name="test_long[2]" file="tests/a/test_x.py" time="2.5"/>
<testcase classname="tests.a.test_x" name="test_many[1]" file="tests/a/test_x.py" time="2.0"/>
<testcase classname="tests.a.test_x" name="test_many[2]" file="tests/a/test_x.py" time="1.0"/>
<testcase classname="tests.a.test_x" name="test_short" file="tests/a/test_x.py" time="0.5"/>
</testsuite></testsuites>"""


@pytest.mark.parametrize("budget, slow", [
    (20, ["TestGroup::test_long[1]"]),  # by itself too long
    (5, ["TestGroup::test_long[1]", "test_many[1]"]),  # the shortest of each function stays
    (0, ["TestGroup::test_long[1]", "test_many[1]"]),
])
def test_the_longest_go_first_and_each_function_keeps_one(tmp_path: Path, budget: float, slow: list[str]) -> None:
    (tmp_path / "run.xml").write_text(JUNIT)
    known = choose_slow.times(tmp_path / "run.xml")
    assert sum(known.values()) == 15.5
    assert choose_slow.choose(known, budget) == sorted(f"tests/a/test_x.py::{name}" for name in slow)


def test_what_is_listed_is_marked(request: pytest.FixtureRequest) -> None:
    listed = set(choose_slow.LIST.read_text().splitlines())
    assert all(item.get_closest_marker("slow") for item in request.session.items if item.nodeid in listed)
    assert request.node.nodeid not in listed
