"""The part of native_code.py that reads tensors and tensor descriptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.runtime.native_writer import BIGGEST, DESCRIPTOR, LISTS, STATE, Writer

OK, ELSEWHERE, ERROR = 0, 1, 2  # what the readers give: read; to be looked at in Python; an exception that no look in Python would give again


def write_error(module: Any) -> Any:
    """After a Python function failed: ELSEWHERE for exceptions, which Python's own look meets again, ERROR for what must not be lost (Ctrl-C)."""
    w = Writer(module, "after_error", 1, internal=True)
    (state,) = w.args
    w.api = w.load(state, STATE["api"])
    error = w.block("error")
    w.unless(w.b.icmp_signed("!=", w.int_call("PyErr_ExceptionMatches", w.load(state, STATE["Exception"])), w.word(0)), error)
    w.call("PyErr_Clear")
    w.b.ret(w.word(ELSEWHERE))
    w.b.position_at_end(error)
    w.b.ret(w.word(ERROR))
    w.done()
    return w.function


def write_tensor(module: Any, after_error: Any) -> Any:
    """``tensor(state, object, is_device, several, address*, dtype*, device*)``: reads a tensor of the right class."""
    w = Writer(module, "tensor", 7, internal=True)
    state, obj, is_device, several, address_at, dtype_at, device_at = w.args
    w.api = w.load(state, STATE["api"])
    s = w.fields(state, STATE)
    elsewhere, failed = w.block("elsewhere"), w.block("failed")
    there = w.call("PyObject_GetAttr", obj, is_device)
    w.unless(w.b.icmp_signed("!=", there, w.word(0)), failed)
    w.call("Py_DecRef", there)
    w.unless(w.is_(there, s("True")), elsewhere)
    one = w.room(1)
    w.store(obj, one)

    def number(name: str, convert: str) -> Any:
        made = w.call("PyObject_VectorcallMethod", s(name), one, 1, 0)
        w.unless(w.b.icmp_signed("!=", made, w.word(0)), failed)
        value = w.call(convert, made)
        w.call("Py_DecRef", made)
        bad, good = w.block("bad"), w.block("good")
        w.b.cbranch(w.is_(value, -1), bad, good)
        w.b.position_at_end(bad)
        w.b.cbranch(w.is_(w.call("PyErr_Occurred"), 0), good, failed)
        w.b.position_at_end(good)
        return value

    address = number("data_ptr", "PyLong_AsUnsignedLongLong")
    w.unless(w.b.icmp_signed("!=", address, w.word(0)), elsewhere)
    w.store(address, address_at)
    dtype = w.call("PyObject_GetAttr", obj, s("dtype"))
    w.unless(w.b.icmp_signed("!=", dtype, w.word(0)), failed)
    w.call("Py_DecRef", dtype)  # the record owns the one that it is compared with, so another object cannot have its address
    w.store(dtype, dtype_at)
    w.store(0, device_at)
    end = w.block("end")
    w.unless(w.b.icmp_signed("!=", several, w.word(0)), end)
    w.store(number("get_device", "PyLong_AsLongLong"), device_at)  # -1 of the host's
    w.b.branch(end)
    w.b.position_at_end(end)
    w.b.ret(w.word(OK))
    w.b.position_at_end(elsewhere)
    w.b.ret(w.word(ELSEWHERE))
    w.b.position_at_end(failed)
    w.b.ret(w.b.call(after_error, [state]))
    w.done()
    return w.function


def _items(w: Writer, int_type: Any, listed: Any, kind: Any, count: Any, overflow: Any, elsewhere: Any, put: Callable[[Any, Any], None]) -> None:
    """``put(i, number)`` of each item, an int, of a list or tuple whose type and size are as they were; ``kind``: where its type stands, and whether that is list."""
    w.unless(w.is_(w.load(listed, 1), w.load(kind)), elsewhere)
    is_list, is_tuple, begin = w.block("is_list"), w.block("is_tuple"), w.block("begin")
    w.b.cbranch(w.is_(w.load(kind, 1), 1), is_list, is_tuple)
    w.b.position_at_end(is_list)
    w.b.cbranch(w.is_(w.call("PyList_Size", listed), count), begin, elsewhere)
    w.b.position_at_end(is_tuple)
    w.b.cbranch(w.is_(w.call("PyTuple_Size", listed), count), begin, elsewhere)
    w.b.position_at_end(begin)
    item = w.room(1)
    with w.loop(count) as i:
        of_list, of_tuple, have = w.block("of_list"), w.block("of_tuple"), w.block("have")
        w.b.cbranch(w.is_(w.load(kind, 1), 1), of_list, of_tuple)
        w.b.position_at_end(of_list)
        w.store(w.call("PyList_GetItem", listed, i), item)
        w.b.branch(have)
        w.b.position_at_end(of_tuple)
        w.store(w.call("PyTuple_GetItem", listed, i), item)
        w.b.branch(have)
        w.b.position_at_end(have)
        one = w.load(item)
        w.unless(w.is_(w.load(one, 1), int_type), elsewhere)
        number = w.call("PyLong_AsLongLongAndOverflow", one, overflow)
        w.unless(w.is_(w.b.and_(w.load(overflow), w.word(0xFFFF_FFFF)), 0), elsewhere)
        put(i, number)


def write_descriptor(module: Any, after_error: Any, tensor: Any) -> Any:
    """``descriptor(state, object, facts, keys, values)``: reads a tensor descriptor: its values are those of the kernel's arguments; its keys the padding,
    whether the last size is a multiple of 16 with twice the device's number, and the block's sizes."""
    w = Writer(module, "descriptor", 5, internal=True)
    state, obj, facts, keys, values = w.args
    w.api = w.load(state, STATE["api"])
    s, f = w.fields(state, STATE), w.fields(facts, DESCRIPTOR)
    names = ("base", *LISTS, "padding")
    held = w.room(len(names))
    outcome = w.room(1)
    for i in range(len(names)):
        w.store(0, held, i)
    elsewhere, failed, finish = w.block("elsewhere"), w.block("failed"), w.block("finish")
    objects = {}
    for i, name in enumerate(names):
        objects[name] = w.call("PyObject_GetAttr", obj, s(name))
        w.unless(w.b.icmp_signed("!=", objects[name], w.word(0)), failed)
        w.store(objects[name], held, i)
    w.unless(w.is_(w.load(objects["base"], 1), f("tensor")), elsewhere)
    read = w.room(3)
    got = w.b.call(tensor, [state, objects["base"], f("is_device"), f("several"), read, w.add(read, 8), w.add(read, 16)])
    w.store(got, outcome)
    w.unless(w.is_(got, OK), finish)
    address = w.load(read)
    w.unless(w.is_(w.b.and_(address, w.word(15)), 0), elsewhere)
    w.unless(w.is_(w.load(read, 1), f("dtype")), elsewhere)
    w.store(address, values)
    rank = f("rank")
    overflow = w.room(1)

    def size(i: Any, number: Any) -> None:
        w.unless(w.b.icmp_unsigned("<=", number, w.word(BIGGEST)), elsewhere)
        w.store(number, values, w.add(i, 1))

    itemsize = f("itemsize")

    def stride(i: Any, number: Any) -> None:
        last, other = w.block("last"), w.block("other")
        w.b.cbranch(w.is_(w.add(i, 1), rank), last, other)
        w.b.position_at_end(last)
        w.b.cbranch(w.is_(number, 1), w.steps[-1], elsewhere)
        w.b.position_at_end(other)
        w.unless(w.b.icmp_unsigned("<", number, w.word(1 << 58)), elsewhere)
        w.unless(w.is_(w.b.and_(w.b.mul(number, itemsize), w.word(15)), 0), elsewhere)
        w.store(number, values, w.add(w.add(i, 1), rank))

    for name, put in (("shape", size), ("strides", stride), ("block_shape", lambda i, number: w.store(number, keys, w.add(i, 2)))):
        kind = w.add(facts, (DESCRIPTOR["lists"] + 2 * LISTS.index(name)) * 8)
        _items(w, s("int"), objects[name], kind, rank, overflow, elsewhere, put)
    w.store(objects["padding"], keys)
    last = w.b.zext(w.is_(w.b.and_(w.load(values, rank), w.word(15)), 0), w.i64)
    w.store(w.add(last, w.b.shl(w.load(read, 2), w.word(1))), keys, 1)
    w.store(OK, outcome)
    w.b.branch(finish)
    w.b.position_at_end(elsewhere)
    w.store(ELSEWHERE, outcome)
    w.b.branch(finish)
    w.b.position_at_end(failed)
    w.store(w.b.call(after_error, [state]), outcome)
    w.b.branch(finish)
    w.b.position_at_end(finish)
    with w.loop(w.word(len(names))) as i:
        one = w.load(held, i)
        w.unless(w.b.icmp_signed("!=", one, w.word(0)), w.steps[-1])
        w.call("Py_DecRef", one)
    w.b.ret(w.load(outcome))
    w.done()
    return w.function
