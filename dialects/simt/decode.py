"""Turn each LLVM operation into a closure ``run(env, machine)`` over numbered value slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.dialects._mlir import ir
from tilewright.dialects.simt.machine import AtomicOrder, Machine
from tilewright.dialects.simt.memory import SHARED_WINDOW, SimtError
from tilewright.dialects.simt.scalar_ops import FUNCTIONS, OpInfo, intrinsic_function
from tilewright.dialects.simt.values import NONE, VType, constant, signed, vtype, zeros

Array = Any
Run = Callable[[list[Any], Machine], None]
Moves = list[tuple[int, int]]  # (from slot, to slot)

_DYNAMIC = -2147483648
_ATOMIC_BIN_OPS = ["xchg", "add", "sub", "and", "nand", "or", "xor", "max", "min", "umax", "umin", "fadd", "fsub", "fmax",
                   "fmin", "uinc_wrap", "udec_wrap"]


@dataclass
class Block:
    ops: list[Run] = field(default_factory=list)
    masked: list[tuple[Run, tuple[int, ...]]] = field(default_factory=list)  # with the slots each defines
    names: dict[Run, tuple[str, Any]] = field(default_factory=dict)
    terminator: Any = None  # Callable[[env, Machine], list[(target block, threads that go there, Moves)]]
    waits: bool = False  # the terminator is one operation, at which threads may stay


@dataclass
class Function:
    name: str
    argument_types: list[VType]
    argument_slots: list[int]
    constants: list[Any]  # initial env
    blocks: list[Block]
    own: list[tuple[int, int]] = field(default_factory=list)  # (slot of a constant address, bytes): each block of a group has its own


def reverse_post_order(successors: Sequence[Sequence[int]]) -> list[int]:
    """Block numbers such that each comes after its predecessors but for loops, a loop's blocks before what follows it.

    Running the lowest active one first makes threads meet again as early as possible, so that a barrier after a branch
    or loop sees all of them.
    """
    loops = _loops(successors)
    order: list[int] = []
    state = [0] * len(successors)

    def inner_last(block: int) -> Any:
        """Successors, those that leave the most loops first: what is visited first comes last."""
        return iter(sorted(successors[block], key=lambda s: -sum(block in body and s not in body for body in loops)))

    # Iterative: long kernels have thousands of blocks.
    stack = [(0, inner_last(0))] if successors else []
    if stack:
        state[0] = 1
    while stack:
        block, rest = stack[-1]
        for s in rest:
            if not state[s]:
                state[s] = 1
                stack.append((s, inner_last(s)))
                break
        else:
            order.append(block)
            stack.pop()
    return order[::-1]


def _loops(successors: Sequence[Sequence[int]]) -> list[set[int]]:
    """Natural loops' bodies, one a header."""
    predecessors: list[list[int]] = [[] for _ in successors]
    for b, out in enumerate(successors):
        for s in out:
            predecessors[s].append(b)
    back: dict[int, set[int]] = {}
    state = [0] * len(successors)
    stack: list[tuple[int, Any]] = [(0, iter(successors[0]))] if successors else []
    if stack:
        state[0] = 1
    while stack:
        block, rest = stack[-1]
        for s in rest:
            if state[s] == 0:
                state[s] = 1
                stack.append((s, iter(successors[s])))
                break
            if state[s] == 1:
                back.setdefault(s, set()).add(block)
        else:
            state[block] = 2
            stack.pop()
    bodies = []
    for header, latches in back.items():
        body, todo = {header}, list(latches)
        while todo:
            b = todo.pop()
            if b not in body:
                body.add(b)
                todo.extend(predecessors[b])
        bodies.append(body)
    return bodies


class _Decoder:
    def __init__(self, executor: Any, threads: int):
        self.executor, self.threads = executor, threads
        self.slots: dict[Any, int] = {}
        self.constants: list[Any] = []
        self.types: dict[Any, VType] = {}
        self.waiting: set[Any] = set()  # the runs that return the threads that go on
        self.true = np.ones(threads, bool)
        self.own: list[tuple[int, int]] = []

    def slot(self, value: Any) -> int:
        s = self.slots.get(value)
        if s is None:
            s = self.slots[value] = len(self.constants)
            self.constants.append(None)
        return s

    def type_of(self, t: Any) -> VType:
        v = self.types.get(t)
        if v is None:
            v = self.types[t] = vtype(t)
        return v

    # ------------------------------------------------------------------------------------------------ one operation
    def decode(self, op: Any) -> Run | None:
        """None for constants, whose value is in the initial env."""
        name = op.name
        handler = _HANDLERS.get(name)
        if handler is not None:
            return handler(self, op)
        short = name.removeprefix("llvm.")
        make = FUNCTIONS.get(short)
        if make is None and short.startswith("intr."):
            make = intrinsic_function(name)
        if make is None:
            raise SimtError(f"operation {name} is unknown to the SIMT executor")
        return self.pure(op, make(self.info(op)))

    def info(self, op: Any) -> OpInfo:
        result = self.type_of(op.results[0].type) if len(op.results) else NONE
        return OpInfo(op.name, tuple(self.type_of(o.type) for o in op.operands), result, op.attributes)

    def pure(self, op: Any, f: Callable[..., Any]) -> Run:
        d = self.slot(op.results[0])
        args = [self.slot(o) for o in op.operands]
        if len(args) == 1:
            a = args[0]

            def run1(env: list[Any], m: Machine) -> None:
                env[d] = f(env[a])
            return run1
        if len(args) == 2:
            a, b = args

            def run2(env: list[Any], m: Machine) -> None:
                env[d] = f(env[a], env[b])
            return run2

        def run(env: list[Any], m: Machine) -> None:
            env[d] = f(*[env[s] for s in args])
        return run

    def set_constant(self, op: Any, value: Any) -> None:
        self.constants[self.slot(op.results[0])] = value

    # ---------------------------------------------------------------------------------------------------- handlers
    def mlir_constant(self, op: Any) -> None:
        self.set_constant(op, constant(op.attributes["value"], self.type_of(op.results[0].type), self.threads))

    def zero(self, op: Any) -> None:
        self.set_constant(op, zeros(self.type_of(op.results[0].type), self.threads))

    def addressof(self, op: Any) -> None:
        name = ir.FlatSymbolRefAttr(op.attributes["global_name"]).value
        if name not in self.executor.globals:
            raise SimtError(f"address of {name}, which the SIMT executor does not hold")
        self.set_constant(op, np.full(self.threads, self.executor.globals[name], np.uint64))

    def getelementptr(self, op: Any) -> Run:
        t = self.type_of(ir.TypeAttr(op.attributes["elem_type"]).value)
        indices = list(op.attributes["rawConstantIndices"])
        d, base = self.slot(op.results[0]), self.slot(op.operands[0])
        dynamic = iter(list(op.operands)[1:])
        offset, terms = 0, []
        for position, index in enumerate(indices):
            if position == 0:
                stride = t.nbytes
            elif t.kind == "struct":
                offset += sum(_padded(t, i) for i in range(index)) if index else 0
                t = t.members[index]
                continue
            else:
                t = t.members[0] if t.kind == "array" else t.scalar
                stride = t.nbytes
            if index == _DYNAMIC:
                terms.append((self.slot(next(dynamic)), stride))
            else:
                offset += index * stride
        fixed = np.uint64(offset & (1 << 64) - 1)
        if len(terms) == 1:
            s, stride = terms[0]
            step = np.int64(stride)

            def run1(env: list[Any], m: Machine) -> None:
                env[d] = env[base] + (signed(env[s]).astype(np.int64) * step).view(np.uint64) + fixed
            return run1

        def run(env: list[Any], m: Machine) -> None:
            out = env[base] + fixed
            for s, stride in terms:
                out = out + (signed(env[s]).astype(np.int64) * np.int64(stride)).view(np.uint64)
            env[d] = out
        return run

    def alloca(self, op: Any) -> None:
        """Each thread has its own copy, in memory that lives as long as the executor."""
        count = self._constant_index(op.operands[0])
        if count is None:
            raise SimtError("an alloca of a size that is not constant")
        t = self.type_of(ir.TypeAttr(op.attributes["elem_type"]).value)
        size = -(-t.nbytes * count // 16) * 16
        self.own.append((self.slot(op.results[0]), size * self.threads))
        self.set_constant(op, self.executor.local_memory(size) + np.arange(self.threads, dtype=np.uint64) * np.uint64(size))

    def load(self, op: Any) -> Run:
        t, space = self.type_of(op.results[0].type), self.type_of(op.operands[0].type).space
        align = op.attributes["alignment"].value if "alignment" in op.attributes else 1
        d, p, place = self.slot(op.results[0]), self.slot(op.operands[0]), self.executor.place(op)

        def run(env: list[Any], m: Machine) -> None:
            m.place = place
            env[d] = m.load(env[p], t, space, align)
        return run

    def store(self, op: Any) -> Run:
        t, space = self.type_of(op.operands[0].type), self.type_of(op.operands[1].type).space
        align = op.attributes["alignment"].value if "alignment" in op.attributes else 1
        v, p, place = self.slot(op.operands[0]), self.slot(op.operands[1]), self.executor.place(op)

        def run(env: list[Any], m: Machine) -> None:
            m.place = place
            m.store(env[p], env[v], t, space, align)
        return run

    def addrspacecast(self, op: Any) -> Run:
        source, to = self.type_of(op.operands[0].type).space, self.type_of(op.results[0].type).space
        window = np.uint64(SHARED_WINDOW)
        if source == 3 and to != 3:
            return self.pure(op, lambda a: a + window)
        if to == 3 and source != 3:
            return self.pure(op, lambda a: a - window)
        return self.pure(op, lambda a: a)

    def atomicrmw(self, op: Any) -> Run:
        t, space = self.type_of(op.operands[1].type), self.type_of(op.operands[0].type).space
        kind = _ATOMIC_BIN_OPS[op.attributes["bin_op"].value]
        d, p, v = self.slot(op.results[0]), self.slot(op.operands[0]), self.slot(op.operands[1])
        order, place = _atomic_order(op, "ordering"), self.executor.place(op)

        def run(env: list[Any], m: Machine) -> None:
            m.place = place
            env[d] = m.atomic_rmw(kind, env[p], env[v], t, space, order=order)
        return run

    def cmpxchg(self, op: Any) -> Run:
        t, space = self.type_of(op.operands[1].type), self.type_of(op.operands[0].type).space
        d, (p, c, v) = self.slot(op.results[0]), [self.slot(o) for o in op.operands]
        order, place = _atomic_order(op, "success_ordering"), self.executor.place(op)

        def run(env: list[Any], m: Machine) -> None:
            m.place = place
            old = m.atomic_cas(env[p], env[c], env[v], t, space, order=order)
            env[d] = (old, old == env[c])
        return run

    def insertvalue(self, op: Any) -> Run:
        position = list(op.attributes["position"])

        def put(struct: tuple[Any, ...], value: Any, path: list[int]) -> tuple[Any, ...]:
            i = path[0]
            new = value if len(path) == 1 else put(struct[i], value, path[1:])
            return (*struct[:i], new, *struct[i + 1:])

        return self.pure(op, lambda struct, value: put(struct, value, position))

    def extractvalue(self, op: Any) -> Run:
        position = list(op.attributes["position"])
        if len(position) == 1:
            i = position[0]
            return self.pure(op, lambda struct: struct[i])

        def get(struct: Any) -> Any:
            for i in position:
                struct = struct[i]
            return struct

        return self.pure(op, get)

    def _constant_index(self, value: Any) -> int | None:
        known = self.constants[self.slot(value)]
        return None if known is None else int(known[0])

    def insertelement(self, op: Any) -> Run:
        i, rows = self._constant_index(op.operands[2]), np.arange(self.threads)
        if i is None:
            def put(vector: Array, value: Array, index: Array) -> Array:
                out = vector.copy()
                out[rows, index] = value
                return out
        else:
            def put(vector: Array, value: Array, index: Array) -> Array:
                out = vector.copy()
                out[:, i] = value
                return out
        return self.pure(op, put)

    def extractelement(self, op: Any) -> Run:
        i, rows = self._constant_index(op.operands[1]), np.arange(self.threads)
        if i is None:
            return self.pure(op, lambda vector, index: vector[rows, index])
        return self.pure(op, lambda vector, index: vector[:, i].copy())

    def shufflevector(self, op: Any) -> Run:
        mask = [max(0, i) for i in op.attributes["mask"]]
        return self.pure(op, lambda a, b: np.concatenate([a, b], axis=1)[:, mask])

    def nothing(self, op: Any) -> Run:
        return lambda env, m: None

    def call_by_text(self, op: Any, text: str, constraints: str = "") -> Run:
        operands = tuple(self.type_of(o.type) for o in op.operands)
        result = self.type_of(op.results[0].type) if len(op.results) else NONE
        f = self.executor.semantics_for(text, constraints, operands, result)
        if f is None:
            make = intrinsic_function(text) if text.startswith("llvm.") else None
            if make is None:
                raise SimtError(f"no semantics for {text!r}" + (f" with constraints {constraints!r}" if constraints else ""))
            return self.pure(op, make(OpInfo(text, operands, result, {})))
        args = [self.slot(o) for o in op.operands]
        place = self.executor.place(op, text)
        if getattr(f, "waits", False):
            if len(op.results):
                raise SimtError("an operation that waits and has results is not simulated")

            def run_wait(env: list[Any], m: Machine) -> Array:
                return f(m, *[env[a] for a in args])
            self.waiting.add(run_wait)
            return run_wait
        if not len(op.results):
            def run(env: list[Any], m: Machine) -> None:
                m.place = place
                f(m, *[env[a] for a in args])
            return run
        d = self.slot(op.results[0])

        def run_result(env: list[Any], m: Machine) -> None:
            m.place = place
            env[d] = f(m, *[env[a] for a in args])
        return run_result

    def call_intrinsic(self, op: Any) -> Run:
        return self.call_by_text(op, op.attributes["intrin"].value)

    def inline_asm(self, op: Any) -> Run:
        return self.call_by_text(op, op.attributes["asm_string"].value, op.attributes["constraints"].value)

    def fence(self, op: Any) -> Run:
        return self.nothing(op)

    def call(self, op: Any) -> Run:
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value if "callee" in op.attributes else ""
        function = self.executor.callee(name) if name else None
        if function is None:
            return self.call_by_text(op, name)
        executor = self.executor
        args = [self.slot(o) for o in op.operands]
        results = [self.slot(r) for r in op.results]

        def run(env: list[Any], m: Machine) -> None:
            out = executor.call(function, [env[a] for a in args], m)
            for s, value in zip(results, out or []):
                env[s] = value
        return run

    # ------------------------------------------------------------------------------------------------- terminators
    def terminator(self, op: Any, number: dict[Any, int]) -> Callable[[list[Any], Machine], list[tuple[int, Array, Moves]]]:
        operands = [self.slot(o) for o in op.operands]
        successors = list(op.successors)
        if op.name == "llvm.return":
            moves = [(s, -1) for s in operands]
            return lambda env, m: [(-1, m.mask, moves)]
        if op.name == "llvm.unreachable":
            def fail(env: list[Any], m: Machine) -> list[tuple[int, Array, Moves]]:
                raise SimtError("reached llvm.unreachable")
            return fail
        targets = [number[b] for b in successors]
        if op.name == "llvm.br":
            moves = list(zip(operands, [self.slot(a) for a in successors[0].arguments]))
            return lambda env, m: [(targets[0], m.mask, moves)]
        if op.name != "llvm.cond_br":
            raise SimtError(f"terminator {op.name} is unknown to the SIMT executor")
        sizes = list(op.attributes["operandSegmentSizes"])
        c = operands[0]
        yes = list(zip(operands[1:1 + sizes[1]], [self.slot(a) for a in successors[0].arguments]))
        no = list(zip(operands[1 + sizes[1]:], [self.slot(a) for a in successors[1].arguments]))

        def branch(env: list[Any], m: Machine) -> list[tuple[int, Array, Moves]]:
            taken = env[c] if m.full else env[c] & m.mask
            if not taken.any():
                return [(targets[1], m.mask, no)]
            other = ~taken if m.full else m.mask & ~taken
            if not other.any():
                return [(targets[0], m.mask, yes)]
            return [(targets[0], taken, yes), (targets[1], other, no)]
        return branch


def _atomic_order(op: Any, name: str) -> AtomicOrder:
    """What an attribute says by the numbers of LLVM's AtomicOrdering: 4 acquire, 5 release, 6 both, 7 sequentially consistent."""
    ordering = op.attributes[name].value
    return AtomicOrder(ordering in (4, 6, 7), ordering in (5, 6, 7))


def _padded(t: VType, member: int) -> int:
    """Bytes from struct member ``member`` to the next one's start."""
    end, starts = 0, []
    for m in t.members:
        end = -(-end // m.alignment) * m.alignment
        starts.append(end)
        end += m.nbytes
    return starts[member + 1] - starts[member]


_HANDLERS: dict[str, Callable[[_Decoder, Any], Run | None]] = {
    "llvm.mlir.constant": _Decoder.mlir_constant, "llvm.mlir.undef": _Decoder.zero, "llvm.mlir.poison": _Decoder.zero,
    "llvm.mlir.zero": _Decoder.zero, "llvm.mlir.addressof": _Decoder.addressof, "llvm.getelementptr": _Decoder.getelementptr,
    "llvm.alloca": _Decoder.alloca, "llvm.load": _Decoder.load, "llvm.store": _Decoder.store, "llvm.addrspacecast": _Decoder.addrspacecast,
    "llvm.atomicrmw": _Decoder.atomicrmw, "llvm.cmpxchg": _Decoder.cmpxchg, "llvm.insertvalue": _Decoder.insertvalue,
    "llvm.extractvalue": _Decoder.extractvalue, "llvm.insertelement": _Decoder.insertelement,
    "llvm.extractelement": _Decoder.extractelement, "llvm.shufflevector": _Decoder.shufflevector,
    "llvm.call_intrinsic": _Decoder.call_intrinsic, "llvm.inline_asm": _Decoder.inline_asm, "llvm.call": _Decoder.call,
    "llvm.fence": _Decoder.fence, "llvm.intr.assume": _Decoder.nothing,
}


# What has one value for the whole run.
_CONSTANTS = frozenset({"llvm.mlir.constant", "llvm.mlir.undef", "llvm.mlir.poison", "llvm.mlir.zero", "llvm.mlir.addressof",
                        "llvm.alloca"})


def decode_function(executor: Any, func: Any, threads: int) -> Function:
    """Decode ``llvm.func`` ``func``."""
    decoder = _Decoder(executor, threads)
    blocks = list(func.regions[0].blocks)
    position = {b: i for i, b in enumerate(blocks)}
    per_block: list[list[Any]] = [[op.operation for op in b.operations] for b in blocks]
    order = reverse_post_order([[position[s] for s in ops[-1].successors] for ops in per_block])
    arguments = list(blocks[0].arguments)
    out = Function(func.attributes["sym_name"].value, [vtype(a.type) for a in arguments],
                   [decoder.slot(a) for a in arguments], decoder.constants, [], decoder.own)
    ends: list[tuple[Block, Any]] = []
    # Constants first: an op may come before its constant's block in the order.
    for ops in per_block:
        for op in ops:
            if op.name in _CONSTANTS:
                decoder.decode(op)
    # An operation that waits is a block of its own, in which threads stay; so a block's number is known after decoding.
    number: dict[Any, int] = {}
    for b in order:
        number[blocks[b]] = len(out.blocks)
        block = Block()
        for op in per_block[b][:-1]:
            if op.name in _CONSTANTS:
                continue
            try:
                run = decoder.decode(op)
            except SimtError as e:
                raise SimtError(f"{e} [{op.name} at {op.location}]") from None
            assert run is not None
            if run in decoder.waiting:
                here = len(out.blocks)
                block.terminator = _go_on(here + 1)
                wait = Block(terminator=_wait(run, here + 1, here + 2), waits=True)
                wait.names[wait.terminator] = (op.name, op.location)
                out.blocks += [block, wait]
                block = Block()
                continue
            block.ops.append(run)
            block.masked.append((run, tuple(decoder.slot(r) for r in op.results)))
            block.names[run] = (op.name, op.location)
        out.blocks.append(block)
        ends.append((block, per_block[b][-1]))
    for block, op in ends:
        block.terminator = decoder.terminator(op, number)
    return out


def _go_on(target: int) -> Any:
    return lambda env, m: [(target, m.mask, [])]


def _wait(run: Any, here: int, after: int) -> Any:
    def terminator(env: list[Any], m: Machine) -> list[tuple[int, Array, Moves]]:
        passed = run(env, m)
        stay = m.mask & ~passed
        if not stay.any():
            return [(after, m.mask, [])]
        return [(here, stay, []), (after, passed, [])] if passed.any() else [(here, stay, [])]
    return terminator
