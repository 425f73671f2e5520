"""Write tests/slow_tests.txt, the tests that ``-m "not slow"`` leaves out beside those marked in the source, from a run's times.

    pytest -n 2 -o junit_family=xunit1 --junitxml=run.xml
    python tests/choose_slow.py run.xml [--seconds 400]

The longest tests go first, until those that are left take ``--seconds`` (of one core; the quick run is to take five minutes on two). The
last test of a function always stays, the shortest of its parameters, unless it takes more than ``LONGEST`` seconds by itself.
"""

from __future__ import annotations

import argparse
import pathlib
import xml.etree.ElementTree as xml
from collections.abc import Mapping

LONGEST = 3.0  # seconds: more than that is slow whatever is left
LIST = pathlib.Path(__file__).with_name("slow_tests.txt")


def times(path: pathlib.Path) -> dict[str, float]:
    """Seconds by node id, from a junit file of the family xunit1."""
    found: dict[str, float] = {}
    for case in xml.parse(path).getroot().iter("testcase"):
        file, name = case.get("file"), case.get("name", "")
        if file is None:
            raise SystemExit(f"{path} names no files: run pytest with -o junit_family=xunit1")
        inside = case.get("classname", "")[len(file.removesuffix(".py")) + 1:]
        found["::".join(filter(None, (file, inside.replace(".", "::"), name)))] = float(case.get("time", 0))
    return found


def choose(seconds: Mapping[str, float], budget: float) -> list[str]:
    """Node ids to leave out, sorted: longest first until the others take at most ``budget`` seconds."""
    left, total = dict.fromkeys(seconds), sum(seconds.values())
    functions: dict[str, int] = {}
    for name in seconds:
        functions[name.partition("[")[0]] = functions.get(name.partition("[")[0], 0) + 1
    for name in sorted(seconds, key=lambda n: -seconds[n]):
        function = name.partition("[")[0]
        if seconds[name] <= LONGEST and (total <= budget or functions[function] == 1):
            continue
        del left[name]
        total -= seconds[name]
        functions[function] -= 1
    return sorted(set(seconds) - set(left))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("junit", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=400.0)
    arguments = parser.parse_args()
    known = times(arguments.junit)
    chosen = choose(known, arguments.seconds)
    LIST.write_text("".join(f"{name}\n" for name in chosen))
    print(f"{len(chosen)} of {len(known)} tests are slow; the others take {sum(known.values()) - sum(known[n] for n in chosen):.0f} of {sum(known.values()):.0f} s")
