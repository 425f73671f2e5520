"""The Target protocol: what a plugin provides. A target is one frozen ``TargetPlugin`` named by an entry point in the
group ``tilewright.targets``. Nothing shipped uses a hook that is not here (design, section 5)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tilewright.dialects.errors import ArgumentError
from tilewright.dialects.pipeline import Pipeline

API_VERSION = 1


@dataclass(frozen=True)
class GPUTarget:
    """What to compile for: Triton's triple. ``backend`` is a plugin's name or alias ("cuda", "hip", "cpu"), ``arch`` as
    Triton writes it (90, "gfx942"), ``warp_size`` in lanes (0: the arch's own)."""

    backend: str
    arch: int | str
    warp_size: int = 0


@dataclass(frozen=True)
class Device:
    """A device that probe() found: ``arch`` as capabilities() takes it ("sm_90a", "gfx942")."""

    index: int
    name: str
    arch: str


@dataclass(frozen=True)
class Capabilities:
    """Facts about one arch that shared passes decide by. ``extra`` is the target's own."""

    arch: str
    warp_size: int
    max_shared_bytes: int
    max_threads: int = 1024
    registers_per_thread: int = 255
    matrix_ops: tuple[str, ...] = ()  # names of usable rows of dialects.matrix_ops, best first
    async_copy_bytes: tuple[int, ...] = ()  # sizes of one async global→shared copy a thread; () = none: register prefetch
    max_vector_bits: int = 128
    shared_banks: int = 32
    max_num_ctas: int = 1
    float8_types: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # "triton_arch": how GPUTarget.arch writes it (90 for sm_90a)


@dataclass(frozen=True)
class CommonOptions:
    """Options that a launch may set on every target. A plugin's ``options`` is a frozen dataclass derived from it, with options and defaults of its
    own; one with a ``__post_init__`` calls this one's.

    num_warps: warps a program (a power of two). num_stages: buffers of a pipelined loop. num_ctas: blocks a program; more than
    ``Capabilities.max_num_ctas`` is refused, and compilers of targets always see 1. enable_fp_fusion: a·b+c may become one rounding. debug: device
    assertions are compiled. sanitize_overflow: with debug, integers that leave their type are such an assertion. default_dot_input_precision: of
    float32 dots that name none ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"). Raises ArgumentError for a value that no target takes.
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    enable_fp_fusion: bool = True
    debug: bool = False
    sanitize_overflow: bool = True
    default_dot_input_precision: str = "ieee"

    def __post_init__(self) -> None:
        if self.num_warps < 1 or self.num_warps & (self.num_warps - 1):
            raise ArgumentError(f"num_warps is {self.num_warps}; allowed are powers of two")
        if self.num_stages < 1:
            raise ArgumentError(f"num_stages is {self.num_stages}; at least 1 is needed")


class LaunchRequest(Exception):
    """Raised by a launcher *before* it launches anything: what the runtime has to do for it. Not an error; users never see it."""


class NeedsVariant(LaunchRequest):
    """These arguments need the kernel compiled with ``options`` laid over its own; ``reasons`` say why, one sentence each.

    The runtime compiles that, keeps it, and launches it with the same arguments."""

    def __init__(self, options: Mapping[str, Any], reasons: Sequence[str]):
        super().__init__(dict(options), tuple(reasons))
        self.options, self.reasons = dict(options), tuple(reasons)


class NeedsMemory(LaunchRequest):
    """The launcher must know how far the arguments' memory reaches. The runtime calls it again with the same arguments and
    ``memory={address of an array argument: (first byte, end) of the storage it belongs to}``, without those it cannot tell."""


@dataclass(frozen=True)
class NativePlan:
    """What a launcher decides by some of the arguments, and keeps: ``look(args, (x, y, z))`` gives the bytes that then lie from ``extra_at`` on (for a whole
    multiple of 32 bytes nothing else may), or None where it has not decided, or not to launch this kernel. ``arguments``: places of those that it depends on;
    ``by_grid``: on the grid too. ``region``: where all of the arguments lie in the call's memory, first byte and end, multiples of 8."""

    arguments: tuple[int, ...]
    by_grid: bool
    region: tuple[int, int]
    extra_at: int
    look: Callable[[Sequence[Any], tuple[int, int, int]], bytes | None]


@dataclass(frozen=True)
class NativeCall:
    """How a launch is one call of a C function that takes up to eleven 64-bit words and gives a 32-bit status, 0 for success: for the runtime's machine code,
    which copies ``memory`` to its stack, fills it in, and calls ``function`` (an address) with its first eleven words, without the interpreter's lock.

    Filled in, at byte offsets: the arguments (``parameters``: letter of struct and offset of each), 32 bits for each of ``grid_at``, the stream, addresses
    within the memory (``pointers``: where, of which byte), and ``handle_of(handle)`` for the loaded kernel. ``persistent``: (where three 32-bit numbers, the
    grid, go; blocks come in so many; handle → the most such groups); the launch itself then has one dim. ``failed(handle, grid, status)`` is called where the
    status is not 0: it raises what that means, or returns where the launcher should be called, who may do better. ``most_x``: larger grids are its too.
    A launcher that can be replaced so has this as its attribute ``native``."""

    function: int
    memory: bytes
    parameters: Sequence[tuple[str, int]]
    pointers: Sequence[tuple[int, int]]
    grid_at: tuple[int, int, int]
    stream_at: int
    handle_at: int
    handle_of: Callable[[Any], int]
    failed: Callable[[Any, tuple[int, int, int], int], None]
    most_x: int = 0x7FFF_FFFF
    persistent: tuple[int, int, Callable[[Any], int]] | None = None
    planned: NativePlan | None = None


class Driver(Protocol):
    """Loads and launches. Made on the first launch only; errors are tilewright errors that say what to do.

    ``device_count() → int`` may be there too: where it says 1, launches are spared the look at which device each array lies on."""

    def current_device(self) -> int: ...
    def current_stream(self, device: int) -> int: ...
    def load(self, asm: Mapping[str, Any], metadata: Mapping[str, Any], device: int) -> Any:
        """Load the binary stage; the returned handle keeps it alive and has n_regs, n_spills, function."""
    def make_launcher(self, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
        """``launcher(gx, gy, gz, stream, handle, args)``, ``args`` being the kernel's non-constexpr arguments in order.
        ``signature`` gives their Triton types ("*fp32", "i32", "fp32", …). Pointers arrive as integer addresses (the runtime
        has read data_ptr already), integers and bools as int/bool, floats as float; tuples arrive flattened. A launcher may raise
        a LaunchRequest instead of launching; one that raises NeedsMemory takes a further keyword, ``memory``. It may have an attribute ``native``, a
        NativeCall: launches that it would make without a request may then be made so, without calling it."""
    def synchronize(self) -> None: ...
    def get_device_properties(self, device: int) -> Mapping[str, Any]: ...
    def event_timer(self) -> Any:
        """An object with start(), stop() and elapsed_ms(), on the current stream."""


@dataclass(frozen=True)
class TargetFunction:
    """A function of kernels that one target has, ``tl.extra.TARGET.NAME()``, without arguments: inline assembly without operands, or a
    number known while compiling. ``doc``: what it gives. ``asm(arch)``: assembly and constraints (one result), or raises
    UnsupportedOnTargetError. ``result``: its type ("int64"); None: it gives nothing. ``number(options, warp_size)``: the number."""

    doc: str
    asm: Callable[[str], tuple[str, str]] | None = None
    result: str | None = None
    pure: bool = False
    number: Callable[[Any, int], int] | None = None


def is_pinned(tensor: Any) -> bool:
    """Whether a torch tensor of the host lies in page-locked memory (see ``TargetPlugin.takes_pinned``). Torch is asked where it has a GPU in use already (it
    calls AMD's "cuda" too): before, it has no such memory, and the question would start the driver, after which the process could not fork."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized() and bool(tensor.is_pinned())


@dataclass(frozen=True)
class TargetPlugin:
    """One target. All callables must be cheap to hold and import their heavy modules when called.

    name/aliases: "nvidia" / ("cuda",). device_types: kinds of arguments that live on it ("cuda", "hip", "cpu").
    archs: those compiled for, for messages and `tilewright targets`; default_arch where no device is found.
    probe(): devices present; never raises, never initialises a driver.
    resolve_arch(GPUTarget.arch) → the arch's name, or raises UnsupportedArchError naming the known ones.
    options: dataclass of what a launch may set, derived from CommonOptions (more under Triton's names, where Triton has them); TypeError if not.
    pipeline(arch, options) → Pipeline from tt (module as the frontend made it) to the last binary stage.
    lowerings: op name → function, over the shared table of dialects.lowering. hooks(arch, options) → TargetHooks.
    binary_stage: the stage that load() takes ("cubin", "hsaco", "obj"). source_stage: its text ("ptx", "amdgcn", "asm").
    simulator(arch): optional; runs a compiled kernel without a device: an object with the methods of Driver, on host memory.
    fingerprint(): versions of the tools used, for the cache key.
    knobs: settings of the target's own, a dialects.settings.Group that users see as ``tilewright.knobs.NAME``. A method
    ``option_defaults() → {option: value}`` of it, where there is one, gives the options that such settings stand for.
    language: functions that kernels have on this target only, name → TargetFunction.
    takes_pinned: whether kernels may be given page-locked memory of the host (a torch tensor whose is_pinned() says so) beside arrays of device_types.
    utilities: functions of the vendor's tools under Triton's names ("get_sass", "nvsmi", …), for modules that only forward to them.
    """

    api: int
    name: str
    aliases: tuple[str, ...]
    device_types: tuple[str, ...]
    archs: tuple[str, ...]
    default_arch: str
    probe: Callable[[], list[Device]]
    resolve_arch: Callable[[int | str], str]
    capabilities: Callable[[str], Capabilities]
    options: type
    pipeline: Callable[[str, Any], Pipeline]
    driver: Callable[[], Driver]
    fingerprint: Callable[[], str]
    binary_stage: str
    source_stage: str
    matrix_ops: Callable[[], Sequence[Any]] = lambda: ()
    dialects: Callable[[], Sequence[Any]] = lambda: ()
    lowerings: Callable[[], Mapping[str, Callable[..., Any]]] = dict
    hooks: Callable[[str, Any], Any] | None = None
    simulator: Callable[[str], Any] | None = None
    knobs: Any = None
    language: Mapping[str, TargetFunction] = field(default_factory=dict)
    utilities: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    takes_pinned: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.options, type) and issubclass(self.options, CommonOptions)):
            raise TypeError(f"the options of target {self.name!r}, {getattr(self.options, '__name__', self.options)!r}, are not a dataclass derived from "
                            "tilewright.targets.api.CommonOptions, which has the options that launches may set on every target")

    def __hash__(self) -> int:
        return hash(self.name)  # the fields hold mappings, and a plugin may give lists; plugins are keys of caches
