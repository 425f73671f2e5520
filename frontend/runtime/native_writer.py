"""What writes native_code.py's functions, by llvmlite, and the tables that they read: rows of 64-bit words, whose fields are named here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# ------------------------------------------------------------------------------------------------------------ tables of words
API = """PyObject_GetAttr PyObject_SetAttr PyObject_Vectorcall PyObject_VectorcallMethod PyLong_AsLongLongAndOverflow PyLong_AsUnsignedLongLong PyLong_AsLongLong PyLong_FromLongLong
PyFloat_AsDouble PyErr_Occurred PyErr_Clear PyErr_ExceptionMatches PyDict_GetItem PyBytes_FromStringAndSize PyBytes_AsString PyBytes_Size PyList_Size PyList_GetItem
PyTuple_Size PyTuple_GetItem Py_IncRef Py_DecRef PyEval_SaveThread PyEval_RestoreThread PyCallable_Check PyObject_RichCompareBool PyObject_IsTrue""".split()


def _fields(text: str) -> dict[str, int]:
    return {name: i for i, name in enumerate(text.split())}


SITES, RECORDS, VALUES, MEMORY, WORDS = 8, 16, 160, 4608, 11  # the most sites, records of one, values and key words, bytes of memory, words of a call
# addresses of objects and names of attributes; ``sites`` is their number, and they follow
STATE = _fields("""api fallback unplanned function driver hooks environ variable Exception int tuple True False
    _checks _slow_checks pre_run_hooks launch_enter_hook launch_exit_hook recent last_launched data_ptr dtype get_device base shape strides block_shape padding failed
    sites site""")
# one way to call: so many positional arguments (grid included) and the names of the others, with arguments of such kinds
SITE = _fields("positional named names operations operation keys grid_of records record")
OPERATION = _fields("kind source key value a b c d")  # what is read of argument ``source``, and where its key and value go
KINDS = _fields("int float bool same tensor descriptor")
DESCRIPTOR = _fields("tensor is_device several dtype itemsize rank lists")  # of the three lists two words each: its type, and whether that is list, else a tuple's
LISTS = ("shape", "strides", "block_shape")
RECORD = _fields("""owner kernel environment device_of device device_object stream_of key memory size stores store pointers pointer function
    x y z stream most_x grid_copy limit cluster plans masked mask plan_words by_grid extra""")
STORE = _fields("value code offset")
# how a value is written: struct's letters, "P" an address, "F" a float as 4 bytes
CODES = {"P": 0, "b": 1, "h": 2, "i": 3, "q": 4, "B": 5, "H": 6, "I": 7, "Q": 8, "F": 9, "d": 10, "?": 11}
BIGGEST = 0x7FFF_FFFF


class Writer:
    """Writes a function whose values are all 64-bit words: addresses, numbers, and what C functions take and give."""

    def __init__(self, module: Any, name: str, count: int, internal: bool):
        from llvmlite import ir

        self.ir = ir
        self.i64, self.i32 = ir.IntType(64), ir.IntType(32)
        self.function = ir.Function(module, ir.FunctionType(self.i64, [self.i64] * count), name)
        self.function.attributes.add("nounwind")
        if internal:
            self.function.linkage = "internal"
            self.function.attributes.add("alwaysinline")
        self.args = self.function.args
        self.head = ir.IRBuilder(self.function.append_basic_block("head"))  # memory of the frame
        self.b = ir.IRBuilder(self.function.append_basic_block("body"))
        self.api: Any = None
        self.steps: list[Any] = []  # of the loops that are open, the block that goes on with the next turn

    def done(self) -> None:
        self.head.branch(self.function.basic_blocks[1])

    # -- values
    def word(self, value: Any) -> Any:
        return self.ir.Constant(self.i64, value) if isinstance(value, int) else value

    def pointer(self, base: Any, index: Any = 0, type: Any = None, scale: int = 8) -> Any:
        index = index * scale if isinstance(index, int) else self.b.mul(index, self.word(scale))
        at = base if index == 0 else self.b.add(base, self.word(index))
        return self.b.inttoptr(at, (type or self.i64).as_pointer())

    def load(self, base: Any, index: Any = 0) -> Any:
        return self.b.load(self.pointer(base, index))

    def store(self, value: Any, base: Any, index: Any = 0) -> None:
        self.b.store(self.word(value), self.pointer(base, index))

    def put(self, value: Any, at: Any, bits: int) -> None:
        """The low ``bits`` of a value at an address."""
        narrow = self.ir.IntType(bits)
        self.b.store(value if bits == 64 else self.b.trunc(value, narrow), self.b.inttoptr(at, narrow.as_pointer()), align=1)

    def add(self, a: Any, b: Any) -> Any:
        return self.b.add(self.word(a), self.word(b))

    def call(self, name: str, *args: Any, result: Any = None) -> Any:
        """A function of API. ``result``: its type, where that is no whole word."""
        given = [self.word(a) for a in args]
        kind = self.ir.FunctionType(result or self.i64, [a.type for a in given])
        return self.b.call(self.pointer(self.load(self.api, API.index(name)), 0, kind), given)

    def int_call(self, name: str, *args: Any) -> Any:
        return self.b.sext(self.call(name, *args, result=self.i32), self.i64)

    def room(self, words: int, align: int = 8) -> Any:
        """Address of memory in the frame."""
        memory = self.head.alloca(self.ir.ArrayType(self.i64, words))
        memory.align = align
        return self.head.ptrtoint(memory, self.i64)

    def is_(self, a: Any, b: Any) -> Any:
        return self.b.icmp_signed("==", a, self.word(b))

    def less(self, a: Any, b: Any) -> Any:
        return self.b.icmp_signed("<", self.word(a), self.word(b))

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return self.b.select(condition, self.word(a), self.word(b))

    # -- control
    def block(self, name: str) -> Any:
        return self.function.append_basic_block(name)

    def unless(self, condition: Any, otherwise: Any) -> None:
        """Go on where the condition holds, else to the block ``otherwise``."""
        on = self.block("on")
        self.b.cbranch(condition, on, otherwise)
        self.b.position_at_end(on)

    @contextmanager
    def loop(self, count: Any) -> Iterator[Any]:
        """The body for 0, 1, … up to count - 1; ``steps[-1]`` is then the block that goes on with the next."""
        number = self.room(1)
        self.store(0, number)
        test, body, step, end = (self.block(n) for n in ("test", "each", "step", "end"))
        self.b.branch(test)
        self.b.position_at_end(test)
        at = self.load(number)
        self.b.cbranch(self.less(at, count), body, end)
        self.b.position_at_end(body)
        self.steps.append(step)
        yield at
        self.steps.pop()
        if not self.b.block.is_terminated:
            self.b.branch(step)
        self.b.position_at_end(step)
        self.store(self.add(self.load(number), 1), number)
        self.b.branch(test)
        self.b.position_at_end(end)

    @contextmanager
    def case(self, value: Any, number: int, end: Any) -> Iterator[None]:
        """The body where value is number, which then goes to ``end``."""
        yes, no = self.block("yes"), self.block("no")
        self.b.cbranch(self.is_(value, number), yes, no)
        self.b.position_at_end(yes)
        yield
        if not self.b.block.is_terminated:
            self.b.branch(end)
        self.b.position_at_end(no)

    def fields(self, base: Any, table: dict[str, int]) -> Any:
        """``name → the word of that field``, read when asked for."""
        return lambda name: self.load(base, table[name])
