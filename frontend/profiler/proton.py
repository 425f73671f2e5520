"""Profile a whole script: ``python -m tilewright.profiler.proton [-n NAME] [-c python] [-d trace] [-k triton] SCRIPT.py ARGS…``."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

from tilewright.profiler import DEFAULT_PROFILE_NAME
from tilewright.profiler import session as _session
from tilewright.profiler.flags import flags


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script as ``__main__`` in a session; its own calls of ``start`` are left out. The profile is written also where it fails."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.profiler.proton", description=__doc__)
    parser.add_argument("-n", "--name", default=DEFAULT_PROFILE_NAME)
    parser.add_argument("-c", "--context", default="shadow", choices=["shadow", "python"])
    parser.add_argument("-d", "--data", default="tree", choices=["tree", "trace"])
    parser.add_argument("-k", "--hook", default=None, choices=["triton"])
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    given = parser.parse_args(argv)
    number = _session.begin(given.name, given.context, given.data, None, None, given.hook)
    flags.command_line = True
    before = sys.argv
    sys.argv = [given.script, *given.args]
    sys.path.insert(0, os.path.dirname(os.path.abspath(given.script)))
    try:
        runpy.run_path(given.script, run_name="__main__")
    finally:
        flags.command_line = False
        sys.argv = before
        sys.path.pop(0)
        for path in _session.end(number, "") if number in _session.sessions else ():
            print(f"profile: {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
