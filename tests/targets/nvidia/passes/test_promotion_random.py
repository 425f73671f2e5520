"""Random kernels and arguments: wherever an access is promoted and the guards hold, what is computed stays, by numpy."""

import random

import numpy as np
from descriptor_oracle import Compiled, KernelOutOfBounds
from tt_execution import define

BM, BK, BN = 16, 16, 16
MIDDLE = 1 << 15  # elements of the buffer before the base, so that negative rows exist


class Kernel:
    """A kernel whose coordinates, strides, masks and loops are drawn at random, as people (and worse) write them."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        loop = self.loop = self.rng.choice(("none", "range", "step", "carried"))
        row, column = self.row(), self.column()
        wide = self.rng.random() < 0.3
        terms = [f"(row{'.to(tl.int64)' if wide else ''})[:, None] * {self.rng.choice(('sa', 'sa', '64', 's1 * sa'))}", "column[None, :]"]
        if self.rng.random() < 0.2:
            terms[0], terms[1] = terms[0].replace("[:, None]", "[None, :]"), "column[:, None]"
        turned = terms[1] == "column[:, None]"
        terms += self.rng.sample(("z * s2", "z * 128", "s1", "s1 * sa", "-sa", "s2 * 8", "z", "n", "48", "z.to(tl.int64) * s2"), self.rng.choice((0, 0, 1, 1, 2)))
        self.rng.shuffle(terms)
        at = " + ".join(terms)
        over = ("[:, None]", "[None, :]") if not turned else ("[None, :]", "[:, None]")
        mask = self.mask([f"row{over[0]}", f"column{over[1]}"])
        load = f"tl.load(p{f', mask={mask}' if mask else ''}{', other=0.0' if mask and self.rng.random() < 0.5 else ''})"
        a = f"tl.trans({load})" if turned else load
        b = "tl.load(b_ptr + tl.arange(0, BK)[:, None] * BN + tl.arange(0, BN)[None, :])"
        head = {"none": "if True:", "range": "for n in range(0, tl.cdiv(K, BK)):", "step": "for n in range(s1, K, BK):", "carried": "for n in range(0, 3):"}[loop]
        carried = self.rng.choice(("BK", "sa", "2 * sa + 16", "s2"))
        if turned and carried == "BK":
            carried = "BK * 1"
        out_row, out_mask = self.rng.choice((("i", "i[:, None] < M"), ("i", "i[:, None] < N"), ("i", "")))
        lines = [
            "i = tl.program_id(0) * BM + tl.arange(0, BM)", "z = tl.program_id(1)", "acc = tl.zeros((BM, BN), tl.float32)", "n = 0",
            *([f"row = {row}", f"column = {column}", f"q = a_ptr + {MIDDLE} + ({at})"] if loop == "carried" else []),
            head,
            *([] if loop == "carried" else [f"    row = {row}", f"    column = {column}"]),
            f"    p = {'q' if loop == 'carried' else f'a_ptr + {MIDDLE} + ({at})'}",
            f"    acc += tl.dot({a}, {b})",
            *([f"    q += {carried}"] if loop == "carried" else []),
            f"tl.store(c_ptr + z * 8192 + {out_row}[:, None] * BN + tl.arange(0, BN)[None, :], acc{', mask=' + out_mask if out_mask else ''})",
        ]
        self.source = ("@triton.jit\ndef kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, s1, s2, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):\n"
                       + "".join(f"    {line}\n" for line in lines))

    def row(self):
        row = self.rng.choice(("i", "i", "i + s1", "i - 3", "(tl.program_id(0) + 1) * BM + tl.arange(0, BM)", "tl.arange(0, BM)",
                               "i + n * BM", "(tl.program_id(0) // 2 * 2 + tl.program_id(0) % 2) * BM + tl.arange(0, BM)",
                               "N - (tl.program_id(0) + 1) * BM + tl.arange(0, BM)"))
        if self.loop == "carried":
            row = row.replace("i + n * BM", "i")
        form = self.rng.choice(("{}", "{}", "{}", "({}) % M", "({}) % N", "tl.minimum({}, M - 1)", "tl.where({} < M, {}, 0)"))
        return form.format(row, row) if form.count("{}") == 2 else form.format(row)

    def column(self):
        along = "tl.arange(0, BK)"
        if self.loop == "carried":
            return self.rng.choice((along, f"s1 + {along}"))
        return self.rng.choice((along, f"n + {along}", f"n * BK + {along}", f"z * BK + {along}", f"s1 + {along}"))

    def mask(self, parts):
        row, column = parts
        options = (f"{row} < M", f"{row} < M", f"{row} <= M - 1", f"{row} < N", f"{column} < K", f"{column} < K", f"K > {column}", f"{row} >= 0",
                   f"{column} >= 0", f"{column} < K - n * BK", f"({row} >= 0) & ({row} < M)", "i[:, None] < M", f"{row} < M - s1")
        chosen = self.rng.sample(options, self.rng.choice((0, 1, 1, 2, 2)))
        if self.loop == "carried":
            chosen = [c.replace("n * BK", "BK") for c in chosen]
        if parts[0].endswith("[None, :]"):
            chosen = [c.replace("i[:, None]", "i[None, :]") for c in chosen]
        return " & ".join(f"({c})" for c in chosen)

    def arguments(self):
        rng = self.rng
        return dict(M=rng.choice((16, 32, 33, 40, 7)), N=rng.choice((32, 48, 20)), K=rng.choice((16, 32, 40, 5)), sa=rng.choice((64, 64, 72, 48, 128)),
                    s1=rng.choice((2, 8, 16, -2, 3)), s2=rng.choice((64, 1024, 24, 8)))


def check(seed):
    """"refused", or how often the guards held and the results agreed."""
    kernel = Kernel(seed)
    fn = define(kernel.source)
    values = np.random.default_rng(seed).integers(-3, 4, 3 << 15).astype(np.float16)
    arrays = dict(a_ptr=values, b_ptr=values[:256].copy(), c_ptr=np.zeros(1 << 14, np.float32))
    agreed = guarded = 0
    for _ in range(3):
        c = Compiled(fn, {**arrays, **kernel.arguments()}, dict(BM=BM, BN=BN, BK=BK))
        if not any(ch["chosen"] == "tma" and ch["what"] == "tl.load of argument 0" for ch in c.choices):
            return "refused"
        if c.answer((3, 2)).reasons:
            guarded += 1
            continue
        try:
            c.check((3, 2))
        except KernelOutOfBounds:
            continue
        except AssertionError:
            raise AssertionError(f"seed {seed}\n{kernel.source}\n{dict(zip(c.names[3:], c.args[3:]))}\n{c.choices}") from None
        agreed += 1
    return agreed, guarded


def test_random_kernels():
    found = [check(seed) for seed in range(25)]
    promoted = [f for f in found if f != "refused"]
    assert len(promoted) > 15 and sum(a for a, _ in promoted) > 15 and sum(g for _, g in promoted) > 5, found
