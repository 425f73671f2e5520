"""What published kernels write that nothing else here does: each was refused, or wrong, when it was met (docs/real_kernels.md)."""

from __future__ import annotations

import torch

from tilewright.conformance.harness import compare, poisoned, random_array, rng_of


def test_types_are_called() -> None:
    """liger-kernel: ``m = tl.float32(-float("inf"))``; a type's call casts numbers, scalars and tiles."""
    compare("""
        @triton.jit
        def kernel(x, o, q, n):
            i = tl.arange(0, 16)
            m = tl.float32(-float("inf"))
            for k in range(2):
                m = tl.maximum(m, tl.max(tl.load(x + k * 16 + i), 0))
            tl.store(o + i, tl.float32(tl.load(q + i)) + m)
            tl.store(q + i, tl.int32(n) + tl.int8(300) + i)
    """, {"x": torch.arange(32, dtype=torch.float32) / 3, "o": poisoned("fp32", 16), "q": torch.arange(16, dtype=torch.int32), "n": 5},
        expected={"o": torch.arange(16, dtype=torch.float32) + torch.tensor(31, dtype=torch.float32) / 3, "q": torch.arange(16, dtype=torch.int32) + 5 + 44})


def test_scalars_are_indexed_like_tiles() -> None:
    """torchao: ``pid[:, None] * stride + n[None, :]``, where a scalar becomes a tile of one element."""
    compare("""
        @triton.jit
        def kernel(x, o, n):
            p = tl.program_id(0)
            j = n[:, None] * 4 + p[None, :] + tl.arange(0, 4)[None, :]
            tl.store(o + j - n * 4, tl.load(x + j) + p[None])
    """, {"x": torch.arange(16, dtype=torch.int32), "o": poisoned("int32", 4), "n": 2}, expected={"o": torch.arange(8, 12, dtype=torch.int32)})


def test_types_and_functions_handed_to_a_function_have_a_value() -> None:
    """flag-gems: ``dtype.value`` in a function whose parameter is no constexpr; what is no tensor becomes one on the way in."""
    compare("""
        @triton.jit
        def least(dtype):
            kind = dtype.value
            if kind.is_floating():
                value: tl.constexpr = -7.5
                return value
            width: tl.constexpr = kind.int_bitwidth
            return -(2 ** (width - 1))

        @triton.jit
        def twice(x):
            return x + x

        @triton.jit
        def apply(x, f):
            g = f.value
            return g(x)

        @triton.jit
        def kernel(x, y, o, p):
            i = tl.arange(0, 8)
            v, w = tl.load(x + i), tl.load(y + i)
            tl.store(o + i, tl.where(i < 4, apply(v, twice), least(x.type.element_ty)))
            tl.store(p + i, tl.where(i < 4, apply(w, twice), least(w.dtype)))
    """, {"x": torch.arange(8, dtype=torch.int16), "y": torch.arange(8, dtype=torch.float32), "o": poisoned("int16", 8), "p": poisoned("fp32", 8)},
        expected={"o": torch.tensor([0, 2, 4, 6] + [-32768] * 4, dtype=torch.int16), "p": torch.tensor([0, 2, 4, 6] + [-7.5] * 4)})


def test_a_constexpr_variable_of_a_run_time_value() -> None:
    """flag-gems' sort: ``TILE: tl.constexpr = BLOCK * n``, where n is an argument that is not always specialised."""
    for n in (1, 3):
        compare("""
            @triton.jit
            def kernel(o, n, B: tl.constexpr):
                tile: tl.constexpr = B * n
                start = tile * tl.program_id(0)
                for at in range(start, tl.minimum(start + tile, 16), B):
                    i = at + tl.arange(0, B)
                    tl.store(o + i, i * tile, mask=i < 16)
        """, {"o": poisoned("int32", 16), "n": n, "B": 8}, expected={"o": torch.cat([torch.arange(8 * min(n, 2)) * 8 * n, poisoned("int32", 16)[8 * min(n, 2):]]).int()})


def test_dependent_launches() -> None:
    """lmdeploy and sglang: the waits of dependent launches change nothing where launches follow one another."""
    x = random_array("fp32", 16, rng_of("dependent"))
    compare("""
        @triton.jit
        def kernel(x, o):
            i = tl.arange(0, 16)
            tl.extra.cuda.gdc_wait()
            v = tl.load(x + i)
            tl.extra.cuda.gdc_launch_dependents()
            tl.store(o + i, v)
    """, {"x": x, "o": poisoned("fp32", 16)}, expected={"o": x})


def test_two_types_as_compile_time_values_are_two_kernels() -> None:
    """What is called is not told apart by what it is made of: float32 and float16 must not share compiled code."""
    source = """
        @triton.jit
        def kernel(x, o, T: tl.constexpr):
            i = tl.arange(0, 16)
            tl.store(o + i, tl.load(x + i).to(T).to(tl.float32))
    """
    x = torch.arange(16, dtype=torch.float32) / 7
    from tilewright import language as tl

    for kind, wide in ((tl.float32, torch.float32), (tl.float16, torch.float16), (tl.bfloat16, torch.bfloat16)):
        compare(source, {"x": x, "o": poisoned("fp32", 16), "T": kind}, expected={"o": x.to(wide).float()})


def test_keys_of_objects_and_closures_differ() -> None:
    """The cache's key of what can be called: its values count, not its class alone."""
    from tilewright import language as tl
    from tilewright.runtime.dependencies import stable_text

    def scaled(by: float):  # type: ignore[no-untyped-def]
        return lambda v, twice=by + 1: v * by + twice

    texts = [stable_text(v) for v in (tl.float32, tl.float16, scaled(2.0), scaled(3.0))]
    assert len(set(texts)) == 4
    assert stable_text(scaled(2.0)) == texts[2]




def test_a_dot_with_a_matrix_made_of_indices() -> None:
    """mlstm-kernels: a running sum as a product with a triangle, whose rows and columns have the product's layout before they are repeated."""
    x = torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64) % 7
    compare("""
        @triton.jit
        def kernel(x, o):
            i = tl.arange(0, 16)
            j = tl.arange(0, 64)
            m = tl.where(i[:, None] >= i[None, :], 1., 0.)
            z = tl.zeros([64], dtype=tl.float32)
            for t in range(4):
                at = (t * 16 + i)[:, None] * 64 + j[None, :]
                s = tl.load(x + at)
                tl.store(o + at, tl.dot(m, s, allow_tf32=False) + z)
                z += tl.sum(s, 0)
    """, {"x": x, "o": poisoned("fp32", (64, 64))}, expected={"o": torch.cumsum(x, 0)}, num_warps=2)


def test_pointers_are_conditions() -> None:
    """sglang: ``if kv_start_idx:`` for an optional array: false for None, and for a null pointer; in `not`, `and` and a choice too."""
    source = """
        @triton.jit
        def kernel(x, maybe, o, n):
            i = tl.arange(0, 16)
            start = 0
            if maybe:
                start = tl.load(maybe + 1)
            other = 5 if maybe and n > 2 else 7
            if not maybe:
                other += 100
            tl.store(o + i, tl.load(x + i) + start + other)
    """
    x = torch.arange(16, dtype=torch.int32)
    given = torch.tensor([3, 40], dtype=torch.int32)
    for n, maybe, more in ((5, given, 45), (1, given, 47), (5, None, 107)):
        compare(source, {"x": x, "maybe": maybe, "o": poisoned("int32", 16), "n": n}, expected={"o": x + more})
    compare(source.replace("i = tl", "maybe = (n - n).to(tl.pointer_type(tl.int32))\n            i = tl"),
            {"x": x, "maybe": given, "o": poisoned("int32", 16), "n": 1 << 33}, expected={"o": x + 107})
