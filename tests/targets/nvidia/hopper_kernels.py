"""Hopper kernels by hand, as LLVM dialect with inline PTX, for the simulator's tests; and shared-memory images as the PTX manual draws them."""

import numpy as np
from nvidia_harness import Kernel

from tilewright.dialects.context import mlir_context
from tilewright.dialects.simt import SimtExecutor
from tilewright.dialects.simt.executor import Opaque
from tilewright.targets.nvidia.simulate import semantics

P = "!llvm.ptr<1>"
MAP = "!llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}"


class HopperKernel(Kernel):
    """``body(k, arguments)``, where k has the methods below."""

    def __init__(self, types, body, num_warps=4, shared=0):
        def build(b, hooks, arguments):
            self.b, self.hooks = b, hooks
            self.tid = hooks.thread_id(b)
            body(self, arguments)

        super().__init__(types, build, num_warps, 90, shared)

    # -- building
    def asm(self, text, constraints="", *args, result=None):
        return self.b.inline_asm(text, ",".join(c for c in (constraints, "~{memory}") if c), result, list(args))

    def barrier(self):
        self.hooks.barrier(self.b)

    def i(self, value):
        return self.b.i32(value)

    def shared_pointer(self, offset):
        b = self.b
        return b.gep(b.address_of("global_smem", 3), offset if not isinstance(offset, int) else b.i32(offset), b.t_i8)

    def word(self, pointer, index):
        """Pointer to the 32-bit word ``index``."""
        return self.b.gep(pointer, index, self.b.t_i32)

    def one_thread(self, thread, build):
        self.b.if_then(self.b.icmp("eq", self.tid, self.i(thread)), build)

    def fill(self, source, size):
        """All threads copy ``size`` bytes (a multiple of 16 a thread) of global memory to shared memory by ordinary stores."""
        b, threads = self.b, 32 * self.num_warps
        vector = b.vec(4, b.t_i32)
        mine = b.mul(self.tid, self.i(16))
        for at in range(0, size, 16 * threads):
            offset = b.add(mine, self.i(at))
            b.store(b.load(b.gep(source, offset, b.t_i8), vector, align=16), self.shared_pointer(offset), align=16)

    def loop(self, count, carried, build):
        """``build(i, values) → values`` for i in 0 … count - 1 (an i32 value); returns the last values."""
        b = self.b
        types = [b.t_i32, *(v.type for v in carried)]
        head = b.block(types)
        inside = b.block(after=head)
        after = b.block(after=inside)
        b.br(head, [self.i(0), *carried])
        b.set_block(head)
        i, *values = head.arguments
        b.cond_br(b.icmp("slt", i, count), inside, after)
        b.set_block(inside)
        new = build(i, list(values))
        b.br(head, [b.add(i, self.i(1)), *new])
        b.set_block(after)
        return list(values)

    # -- Hopper
    def init_barriers(self, barriers):
        """{byte: count}, by thread 0, and a barrier of all."""
        def init():
            for at, count in barriers.items():
                self.asm(f"mbarrier.init.shared::cta.b64 [$0], {count};", "r", self.i(at))
            self.asm("fence.mbarrier_init.release.cluster;")
        self.one_thread(0, init)
        self.barrier()

    def wait(self, bar, parity):
        self.asm("{\n.reg .pred P1;\nW${:uid}:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [$0], $1;\n@P1 bra D${:uid};\nbra W${:uid};\nD${:uid}:\n}",
                 "r,r", bar, parity)

    def expect(self, bar, size):
        self.asm(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {size};", "r", bar)

    def arrive(self, bar):
        self.asm("mbarrier.arrive.shared::cta.b64 _, [$0];", "r", bar)

    def load_box(self, at, tensor_map, coords, bar):
        """coords: innermost first."""
        n = len(coords)
        names = ", ".join(f"${2 + i}" for i in range(n))
        self.asm(f"cp.async.bulk.tensor.{n}d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {{{names}}}], [${2 + n}];",
                 ",".join(["r", "l", *["r"] * n, "r"]), at, tensor_map, *coords, bar)

    def store_box(self, tensor_map, coords, at, reduce=""):
        n = len(coords)
        names = ", ".join(f"${1 + i}" for i in range(n))
        kind = f"cp.reduce.async.bulk.tensor.{n}d.global.shared::cta.{reduce}.bulk_group" if reduce else \
            f"cp.async.bulk.tensor.{n}d.global.shared::cta.bulk_group"
        self.asm(f"{kind} [$0, {{{names}}}], [${1 + n}];", ",".join(["l", *["r"] * n, "r"]), tensor_map, *coords, at)

    # -- running
    def executor(self, **checks):
        with mlir_context():
            return SimtExecutor(self.module, "k", 32 * self.num_warps, 32, self.shared, semantics(), **{"check_uninitialised": True, **checks})

    def simulate(self, *args, grid=(1,), **checks):
        self.executor(**checks).run(grid, [Opaque(a) if hasattr(a, "box") else a for a in args], whole_process=True)


# ------------------------------------------------------------------------------------------ shared-memory images
def chunk_of(chunk, row, width):
    """Where the manual's pictures put 16-byte piece ``chunk`` of row ``row`` of a swizzle of ``width`` bytes."""
    lines = {128: row % 8, 64: row // 2 % 4, 32: row // 4 % 2}
    return chunk ^ lines[width] if width else chunk


def put_matrix(image, start, matrix, width, k_major, leading, stride):
    """Write ``matrix`` [mn, k] (any type) so that a descriptor of these offsets describes it; 16 bytes at a time."""
    item = matrix.dtype.itemsize
    per = 16 // item
    rows = matrix if k_major else matrix.T  # what is contiguous comes last
    for r in range(rows.shape[0]):
        for c in range(rows.shape[1] // per):
            piece = np.ascontiguousarray(rows[r, c * per:(c + 1) * per]).view(np.uint8)
            if not width and k_major:
                at = r // 8 * stride + c * leading + r % 8 * 16
            elif not width:
                at = r // 8 * leading + c * stride + r % 8 * 16
            elif k_major:
                at = r // 8 * stride + r % 8 * width + chunk_of(c, r % 8, width) * 16
            else:
                line = width // 16
                at = r // 8 * stride + c // line * leading + r % 8 * width + chunk_of(c % line, r % 8, width) * 16
            image[start + at:start + at + 16] = piece


def descriptor(start, leading, stride, width):
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | {0: 0, 128: 1, 64: 2, 32: 3}[width] << 62


def box_image(box, swizzle):
    """Bytes of shared memory that hold ``box`` (innermost last) from an aligned start, row after row."""
    rows = np.ascontiguousarray(box).view(np.uint8).reshape(-1, box.shape[-1] * box.dtype.itemsize)
    out = np.zeros(rows.size, np.uint8)
    width = rows.shape[1]
    for r, row in enumerate(rows):
        for c in range(width // 16):
            at = r * width + c * 16
            line = at // 128
            piece = at // 16 % 8 ^ {0: 0, 32: line % 2, 64: line % 4, 128: line % 8}[swizzle]
            out[line * 128 + piece * 16:line * 128 + piece * 16 + 16] = row[c * 16:c * 16 + 16]
    return out
