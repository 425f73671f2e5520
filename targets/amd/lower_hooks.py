"""What the shared lowering asks of an AMD GPU: LLVM's AMDGPU intrinsics (LLVM's AMDGPU user guide; ISA manuals)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.lowering.atomics import compare_and_swap_loop
from tilewright.dialects.lowering.builder import ORDERINGS
from tilewright.dialects.lowering.hooks import PrintedValues, TargetHooks
from tilewright.dialects.matrix_ops import MatrixOp
from tilewright.targets.amd import lower_reports
from tilewright.targets.amd.buffers import waitcnt
from tilewright.targets.amd.capabilities import capabilities, features_of
from tilewright.targets.amd.lower_bytes import pack_bytes
from tilewright.targets.amd.lower_math import MATH
from tilewright.targets.amd.lower_matrix_load import load_transposed

OPAQUE = ""  # LLVM has no parser of this target's assembly where it is used; for nothing it needs none
_AXES = "xyz"
_SCOPES = {"cta": "workgroup", "gpu": "agent", "sys": ""}
_ORDERS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_RMW = {"and": "and", "or": "or", "xor": "xor", "add": "add", "fadd": "fadd", "max": "max", "min": "min", "umax": "umax",
        "umin": "umin", "xchg": "xchg"}


class AmdHooks(TargetHooks):
    """One per (arch, options)."""

    global_address_space = 1
    shared_address_space = 3
    has_async_copy = False
    math = MATH
    carries_vectors = True
    xor_shuffle_is_cheap = True  # DPP, permlane and swaps against ds_bpermute

    def __init__(self, arch: str, options: Any):
        self.arch, self.options = arch, options
        self.capabilities = capabilities(arch)
        self.warp_size = self.capabilities.warp_size
        self.native_bf16_conversion = arch == "gfx950"  # v_cvt_pk_bf16_f32; LLVM's own sequence elsewhere is longer than ours
        self._copies = False  # loads go to LDS directly
        self._made: dict[str, Any] = {}
        self.has_reports = False  # whether the kernel has the buffer of reports
        self.reports: list[dict[str, Any]] = []

    # -- kernel
    def prepare_kernel(self, function: Any, num_warps: int) -> None:
        self._copies = any(node.name == "amdg.buffer_load_to_local" for node in function.nodes())
        self.has_reports = "amdg.reports" in function.root.op.attributes

    def declare_kernel(self, b: Any, func: Any, num_warps: int) -> None:
        func.attributes["CConv"] = ir.Attribute.parse("#llvm.cconv<amdgpu_kernelcc>")
        self.declare_function(b, func, num_warps)

    def declare_function(self, b: Any, func: Any, num_warps: int) -> None:
        """What decides how many registers a wave may have is said of called functions too."""
        threads = num_warps * self.warp_size
        pairs = [("amdgpu-ieee", "false"), ("amdgpu-flat-work-group-size", f"{threads},{threads}"), ("uniform-work-group-size", "true")]
        if self.options.waves_per_eu:
            pairs.append(("amdgpu-waves-per-eu", str(self.options.waves_per_eu)))
        # of waves of 64: LLVM 22.1's iterative schedulers can end the process on kernels with WMMA
        if "memory-bound-attention" in self.options.schedule_hint and self.warp_size == 64:
            pairs.append(("amdgpu-sched-strategy", "iterative-ilp"))
        func.attributes["passthrough"] = ir.ArrayAttr.get([ir.ArrayAttr.get([ir.StringAttr.get(k), ir.StringAttr.get(v)]) for k, v in pairs])

    def called_shared_base(self, b: Any) -> Any:
        """A work-group's LDS begins at 0, since kernels have none but what the launch gives them. Of a variable in LDS that a called
        function names, LLVM would look the address up in a table by the number of the kernel that runs."""
        return b.inttoptr(b.i32(0), b.ptr(3))

    @staticmethod
    def uniform(b: Any, value: Any) -> Any:
        """Arguments and results of calls come in vector registers, of which LLVM takes each lane to hold another value."""
        return b.call_intrinsic("llvm.amdgcn.readfirstlane.i32", b.t_i32, [value])

    # -- indices
    def thread_id(self, b: Any) -> Any:
        return b.call_intrinsic("llvm.amdgcn.workitem.id.x", b.t_i32, [])

    def thread_id_anew(self, b: Any) -> Any:
        """Assembly that is empty, of which LLVM has to think that it changes the number: what follows from it stays where it is computed."""
        return b.inline_asm(OPAQUE, "=v,0", b.t_i32, [self.thread_id(b)])

    def program_id(self, b: Any, axis: int) -> Any:
        return b.call_intrinsic(f"llvm.amdgcn.workgroup.id.{_AXES[axis]}", b.t_i32, [])

    def num_programs(self, b: Any, axis: int) -> Any:
        # hidden_block_count_x/y/z open the implicit arguments of code object version 5 and later
        base = b.call_intrinsic("llvm.amdgcn.implicitarg.ptr", b.ptr(4), [])
        return b.load(b.gep(base, axis, b.t_i32), b.t_i32, align=4)

    # -- synchronisation
    def barrier(self, b: Any) -> None:
        """Orders shared memory alone: loads from global memory that are in flight go on (see the LLVM AMDGPU memory model)."""
        if self._copies:
            self._barrier_beside_copies(b)
            return
        self._barrier(b, {"llvm.mmra": self._cached("mmra", lambda: ir.Attribute.parse('#llvm.mmra_tag<"amdgpu-synchronize-as":"local">'))})

    def full_barrier(self, b: Any) -> None:
        """Orders global memory as well, as tl.debug_barrier must. On gfx10 and gfx11 LLVM 22 drops the fence's wait for stores where a loop's first pass
        has none to wait for, and has no intrinsic for it (see _finish_shared); as if barriers did not back off, it waits at all of the function's itself."""
        if self.arch.startswith(("gfx10", "gfx11")):
            features = ("-back-off-barrier", *features_of(self.arch))  # a function's own take the place of the target machine's
            b.func.attributes["target_features"] = ir.Attribute.parse(f"#llvm.target_features<[{', '.join(map(repr, features))}]>".replace("'", '"'))
        self._barrier(b, {})

    @staticmethod
    def _barrier_beside_copies(b: Any) -> None:
        """As ``barrier``, where loads to LDS are in flight, for which LLVM's fences would wait: it orders this wave's own accesses of LDS, by
        a fence for the compiler and a wait; copies have waits of their own."""
        def fence(ordering: int) -> None:
            b.op("llvm.fence", (), (), {"ordering": b.int_attr(ordering, 64), "syncscope": ir.StringAttr.get("singlethread")})

        fence(ORDERINGS["release"])
        b.call_intrinsic("llvm.amdgcn.s.waitcnt", None, [b.i32(waitcnt(lgkm=0))])
        b.call_intrinsic("llvm.amdgcn.s.barrier", None, [])
        fence(ORDERINGS["acquire"])

    def _barrier(self, b: Any, tags: dict[str, Any]) -> None:
        def fence(ordering: int) -> None:
            b.op("llvm.fence", (), (), {"ordering": b.int_attr(ordering, 64), "syncscope": ir.StringAttr.get("workgroup"), **tags})

        fence(ORDERINGS["release"])
        self._finish_shared(b, not tags)
        b.call_intrinsic("llvm.amdgcn.s.barrier", None, [])
        fence(ORDERINGS["acquire"])

    def _finish_shared(self, b: Any, stores: bool) -> None:
        """Wait for this wave's accesses of LDS. The fence asks for that, but LLVM 22 drops its wait where a loop's first pass has nothing to wait
        for, though later ones have: other waves might then write what this one is still to read. Of ``stores`` the same holds on RDNA; gfx10 and
        gfx11 have no intrinsic for them. On gfx9 LLVM's fence does not wait for stores at all, since the work-group's waves share a cache; but an atomic of
        one of them that follows (a lock's release) must not be seen by other work-groups before what the others stored."""
        if self.arch.startswith("gfx12"):
            for counter in ("ds", "store") if stores else ("ds",):
                b.call_intrinsic(f"llvm.amdgcn.s.wait.{counter}cnt", None, [b.i16(0)])
            return
        if stores and self.arch.startswith("gfx9"):
            b.call_intrinsic("llvm.amdgcn.s.waitcnt", None, [b.i32(waitcnt(0, 0))])
            return
        # lgkmcnt 0, the others as large as they go: s_waitcnt in the ISA manuals, whose fields RDNA 3 has in another order
        b.call_intrinsic("llvm.amdgcn.s.waitcnt", None, [b.i32(0xFC07 if self.arch.startswith("gfx11") else 0xC07F)])

    def _cached(self, key: str, make: Any) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def kernel_lowered(self, metadata: dict[str, Any]) -> None:
        if self.has_reports:
            metadata["reports"] = self.reports

    def print_values(self, b: Any, text: str, hex: bool, printed: PrintedValues | None) -> None:
        lower_reports.print_values(self, b, text, hex, printed)

    def assert_failed(self, b: Any, message: str) -> None:
        lower_reports.assert_failed(self, b, message)

    def check_inline_asm(self, asm: str, constraints: str, results: Sequence[str], operands: Sequence[str], location: Any) -> str:
        from tilewright.targets.amd.assembler import refusal

        said = refusal(self.arch, asm, constraints, tuple(results), tuple(operands))
        if said is not None:
            raise UnsupportedOnTargetError(f"the assembler of {self.arch} does not take this inline assembly: {said}. Constraints are v (vector "
                                           "register), s (scalar register), a (accumulator), i (constant), with = for results; assembly of "
                                           "other targets stands under `if` with the functions of tl.target_info")
        return asm

    # -- lanes
    def lane(self, b: Any) -> Any:
        """This thread's number in its wave."""
        low = b.call_intrinsic("llvm.amdgcn.mbcnt.lo", b.t_i32, [b.i32(-1), b.i32(0)])
        return low if self.warp_size == 32 else b.call_intrinsic("llvm.amdgcn.mbcnt.hi", b.t_i32, [b.i32(-1), low])

    def shuffle_xor(self, b: Any, value: Any, mask: int) -> Any:
        from tilewright.targets.amd.lower_lanes import shuffle_xor

        return shuffle_xor(self, b, value, mask)

    def shuffle_idx(self, b: Any, value: Any, lane: Any) -> Any:
        return b.call_intrinsic("llvm.amdgcn.ds.bpermute", b.t_i32, [b.shl(lane, b.i32(2)), value])

    def interleave_halves(self, b: Any, own: Any, other: Any, odd: Any) -> tuple[Any, Any] | None:
        """v_perm_b32 picks four bytes of two registers by a third, which may differ by lane (bytes 0 to 3 are the second operand's)."""
        def picked(even: int, turned: int) -> Any:
            return b.call_intrinsic("llvm.amdgcn.perm", b.t_i32, [other, own, b.select(odd, b.i32(turned), b.i32(even))])

        return picked(0x05040100, 0x01000504), picked(0x07060302, 0x03020706)

    # -- global memory
    def load_global(self, b: Any, ptr: Any, type: Any, pred: Any, other: Any, cache: str, evict: str, volatile: bool, align: int) -> Any:
        def load() -> Any:
            return self._hinted_load(b, ptr, type, cache, volatile, align)

        if pred is None:
            return load()
        return b.if_then_else(pred, load, lambda: b.zero(type) if other is None else other)[0]

    @staticmethod
    def _hinted_load(b: Any, ptr: Any, type: Any, cache: str, volatile: bool, align: int) -> Any:
        if volatile or cache == "cv":
            return b.load(ptr, type, align=align, volatile=True)
        attrs: dict[str, Any] = {"alignment": b.int_attr(align, 64)}
        if cache in ("cg", "cs"):  # streaming: LLVM's nontemporal sets the cache-policy bits of the arch
            attrs["nontemporal"] = ir.UnitAttr.get()
        return b.op("llvm.load", (ptr,), (type,), attrs).result

    def store_global(self, b: Any, ptr: Any, value: Any, pred: Any, cache: str, evict: str, align: int) -> None:
        def store() -> None:
            attrs: dict[str, Any] = {"alignment": b.int_attr(align, 64)}
            if cache in ("cg", "cs"):
                attrs["nontemporal"] = ir.UnitAttr.get()
            if cache == "wt":  # write-through has no spelling in LLVM but volatile: the write reaches memory
                attrs["volatile_"] = ir.UnitAttr.get()
            b.op("llvm.store", (value, ptr), (), attrs)

        if pred is None:
            store()
        else:
            b.if_then(pred, store)

    def atomic_rmw(self, b: Any, op: str, ptr: Any, value: Any, pred: Any, sem: str, scope: str) -> Any:
        bits = _bits(value.type)
        if op == "xchg" and bits == 16:
            return compare_and_swap_loop(b, self, ptr, value.type, lambda old: value, pred, sem, scope)
        if bits < 32 and not (op == "fadd" and bits == 16):
            raise UnsupportedOnTargetError(f"atomic {op} of {value.type}: {self.arch} has 32- and 64-bit atomics; widen the buffer")

        def run() -> Any:
            return b.atomicrmw(_RMW[op], ptr, value, _ORDERS[self._released(b, sem, scope, ptr)], _SCOPES[scope])

        if pred is None:
            return run()
        return self._by_some_lanes(b, run, pred, value.type, sem)

    def release(self, b: Any, scope: str, ptr: Any) -> None:
        """A fence after which others of ``scope`` see what this wave stored, or had learnt of, and its loads are done. ``ptr``: of any global memory.

        The fence's own waits are not enough with LLVM 22, which drops those of a loop whose first round has nothing to wait for, and the one for the L2
        cache that gfx942 and gfx950 write back (buffer_wbl2; mended by llvm-project's pull request 178316): the atomic could be seen before what it releases."""
        if self.arch.startswith(("gfx10", "gfx11")):
            # no intrinsic waits for stores: one that is never done, on a path that LLVM does not know to be dead, makes it keep the fence's wait
            never = b.icmp("ne", b.inline_asm(OPAQUE, "=s,0", b.t_i32, [b.i32(0)], side_effects=False), b.i32(0))
            b.if_then(never, lambda: b.store(b.const(b.int_type(8), 0), ptr, align=1))
            self._fence(b, "release", scope)
            b.call_intrinsic("llvm.amdgcn.s.waitcnt", None, [b.i32(0x03F7 if self.arch.startswith("gfx11") else 0x3F70)])  # vmcnt 0
            return
        self._fence(b, "release", scope)
        if self.arch.startswith("gfx12"):
            for counter in ("load", "store"):
                b.call_intrinsic(f"llvm.amdgcn.s.wait.{counter}cnt", None, [b.i16(0)])
        elif scope != "cta":  # whose waves share a cache
            b.call_intrinsic("llvm.amdgcn.s.waitcnt", None, [b.i32(waitcnt(vm=0))])

    def acquire(self, b: Any, scope: str) -> None:
        """A fence after which this wave sees what others of ``scope`` released."""
        self._fence(b, "acquire", scope)

    @staticmethod
    def _fence(b: Any, ordering: str, scope: str) -> None:
        attributes = {"ordering": b.int_attr(ORDERINGS[ordering], 64)}
        if _SCOPES[scope]:
            attributes["syncscope"] = ir.StringAttr.get(_SCOPES[scope])
        b.op("llvm.fence", (), (), attributes)

    def _released(self, b: Any, sem: str, scope: str, ptr: Any) -> str:
        """What is left of ``sem`` for an atomic that comes now."""
        if sem not in ("release", "acq_rel"):
            return sem
        self.release(b, scope, ptr)
        return "acquire" if sem == "acq_rel" else "relaxed"

    def _by_some_lanes(self, b: Any, run: Any, pred: Any, type: Any, sem: str) -> Any:
        """What ``run`` gives where ``pred`` holds. An acquire is the program's, not the acting lanes' alone."""
        old = b.if_then_else(pred, run, lambda: b.zero(type))[0]
        if sem in ("acquire", "acq_rel"):
            self.after_owners(b)
        return old

    def after_owners(self, b: Any) -> None:
        """A fence that all lanes pass (of one thread, it costs nothing): without it LLVM lets those that did nothing keep what they loaded before."""
        b.op("llvm.fence", (), (), {"ordering": b.int_attr(ORDERINGS["acquire"], 64), "syncscope": ir.StringAttr.get("singlethread")})

    def after_acquire(self, b: Any, met: bool) -> None:
        """RDNA's work-groups have waves on two compute units, each with a cache of its own (L0), of which an acquiring atomic empties that of its wave alone."""
        if self.arch.startswith("gfx9") or self.options.num_warps == 1:
            return
        if not met:
            self.barrier(b)
        self._fence(b, "acquire", "cta")

    def atomic_cas(self, b: Any, ptr: Any, cmp: Any, value: Any, pred: Any, sem: str, scope: str) -> Any:
        bits = _bits(value.type)
        integer = b.int_type(bits)
        failure = "acquire" if sem in ("acquire", "acq_rel") else "monotonic"

        def run() -> Any:
            order = _ORDERS[self._released(b, sem, scope, ptr)]
            old = b.cmpxchg(ptr, b.bitcast(cmp, integer), b.bitcast(value, integer), order, failure, _SCOPES[scope])
            return b.bitcast(old, value.type)

        if pred is None:
            return run()
        return self._by_some_lanes(b, run, pred, value.type, sem)

    # -- shared memory
    def pack_bytes(self, b: Any, values: Sequence[Any], groups: Sequence[Sequence[int]]) -> list[Any] | None:
        return pack_bytes(b, values, groups)

    def load_matrix(self, b: Any, plan: Any) -> list[Any] | None:
        bytes_ = self.capabilities.extra["shared_model"].transposing.get(plan.element_bits)
        return None if bytes_ is None else load_transposed(b, plan, bytes_)

    # -- matrix instructions
    def mma(self, b: Any, row: MatrixOp, a: Sequence[Any], bv: Sequence[Any], c: Sequence[Any]) -> list[Any]:
        acc = b.pack_vector(list(c))
        x, y = (self._operand(b, row, values) for values in (a, bv))
        zero = b.i32(0)
        a_format, b_format = map(b.i32, row.extra["formats"])
        args = {"mfma": [x, y, acc, zero, zero, zero], "wmma": [x, y, acc],
                "mfma_scale": [x, y, acc, a_format, b_format, zero, zero, zero, zero],
                "wmma_signed": [b.i1(1), x, b.i1(1), y, acc, b.i1(0)]}[row.extra["form"]]
        return b.unpack_vector(b.call(row.intrinsic, acc.type, args), len(c))

    @staticmethod
    def _operand(b: Any, row: MatrixOp, values: Sequence[Any]) -> Any:
        """The operand's elements packed as the intrinsic takes them."""
        how = row.extra["operands"]
        if how == "scalar":
            return values[0]
        vector = b.pack_vector(list(values))
        if how == "vector":
            return b.bitcast(vector, b.vec(len(values), b.t_i16)) if row.extra["element"] == "i16" else vector
        packed = {"i32": b.t_i32, "i64": b.t_i64}.get(how) or b.vec(int(how[1]), b.t_i32)
        return b.bitcast(vector, packed)


def _bits(type: Any) -> int:
    return {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}.get(str(type)) or (type.width if isinstance(type, ir.IntegerType) else 64)
