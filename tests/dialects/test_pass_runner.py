"""The pass runner: order, dumps, verification, errors with the user's place, reproducers that run again, `opt`."""

from __future__ import annotations

import re

import pytest

from tilewright.dialects import pass_runner
from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import (
    CompilationError,
    InternalCompilerError,
    OutOfResources,
    ShapeMismatchError,
    UnsupportedArchError,
)
from tilewright.dialects.pipeline import Pass, PassContext, Pipeline, Stage

TEXT = """
module {
  func.func @kern(%a: i32) attributes {tt.kernel} {
    %0 = "tt.make_range"() {start = 0 : i32, end = 128 : i32} : () -> tensor<128xi32> loc("user.py":12:9)
    "tt.print"(%0) {prefix = "x", hex = false, is_signed = array<i32: 1>, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>} : (tensor<128xi32>) -> () loc(callsite("helper.py":3:5 at "user.py":13:7))
    return
  } loc("user.py":10:1)
}"""


def context(name="kern"):
    return PassContext(target=None, arch="generic", capabilities=pass_runner.GenericCapabilities(),
                       options=pass_runner.GenericOptions(), kernel_name=name)


def tag(name):
    """A pass that notes its name on the function."""

    def run(module, ctx):
        func = module.body.operations[0]
        seen = ir.StringAttr(func.attributes["seen"]).value if "seen" in func.attributes else ""
        func.attributes["seen"] = ir.StringAttr.get(seen + name)

    return Pass(name, run)


def raising(error, name="boom"):
    def run(module, ctx):
        op = next(op for op in pass_runner._ops_of(module) if op.name == "tt.print")
        raise error if op else AssertionError

    return Pass(name, run)


def run(stages, text=TEXT, ctx=None):
    ctx = ctx or context()
    with mlir_context():
        return pass_runner.run_pipeline(Pipeline(tuple(stages)), ir.Module.parse(text), ctx)


def test_stages_run_in_order_and_leave_what_they_made():
    seen = []
    asm = run([
        Stage("ttir", (tag("a"), tag("b"))),
        Stage("ttgir", (tag("c"),)),
        Stage("llir", (), lambda code, ctx: (seen.append(type(code)), "text")[1]),
        Stage("obj", (), lambda code, ctx: None),  # no assembler
        Stage("last", (), lambda code, ctx: code.encode()),
    ])
    assert list(asm) == ["ttir", "ttgir", "llir", "last"]
    assert 'seen = "ab"' in asm["ttir"] and 'seen = "abc"' in asm["ttgir"]
    assert seen == [ir.Module] and asm["llir"] == "text" and asm["last"] == b"text"


def test_passes_after_a_translation_are_refused():
    with pytest.raises(ValueError, match="left MLIR"):
        run([Stage("a", (), lambda code, ctx: "text"), Stage("b", (tag("x"),))])


@pytest.mark.parametrize("value, dumped", [("1", True), ("kern", True), ("other", False), ("0", False), ("", False)])
def test_dump_before_and_after_every_pass(monkeypatch, capfd, value, dumped):
    monkeypatch.setenv("MLIR_ENABLE_DUMP", value)
    run([Stage("ttir", (tag("first"), tag("second")))])
    err = capfd.readouterr().err
    heads = re.findall(r"IR Dump (\w+ \w+) \((\w+)\)", err)
    if not dumped:
        assert heads == []
        return
    assert heads == [("Before first", "kern"), ("After first", "kern"), ("Before second", "kern"), ("After second", "kern")]
    pieces = re.split(r"// -----// IR Dump .*//----- //\n", err)[1:]
    with mlir_context():
        texts = [str(ir.Module.parse(piece)) for piece in pieces]
    assert "seen" not in texts[0] and 'seen = "first"' in texts[1]
    assert texts[1] == texts[2] and 'seen = "firstsecond"' in texts[3]


def test_verify_after_every_pass_names_the_pass(monkeypatch):
    def breaks(module, ctx):  # an add whose operands have two types
        at = next(op for op in pass_runner._ops_of(module) if op.name == "func.return")
        with ir.InsertionPoint(at):
            i64 = ir.IntegerType.get_signless(64)
            bad = ir.Operation.create("arith.constant", results=[i64], attributes={"value": ir.IntegerAttr.get(i64, 1)})
            ir.Operation.create("arith.addi", results=[i64], operands=[bad.result, module.body.operations[0].arguments[0]])

    stages = [Stage("s", (tag("fine"), Pass("breaks", breaks), tag("later")))]
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")
    with pytest.raises(InternalCompilerError, match="pass breaks failed.*after breaks is not valid"):
        run(stages)
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")  # production: not after every pass, but before lowering
    run(stages)
    with pytest.raises(InternalCompilerError, match="before lowering is not valid"):
        run([Stage("s", (Pass("breaks", breaks), Pass("lower_to_llvm", lambda m, c: None)))])


def test_the_frontends_module_is_verified(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    with mlir_context():
        module = ir.Module.parse(TEXT)
        ir.Operation.create("arith.addi", ip=ir.InsertionPoint.at_block_begin(module.body.operations[0].entry_block),
                            results=[ir.IntegerType.get_signless(64)], operands=[module.body.operations[0].arguments[0]] * 2)
        with pytest.raises(InternalCompilerError, match="from the frontend"):
            pass_runner.run_pipeline(Pipeline((Stage("s"),)), module, context())


def test_tilewright_errors_come_out_as_themselves():
    error = OutOfResources(10, 5, "shared memory")
    with pytest.raises(OutOfResources) as caught:
        run([Stage("s", (raising(error),))])
    assert caught.value is error
    with pytest.raises(UnsupportedArchError):
        run([Stage("s", (raising(UnsupportedArchError("no")),))])


def test_compilation_error_gets_the_place_of_the_op_innermost():
    with pytest.raises(ShapeMismatchError) as caught:
        run([Stage("s", (raising(ShapeMismatchError("bad shape")),))])
    assert (caught.value.file, caught.value.line, caught.value.col) == ("helper.py", 3, 4)
    with mlir_context():
        module = ir.Module.parse(TEXT)
        op = next(op for op in pass_runner._ops_of(module) if op.name == "tt.make_range")
        assert str(pass_runner.error_at(ShapeMismatchError("m"), op)).startswith("user.py:12:9: m")


def test_erased_op_is_not_asked_for_its_place():
    def erases(module, ctx):
        op = next(op for op in pass_runner._ops_of(module) if op.name == "tt.print")
        op.erase()
        raise ShapeMismatchError("bad")

    with pytest.raises(ShapeMismatchError) as caught:
        run([Stage("s", (Pass("erases", erases),))])
    assert (caught.value.file, caught.value.line) == ("user.py", 10)  # the kernel


def test_reproducer_runs_again(capsys, monkeypatch):
    with pytest.raises(InternalCompilerError) as caught:
        run([Stage("s", (tag("fine"), raising(ZeroDivisionError("oops"), "canonicalize_tt"), tag("never")))])
    message = str(caught.value)
    assert message.startswith("helper.py:3:5: pass canonicalize_tt failed: ZeroDivisionError: oops (test_pass_runner.py:")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    path, names = re.search(r"tilewright opt (\S+) --passes (\S+)", message).groups()
    assert names == "fine,canonicalize_tt"
    text = open(path).read()
    assert "seen" not in text and "user.py" in text  # the IR before the stage's first pass, with locations
    assert pass_runner.opt_main([path, "--passes", ""]) == 0
    assert "tt.make_range" in capsys.readouterr().out


def test_failing_translation_names_the_stage_and_keeps_its_input():
    def fails(code, ctx):
        raise KeyError("nope")

    with pytest.raises(InternalCompilerError, match="stage ptx failed: KeyError") as caught:
        run([Stage("llir", (), lambda code, ctx: "the text"), Stage("ptx", (), fails)])
    assert open(re.search(r"input is in (\S+)", str(caught.value)).group(1)).read() == "the text"


def test_times(monkeypatch, capfd):
    monkeypatch.setenv("TILEWRIGHT_PRINT_TIMES", "1")
    run([Stage("ttir", (tag("first"),)), Stage("llir", (), lambda code, ctx: "x")])
    assert re.findall(r"[\d.]+ ms  (.+)", capfd.readouterr().err) == ["first", "llir (translation)"]


class TestOpt:
    def test_unknown_pass_and_bad_text(self, tmp_path, capsys):
        good, bad = tmp_path / "a.mlir", tmp_path / "b.mlir"
        good.write_text(TEXT)
        bad.write_text("module { what }")
        assert pass_runner.opt_main([str(good), "--passes", "no_such"]) == 1
        assert "no pass 'no_such'; there are rewrite_tensor_descriptors, " in capsys.readouterr().err
        assert pass_runner.opt_main([str(bad)]) == 1
        assert "does not parse" in capsys.readouterr().err
        assert pass_runner.opt_main([str(tmp_path / "missing.mlir")]) == 1

    def test_target_is_resolved_by_the_callback(self, tmp_path, capsys):
        file = tmp_path / "a.mlir"
        file.write_text(TEXT)
        asked = []

        def resolve(name, options):
            asked.append((name, options))
            return context(""), Pipeline((Stage("s", (tag("mine"),)),))

        assert pass_runner.opt_main([str(file), "--passes", "mine", "--target", "toy:one", "--num-warps", "8"], resolve) == 0
        assert 'seen = "mine"' in capsys.readouterr().out
        assert asked == [("toy:one", {"num_warps": 8, "num_stages": 3})]

    def test_flags_reach_the_context(self, tmp_path, capsys, monkeypatch):
        seen = []
        import tilewright.dialects.passes as passes
        monkeypatch.setattr(passes, "shared_pass", lambda name: Pass(name, lambda m, c: seen.append(c)))
        file = tmp_path / "a.mlir"
        file.write_text(TEXT)
        assert pass_runner.opt_main([str(file), "--passes", "coalesce", "--warp-size", "64", "--num-warps", "2",
                                     "--num-stages", "5", "--async-copy-bytes", "4,8,16"]) == 0
        (ctx,) = seen
        assert (ctx.warp_size, ctx.num_warps, ctx.num_stages, ctx.kernel_name) == (64, 2, 5, "kern")
        assert ctx.capabilities.async_copy_bytes == (4, 8, 16)


def test_a_compilation_error_with_a_place_keeps_it():
    with pytest.raises(CompilationError) as caught:
        run([Stage("s", (raising(CompilationError("m", "mine.py", 4, 2)),))])
    assert (caught.value.file, caught.value.line) == ("mine.py", 4)


def test_list_says_what_every_pass_does(capsys):
    assert pass_runner.opt_main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 11 and all(len(line.split(maxsplit=1)) == 2 for line in lines)


def test_dumps_of_a_whole_gpu_pipeline_parse_again(monkeypatch, capfd):
    """Every dump of the examples' matmul for a GPU, LLVM dialect included, is text that parses to the same module."""
    import matmul as example

    import tilewright
    from tilewright.compiler import ASTSource
    from tilewright.targets.protocol import GPUTarget

    kernel = example.matmul_kernel
    signature = {f"{p}_ptr": "*fp16" for p in "xwby"} | {n: "i32" for n in kernel.arg_names if n in "MNK" or n.startswith("stride")}
    constants = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=8, RELU=True, PRECISION="ieee")
    monkeypatch.setenv("MLIR_ENABLE_DUMP", "matmul_kernel")
    monkeypatch.setenv("TILEWRIGHT_ALWAYS_COMPILE", "1")
    tilewright.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 80, 32), options={"num_warps": 1})
    pieces = re.split(r"// -----// IR Dump (\w+ \w+) \(matmul_kernel\) //----- //\n", capfd.readouterr().err)[1:]
    assert len(pieces) >= 2 * 2 * 11
    from tilewright.dialects.printer import print_module

    with mlir_context():
        for title, text in zip(pieces[::2], pieces[1::2]):
            assert print_module(ir.Module.parse(text)).strip() == text.strip(), title
