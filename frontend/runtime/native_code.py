"""The machine code of warm launches: one function with CPython's calling convention, made by llvmlite once and kept in the disk cache.

``launch(self, args, nargs, kwnames)`` (METH_FASTCALL | METH_KEYWORDS) looks at the arguments of ``kernel[grid](…)``, finds the record of what was
launched with their like before, writes the call's memory on its stack and calls the runtime's C function, the interpreter's lock released. What it
does not know goes to a Python function, the *fallback*, with the arguments as they came; so does everything that ends in an error. See
native_launch.py, which makes the records. It reads and writes tables of 64-bit words, whose fields are named here, and calls Python by the
addresses in a table of its own (``API``): it has no relocations, so that its bytes are all that is kept. Nothing is assumed of Python's objects but
that an object's type is the second word of it, and a float's value the third (``usable`` looks).

Memory: a record is found, and a reference to its owner taken, with no Python code in between; the lists of sites only ever grow. So another thread
may forget records at any time. Every reference that is taken is given back at ``finish``.
"""

from __future__ import annotations

from typing import Any

from tilewright.runtime.native_readers import ELSEWHERE, OK, write_descriptor, write_error, write_tensor
from tilewright.runtime.native_writer import (
    BIGGEST,
    CODES,
    KINDS,
    MEMORY,
    OPERATION,
    RECORD,
    SITE,
    STATE,
    STORE,
    VALUES,
    WORDS,
    Writer,
)


class Launch:
    """Writes ``launch``."""

    def __init__(self, module: Any):
        after_error = write_error(module)
        tensor = write_tensor(module, after_error)
        descriptor = write_descriptor(module, after_error, tensor)
        self.w = w = Writer(module, "launch", 4, internal=False)
        self.me, self.argv, self.nargs, self.kwnames = w.args
        self.state = w.load(self.me, 2)
        w.api = w.load(self.state, STATE["api"])
        self.s = w.fields(self.state, STATE)
        self.values, self.keys, self.memory = w.room(VALUES), w.room(VALUES), w.room(MEMORY // 8, 64)
        self.overflow, self.result, self.owner, self.grid_made, self.given = (w.room(1) for _ in range(5))
        for at in (self.owner, self.grid_made, self.overflow):
            w.store(0, at)
        w.store(self.argv, self.given)
        self.fallback, self.unplanned, self.null, self.finish = (w.block(n) for n in ("fallback", "unplanned", "null", "finish"))
        self.found, self.record_at, self.site_at = w.block("found"), w.room(1), w.room(1)
        self._find(after_error, tensor, descriptor)
        w.b.position_at_end(self.found)
        self.r = w.fields(w.load(self.record_at), RECORD)
        self._check()
        x, y, z = self._grid()
        stream = self._device()
        self._write(x, y, z, stream)
        self._launch(x, y, z)
        self._ends()
        w.done()

    # -- which record
    def _find(self, after_error: Any, tensor: Any, descriptor: Any) -> None:
        w = self.w
        count = w.room(1)
        w.store(0, count)
        named = w.block("named")
        begin = w.block("begin")
        w.b.cbranch(w.is_(self.kwnames, 0), begin, named)
        w.b.position_at_end(named)
        w.store(w.call("PyTuple_Size", self.kwnames), count)
        w.b.branch(begin)
        w.b.position_at_end(begin)
        names = w.load(count)
        environment = w.call("PyDict_GetItem", self.s("environ"), self.s("variable"))
        with w.loop(self.s("sites")) as number:
            site = w.load(self.state, w.add(number, STATE["site"]))
            f = w.fields(site, SITE)
            again = w.steps[-1]
            w.unless(w.is_(self.nargs, f("positional")), again)
            w.unless(w.is_(names, f("named")), again)
            wanted = f("names")
            with w.loop(names) as i:  # which are mostly one object in a process, but not where a program has read or made them
                other_name = w.block("other_name")
                given, known_name = w.call("PyTuple_GetItem", self.kwnames, i), w.load(wanted, i)
                w.b.cbranch(w.is_(given, known_name), w.steps[-1], other_name)
                w.b.position_at_end(other_name)
                w.unless(w.is_(w.int_call("PyObject_RichCompareBool", given, known_name, w.ir.Constant(w.i32, 2)), 1), again)  # Py_EQ
            with w.loop(f("operations")) as i:
                self._read(w.add(f("operation"), w.b.mul(i, w.word(8 * len(OPERATION)))), again, after_error, tensor, descriptor)
            with w.loop(f("records")) as i:
                record = w.load(w.add(site, SITE["record"] * 8), i)
                key = w.load(record, RECORD["key"])
                with w.loop(f("keys")) as k:
                    w.unless(w.is_(w.load(key, k), w.load(self.keys, k)), w.steps[-2])
                same, other, another = w.block("same"), w.block("other"), w.block("another")
                known = w.load(record, RECORD["environment"])
                w.b.cbranch(w.is_(environment, known), same, other)
                w.b.position_at_end(other)
                w.b.cbranch(w.b.or_(w.is_(environment, 0), w.is_(known, 0)), w.steps[-1], another)
                w.b.position_at_end(another)
                w.b.cbranch(w.is_(w.int_call("PyObject_RichCompareBool", environment, known, w.ir.Constant(w.i32, 2)), 1), same, w.steps[-1])  # Py_EQ
                w.b.position_at_end(same)
                w.store(record, self.record_at)
                w.store(site, self.site_at)
                owner = w.load(record, RECORD["owner"])
                w.call("Py_IncRef", owner)
                w.store(owner, self.owner)
                w.b.branch(self.found)
        w.b.branch(self.fallback)

    def _read(self, operation: Any, again: Any, after_error: Any, tensor: Any, descriptor: Any) -> None:
        """One argument: its key and its value."""
        w, o = self.w, self.w.fields(operation, OPERATION)
        obj = w.load(self.argv, o("source"))
        kind = o("kind")
        type_ = w.load(obj, 1)
        key = w.add(self.keys, w.b.mul(o("key"), w.word(8)))
        value = w.add(self.values, w.b.mul(o("value"), w.word(8)))
        end = w.block("read")

        def number() -> Any:
            n = w.call("PyLong_AsLongLongAndOverflow", obj, self.overflow)
            w.unless(w.is_(w.b.and_(w.load(self.overflow), w.word(0xFFFF_FFFF)), 0), again)
            return n

        def after(status: Any) -> None:
            bad = w.block("bad")
            w.b.cbranch(w.is_(status, OK), end, bad)
            w.b.position_at_end(bad)
            w.b.cbranch(w.is_(status, ELSEWHERE), again, self.null)

        with w.case(kind, KINDS["tensor"], end):
            w.unless(w.is_(type_, o("a")), again)
            device, address = w.room(1), w.room(1)
            status = w.b.call(tensor, [self.state, obj, o("b"), o("d"), address, key, device])
            # the second key word: aligned, and twice the device's number
            at = w.load(address)
            w.store(at, value)
            aligned = w.b.and_(w.b.zext(w.is_(w.b.and_(at, w.word(15)), 0), w.i64), o("c"))
            w.store(w.add(aligned, w.b.shl(w.load(device), w.word(1))), key, 1)
            after(status)
        with w.case(kind, KINDS["int"], end):
            w.unless(w.is_(type_, self.s("int")), again)
            n = number()
            w.store(n, value)
            # by range: what of one type, and specialised alike, is of one number
            small = w.select(w.less(1, n), 2, w.select(w.is_(n, 1), 1, w.select(w.less(-BIGGEST - 2, n), 3, 5)))
            where = w.select(w.less(BIGGEST, n), 4, small)
            divides = w.b.and_(w.b.zext(w.is_(w.b.and_(n, w.word(15)), 0), w.i64), o("c"))
            w.store(w.add(w.b.shl(where, w.word(1)), divides), key)
        with w.case(kind, KINDS["same"], end):
            w.store(type_, key)
            integer, other = w.block("integer"), w.block("other")
            w.b.cbranch(w.is_(type_, self.s("int")), integer, other)
            w.b.position_at_end(integer)
            w.store(number(), key, 1)
            w.b.branch(end)
            w.b.position_at_end(other)
            w.store(obj, key, 1)
        with w.case(kind, KINDS["float"], end):
            w.unless(w.is_(type_, o("a")), again)
            d = w.ir.DoubleType()
            w.store(w.b.bitcast(w.call("PyFloat_AsDouble", obj, result=d), w.i64), value)
        with w.case(kind, KINDS["bool"], end):
            w.unless(w.is_(type_, o("a")), again)
            w.store(w.b.zext(w.is_(obj, self.s("True")), w.i64), value)
        w.unless(w.is_(type_, o("a")), again)
        after(w.b.call(descriptor, [self.state, obj, o("b"), key, value]))
        w.b.position_at_end(end)

    # -- what may have changed
    def _check(self) -> None:
        w, s = self.w, self.s
        self._no_hooks()
        self._empty(s("function"), "pre_run_hooks")
        self._empty(s("function"), "_slow_checks")
        checks = w.call("PyObject_GetAttr", s("function"), s("_checks"))
        self._made(checks)
        outcome = w.room(1)
        w.store(0, outcome)
        done = w.block("checked")
        with w.loop(w.call("PyList_Size", checks)) as i:
            check = w.call("PyList_GetItem", checks, i)
            scope, name, value = (w.call("PyTuple_GetItem", check, k) for k in range(3))
            changed = w.block("changed")
            w.b.cbranch(w.is_(w.call("PyDict_GetItem", scope, name), value), w.steps[-1], changed)
            w.b.position_at_end(changed)
            w.store(1, outcome)
            w.b.branch(done)
        w.b.branch(done)
        w.b.position_at_end(done)
        w.call("Py_DecRef", checks)
        w.unless(w.is_(w.load(outcome), 0), self.fallback)

    def _empty(self, owner: Any, name: str) -> None:
        """Go on where an attribute has nothing in it."""
        w = self.w
        made = w.call("PyObject_GetAttr", owner, self.s(name))
        self._made(made)
        some = w.int_call("PyObject_IsTrue", made)
        w.call("Py_DecRef", made)
        w.unless(w.b.icmp_signed(">=", some, w.word(0)), self.null)
        w.unless(w.is_(some, 0), self.fallback)

    def _no_hooks(self) -> None:
        self._empty(self.s("hooks"), "launch_enter_hook")
        self._empty(self.s("hooks"), "launch_exit_hook")

    def _made(self, obj: Any) -> None:
        """Go on where there is an object; else its exception is what the launch gives."""
        self.w.unless(self.w.b.icmp_signed("!=", obj, self.w.word(0)), self.null)

    def _grid(self) -> tuple[Any, Any, Any]:
        """Three sizes, all positive and below 2^31; other grids are looked at in Python. A function is called, once."""
        w, s = self.w, self.s
        sizes = w.room(3)
        for i in range(3):
            w.store(1, sizes, i)
        grid = w.room(1)
        w.store(w.load(self.argv), grid)
        look, is_tuple, no_tuple, whole, call, end = (w.block(n) for n in ("look", "is_tuple", "no_tuple", "whole", "call", "have_grid"))
        w.b.branch(look)
        w.b.position_at_end(look)
        type_ = w.load(w.load(grid), 1)
        w.b.cbranch(w.is_(type_, s("tuple")), is_tuple, no_tuple)

        def size(obj: Any) -> Any:
            w.unless(w.is_(w.load(obj, 1), s("int")), self.fallback)
            n = w.call("PyLong_AsLongLongAndOverflow", obj, self.overflow)
            w.unless(w.b.icmp_unsigned("<", w.add(n, -1), w.word(BIGGEST)), self.fallback)  # 1 to 2^31 - 1; -1 where it is no 64-bit number
            return n

        w.b.position_at_end(is_tuple)
        count = w.call("PyTuple_Size", w.load(grid))
        w.unless(w.b.icmp_unsigned("<", w.add(count, -1), w.word(3)), self.fallback)
        with w.loop(count) as i:
            w.store(size(w.call("PyTuple_GetItem", w.load(grid), i)), sizes, i)
        w.b.branch(end)
        w.b.position_at_end(no_tuple)
        w.b.cbranch(w.is_(type_, s("int")), whole, call)
        w.b.position_at_end(whole)
        w.store(size(w.load(grid)), sizes)
        w.b.branch(end)
        w.b.position_at_end(call)
        w.unless(w.is_(w.load(self.grid_made), 0), self.fallback)
        w.unless(w.b.icmp_signed("!=", w.int_call("PyCallable_Check", w.load(grid)), w.word(0)), self.fallback)
        made = w.call("PyObject_Vectorcall", w.load(w.load(self.site_at), SITE["grid_of"]), self.argv, self.nargs, self.kwnames)
        self._made(made)
        w.store(made, self.grid_made)
        w.store(made, grid)
        # from now on the grid's function is not called again: Python's look, too, is given what it gave
        copy = w.room(VALUES + 1)
        self._copy_arguments(copy)
        w.store(made, copy)
        w.store(copy, self.given)
        self._no_hooks()  # that it may have added
        w.b.branch(look)
        w.b.position_at_end(end)
        x, y, z = (w.load(sizes, i) for i in range(3))
        w.unless(w.b.icmp_signed("<=", x, self.r("most_x")), self.fallback)
        return x, y, z

    def _copy_arguments(self, to: Any) -> None:
        w = self.w
        count, named, copied = w.room(1), w.block("named"), w.block("copied")
        w.store(self.nargs, count)
        w.b.cbranch(w.is_(self.kwnames, 0), copied, named)
        w.b.position_at_end(named)
        w.store(w.add(self.nargs, w.call("PyTuple_Size", self.kwnames)), count)
        w.b.branch(copied)
        w.b.position_at_end(copied)
        given = w.load(self.given)
        with w.loop(w.load(count)) as i:
            w.store(w.load(given, i), to, i)

    def _device(self) -> Any:
        """The stream of the current device, where that is the record's."""
        w, r = self.w, self.r

        def number(made: Any) -> Any:
            self._made(made)
            value = w.call("PyLong_AsUnsignedLongLong", made)
            w.call("Py_DecRef", made)
            bad, good = w.block("bad"), w.block("good")
            w.b.cbranch(w.is_(value, -1), bad, good)
            w.b.position_at_end(bad)
            w.b.cbranch(w.is_(w.call("PyErr_Occurred"), 0), good, self.null)
            w.b.position_at_end(good)
            return value

        device = number(w.call("PyObject_Vectorcall", r("device_of"), 0, 0, 0))
        w.unless(w.is_(device, r("device")), self.fallback)
        one = w.room(2)
        w.store(r("device_object"), one)
        return number(w.call("PyObject_Vectorcall", r("stream_of"), one, 1, 0))

    # -- the call
    def _copy(self, source: Any, target: Any, size: Any) -> None:
        """``size`` bytes, a multiple of 32."""
        w = self.w
        four = w.ir.VectorType(w.i64, 4)
        with w.loop(w.b.lshr(size, w.word(5))) as i:
            at = w.b.shl(i, w.word(5))
            w.b.store(w.b.load(w.b.inttoptr(w.add(source, at), four.as_pointer()), align=1), w.b.inttoptr(w.add(target, at), four.as_pointer()), align=1)

    def _write(self, x: Any, y: Any, z: Any, stream: Any) -> None:
        w, r, memory = self.w, self.r, self.memory
        self._copy(r("memory"), memory, r("size"))
        with w.loop(r("stores")) as i:
            entry = w.fields(w.add(r("store"), w.b.mul(i, w.word(8 * len(STORE)))), STORE)
            self._store(w.load(self.values, entry("value")), entry("code"), w.add(memory, entry("offset")))
        with w.loop(r("pointers")) as i:
            pair = w.add(r("pointer"), w.b.mul(i, w.word(16)))
            w.store(w.add(memory, w.load(pair, 1)), w.add(memory, w.load(pair)))
        w.store(stream, w.add(memory, r("stream")))
        sizes = w.room(3)
        for i, n in enumerate((x, y, z)):
            w.store(n, sizes, i)
        persistent, blocks = w.block("persistent"), w.block("blocks")
        limit = r("limit")
        w.b.cbranch(w.is_(limit, 0), blocks, persistent)
        w.b.position_at_end(persistent)
        total = w.b.mul(x, y)
        w.unless(w.b.icmp_signed("<=", total, w.word(BIGGEST)), self.fallback)
        total = w.b.mul(total, z)
        w.unless(w.b.icmp_signed("<=", total, w.word(BIGGEST)), self.fallback)
        for i, n in enumerate((x, y, z)):
            w.put(n, w.add(w.add(memory, r("grid_copy")), 4 * i), 32)
        cluster = r("cluster")
        groups = w.b.udiv(w.add(total, w.add(cluster, -1)), cluster)
        w.store(w.b.mul(w.b.select(w.less(groups, limit), groups, limit), cluster), sizes)
        w.store(1, sizes, 1)
        w.store(1, sizes, 2)
        w.b.branch(blocks)
        w.b.position_at_end(blocks)
        for i, name in enumerate("xyz"):
            w.put(w.load(sizes, i), w.add(memory, r(name)), 32)
        self._plan(x, y, z)

    def _store(self, value: Any, code: Any, at: Any) -> None:
        """A value as its parameter is; where it does not fit, Python says so."""
        w = self.w
        end = w.block("stored")
        with w.case(code, CODES["P"], end):
            w.put(value, at, 64)
        with w.case(code, CODES["i"], end):
            w.unless(w.is_(w.b.sext(w.b.trunc(value, w.i32), w.i64), value), self.fallback)
            w.put(value, at, 32)
        with w.case(code, CODES["F"], end):
            self._store_float(value, at)
        for letter, bits in (("b", 8), ("h", 16), ("B", 8), ("H", 16), ("I", 32)):
            with w.case(code, CODES[letter], end):
                narrow = w.b.trunc(value, w.ir.IntType(bits))
                w.unless(w.is_((w.b.sext if letter.islower() else w.b.zext)(narrow, w.i64), value), self.fallback)
                w.put(value, at, bits)
        with w.case(code, CODES["?"], end):
            w.put(value, at, 8)
        with w.case(code, CODES["Q"], end):
            w.unless(w.b.icmp_signed(">=", value, w.word(0)), self.fallback)
            w.put(value, at, 64)
        w.put(value, at, 64)  # "q", "d"
        w.b.branch(end)
        w.b.position_at_end(end)

    def _store_float(self, value: Any, at: Any) -> None:
        """A double as a float. Finite ones that no float holds are refused, as struct does; NaNs are left to it too."""
        w = self.w
        magnitude = w.b.and_(value, w.word(0x7FFF_FFFF_FFFF_FFFF))
        infinity = w.word(0x7FF0_0000_0000_0000)
        w.unless(w.b.icmp_signed("<=", magnitude, infinity), self.fallback)
        narrow = w.b.bitcast(w.b.fptrunc(w.b.bitcast(value, w.ir.DoubleType()), w.ir.FloatType()), w.i32)
        w.b.store(narrow, w.b.inttoptr(at, w.i32.as_pointer()), align=1)
        infinite = w.is_(w.b.and_(w.b.zext(narrow, w.i64), w.word(0x7FFF_FFFF)), 0x7F80_0000)
        w.unless(w.b.or_(w.b.not_(infinite), w.is_(magnitude, infinity)), self.fallback)

    def _plan(self, x: Any, y: Any, z: Any) -> None:
        """What the launcher has decided on such arguments: bytes that follow them. Where it has not, it is asked in Python."""
        w, r, memory = self.w, self.r, self.memory
        planned, end = w.block("planned"), w.block("plain")
        plans = r("plans")
        w.b.cbranch(w.is_(plans, 0), end, planned)
        w.b.position_at_end(planned)
        key, words = w.room(VALUES), r("plan_words")
        with w.loop(words) as i:
            w.store(w.b.and_(w.load(w.add(memory, r("masked")), i), w.load(r("mask"), i)), key, i)
        by_grid = r("by_grid")
        after = w.b.shl(words, w.word(3))
        for i, n in enumerate((x, y, z)):
            w.store(n, w.add(key, after), i)
        length = w.add(after, w.b.mul(by_grid, w.word(24)))
        name = w.call("PyBytes_FromStringAndSize", key, length)
        self._made(name)
        plan = w.call("PyDict_GetItem", plans, name)
        w.call("Py_DecRef", name)
        w.unless(w.b.icmp_signed("!=", plan, w.word(0)), self.unplanned)
        self._copy(w.call("PyBytes_AsString", plan), w.add(memory, r("extra")), w.call("PyBytes_Size", plan))
        w.b.branch(end)
        w.b.position_at_end(end)

    def _launch(self, x: Any, y: Any, z: Any) -> None:
        w, s, r, memory = self.w, self.s, self.r, self.memory
        kernel = r("kernel")
        function = w.pointer(r("function"), 0, w.ir.FunctionType(w.i32, [w.i64] * WORDS))
        words = [w.load(memory, i) for i in range(WORDS)]
        thread = w.call("PyEval_SaveThread")
        status = w.b.call(function, words)
        w.call("PyEval_RestoreThread", thread)
        bad, good = w.block("bad"), w.block("good")
        w.b.cbranch(w.b.icmp_signed("==", status, w.ir.Constant(w.i32, 0)), good, bad)
        w.b.position_at_end(bad)  # the owner says what it means, or that another launch, by Python, may succeed
        numbers = w.room(6)
        w.store(w.load(self.owner), numbers)
        made = [w.call("PyLong_FromLongLong", n) for n in (w.b.sext(status, w.i64), x, y, z)]
        for i, number in enumerate(made):
            w.store(number, numbers, i + 1)
        told = w.call("PyObject_VectorcallMethod", s("failed"), numbers, 5, 0)
        for number in made:
            w.call("Py_DecRef", number)
        self._made(told)
        w.call("Py_DecRef", told)
        w.b.branch(self.fallback)
        w.b.position_at_end(good)
        for owner, name in (("driver", "recent"), ("function", "last_launched")):
            w.unless(w.is_(w.int_call("PyObject_SetAttr", s(owner), s(name), kernel), 0), self.null)
        w.call("Py_IncRef", kernel)
        w.store(kernel, self.result)
        w.b.branch(self.finish)

    def _ends(self) -> None:
        w = self.w
        w.b.position_at_end(self.fallback)
        w.store(w.call("PyObject_Vectorcall", self.s("fallback"), w.load(self.given), self.nargs, self.kwnames), self.result)
        w.b.branch(self.finish)
        w.b.position_at_end(self.unplanned)  # as the fallback, with the record's owner before the arguments
        more = w.room(VALUES + 2)
        w.store(w.load(self.owner), more)
        self._copy_arguments(w.add(more, 8))
        w.store(w.call("PyObject_Vectorcall", self.s("unplanned"), more, w.add(self.nargs, 1), self.kwnames), self.result)
        w.b.branch(self.finish)
        w.b.position_at_end(self.null)
        w.store(0, self.result)
        w.b.branch(self.finish)
        w.b.position_at_end(self.finish)
        for at in (self.owner, self.grid_made):
            some, none = w.block("some"), w.block("none")
            w.b.cbranch(w.is_(w.load(at), 0), none, some)
            w.b.position_at_end(some)
            w.call("Py_DecRef", w.load(at))
            w.b.branch(none)
            w.b.position_at_end(none)
        w.b.ret(w.load(self.result))
