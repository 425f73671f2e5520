"""A kernel's tt module as Triton's own C++ bindings show one: names and methods of their ``ir`` module, for tools that walk it.

torch.compile learns so which arguments a kernel of the user's writes (torch/_higher_order_ops/triton_kernel_wrap.py). What is shown is what tt holds, under
Triton's names of ops; it is a copy in Python's objects, which outlives the module and is not written back. A kernel of which a reader that knows Triton's ops would
learn something wrong is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import UnsupportedLanguageConstruct

_NAMES = {"func.func": "tt.func", "func.call": "tt.call", "func.return": "tt.return", "tt.reduce_return": "tt.reduce.return", "tt.scan_return": "tt.scan.return"}
_UNKNOWN_WRITES = (  # ops that write memory, and that such readers take for ops that write nothing
    "tt.descriptor_scatter", "tt.descriptor_reduce")
_numbers = itertools.count(1)


class _Numbered:
    """Something with an identity: ``id()``, one a process."""

    def __init__(self) -> None:
        self._id = next(_numbers)

    def id(self) -> int:
        return self._id


class ValueView(_Numbered):
    """A result or a block's argument."""


class RegionView(_Numbered):
    def __init__(self, parent: OpView):
        super().__init__()
        self.parent, self.blocks = parent, list[BlockView]()


class BlockView(_Numbered):
    def __init__(self, parent: RegionView, arguments: list[ValueView]):
        super().__init__()
        self.parent, self.arguments, self.ops = parent, arguments, list[OpView]()

    def get_parent(self) -> RegionView:
        """The region that holds it."""
        return self.parent

    def get_num_arguments(self) -> int:
        return len(self.arguments)

    def get_argument(self, i: int) -> ValueView:
        return self.arguments[i]


class OpView:
    """An operation. Attributes that it lacks are None."""

    def __init__(self, name: str, operands: list[ValueView], results: list[ValueView], attributes: dict[str, Any], block: BlockView | None):
        self.name, self.operands, self.results, self.attributes, self.block = name, operands, results, attributes, block
        self.regions: list[RegionView] = []

    def get_name(self) -> str:
        return self.name

    def get_num_operands(self) -> int:
        return len(self.operands)

    def get_operand(self, i: int) -> ValueView:
        return self.operands[i]

    def get_num_results(self) -> int:
        return len(self.results)

    def get_result(self, i: int) -> ValueView:
        return self.results[i]

    def get_num_regions(self) -> int:
        return len(self.regions)

    def get_region(self, i: int) -> RegionView:
        return self.regions[i]

    def get_block(self) -> BlockView | None:
        """The block that it stands in; None of the module."""
        return self.block

    def _attribute(self, name: str, kind: type) -> Any:
        value = self.attributes.get(name)
        return value if isinstance(value, kind) else None

    def get_str_attr(self, name: str) -> str | None:
        return self._attribute(name, str)  # type: ignore[no-any-return]

    get_flat_symbol_ref_attr = get_str_attr

    def get_bool_attr(self, name: str) -> bool | None:
        return self._attribute(name, bool)  # type: ignore[no-any-return]

    def get_int_attr(self, name: str) -> int | None:
        return self._attribute(name, int)  # type: ignore[no-any-return]


class ModuleView:
    """The module: ``walk`` visits every op after those in its regions. The kernel is the first function."""

    def __init__(self, module: Any):
        """Called inside ``mlir_context()``. Raises UnsupportedLanguageConstruct for a kernel that such readers would get wrong."""
        self._text = str(module)
        self._values: dict[Any, ValueView] = {}
        self._root = OpView("builtin.module", [], [], {}, None)
        region = RegionView(self._root)
        self._root.regions.append(region)
        block = BlockView(region, [])
        region.blocks.append(block)
        functions = [op.operation for op in module.body.operations]
        functions.sort(key=lambda op: "tt.kernel" not in op.attributes)
        for op in functions:
            self._op(op, block)

    def verify(self) -> bool:
        """Whether the module is well formed. It was verified when it was made."""
        return True

    def walk(self, visit: Callable[[OpView], None]) -> None:
        def inside(op: OpView) -> None:
            for region in op.regions:
                for block in region.blocks:
                    for inner in block.ops:
                        inside(inner)
            visit(op)

        inside(self._root)

    def str(self) -> str:
        """The text, in this compiler's spelling."""
        return self._text

    __str__ = str

    def _op(self, op: Any, block: BlockView) -> None:
        if op.name in _UNKNOWN_WRITES:
            raise UnsupportedLanguageConstruct(f"{op.name} writes memory and is unknown to readers of Triton's ir; look at kernel.asm['ttir']")
        results = [ValueView() for _ in op.results]
        self._values.update(zip(op.results, results))
        made = OpView(_NAMES.get(op.name, op.name), [self._values[v] for v in op.operands], results, _attributes(op), block)
        block.ops.append(made)
        for region in op.regions:
            shown = RegionView(made)
            made.regions.append(shown)
            for inner in region:
                arguments = [ValueView() for _ in inner.arguments]
                self._values.update(zip(inner.arguments, arguments))
                shown_block = BlockView(shown, arguments)
                shown.blocks.append(shown_block)
                for child in inner.operations:
                    self._op(child.operation, shown_block)


def _attributes(op: Any) -> dict[str, Any]:
    """The op's attributes that are text, symbols, truth values or integers."""
    found: dict[str, Any] = {}
    for name in (a.name if hasattr(a, "name") else a for a in op.attributes):
        value = op.attributes[name]
        for kind in (ir.StringAttr, ir.FlatSymbolRefAttr, ir.BoolAttr, ir.IntegerAttr):
            if isinstance(value, kind):
                found[name] = value.value
                break
    return found


class Context:
    """What ``ir.context()`` gives: nothing, as contexts are the compiler's own here."""


def load_dialects(context: Any) -> None:
    """Every context here has all dialects."""
