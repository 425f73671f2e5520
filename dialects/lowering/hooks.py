"""What the shared lowering asks of a GPU-like target: thread indices, barriers, shuffles, memory and matrix instructions.

A target subclasses ``TargetHooks``. ``b`` is a ``dialects.lowering.builder.LLVMBuilder``; values are ``ir.Value``s of LLVM
types; ``pred`` is an i1 value or None for always. Pointers: ``!llvm.ptr<1>`` global, ``!llvm.ptr<3>`` shared.
Defaults are plain LLVM; a method that says ``raise self.not_given(name)`` must be given by the target if a kernel needs it: a kernel that does is
refused, as not on this target, with the kernel's line and the method's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.matrix_ops import MatrixOp


@dataclass(frozen=True)
class PrintedValues:
    """What one thread prints of one operand of device_print: ``values`` (integers, f32, f64 or pointers), each with its coordinates (i32, one a
    dim of the tile's ``shape``; scalars have none)."""

    values: Sequence[Any]
    signed: bool
    shape: tuple[int, ...]
    indices: Sequence[Sequence[Any]]


class TargetHooks:
    """One per (arch, options)."""

    warp_size: int = 32
    shared_address_space: int = 3
    global_address_space: int = 1
    has_async_copy: bool = False
    carries_vectors: bool = False  # loops carry loaded vectors of 8- and 16-bit elements whole (see lowering/control_flow.py)
    # (b, value) → the i32 ``value``, which all threads hold alike, as the scalar that it is; where code generation does not see that
    # of what comes through a call and makes worse code for it (None: it makes the same)
    uniform: Callable[[Any, Any], Any] | None = None
    xor_shuffle_is_cheap: bool = False  # shuffle_xor costs much less than shuffle_idx: conversions make selects of such if they can
    # whether LLVM's fptrunc from f32 to bf16 has code on this target; otherwise integer arithmetic does it
    native_bf16_conversion: bool = True
    # (name, MLIR type) → dialects.lower_math.MathFunction that comes before the portable one, its accuracy stated
    math: Mapping[tuple[str, str], Any] = MappingProxyType({})
    # ("fptosi" | "fptoui", float type, integer type) → an intrinsic that does this, saturating and with 0 for NaN, by one instruction
    saturating_casts: Mapping[tuple[str, str, str], str] = MappingProxyType({})

    def not_given(self, method: str) -> UnsupportedOnTargetError:
        """What is raised where a kernel needs ``method``, of which this target's hooks have none of their own."""
        return UnsupportedOnTargetError(f"this target cannot do it: its hooks, the class {type(self).__name__}, do not define {method}")

    def ends_by_count(self, loop: Any) -> bool:
        """Whether an scf.for (a ``structure.Node``) of a known step is left where its count is what follows the last one, and not by a test of
        the one before: better where registers are short."""
        return False

    # -- kernel
    def prepare_kernel(self, function: Any, num_warps: int) -> None:
        """Look at the kernel (a ``structure.Function``) before anything of it is lowered."""

    def kernel_lowered(self, metadata: dict[str, Any]) -> None:
        """The kernel is lowered: what the launcher has to know of it goes into ``metadata``."""

    def descriptor_argument(self) -> tuple[Any, dict[str, Any]]:
        """How the kernel receives a tensor descriptor that the host makes: the LLVM type and the argument's attributes."""
        raise UnsupportedOnTargetError("this target has no kernel arguments that are tensor descriptors; make descriptors in the kernel")

    def declare_kernel(self, b: Any, func: Any, num_warps: int) -> None:
        """Set calling convention and attributes of the kernel's llvm.func (maxntid, flat work-group size, …)."""
        raise self.not_given("declare_kernel")

    def called_shared_base(self, b: Any) -> Any:
        """In a function that kernels call: a pointer to the block's shared memory, or None where the global variable that stands for
        it in kernels does so there too."""
        return None

    def declare_function(self, b: Any, func: Any, num_warps: int) -> None:
        """Set attributes of the llvm.func of a function that kernels call, where they differ from LLVM's defaults."""

    # -- indices; all i32
    def thread_id(self, b: Any) -> Any:
        raise self.not_given("thread_id")

    def thread_id_anew(self, b: Any) -> Any:
        """The same as ``thread_id``, but read here, which no optimisation may know."""
        return self.thread_id(b)

    def program_id(self, b: Any, axis: int) -> Any:
        raise self.not_given("program_id")

    def program_id_anew(self, b: Any, axis: int) -> Any:
        """The same as ``program_id``, in the way of ``thread_id_anew``."""
        return self.program_id(b, axis)

    def num_programs(self, b: Any, axis: int) -> Any:
        raise self.not_given("num_programs")

    # -- synchronisation
    def barrier(self, b: Any) -> None:
        raise self.not_given("barrier")

    def warp_barrier(self, b: Any) -> None:
        """Order shared-memory accesses within a warp. Lockstep targets need nothing."""

    # -- what a kernel says to its user
    def assert_failed(self, b: Any, message: str) -> None:
        """Stop the kernel: some thread's assertion does not hold, and the user has to see ``message`` in an error. An instruction that ends the
        kernel will do where that leaves the process alive, and the driver can tell."""
        raise self.not_given("assert_failed")

    def print_values(self, b: Any, text: str, hex: bool, printed: PrintedValues | None) -> None:
        """Print a line of each value from the threads that come here, as dialects/prints.py has them: ``text`` stands between index and value.
        None: ``text`` alone."""
        raise UnsupportedOnTargetError("device_print is not supported on this target; run the kernel with TILEWRIGHT_INTERPRET=1, "
                                       "or store the values to a buffer")

    def check_inline_asm(self, asm: str, constraints: str, results: Sequence[str], operands: Sequence[str], location: Any) -> str:
        """The assembly as it goes to LLVM. Raise UnsupportedOnTargetError for what the target's assembler cannot take: LLVM ends the process,
        rather than reporting, where a constraint names no class of registers or the target has no parser. ``results`` and ``operands``: the
        registers' types, as the LLVM dialect writes them; ``location``: the op's. A target that defines no such check takes no assembly."""
        raise self.not_given("check_inline_asm")

    def asm_register_bits(self, letter: str) -> int:
        """Bits of the registers that a constraint names, where they are narrower than 4 bytes."""
        return 32

    # -- lanes: 32-bit values
    def shuffle_xor(self, b: Any, value: Any, mask: int) -> Any:
        raise self.not_given("shuffle_xor")

    def shuffle_idx(self, b: Any, value: Any, lane: Any) -> Any:
        """``value`` as lane number ``lane`` (i32, may differ by lane) holds it."""
        raise self.not_given("shuffle_idx")

    def interleave_halves(self, b: Any, own: Any, other: Any, odd: Any) -> tuple[Any, Any] | None:
        """Of two i32 that hold two elements of 16 bits each, this lane's and another's, the low elements as one i32 and the high ones
        as another; where ``odd`` (i1) holds, ``other`` gives the lower half of both. None where no instruction does it."""
        return None

    # -- global memory: ``type`` is an LLVM scalar or vector type of at most capabilities.max_vector_bits
    def load_global(self, b: Any, ptr: Any, type: Any, pred: Any, other: Any, cache: str, evict: str, volatile: bool,
                    align: int) -> Any:
        """Value of ``type``; where ``pred`` is false ``other`` (same type; None: 0), touching no memory."""
        raise self.not_given("load_global")

    def store_global(self, b: Any, ptr: Any, value: Any, pred: Any, cache: str, evict: str, align: int) -> None:
        raise self.not_given("store_global")

    def after_owners(self, b: Any) -> None:
        """After a store or an atomic which, of threads that hold copies of an element, one alone did: the others' loads from here on are to see it. For
        targets whose compiler would take a thread's memory for unchanged where that thread did nothing. Default: nothing."""

    def after_acquire(self, b: Any, met: bool) -> None:
        """After an atomic that acquires and whose old value is used: every thread of the program comes here, and what the threads that acted acquired has to
        hold for all from here on. ``met``: a barrier lies between. For targets whose threads do not share one cache. Default: nothing."""

    def atomic_rmw(self, b: Any, op: str, ptr: Any, value: Any, pred: Any, sem: str, scope: str) -> Any:
        raise self.not_given("atomic_rmw")

    def atomic_cas(self, b: Any, ptr: Any, cmp: Any, value: Any, pred: Any, sem: str, scope: str) -> Any:
        raise self.not_given("atomic_cas")

    # -- shared memory: plain LLVM loads and stores, unless the target overrides
    def load_shared(self, b: Any, ptr: Any, type: Any, align: int) -> Any:
        return b.load(ptr, type, align=align)

    def store_shared(self, b: Any, ptr: Any, value: Any, pred: Any, align: int) -> None:
        if pred is None:
            b.store(value, ptr, align=align)
        else:
            b.if_then(pred, lambda: b.store(value, ptr, align=align))

    def pack_bytes(self, b: Any, values: Sequence[Any], groups: Sequence[Sequence[int]]) -> list[Any] | None:
        """For each group of registers (indices into ``values``, each an i8) a vector of them, or None to have LLVM put them together."""
        return None

    def load_matrix(self, b: Any, plan: Any) -> list[Any] | None:
        """Whole local_load by a matrix-load instruction (ldmatrix, ds_read_tr), or None where it does not fit."""
        return None

    def store_matrix(self, b: Any, plan: Any, values: Sequence[Any]) -> Callable[[], None] | None:
        """Whole local_store of the registers ``values`` by a matrix-store instruction: what builds it, or None where it does not fit.
        Where several warps hold an element one of them builds it; all lanes of a warp always do."""
        return None

    # -- matrix instructions
    def mma(self, b: Any, row: MatrixOp, a: Sequence[Any], bv: Sequence[Any], c: Sequence[Any]) -> list[Any]:
        """One instruction: per-thread element values in the row's register order (element type values, unpacked);
        returns the new accumulator elements. The hook packs elements into the instruction's registers."""
        raise self.not_given("mma")

    # -- async copies global → shared
    def async_copy(self, b: Any, dst: Any, src: Any, num_bytes: int, pred: Any, cache: str, evict: str) -> None:
        """Start one copy; where ``pred`` is false zeros are written."""
        raise self.not_given("async_copy")

    def async_commit(self, b: Any) -> None:
        raise self.not_given("async_commit")

    def async_wait(self, b: Any, num: int) -> None:
        raise self.not_given("async_wait")
