"""Hand-written ttgir kernels of sm_90a, as the passes are to make them, with what they compute. Parsed where ttng is loaded.

``Text.module(num_warps)`` is MLIR text; ``lower(text)`` runs the passes from shared-memory allocation on and gives each stage.
"""

from dataclasses import dataclass, field

import numpy as np

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import ensure_dialects, mlir_context
from tilewright.dialects.lowering import lower_to_llvm
from tilewright.dialects.lowering.translate import translate_to_llvm_ir
from tilewright.dialects.passes import allocate_shared_memory, insert_barriers
from tilewright.dialects.pipeline import PassContext
from tilewright.dialects.printer import print_module
from tilewright.dialects.simt import SimtExecutor
from tilewright.dialects.simt.executor import Opaque
from tilewright.targets.nvidia.emit import assemble, emit_ptx
from tilewright.targets.nvidia.options import NvidiaOptions
from tilewright.targets.nvidia.simulate import semantics
from tilewright.targets.nvidia.simulate_bulk import TensorMap
from tilewright.targets.nvidia.target import TARGET

BARRIER = "#ttg.swizzled_shared<1 : i32, 1 : i32, 1 : i32, array<i32: 0>>"
BAR = f"!ttg.memdesc<array<i64: 1>, i64, {BARRIER}, true>"


def bars(n):
    return f"!ttg.memdesc<array<i64: {n}, 1>, i64, {BARRIER}, true>"


def panels(panel, vec, per_phase, max_phase, order=(1, 0)):
    return f"#ttg.panel_shared<{panel} : i32, {vec} : i32, {per_phase} : i32, {max_phase} : i32, array<i32: {', '.join(map(str, order))}>>"


def memdesc(shape, element, encoding):
    return f"!ttg.memdesc<array<i64: {', '.join(map(str, shape))}>, {element}, {encoding}, true>"


def blocked(size, threads, warps, order=(1, 0)):
    parts = ", ".join(f"array<i32: {', '.join(map(str, x))}>" for x in (size, threads, warps, order))
    return f"#ttg.blocked<{parts}>"


def desc(shape, element):
    return f"!tt.tensordesc<array<i64: {', '.join(map(str, shape))}>, {element}>"


def module(body, args, num_warps=4, attrs=""):
    """One kernel ``k``; ``body`` has no return."""
    return (f'module attributes {{"ttg.num-warps" = {num_warps} : i32, "ttg.threads-per-warp" = 32 : i32, "ttg.num-ctas" = 1 : i32}} {{\n'
            f"func.func @k({args}) attributes {{tt.kernel{attrs}}} {{\n{body}\n  return\n}} }}\n")


@dataclass
class Lowered:
    """What each stage left: ttgir (with barriers), llvm (the dialect, as an ir.Module), llir, ptx, cubin, usage, metadata."""

    ttgir: str
    llvm: object
    llir: str
    ptx: str
    metadata: dict
    usage: dict = field(default_factory=dict)


def lower(text, num_warps=4, host=None, arch="sm_90a", assembled=True, **options):
    """``host``: metadata["host"] as the passes leave it. ``assembled``: whether ptxas must take it too."""
    metadata = {} if host is None else {"host": host}
    with mlir_context():
        ensure_dialects(*TARGET.dialects())
        parsed = ir.Module.parse(text)
        assert parsed.operation.verify()
        ctx = PassContext(TARGET, arch, TARGET.capabilities(arch), NvidiaOptions(num_warps=num_warps, **options), "k", metadata)
        allocate_shared_memory.run(parsed, ctx)
        insert_barriers.run(parsed, ctx)
        ttgir = print_module(parsed)
        lower_to_llvm(parsed, ctx)
        assert parsed.operation.verify()
        llir = translate_to_llvm_ir(parsed, ctx)
    ptx = emit_ptx(llir, arch)
    usage = assemble(ptx, arch)[1] if assembled else {}
    return Lowered(ttgir, parsed, llir, ptx, metadata, usage)


def execute(lowered, args, grid=(1,), **checks):
    """Run a lowered kernel in the simulator, producer warps included. ``args``: numpy arrays, ints, and TensorMaps."""
    with mlir_context():
        warps = lowered.metadata.get("total_warps", lowered.metadata["num_warps"])
        executor = SimtExecutor(lowered.llvm, "k", 32 * warps, 32, lowered.metadata["shared"], semantics(), **{"check_uninitialised": True, **checks})
        executor.run(grid, [Opaque(a) if isinstance(a, TensorMap) else a for a in args], whole_process=True)


def tensor_map(array, box, swizzle, dtype="fp16", shape=None):
    """A row-major numpy array as the launcher would describe it."""
    strides = tuple(s // array.itemsize for s in array.strides)
    return TensorMap(array.ctypes.data, dtype, array.itemsize, tuple(shape or array.shape), strides, tuple(box), swizzle)


# ------------------------------------------------------------------------------------------------------------ kernels
def ring_sum(rows=64, columns=64, stages=3, num_warps=4, registers=(232, 40), element="f16"):
    """Sum over ``n`` tiles: out[r, c] = Σ_i a[i * rows + r, c], the tiles going through a ring of ``stages``.

    Arguments: out (pointer to f32, row-major), n (i32), the descriptor of ``a`` [n * rows, columns] in blocks [rows, columns].
    """
    size = {"f16": 2, "f32": 4, "bf16": 2}[element]
    panel = min(columns, 128 // size)
    phases = panel * size // 16
    encoding = panels(panel, 16 // size, 8 // phases, phases)
    layout = blocked((1, 8), (32 * 8 // columns, columns // 8), (num_warps, 1))
    tile, t32, ti = f"tensor<{rows}x{columns}x{element}, {layout}>", f"tensor<{rows}x{columns}xf32, {layout}>", f"tensor<{rows}x{columns}xi32, {layout}>"
    ptrs = f"tensor<{rows}x{columns}x!tt.ptr<f32, 1 : i32>, {layout}>"
    slices = [f"#ttg.slice<{d} : i32, {layout}>" for d in (0, 1)]
    buffer, stage = memdesc((stages, rows, columns), element, encoding), memdesc((rows, columns), element, encoding)
    d = desc((rows, columns), element)
    widen = f"%w = arith.extf %x : {tile} to {t32}" if element != "f32" else f"%w = arith.addf %x, %zero : {t32}"
    inits = "\n".join(f'''  %i{s} = arith.constant {s} : i32
  %f{s} = "ttg.memdesc_index"(%full, %i{s}) : ({bars(stages)}, i32) -> {BAR}
  "ttng.init_barrier"(%f{s}) {{count = 1 : i32}} : ({BAR}) -> ()
  %e{s} = "ttg.memdesc_index"(%empty, %i{s}) : ({bars(stages)}, i32) -> {BAR}
  "ttng.init_barrier"(%e{s}) {{count = {num_warps} : i32}} : ({BAR}) -> ()''' for s in range(stages))

    def advance(s, p):
        return f'''%n{s} = arith.addi %{s}, %c1 : i32
      %wrap{s} = arith.cmpi eq, %n{s}, %cs : i32
      %s{s} = arith.select %wrap{s}, %c0, %n{s} : i32
      %x{p} = arith.xori %{p}, %c1 : i32
      %p{p} = arith.select %wrap{s}, %x{p}, %{p} : i32'''

    body = f'''  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %cs = arith.constant {stages} : i32
  %rows = arith.constant {rows} : i32
  %true = arith.constant true
  %zero = arith.constant dense<0.0> : {t32}
  %buf = "ttg.local_alloc"() : () -> {buffer}
  %full = "ttg.local_alloc"() : () -> {bars(stages)}
  %empty = "ttg.local_alloc"() : () -> {bars(stages)}
{inits}
  "ttng.warp_specialize"() ({{
    %sum, %cst, %cph = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero, %a = %c0, %b = %c0) -> ({t32}, i32, i32) : i32 {{
      %fb = "ttg.memdesc_index"(%full, %a) : ({bars(stages)}, i32) -> {BAR}
      "ttng.wait_barrier"(%fb, %b) : ({BAR}, i32) -> ()
      %st = "ttg.memdesc_index"(%buf, %a) : ({buffer}, i32) -> {stage}
      %x = "ttg.local_load"(%st) : ({stage}) -> {tile}
      %eb = "ttg.memdesc_index"(%empty, %a) : ({bars(stages)}, i32) -> {BAR}
      "ttng.arrive_barrier"(%eb) {{count = 1 : i32, scope = "warp"}} : ({BAR}) -> ()
      {widen}
      %y = arith.addf %acc, %w : {t32}
      {advance("a", "b")}
      scf.yield %y, %sa, %pb : {t32}, i32, i32
    }}
    %r = "tt.make_range"() {{start = 0 : i32, end = {rows} : i32}} : () -> tensor<{rows}xi32, {slices[1]}>
    %c = "tt.make_range"() {{start = 0 : i32, end = {columns} : i32}} : () -> tensor<{columns}xi32, {slices[0]}>
    %r2 = "tt.expand_dims"(%r) {{axis = 1 : i32}} : (tensor<{rows}xi32, {slices[1]}>) -> tensor<{rows}x1xi32, {layout}>
    %c2 = "tt.expand_dims"(%c) {{axis = 0 : i32}} : (tensor<{columns}xi32, {slices[0]}>) -> tensor<1x{columns}xi32, {layout}>
    %width = arith.constant dense<{columns}> : tensor<{rows}x1xi32, {layout}>
    %r3 = arith.muli %r2, %width : tensor<{rows}x1xi32, {layout}>
    %r4 = "tt.broadcast"(%r3) : (tensor<{rows}x1xi32, {layout}>) -> {ti}
    %c4 = "tt.broadcast"(%c2) : (tensor<1x{columns}xi32, {layout}>) -> {ti}
    %off = arith.addi %r4, %c4 : {ti}
    %base = "tt.splat"(%out) : (!tt.ptr<f32, 1 : i32>) -> {ptrs}
    %ptr = "tt.addptr"(%base, %off) : ({ptrs}, {ti}) -> {ptrs}
    "tt.store"(%ptr, %sum) {{cache = "none", evict = "normal"}} : ({ptrs}, {t32}) -> ()
    "ttng.warp_return"() : () -> ()
  }}, {{
    %pst, %pph = scf.for %i = %c0 to %n step %c1 iter_args(%a = %c0, %b = %c1) -> (i32, i32) : i32 {{
      %eb = "ttg.memdesc_index"(%empty, %a) : ({bars(stages)}, i32) -> {BAR}
      "ttng.wait_barrier"(%eb, %b) : ({BAR}, i32) -> ()
      %fb = "ttg.memdesc_index"(%full, %a) : ({bars(stages)}, i32) -> {BAR}
      "ttng.barrier_expect"(%fb, %true) {{size = {rows * columns * size} : i32}} : ({BAR}, i1) -> ()
      %st = "ttg.memdesc_index"(%buf, %a) : ({buffer}, i32) -> {stage}
      %row = arith.muli %i, %rows : i32
      "ttng.async_tma_copy_global_to_local"(%d, %fb, %st, %true, %row, %c0) {{cache = "none", evict = "normal"}}
          : ({d}, {BAR}, {stage}, i1, i32, i32) -> ()
      {advance("a", "b")}
      scf.yield %sa, %pb : i32, i32
    }}
    "ttng.warp_return"() : () -> ()
  }}) {{consumer_registers = {registers[0]} : i32, producer_registers = {registers[1]} : i32}} : () -> ()'''
    return module(body, f"%out: !tt.ptr<f32, 1 : i32> {{tt.divisibility = 16 : i32}}, %n: i32, %d: {d}", num_warps)


def ring_sum_reference(a, n, rows=64):
    """What ``ring_sum`` stores, in float32 and in its order."""
    total = np.zeros((rows, a.shape[1]), np.float32)
    for i in range(n):
        total += a[i * rows:(i + 1) * rows].astype(np.float32)
    return total


def ring_sum_host(rows=64, columns=64, itemsize=2, dtype="fp16"):
    """metadata["host"] for ``ring_sum``, but for the base and shape, which a test of the instruction alone need not say."""
    inner = min(columns, 128 // itemsize)
    return {"expressions": [["arg", 0], ["const", 1 << 20], ["const", columns]], "guards": [], "choices": [],
            "descriptors": [{"base": 0, "dtype": dtype, "itemsize": itemsize, "shape": [1, 2], "strides": [2, 1], "box": [rows, inner],
                             "swizzle": inner * itemsize, "padding": "zero", "name": "a"}]}
