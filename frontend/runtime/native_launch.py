"""Warm launches by machine code (native_code.py): what it is told of kernels and arguments, and when.

Where a kernel's launcher has a ``native`` (``targets.protocol.NativeCall``), a builtin function stands before the generated one of warm_launch.py, and does
the same for what it has been told of. It is told after a warm launch by Python: which arguments there were, and what the generated function found
for them. What it has not been told of, all that is unusual (hooks, a changed global, another device,
arrays that are no torch tensors, numpy numbers, tuples, a number that does not fit its parameter) and every failure goes through Python as before.

Where the machine code cannot be made or loaded (another system than Linux, a Python without a global lock, no memory that may be executed, or
``knobs.runtime.native_launch`` off), Python launches, at twice the cost of the host's part and with the same results.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from types import GetSetDescriptorType, MethodDescriptorType
from typing import Any

from tilewright import knobs
from tilewright.runtime import native_machine
from tilewright.runtime.compile_ahead import compiling
from tilewright.runtime.native_writer import (
    CODES,
    DESCRIPTOR,
    KINDS,
    LISTS,
    MEMORY,
    OPERATION,
    RECORD,
    RECORDS,
    SITE,
    SITES,
    STATE,
    VALUES,
)
from tilewright.runtime.specialize import ALIGN, is_torch_tensor, item_size
from tilewright.targets.protocol import NativeCall, is_pinned

PLANS = 1024  # kept of one record
TRIES = 64  # to tell of launches of one function in vain, after which it is told of no more

_lock = threading.Lock()
_address: int | None = 0  # of the machine code; 0: not asked for yet; None: there is none


def machine_code() -> int | None:
    """The machine code's address, made or read from the disk cache when it is first asked for; None where this machine or Python cannot have it."""
    global _address
    if _address == 0:
        with compiling(), _lock:  # a fork waits
            if _address == 0:
                _address = _made() if knobs.runtime.native_launch and native_machine.usable() else None
    return _address


def _made() -> int | None:
    from tilewright.runtime.cache import Cache

    key, cache = native_machine.stamp(), Cache()
    found = cache.get(key)
    code = found[0]["code"] if found is not None and "code" in found[0] else None
    if code is None:
        code = native_machine.make()
        cache.put(key, {"code": code}, {}, "native_launch")
    try:
        return native_machine.load(code)
    except OSError:  # a system that lets no program have code of its own
        return None


# ------------------------------------------------------------------------------------------------------------ tables of words
class _Rows:
    """Words in memory that the machine code reads, and what they are addresses of."""

    def __init__(self, count: int):
        self.words = (ctypes.c_uint64 * max(count, 1))()
        self.kept: list[Any] = []

    @property
    def address(self) -> int:
        return ctypes.addressof(self.words)

    def put(self, index: int, value: Any) -> None:
        """A number, or the address of an object or of other rows."""
        if type(value) is int:
            self.words[index] = value & 0xFFFF_FFFF_FFFF_FFFF
            return
        self.kept.append(value)
        self.words[index] = value.address if isinstance(value, _Rows) else ctypes.addressof(value) if isinstance(value, ctypes.Array) else id(value)

    def obj(self, index: int, value: Any) -> None:
        """The address of an object, which may be a number."""
        self.kept.append(value)
        self.words[index] = id(value)


def _row(table: Mapping[str, int], more: int = 0, **values: Any) -> _Rows:
    rows = _Rows(len(table) + more)
    for name, value in values.items():
        rows.put(table[name], value)
    return rows


def _rows(words: Sequence[int]) -> _Rows:
    rows = _Rows(len(words))
    for i, word in enumerate(words):
        rows.put(i, word)
    return rows


class _Me(float):
    """The builtin function's ``self``: its bits are the state's address, and it owns the state."""

    state: Any


class _Owner:
    """Owns a record, ``row``: of launches of ``kernel``, loaded as ``handle``, whose arguments and environment give ``key``. ``failed`` is asked when the
    runtime's function has not launched."""

    def __init__(self, call: NativeCall, handle: Any, kernel: Any, key: tuple[list[int], Any]):
        self.call, self.handle, self.kernel, self.key = call, handle, kernel, key
        self.row: Any = None
        self.plans: dict[bytes, bytes] | None = None  # arguments, as they are packed, that matter, and the grid → what follows them

    def failed(self, status: int, x: int, y: int, z: int) -> None:
        self.call.failed(self.handle, (x, y, z), status)

    def plan(self) -> None:
        """Have the record ask for what the launcher decides, which ``plans`` will hold."""
        call, planned = self.call, self.call.planned
        if planned is None:
            return
        first, end = planned.region
        mask = bytearray(end - first)
        for i in planned.arguments:
            letter, offset = call.parameters[i]
            size = struct.calcsize("=" + letter)
            mask[offset - first:offset - first + size] = b"\xff" * size
        masked = _Rows(len(mask) // 8)
        ctypes.memmove(masked.address, bytes(mask), len(mask))
        self.row.put(RECORD["mask"], masked)
        for name, value in (("masked", first), ("plan_words", len(mask) // 8), ("by_grid", int(planned.by_grid)), ("extra", planned.extra_at)):
            self.row.put(RECORD[name], value)
        self.plans = {}
        self.row.obj(RECORD["plans"], self.plans)
        self._mask = int.from_bytes(mask, "little")
        layout, at = "=", first
        for letter, offset in call.parameters:
            layout += f"{offset - at}x{letter}"
            at = offset + struct.calcsize("=" + letter)
        self._packer = struct.Struct(layout)  # which begins at the first of the region

    def decide(self, values: Sequence[Any], grid: Any) -> None:
        """Tell what the launcher has decided on these arguments and grid, where it was to launch."""
        from tilewright.runtime.warm_launch import normalise_grid

        planned, plans = self.call.planned, self.plans
        if planned is None or plans is None:
            return
        sizes = (1, 1, 1)
        if planned.by_grid:
            if type(grid) is not tuple and callable(grid):
                return  # the machine code hands on what it gave, another time
            sizes = normalise_grid(grid)
        decided = planned.look(values, sizes)
        if decided is None:
            return
        first, end = planned.region
        key = (int.from_bytes(self._packer.pack(*values), "little") & self._mask).to_bytes(end - first, "little")
        if planned.by_grid:
            key += struct.pack("=3q", *sizes)
        if len(plans) >= PLANS:
            plans.clear()
        plans[key] = decided + bytes(-len(decided) % 32)


# ------------------------------------------------------------------------------------------------------------ what is told
class _Unlike(Exception):
    """These arguments are not for machine code."""


_SAME: dict[type, bool] = {int: True, bool: True, str: True, float: True, type(None): True}  # whose objects never change: one object is one value


def _is_same(kind: type) -> bool:
    """Whether a constant of a class never changes: Python's own, and dtypes of the language and of torch."""
    found = _SAME.get(kind)
    if found is None:
        from tilewright.language.dtypes import dtype

        found = _SAME[kind] = kind is dtype or (kind.__name__ == "dtype" and kind.__module__ == "torch")
    return found


_tensors: dict[type, bool] = {}


def _is_plain_tensor(kind: type) -> bool:
    """Whether a class of tensors is read by torch's own C code alone, whatever its objects are."""
    found = _tensors.get(kind)
    if found is None:
        found = False
        if is_torch_tensor(kind):
            import torch

            own = kind is torch.Tensor or getattr(kind, "__torch_function__", None) is torch._C._disabled_torch_function_impl
            found = own and type(getattr(kind, "data_ptr", None)) is MethodDescriptorType and type(getattr(kind, "dtype", None)) is GetSetDescriptorType \
                and kind.__getattribute__ is object.__getattribute__
        _tensors[kind] = found
    return found


class _Site:
    """One way to call, with arguments of such kinds: the operations that read them, the keys that they give, and which values."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], several: bool):
        self.operations: list[_Rows] = []
        self.keys: list[int] = []
        self.kept: list[Any] = []  # objects whose addresses are keys
        self.values: dict[int, tuple[int, int, str]] = {}  # parameter → (first value, how many, kind)
        self.kinds: list[Any] = []
        self.count = 0
        self.several = several
        places = {name: 1 + len(args) + i for i, name in enumerate(kwargs)}
        names = set()
        for i, p in enumerate(function.params):
            names.add(p.name)
            if i < len(args):
                self._read(i, p, 1 + i, args[i])
            elif p.name in places:
                self._read(i, p, places[p.name], kwargs[p.name])
            elif not (p.has_default and _is_same(type(p.default))):
                raise _Unlike
            else:
                self.kinds.append((p.name, type(p.default)))
        for name, place in places.items():
            if name not in names:
                self._same(place, kwargs[name])
        if len(self.keys) > VALUES or self.count > VALUES or 1 + len(args) + len(kwargs) > VALUES:
            raise _Unlike

    def _add(self, kind: str, source: int, keys: Sequence[int], values: int = 0, **facts: Any) -> None:
        self.operations.append(_row(OPERATION, kind=KINDS[kind], source=source, key=len(self.keys), value=self.count, **facts))
        self.keys += keys
        self.count += values

    def _same(self, source: int, value: Any) -> None:
        if not _is_same(type(value)):
            raise _Unlike
        if type(value) is int and not -(1 << 63) <= value < 1 << 63:
            raise _Unlike
        self.kept.append(value)
        self._add("same", source, [id(type(value)), value if type(value) is int else id(value)])
        self.kinds.append("same")

    def _read(self, i: int, p: Any, source: int, value: Any) -> None:
        from tilewright.tools.tensor_descriptor import TensorDescriptor

        kind, aligns = type(value), int(bool(p.mode & ALIGN))
        if p.is_constexpr or value is None:
            self._same(source, value)
            return
        self.kinds.append(kind)
        first = self.count
        if kind is int:
            if not -(1 << 63) <= value < 1 << 63:
                raise _Unlike
            where = 4 if value > 0x7FFF_FFFF else 2 if value > 1 else 1 if value == 1 else 3 if value >= -0x8000_0000 else 5
            self._add("int", source, [2 * where + (aligns & (value % 16 == 0))], 1, c=aligns)
        elif kind is float or kind is bool:
            self._add(kind.__name__, source, [], 1, a=kind)
        elif kind is TensorDescriptor:
            self._descriptor(source, value)
        elif _is_plain_tensor(kind):
            address, device = value.data_ptr(), value.get_device() if self.several else 0
            if not address:
                raise _Unlike
            self._add("tensor", source, [self._dtype(value.dtype), (aligns & (address % 16 == 0)) + 2 * device], 1,
                      a=kind, b=_is_device(value), c=aligns, d=int(self.several))
        else:
            raise _Unlike
        self.values[i] = first, self.count - first, kind.__name__ if kind in (int, float, bool) else "address" if kind is not TensorDescriptor else "descriptor"

    def _dtype(self, dtype: Any) -> int:
        self.kept.append(dtype)
        return id(dtype)

    def _descriptor(self, source: int, value: Any) -> None:
        base, lists, padding = value.base, [getattr(value, name) for name in LISTS], value.padding
        rank = len(lists[0])
        if not _is_plain_tensor(type(base)) or not all(isinstance(x, (list, tuple)) and len(x) == rank for x in lists) or not base.data_ptr():
            raise _Unlike
        if not all(type(x) is int for each in lists for x in each) or type(padding) is not str:
            raise _Unlike
        facts = _row(DESCRIPTOR, 2 * len(lists), tensor=type(base), is_device=_is_device(base), several=int(self.several), dtype=base.dtype,
                     itemsize=item_size(base.dtype), rank=rank)
        for i, each in enumerate(lists):
            facts.put(DESCRIPTOR["lists"] + 2 * i, type(each))
            facts.put(DESCRIPTOR["lists"] + 2 * i + 1, int(isinstance(each, list)))
        self.kinds.append((type(base), base.dtype, rank, *map(type, lists)))
        self.kept.append(padding)
        device = base.get_device() if self.several else 0
        self._add("descriptor", source, [id(padding), int(lists[0][-1] % 16 == 0) + 2 * device, *lists[2]], 2 * rank, b=facts)
        self.operations[-1].put(OPERATION["a"], type(value))


def _is_device(tensor: Any) -> str:
    """The name of the attribute that tells whether a tensor lies on this kind of device."""
    name = sys.intern(f"is_{tensor.device.type}")
    if tensor.is_cpu and is_pinned(tensor):  # which no quick test tells from other memory of the host
        raise _Unlike
    if type(getattr(type(tensor), name, None)) is not GetSetDescriptorType or getattr(tensor, name) is not True:
        raise _Unlike
    return name


# which of the machine code's ways to write a value serves a parameter of a struct letter, by what the value is
_WRITTEN = {"address": {"Q": "P"}, "int": {c: c for c in "bhiqBHIQ"}, "bool": {**{c: c for c in "bhiqBHIQ"}, "?": "?"}, "float": {"f": "F", "d": "d"}}


class NativeLaunch:
    """A JITFunction's machine code, which lies at ``address``. ``launch``: the builtin function, to be called as the generated one is; None once this
    function's launches are left to Python."""

    def __init__(self, function: Any, several: bool, names: Mapping[str, Any], address: int):
        self._function, self._several, self._names = function, several, names
        self._lock = threading.Lock()
        self._tries = 0
        self._sites: list[tuple[Any, _Rows]] = []  # what makes one like another, its row
        self._state = state = _Rows(len(STATE) + SITES)
        for name, value in {"fallback": self._by_python, "unplanned": self._undecided, "function": function, "driver": names["driver"], "hooks": names["hooks"], "environ": names["environ"],
                            "variable": names["name"], "Exception": Exception, "int": int, "tuple": tuple, "True": True, "False": False}.items():
            state.obj(STATE[name], value)
        for name in ("_checks", "_slow_checks", "pre_run_hooks", "launch_enter_hook", "launch_exit_hook", "recent", "last_launched", "data_ptr", "dtype",
                     "get_device", "base", *LISTS, "padding", "failed"):
            state.obj(STATE[name], name)
        state.put(STATE["api"], native_machine.api())
        me = _Me(struct.unpack("d", struct.pack("Q", state.address))[0])
        me.state = state
        self.launch: Any = native_machine.callable_of(address, me)

    def _by_python(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A launch by Python, of which the machine code is then told: its fallback."""
        ran = self._function._warm(grid, *args, **kwargs)
        if self._tries < TRIES:
            hooks = self._names["hooks"]
            if not (hooks.launch_enter_hook or hooks.launch_exit_hook or self._function.pre_run_hooks):  # with which machine code launches nothing
                self._tell(grid, args, kwargs)
        return ran

    def _undecided(self, owner: _Owner, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A launch by Python of what the machine code knows, but for what the launcher has decided on such arguments; of that it is then told."""
        ran = self._function._warm(grid, *args, **kwargs)
        looked = self._function._styles[len(args)].look(grid, *args, **kwargs)
        if looked is not None and looked[0][0] is owner.kernel:
            owner.decide(looked[1], grid)
        return ran

    def forget(self) -> None:
        """Forget all kernels."""
        with self._lock:
            for _, row in self._sites:  # which stay: another thread may be reading one
                row.words[SITE["records"]] = 0
                row.kept = [x for x in row.kept if not isinstance(x, _Owner)]

    def _tell(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with compiling(), self._lock:  # a fork waits
            try:
                self._record(grid, args, kwargs)
            except _Unlike:
                self._tries += 1
            if self._tries >= TRIES and not self._sites:  # it never knew any
                self.launch = None
                self._function._launch_by(self._function._warm)

    # -- a site, a record, a plan
    def _record(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tell of one launch. Raises _Unlike."""
        style = self._function._styles.get(len(args))
        looked = style.look(grid, *args, **kwargs) if style is not None else None
        if looked is None:
            raise _Unlike
        (kernel, launcher, handles, device_of, stream_of, _), values = looked
        call: NativeCall | None = getattr(launcher, "native", None)
        device = device_of()
        handle = handles.get(device)
        if call is None or handle is None:
            raise _Unlike
        site = _Site(self._function, args, kwargs, self._several)
        environment = self._names["environ"].get(self._names["name"])
        row = self._row_of(site, args, kwargs, style.grid_of)
        if any(isinstance(known, _Owner) and known.key == (site.keys, environment) for known in row.kept):
            raise _Unlike  # another device, or a launch that was unusual otherwise
        if row.words[SITE["records"]] == RECORDS:
            raise _Unlike
        owner = _Owner(call, handle, kernel, (site.keys, environment))
        owner.row = self._record_row(site, owner, device_of, stream_of, device, values)
        owner.plan()
        owner.decide(values, grid)
        row.kept.append(owner)
        row.words[SITE["record"] + row.words[SITE["records"]]] = owner.row.address
        row.words[SITE["records"]] += 1

    def _row_of(self, site: _Site, args: tuple[Any, ...], kwargs: dict[str, Any], grid_of: Any) -> _Rows:
        """The site's row, a new one where there is none like it."""
        likeness = (len(args), tuple(kwargs), tuple(site.kinds), [tuple(o.words) for o in site.operations if o.words[0] != KINDS["descriptor"]])
        for known, row in self._sites:
            if known == likeness:
                return row
        if len(self._sites) == SITES:
            raise _Unlike
        names = _Rows(len(kwargs))
        for i, name in enumerate(kwargs):
            names.put(i, name)
        operations = _rows([word for one in site.operations for word in one.words])
        operations.kept += site.operations
        row = _row(SITE, RECORDS, positional=1 + len(args), named=len(kwargs), names=names, operations=len(site.operations), operation=operations, keys=len(site.keys),
                   grid_of=grid_of, records=0)
        state = self._state
        state.kept.append(row)  # for good: another thread may be reading it
        state.words[STATE["site"] + len(self._sites)] = row.address
        self._sites.append((likeness, row))
        state.words[STATE["sites"]] = len(self._sites)
        return row

    def _record_row(self, site: _Site, owner: _Owner, device_of: Any, stream_of: Any, device: int, values: Sequence[Any]) -> _Rows:
        """The record but for what is planned. Raises _Unlike."""
        call, environment = owner.call, owner.key[1]
        memory, stores = self._packed(site, call, owner.kernel, values)
        struct.pack_into("=Q", memory, call.handle_at, call.handle_of(owner.handle))
        memory += bytes(-len(memory) % 32)
        if len(memory) > MEMORY:
            raise _Unlike
        key = _rows(site.keys)
        key.kept += site.kept
        row = _row(
            RECORD, kernel=owner.kernel, device_of=device_of, device=device, stream_of=stream_of, key=key, memory=(ctypes.c_char * len(memory)).from_buffer(memory),
            size=len(memory), stores=len(stores), store=_rows([word for store in stores for word in store]), pointers=len(call.pointers),
            pointer=_rows([word for pair in call.pointers for word in pair]), function=call.function, x=call.grid_at[0], y=call.grid_at[1], z=call.grid_at[2],
            stream=call.stream_at, most_x=call.most_x, cluster=1)
        row.obj(RECORD["device_object"], device)
        row.words[RECORD["owner"]] = id(owner)
        if environment is not None:
            row.obj(RECORD["environment"], environment)
        if call.persistent is not None:
            copy, cluster, blocks_of = call.persistent
            limit = blocks_of(owner.handle)
            if limit < 1:
                raise _Unlike
            for name, value in (("grid_copy", copy), ("cluster", cluster), ("limit", limit)):
                row.put(RECORD[name], value)
        return row

    def _packed(self, site: _Site, call: NativeCall, kernel: Any, values: Sequence[Any]) -> tuple[bytearray, list[tuple[int, int, int]]]:
        """The call's memory with the defaults of parameters in it, which stay as they are; and what is stored there of a launch's values: (which, how, where) each."""
        from tilewright.compiler.compiled import flat_types

        memory = bytearray(call.memory)
        stores: list[tuple[int, int, int]] = []
        at = 0  # of the run-time arguments
        for i, (p, kind) in enumerate(zip(self._function.params, kernel.types)):
            if p.is_constexpr:
                continue
            count = len(flat_types([kind]))
            taken = call.parameters[at:at + count]
            if i in site.values and count:
                first, there, how = site.values[i]
                if there != count:
                    raise _Unlike
                hows = ["address", *["int"] * (count - 1)] if how == "descriptor" else [how]
                for j, ((letter, offset), each) in enumerate(zip(taken, hows)):
                    if letter not in _WRITTEN[each]:
                        raise _Unlike
                    stores.append((first + j, CODES[_WRITTEN[each][letter]], offset))
            else:
                for j, (letter, offset) in enumerate(taken):
                    struct.pack_into("=" + letter, memory, offset, values[at + j])
            at += count
        if at != len(values) or at != len(call.parameters):
            raise _Unlike
        return memory, stores
