"""What machine code does of a NativeCall, in Python."""

import ctypes
import struct

from tilewright.targets import kernel_arguments

# of each of struct's letters one at its limits
_VALUES = {"b": -3, "B": 200, "h": -300, "H": 60000, "i": -(1 << 31), "I": 1 << 31, "q": -(1 << 63), "Q": 1 << 63, "f": 1.5, "d": 0.1, "?": True, "e": 0.5}
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 11)


def some_arguments(rng):
    """(signature, struct's letters, values) of up to 24 arguments of any type."""
    signature = [rng.choice(["*fp32", *kernel_arguments.FORMATS]) for _ in range(rng.randint(0, 24))]
    letters = kernel_arguments.letters(signature)
    return signature, letters, tuple(_VALUES[c] for c in letters)


def perform(call, grid, stream, handle, args):
    """The status of the C function; None where the launcher itself would have to be called."""
    memory = ctypes.create_string_buffer(call.memory, len(call.memory))
    base = ctypes.addressof(memory)
    assert len(args) == len(call.parameters) and base % 8 == 0
    for (letter, offset), value in zip(call.parameters, args):
        struct.pack_into("=" + letter, memory, offset, value)
    if call.planned is not None:
        plan = call.planned
        first, end = plan.region
        assert first % 8 == end % 8 == 0 and all(first <= o and o + struct.calcsize("=" + c) <= end for c, o in call.parameters)
        decided = plan.look(args, grid)
        if decided is None:
            return None
        room = -(-len(decided) // 32) * 32
        assert plan.extra_at + room <= len(memory)
        memory[plan.extra_at:plan.extra_at + room] = decided.ljust(room, b"\0")
    for where, target in call.pointers:
        struct.pack_into("=Q", memory, where, base + target)
    struct.pack_into("=Q", memory, call.stream_at, stream)
    struct.pack_into("=Q", memory, call.handle_at, call.handle_of(handle))
    blocks = grid
    if call.persistent is not None:
        at, cluster, most = call.persistent
        total = grid[0] * grid[1] * grid[2]
        if total >= 1 << 31:
            return None
        struct.pack_into("=3i", memory, at, *grid)
        blocks = min(-(-total // cluster), most(handle)) * cluster, 1, 1
    if grid[0] > call.most_x:
        return None
    for at, n in zip(call.grid_at, blocks):
        struct.pack_into("=I", memory, at, n)
    return _FUNCTION(call.function)(*struct.unpack_from("=11Q", memory))
