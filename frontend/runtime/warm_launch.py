"""Makes, for one kernel, the function that launches it again: one frame of straight code from the arguments to the driver's launcher.

It is generated at the first launch, for the classes of arguments seen then: what torch tensors and ints are to the compiler is worked
out in place (as ``specialize`` does; other arguments go there), one look-up in ``JITFunction._entries`` finds all that a launch needs, and
whatever is not usual (a new key, a hook, a changed global, a device that the code is not loaded on, a wrong argument) goes to ``cold``.

A key is ``(target variable, options, …)`` with, a parameter: of a tensor of the class and device type seen first its dtype; of an int from
2 to 2^31-1 whether it is a multiple of 16; else the key that ``specialize`` gives. The last part tells which of those tensors' addresses are
multiples of 16: 0 where all are, and "null" where one is 0, which no entry is ever kept for. Of a machine with several devices the key has
the tensors' indices too.

Python itself refuses wrong calls of a function, in its own words. So the parameters that the first launch gave by position can be given to the
generated function only so, and the others only by name; what remains comes as surplus arguments and unknown names, which ``cold`` sorts out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index as to_index
from typing import Any, NamedTuple

from tilewright.runtime.errors import ArgumentError, GridAttributeError, GridError
from tilewright.runtime.specialize import ALIGN, FAST, constexpr_key, is_torch_tensor, shown
from tilewright.targets.protocol import is_pinned


class _Missing:
    """The default of parameters that have none."""

    def __repr__(self) -> str:
        return "no argument"


MISSING = _Missing()


class GridArguments(dict[str, Any]):
    """What a grid function is given: the launch's arguments by name."""

    def __missing__(self, name: str) -> Any:
        raise GridError(f"the grid function asks for {name!r}, which is no parameter of the kernel; it has {', '.join(self)}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise GridAttributeError(f"a grid function is given a dict of the arguments: write meta[{name!r}] in place of meta.{name}")


def called_grid(grid: Callable[[Any], Any], arguments: GridArguments) -> Any:
    """What a grid function gives for a launch's arguments. Raises GridError where it does not take one argument; what it raises inside is its own."""
    try:
        return grid(arguments)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise
        raise GridError(f"a grid function takes one argument, the launch's arguments by name: lambda meta: (cdiv(meta['n'], meta['BLOCK']),); "
                        f"{shown(grid)} cannot be called so ({error})") from None


def normalise_grid(grid: Any) -> tuple[int, int, int]:
    """Three sizes of a grid of one to three. Raises ArgumentError for anything else."""
    if type(grid) is tuple:
        if len(grid) == 2 and type(grid[0]) is type(grid[1]) is int and grid[0] >= 0 and grid[1] >= 0:
            return grid[0], grid[1], 1
        if len(grid) == 3 and type(grid[0]) is type(grid[1]) is type(grid[2]) is int and min(grid) >= 0:
            return grid
    if grid is MISSING:
        raise ArgumentError("run and warmup are given the grid by name, as in run(…, grid=(8,)); or write kernel[(8,)](…)")
    if isinstance(grid, (dict, set, frozenset)):
        raise ArgumentError(f"a grid is a tuple of one to three sizes, or a function that gives one; found {shown(grid)} ({type(grid).__name__})")
    if isinstance(grid, int) or not hasattr(grid, "__len__") or getattr(grid, "ndim", 1) == 0:
        grid = (grid,)
    if not 1 <= len(grid) <= 3:
        raise ArgumentError(f"a grid has one to three sizes; found {len(grid)}: {shown(tuple(grid))}")
    sizes = []
    for size in grid:
        try:
            sizes.append(to_index(size))
        except TypeError:
            raise ArgumentError(f"grid sizes are integers; found {shown(size)} ({type(size).__name__}): round with tilewright.cdiv(n, BLOCK)") from None
    if min(sizes) < 0:
        raise ArgumentError(f"grid sizes are not negative; found {tuple(sizes)}")
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


def _tensor_test(p: str, i: int, argument: Any, scope: dict[str, Any]) -> str | None:
    """A test that parameter ``p`` is a tensor of the class and the device type of ``argument``; None where there is no quick one."""
    kind = getattr(getattr(argument, "device", None), "type", None)
    if not is_torch_tensor(type(argument)) or not isinstance(kind, str) or getattr(argument, f"is_{kind}", None) is not True:
        return None
    if kind == "cpu" and is_pinned(argument):  # no quick test tells pinned memory from other memory of the host
        return None
    scope[f"_tw_class{i}"] = type(argument)
    return f"_tw_type({p}) is _tw_class{i} and {p}.is_{kind}"


def host_tensors(params: Sequence[Any], seen: Sequence[Any]) -> list[str]:
    """The parameters of which the generated code's key has no more than the dtype, of tensors of the host: pinned memory has the same key as other memory."""
    return [p.name for i, (p, argument) in enumerate(zip(params, seen))
            if not p.is_constexpr and type(argument) is not int and _tensor_test(p.name, i, argument, {}) and argument.is_cpu]


def _parameter(i: int, p: Any, argument: Any, scope: dict[str, Any], several: bool) -> tuple[list[str], list[str], bool]:
    """(lines that work out parameter ``i``'s value ``_tw_v{i}``, the expressions that stand for it in the key, whether its alignment is
    that of ``_tw_p{i}``, which is 16 where the key has it already)."""
    if p.is_constexpr:
        scope["_tw_true"], scope["_tw_false"] = constexpr_key(True), constexpr_key(False)
        return [], [f"{p.name} if _tw_type({p.name}) is _tw_int else _tw_true if {p.name} is True else _tw_false if {p.name} is False "
                    f"else _tw_constexpr({p.name})"], False
    aligns = bool(p.mode & ALIGN)
    general = f"_tw_k{i}, _tw_v{i} = _tw_fast{p.mode}[_tw_type({p.name})]({p.name})"
    scope[f"_tw_fast{p.mode}"] = FAST[p.mode]
    if type(argument) is int:
        return [f"if _tw_type({p.name}) is _tw_int and 1 < {p.name} <= 2147483647:",
                f"    _tw_k{i} = {f'{p.name} & 15 == 0' if aligns else 'True'}; _tw_v{i} = {p.name}",
                "else:", f"    {general}"], [f"_tw_k{i}"], False
    test = _tensor_test(p.name, i, argument, scope)
    if test is None:
        return [general], [f"_tw_k{i}"], False
    where = several and argument.get_device() >= 0  # the general key has the index already
    return [f"if {test}:", f"    {f'_tw_p{i} = ' if aligns else ''}_tw_v{i} = {p.name}.data_ptr(); _tw_k{i} = {p.name}.dtype"
            f"{f'; _tw_d{i} = {p.name}.get_device()' if where else ''}",
            "else:", f"    {general}{f'; _tw_p{i} = 16' if aligns else ''}{f'; _tw_d{i} = None' if where else ''}"], [
                f"_tw_k{i}", *[f"_tw_d{i}"] * where, *[f"_tw_v{i} and 1"] * (not aligns)], aligns


_BODY = """\
    if _tw_more:
        return _tw_cold(_tw_grid, None, {given}, _tw_more, _tw_options, _tw_leading)
    try:
{bind}
        _tw_key = (_tw_variable(_tw_name), _tw_tuple(_tw_options.items()) if _tw_options else None, {key})
        _tw_found = _tw_self._entries.get(_tw_key)
    except (_tw_TypeError, _tw_ArgumentError, _tw_RuntimeError):
        return _tw_cold(_tw_grid, None, {given}, _tw_more, _tw_options, _tw_leading)
    if _tw_found is None or _tw_hooks.launch_enter_hook or _tw_hooks.launch_exit_hook or _tw_self.pre_run_hooks:
        return _tw_cold(_tw_grid, _tw_key, {given}, _tw_more, _tw_options, _tw_leading)
    for _tw_scope, _tw_global, _tw_object in _tw_self._checks:
        if _tw_scope.get(_tw_global) is not _tw_object:
            return _tw_cold(_tw_grid, _tw_key, {given}, _tw_more, _tw_options, _tw_leading)
    for _tw_use in _tw_self._slow_checks:
        if _tw_use.changed():
            return _tw_cold(_tw_grid, _tw_key, {given}, _tw_more, _tw_options, _tw_leading)
    if _tw_type(_tw_grid) is not _tw_tuple and _tw_callable(_tw_grid):
        _tw_grid = _tw_called_grid(_tw_grid, _tw_GridArguments({given}))
        if _tw_hooks.launch_enter_hook or _tw_hooks.launch_exit_hook:  # that it may have added
            return _tw_cold(_tw_grid, _tw_key, {given}, _tw_more, _tw_options, _tw_leading)
    if _tw_type(_tw_grid) is _tw_tuple and _tw_len(_tw_grid) == 1 and _tw_type(_tw_grid[0]) is _tw_int and _tw_grid[0] > 0:
        _tw_x = _tw_grid[0]; _tw_y = _tw_z = 1
    else:
        _tw_x, _tw_y, _tw_z = _tw_normalise(_tw_grid)
        if not (_tw_x and _tw_y and _tw_z):
            return _tw_found[0]
    _tw_kernel, _tw_launcher, _tw_handles, _tw_device_of, _tw_stream_of, _tw_pick = _tw_found
    _tw_device = _tw_device_of()
    _tw_handle = _tw_handles.get(_tw_device)
    if _tw_handle is None:
        return _tw_cold(_tw_grid, _tw_key, {given}, _tw_more, _tw_options, _tw_leading)
    _tw_values = ({values}) if _tw_pick is None else _tw_pick(({values}))
    try:
        try:
            _tw_launcher(_tw_x, _tw_y, _tw_z, _tw_stream_of(_tw_device), _tw_handle, _tw_values)
        except _tw_LaunchRequest as _tw_request:
            _tw_kernel = _tw_kernel.answer(_tw_request, _tw_x, _tw_y, _tw_z, _tw_stream_of(_tw_device), _tw_device, _tw_values, ({arguments}))
    except (_tw_ArgumentError, _tw_OverflowError) as _tw_error:
        raise _tw_self._unfit(_tw_error, _tw_kernel, {given}) from None
    _tw_driver.recent = _tw_self.last_launched = _tw_kernel
    return _tw_kernel
"""

# what the machine code of native_launch.py is told: what is found for arguments, with the values that the launcher is given; the sizes that a grid function gives
_LOOK = """\
    if _tw_more:
        return None
    try:
{bind}
        _tw_key = (_tw_variable(_tw_name), _tw_tuple(_tw_options.items()) if _tw_options else None, {key})
        _tw_found = _tw_self._entries.get(_tw_key)
    except (_tw_TypeError, _tw_ArgumentError, _tw_RuntimeError):
        return None
    return None if _tw_found is None else (_tw_found, ({values}) if _tw_found[5] is None else _tw_found[5](({values})))
"""
_GRID = """\
    return _tw_normalise(_tw_called_grid(_tw_grid, _tw_GridArguments({given})))
"""

class Functions(NamedTuple):
    """The generated functions of a JITFunction, which take ``(grid, *args, **kwargs)``, so many parameters by position."""

    launch: Callable[..., Any]  # launches, and gives the CompiledKernel
    look: Callable[..., Any]  # gives (the entry that is found for the arguments, the launcher's values), or None
    grid_of: Callable[..., Any]  # gives the sizes of a grid that is a function


def make_warm_launch(function: Any, seen: Sequence[Any], several: bool, names: dict[str, Any]) -> Callable[[int], Functions]:
    """``n → Functions`` of a JITFunction, with the first ``n`` parameters by position. ``seen``: the arguments of its first launch. ``several``: whether
    there is more than one device.

    ``names``: what the code calls: ``cold(grid, key or None, {parameter: argument}, surplus arguments, options, n)``, which does the launch in
    full and puts what it needed under the key; ``variable`` and ``name`` (the target variable's value), ``hooks``, ``driver``.
    """
    from tilewright.targets.protocol import LaunchRequest

    # of this package by name, as warnings look for the user's line above the package's
    scope: dict[str, Any] = {"__name__": __name__, "_tw_self": function, "_tw_missing": MISSING, "_tw_constexpr": constexpr_key, "_tw_ArgumentError": ArgumentError,
                             "_tw_RuntimeError": RuntimeError, "_tw_OverflowError": OverflowError,
                             "_tw_called_grid": called_grid, "_tw_LaunchRequest": LaunchRequest, "_tw_GridArguments": GridArguments, "_tw_type": type, "_tw_int": int,
                             "_tw_tuple": tuple, "_tw_len": len, "_tw_callable": callable, "_tw_normalise": normalise_grid, "_tw_TypeError": TypeError, **{f"_tw_{k}": v for k, v in names.items()}}
    heads: list[str] = []
    bind, key = [], []
    aligned: list[int] = []
    for i, (p, argument) in enumerate(zip(function.params, seen)):
        scope[f"_tw_default{i}"] = p.default if p.has_default else MISSING
        heads.append(f"{p.name}=_tw_default{i}")
        lines, expressions, aligns = _parameter(i, p, argument, scope, several)
        bind += lines
        key += expressions
        aligned += [i] * aligns
    if aligned:  # one test where all are aligned, the usual case
        each = "".join(f"_tw_p{i} & 15 == 0, " for i in aligned)
        key.append(f"({' | '.join(f'_tw_p{i}' for i in aligned)}) & 15 and ({each}) if {' and '.join(f'_tw_p{i}' for i in aligned)} else 'null'")
    run_time = [i for i, p in enumerate(function.params) if not p.is_constexpr]
    parts = {"bind": "\n".join("        " + line for line in bind) or "        pass", "key": "".join(f"{k}, " for k in key),
             "given": "{" + ", ".join(f"{p.name!r}: {p.name}" for p in function.params) + "}",
             "values": "".join(f"_tw_v{i}, " for i in run_time), "arguments": "".join(f"{function.params[i].name}, " for i in run_time)}
    name = function.__name__

    def taking(by_position: int) -> Functions:
        head = ", ".join(["_tw_grid", *heads[:by_position], "/", "*_tw_more", *heads[by_position:], "**_tw_options"])
        made = []
        for body in (_BODY, _LOOK, _GRID):
            text = body.format(**parts).replace("_tw_leading", str(by_position))
            exec(compile(f"def {name}({head}):\n{text}", f"<warm launch of {name}>", "exec"), scope)  # noqa: S102
            made.append(scope[name])
        return Functions(*made)

    return taking
