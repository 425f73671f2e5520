"""NVIDIA's answers to the shared lowering: PTX by intrinsic or inline assembly.

Assembly is written for sm_80 and later, from the PTX ISA manual; ``simulate`` holds its meaning, written separately. Where a
plain LLVM instruction says the same (an unpredicated load without hints), that is emitted, so that LLVM sees through it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from tilewright.dialects._mlir import ir, llvm
from tilewright.dialects.errors import InternalCompilerError, UnsupportedOnTargetError
from tilewright.dialects.lowering.atomics import compare_and_swap_loop
from tilewright.dialects.lowering.conversions import f32_to_bf16
from tilewright.dialects.lowering.hooks import PrintedValues, TargetHooks
from tilewright.dialects.matrix_ops import MatrixOp
from tilewright.dialects.pass_runner import place_of
from tilewright.targets.nvidia.emit import ASM_MARK
from tilewright.targets.nvidia.lower_math import MATH

_LOAD_CACHE = {"ca": ".ca", "cg": ".cg", "cs": ".cs", "cv": ".cv"}
_STORE_CACHE = {"wb": ".wb", "cg": ".cg", "cs": ".cs", "wt": ".wt"}
_EVICT = {"evict_first": "evict_first", "evict_last": "evict_last"}
_REGISTER = {16: "h", 32: "r", 64: "l"}  # LLVM's constraint letters


@cache
def _int_width(text: str) -> int:
    return {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}.get(text) or (int(text[1:]) if text[0] == "i" else 64)


def width_of(t: Any) -> int:
    """Bits of a scalar or vector LLVM type (pointers: 64)."""
    if isinstance(t, ir.VectorType):
        return t.shape[0] * width_of(t.element_type)
    if isinstance(t, llvm.PointerType):
        return 32 if t.address_space == 3 else 64
    return _int_width(str(t))


def _i(bits: int) -> Any:
    return ir.IntegerType.get_signless(bits)


def words_of(t: Any) -> tuple[int, int]:
    """(count, bits) of the registers that hold a value of this type in memory instructions."""
    total = width_of(t)
    element = width_of(t.element_type) if isinstance(t, ir.VectorType) else total
    word = 64 if element == 64 else min(32, total)
    return total // word, word


def asm_results(b: Any, text: str, constraints: str, types: Sequence[Any], args: Sequence[Any], side_effects: bool) -> list[Any]:
    """Inline assembly with any number of results."""
    if len(types) == 1:
        return [b.inline_asm(text, constraints, types[0], list(args), side_effects=side_effects)]
    struct = b.inline_asm(text, constraints, b.struct(list(types)), list(args), side_effects=side_effects)
    return [b.extract_value(struct, i) for i in range(len(types))]


class NvidiaHooks(TargetHooks):
    """``sm``: 80, 90, …"""

    warp_size = 32
    has_async_copy = True
    math = MATH
    # PTX ISA, "cvt": out of range gives the nearest integer; NaN gives 0 where neither type has 64 bits
    saturating_casts = MappingProxyType({("fptosi", "f32", "i32"): "llvm.nvvm.f2i.rz", ("fptoui", "f32", "i32"): "llvm.nvvm.f2ui.rz"})

    def __init__(self, sm: int, options: Any = None):
        self.sm, self.options = sm, options
        self._words: dict[Any, tuple[list[Any], Any]] = {}  # first element → (elements, the 32-bit word they came from)
        # Warp specialisation (lower_warp_specialize): warps beside the kernel's own, how many blocks a multiprocessor must take,
        # the hardware barrier and threads that hooks.barrier means now (None: all), and whether one thread alone runs this code.
        self.extra_warps = self.min_ctas = 0
        self.cluster = 1  # blocks of a cluster
        self.program_threads = 0
        self.named_barrier: tuple[int, int] | None = None
        self.single_thread = False

    # ------------------------------------------------------------------------------------------------------ kernel
    def prepare_kernel(self, function: Any, num_warps: int) -> None:
        from tilewright.targets.nvidia.lower_warp_specialize import cluster_of, specialisation_of

        self.program_threads = 32 * num_warps
        self.cluster = cluster_of(function)
        self.extra_warps, self.min_ctas = specialisation_of(function)

    def descriptor_argument(self) -> tuple[Any, dict[str, Any]]:
        """A CUtensorMap by value: 128 bytes, 64-byte aligned, in the kernel's parameters, which the copy engine reads in place (CUDA
        driver API, "Tensor Map Object Management"; CUDA programming guide, "__grid_constant__")."""
        if self.sm < 90:
            raise UnsupportedOnTargetError(f"nvidia: sm_{self.sm} has no bulk tensor copies; sm_90 and later have them")
        array = ir.TypeAttr.get(ir.Type.parse("!llvm.array<128 x i8>"))
        return ir.Type.parse("!llvm.ptr"), {"llvm.byval": array, "llvm.align": ir.IntegerAttr.get(_i(64), 64),
                                            "nvvm.grid_constant": ir.UnitAttr.get()}

    def declare_kernel(self, b: Any, func: Any, num_warps: int) -> None:
        func.attributes["CConv"] = ir.Attribute.parse("#llvm.cconv<ptx_kernelcc>")
        func.attributes["nvvm.kernel"] = ir.UnitAttr.get()  # grid constants are allowed in kernels alone
        text = [("nvvm.reqntid", str(32 * (num_warps + self.extra_warps)))]
        maxnreg = getattr(self.options, "maxnreg", None)
        if maxnreg:
            text.append(("nvvm.maxnreg", str(maxnreg)))
        elif self.min_ctas:
            text.append(("nvvm.minctasm", str(self.min_ctas)))
        if self.cluster > 1:
            text.append(("nvvm.cluster_dim", f"{self.cluster},1,1"))
        pairs = [ir.ArrayAttr.get([ir.StringAttr.get(k), ir.StringAttr.get(v)]) for k, v in text]
        func.attributes["passthrough"] = ir.ArrayAttr.get(pairs)

    # -------------------------------------------------------------------------------------------------- inline assembly
    def check_inline_asm(self, asm: str, constraints: str, results: Sequence[str], operands: Sequence[str], location: Any) -> str:
        known = r"(?:=?&?[bchrlqfdnN]|\d+|~\{[^}]*\}|[in])"
        for part in constraints.split(","):
            if not re.fullmatch(known, part.strip()):
                raise UnsupportedOnTargetError(f"the constraint {part.strip()!r} of inline assembly is none of PTX's: b (predicate), h (16 bits), "
                                               "r (32), l (64), q (128), f (float), d (double), n (constant), with = for results. "
                                               "Assembly of other targets stands under `if` with the functions of tl.target_info")
        place = place_of(location)  # ptxas reports lines of PTX: emit.py finds the user's by this
        return asm if place is None else f"{ASM_MARK} {':'.join(map(str, place))}\n".replace("$", "$$") + asm

    def asm_register_bits(self, letter: str) -> int:
        return 16 if letter == "h" else 32

    # ------------------------------------------------------------------------------------------- printing, asserting
    def print_values(self, b: Any, text: str, hex: bool, printed: PrintedValues | None) -> None:
        from tilewright.targets.nvidia import lower_debug

        lower_debug.print_values(self, b, text, hex, printed)

    def assert_failed(self, b: Any, message: str) -> None:
        from tilewright.targets.nvidia import lower_debug

        lower_debug.assert_failed(b, message)

    # ----------------------------------------------------------------------------------------------------- indices
    def thread_id(self, b: Any) -> Any:
        """The thread's number in the program. Producer warps count as the first of the program's own: what they execute before they
        part from the others, they repeat."""
        thread = self.raw_thread_id(b)
        return b.and_(thread, b.i32(self.program_threads - 1)) if self.extra_warps else thread

    def thread_id_anew(self, b: Any) -> Any:
        thread = b.inline_asm("mov.u32 $0, %tid.x;", "=r", _i(32))  # has side effects, as far as LLVM knows
        return b.and_(thread, b.i32(self.program_threads - 1)) if self.extra_warps else thread

    def raw_thread_id(self, b: Any) -> Any:
        """The thread's number in the block, producers included."""
        return b.call_intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", _i(32), [])

    def program_id(self, b: Any, axis: int) -> Any:
        return b.call_intrinsic(f"llvm.nvvm.read.ptx.sreg.ctaid.{'xyz'[axis]}", _i(32), [])

    def program_id_anew(self, b: Any, axis: int) -> Any:
        return b.inline_asm(f"mov.u32 $0, %ctaid.{'xyz'[axis]};", "=r", _i(32))

    def num_programs(self, b: Any, axis: int) -> Any:
        return b.call_intrinsic(f"llvm.nvvm.read.ptx.sreg.nctaid.{'xyz'[axis]}", _i(32), [])

    # --------------------------------------------------------------------------------------------- synchronisation
    def barrier(self, b: Any) -> None:
        if self.single_thread:
            raise InternalCompilerError("nvidia: a barrier of the program in code that one thread alone runs")
        if self.named_barrier is not None:
            number, threads = self.named_barrier
            b.call_intrinsic("llvm.nvvm.barrier.cta.sync.aligned.count", None, [b.i32(number), b.i32(threads)])
            return
        b.call_intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", None, [b.i32(0)])

    def warp_barrier(self, b: Any) -> None:
        b.call_intrinsic("llvm.nvvm.bar.warp.sync", None, [b.i32(-1)])

    # ------------------------------------------------------------------------------------------------------- lanes
    def shuffle_xor(self, b: Any, value: Any, mask: int) -> Any:
        return b.call_intrinsic("llvm.nvvm.shfl.sync.bfly.i32", _i(32), [b.i32(-1), value, b.i32(mask), b.i32(31)])

    def shuffle_idx(self, b: Any, value: Any, lane: Any) -> Any:
        return b.call_intrinsic("llvm.nvvm.shfl.sync.idx.i32", _i(32), [b.i32(-1), value, lane, b.i32(31)])

    # ----------------------------------------------------------------------------------------------- global memory
    def _to_words(self, b: Any, value: Any, count: int, word: int) -> list[Any]:
        """A value as ``count`` integers of ``word`` bits (bytes widened to 16, the narrowest register)."""
        t = _i(word) if count == 1 else ir.VectorType.get([count], _i(word))
        if isinstance(value.type, llvm.PointerType):
            value = b.ptrtoint(value, _i(64))
        if value.type != t:
            value = b.bitcast(value, t)
        out = [value] if count == 1 else list(b.unpack_vector(value, count))
        return [b.zext(v, _i(16)) for v in out] if word == 8 else out

    def _from_words(self, b: Any, words: list[Any], t: Any, word: int) -> Any:
        if word == 8:
            words = [b.trunc(w, _i(8)) for w in words]
        value = words[0] if len(words) == 1 else b.pack_vector(words)
        if isinstance(t, llvm.PointerType):
            return b.inttoptr(value, t)
        return value if value.type == t else b.bitcast(value, t)

    def ends_by_count(self, loop: Any) -> bool:
        """Loops of warp groups' products: the test of the count before spilled a backward kernel's registers."""
        return any(node.name == "ttng.warp_group_dot" for node in loop.walk())

    def cache_policy(self, b: Any, evict: str) -> Any:
        """A 64-bit L2 cache policy, or None. Not a side effect: ptxas makes a constant of it."""
        if evict not in _EVICT:
            return None
        return b.inline_asm(f"createpolicy.fractional.L2::{evict}.b64 $0, 1.0;", "=l", _i(64), [], side_effects=False)

    def load_global(self, b: Any, ptr: Any, type: Any, pred: Any, other: Any, cache: str, evict: str, volatile: bool,
                    align: int) -> Any:
        cop, policy_name = _LOAD_CACHE.get(cache.lstrip("."), ""), evict if evict in _EVICT else ""
        if pred is None and not cop and not policy_name and not volatile:
            return b.load(ptr, type, align=align)
        if align * 8 < width_of(type):
            raise ValueError(f"a load of {width_of(type)} bits needs that alignment, found {align} bytes")
        count, word = words_of(type)
        register = max(word, 16)
        letter = _REGISTER[register]
        if volatile:
            modifiers, policy = ".volatile.global", None
        else:
            policy = self.cache_policy(b, evict)
            level1 = f".L1::{evict}" if policy is not None and not cop else ""
            modifiers = f".global{cop}{level1}{'.L2::cache_hint' if policy is not None else ''}"
        registers = ", ".join(f"${i}" for i in range(count))
        target = f"{{{registers}}}" if count > 1 else registers
        constraints = [f"={letter}"] * count + ["l"]
        args = [ptr]
        guard = address = ""
        if pred is not None:
            guard, constraints, args = f"@${count + len(args)} ", [*constraints, "b"], [*args, pred]
        if policy is not None:
            address, constraints, args = f", ${count + len(args)}", [*constraints, "l"], [*args, policy]
        # Without a predicate the results need no initial values. Else they are moved in beside the load: as operands tied to the results
        # they would share one register where they are one constant, and one load would wait until the other's data has been used.
        before = ""
        if pred is not None:
            initial = [None] * count if other is None else self._to_words(b, other, count, word)
            for i, value in enumerate(initial):
                before += f"mov.b{register} ${i}, {'0x0' if value is None else f'${count + len(args)}'};\n"
                if value is not None:
                    constraints, args = [*constraints, letter], [*args, value]
        vector = f".v{count}" if count > 1 else ""
        text = f"{before}{guard}ld{modifiers}{vector}.b{word} {target}, [${count}]{address};"
        words = asm_results(b, text, ",".join([*constraints, "~{memory}"] if volatile else constraints), [_i(register)] * count,
                            args, True)
        return self._from_words(b, words, type, word)

    def store_global(self, b: Any, ptr: Any, value: Any, pred: Any, cache: str, evict: str, align: int) -> None:
        cop, policy_name = _STORE_CACHE.get(cache.lstrip("."), ""), evict if evict in _EVICT else ""
        if pred is None and not cop and not policy_name:
            b.store(value, ptr, align=align)
            return
        if align * 8 < width_of(value.type):
            raise ValueError(f"a store of {width_of(value.type)} bits needs that alignment, found {align} bytes")
        count, word = words_of(value.type)
        args = [ptr, *self._to_words(b, value, count, word)]
        constraints = ["l"] + [_REGISTER[max(word, 16)]] * count
        policy = self.cache_policy(b, evict)
        level1 = f".L1::{evict}" if policy is not None and not cop else ""
        modifiers = f".global{cop}{level1}{'.L2::cache_hint' if policy is not None else ''}"
        registers = ", ".join(f"${i + 1}" for i in range(count))
        source = f"{{{registers}}}" if count > 1 else registers
        guard = address = ""
        if pred is not None:
            guard, constraints, args = f"@${len(args)} ", [*constraints, "b"], [*args, pred]
        if policy is not None:
            address, constraints, args = f", ${len(args)}", [*constraints, "l"], [*args, policy]
        vector = f".v{count}" if count > 1 else ""
        text = f"{guard}st{modifiers}{vector}.b{word} [$0], {source}{address};"
        b.inline_asm(text, ",".join([*constraints, "~{memory}"]), None, args, side_effects=True)

    # ----------------------------------------------------------------------------------------------------- atomics
    def _atomic(self, b: Any, text: str, t: Any, args: list[Any], pred: Any, width: int) -> Any:
        """``text`` is opcode and type; the operands follow. The old value, 0 where ``pred`` is false."""
        letter = _REGISTER[width]
        words = [self._to_words(b, a, 1, width)[0] for a in args[1:]]
        constraints = [f"={letter}", "l"] + [letter] * len(words)
        operands = [args[0], *words]
        guard = ""
        if pred is not None:
            guard = f"@${len(operands) + 1} "
            constraints += ["b", "0"]
            operands += [pred, self._to_words(b, b.zero(t), 1, width)[0]]
        registers = ", ".join(f"${i + 2}" for i in range(len(words)))
        asm = f"{guard}{text} $0, [$1], {registers};"
        out = b.inline_asm(asm, ",".join([*constraints, "~{memory}"]), _i(width), operands, side_effects=True)
        return self._from_words(b, [out], t, width)

    def atomic_rmw(self, b: Any, op: str, ptr: Any, value: Any, pred: Any, sem: str, scope: str) -> Any:
        t = value.type
        name, width = str(t), width_of(t)
        kinds = {"and": f"and.b{width}", "or": f"or.b{width}", "xor": f"xor.b{width}", "xchg": f"exch.b{width}",
                 "add": f"add.u{width}", "max": f"max.s{width}", "min": f"min.s{width}", "umax": f"max.u{width}",
                 "umin": f"min.u{width}"}
        if op == "fadd" or (op == "add" and name in ("f16", "bf16", "f32", "f64")):
            suffix = {"f16": "add.noftz.f16", "bf16": "add.noftz.bf16", "f32": "add.f32", "f64": "add.f64"}[name]
            if name == "bf16" and self.sm < 90:  # these have no instruction for it

                def plus(old: Any) -> Any:
                    return f32_to_bf16(b, b.fadd(b.fpext(old, b.t_f32), b.fpext(value, b.t_f32)), self.native_bf16_conversion)

                return compare_and_swap_loop(b, self, ptr, t, plus, pred, sem, scope)
        elif op not in kinds:
            raise UnsupportedOnTargetError(f"nvidia: no atomic {op!r}; allowed: {', '.join(sorted([*kinds, 'fadd']))}")
        elif op == "xchg" and width == 16:
            return compare_and_swap_loop(b, self, ptr, t, lambda old: value, pred, sem, scope)
        elif width not in (32, 64):
            raise UnsupportedOnTargetError(f"nvidia: atomic {op} takes 32 or 64 bits (fadd: 16 too), found {name}")
        else:
            suffix = kinds[op]
        return self._atomic(b, f"atom.{sem}.{scope}.global.{suffix}", t, [ptr, value], pred, width)

    def atomic_cas(self, b: Any, ptr: Any, cmp: Any, value: Any, pred: Any, sem: str, scope: str) -> Any:
        width = width_of(value.type)
        if width not in (16, 32, 64):
            raise UnsupportedOnTargetError(f"nvidia: atomic compare-and-swap takes 16, 32 or 64 bits, found {value.type}")
        return self._atomic(b, f"atom.{sem}.{scope}.global.cas.b{width}", value.type, [ptr, cmp, value], pred, width)

    # ----------------------------------------------------------------------------------------- matrix instructions
    def mma(self, b: Any, row: MatrixOp, a: Sequence[Any], bv: Sequence[Any], c: Sequence[Any]) -> list[Any]:
        per, kinds = row.extra["per_register"], row.extra["register"]
        packed = [self._pack(b, values, n) if kind == "b32" else list(values)
                  for values, n, kind in zip((a, bv, c), per, kinds)]
        letters = {"b32": "r", "f32": "f", "f64": "d"}
        types = {"b32": _i(32), "f32": ir.F32Type.get(), "f64": ir.F64Type.get()}
        count = len(packed[2])

        def group(start: int, size: int) -> str:
            return "{" + ", ".join(f"${i}" for i in range(start, start + size)) + "}"

        na, nb = len(packed[0]), len(packed[1])
        text = f"{row.intrinsic} {group(0, count)}, {group(count, na)}, {group(count + na, nb)}, {group(count + na + nb, count)};"
        constraints = [f"={letters[kinds[2]]}"] * count + [letters[kinds[0]]] * na + [letters[kinds[1]]] * nb
        constraints += [str(i) for i in range(count)]
        out = asm_results(b, text, ",".join(constraints), [types[kinds[2]]] * count, [*packed[0], *packed[1], *packed[2]], False)
        if per[2] == 1:
            return out
        pair = ir.VectorType.get([per[2]], c[0].type)
        return [v for word in out for v in b.unpack_vector(b.bitcast(word, pair), per[2])]

    def load_matrix(self, b: Any, plan: Any) -> list[Any] | None:
        from tilewright.targets.nvidia.matrix_load import emit_matrix_load

        return emit_matrix_load(b, plan, self._remember)

    def store_matrix(self, b: Any, plan: Any, values: Sequence[Any]) -> Callable[[], None] | None:
        from tilewright.targets.nvidia.matrix_store import matrix_store

        return matrix_store(b, plan, values, lambda pair: self._pack(b, pair, 2)[0]) if self.sm >= 90 else None

    def _remember(self, elements: list[Any], word: Any) -> None:
        self._words[elements[0]] = (elements, word)

    def _pack(self, b: Any, values: Sequence[Any], per: int) -> list[Any]:
        """``per`` elements to a 32-bit register, the first in the low bits."""
        if per == 1:
            return [v if v.type == b.t_i32 else b.bitcast(v, b.t_i32) for v in values]
        out = []
        for i in range(0, len(values), per):
            group = list(values[i:i + per])
            # Words of a matrix load dominate whatever its elements do, so they can stand for them anywhere.
            known = self._words.get(group[0])
            out.append(known[1] if known is not None and known[0] == group else b.bitcast(b.pack_vector(group), b.t_i32))
        return out

    # ------------------------------------------------------------------------------------------------ async copies
    def async_copy(self, b: Any, dst: Any, src: Any, num_bytes: int, pred: Any, cache: str, evict: str) -> None:
        if num_bytes not in (4, 8, 16):
            raise ValueError(f"cp.async copies 4, 8 or 16 bytes, found {num_bytes}")
        # .cg keeps what is read once out of L1; only 16-byte copies have it.
        level = "cg" if num_bytes == 16 and cache.lstrip(".") != "ca" else "ca"
        policy = self.cache_policy(b, evict)
        hint = ".L2::cache_hint" if policy is not None else ""
        args, constraints = [b.ptrtoint(dst, _i(32)), src], ["r", "l"]
        text = f"cp.async.{level}.shared.global{hint} [$0], [$1], {num_bytes}"
        if pred is not None:
            text += f", ${len(args)}"
            args.append(b.select(pred, b.i32(num_bytes), b.i32(0)))
            constraints.append("r")
        if policy is not None:
            text += f", ${len(args)}"
            args.append(policy)
            constraints.append("l")
        b.inline_asm(text + ";", ",".join([*constraints, "~{memory}"]), None, args, side_effects=True)

    def async_commit(self, b: Any) -> None:
        b.inline_asm("cp.async.commit_group;", "~{memory}", None, [], side_effects=True)

    def async_wait(self, b: Any, num: int) -> None:
        b.inline_asm(f"cp.async.wait_group {num};", "~{memory}", None, [], side_effects=True)
