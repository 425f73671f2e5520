"""Kernels that are no longer needed: their code is freed once, and only theirs."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def test_kernels_may_be_collected_one_after_another(tmp_path):
    (tmp_path / "kernels.py").write_text(textwrap.dedent("""
        import gc
        import numpy as np
        import tilewright as triton
        import tilewright.language as tl

        def once(i):
            C = tl.constexpr(i)

            @triton.jit
            def kernel(p, n):
                tl.store(p, n + C)

            x = np.zeros(1, np.int32)
            kernel[(1,)](x, 5)
            return int(x[0])

        for i in range(5):
            print(once(i))
            gc.collect()
        """))
    done = subprocess.run([sys.executable, str(tmp_path / "kernels.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]
    assert done.stdout.split() == ["5", "6", "7", "8", "9"]
