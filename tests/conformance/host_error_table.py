"""Misuses of the host's side, one a row: an expression, the class of its error, a part of its text.

``LAUNCHES`` are launches that every target and the interpreter refuse alike; test_host_errors.py makes them on the target under test. ``HOST`` are of
what no target has a part in (decorators, settings, descriptors, tools), or of numpy's arrays: tests/frontend/test_errors_host.py makes them on cpu.
``COMPILED``: only compiled kernels refuse it so. ``ENVIRONMENT``: variables, what is done under them, and the error, which names the variable.
"""

from tilewright.dialects.errors import (
    ArgumentError,
    TargetNotFoundError,
    TilewrightError,
    TypeMismatchError,
    UnsupportedArchError,
)
from tilewright.runtime.errors import (
    AutotunerError,
    DeviceMismatchError,
    GridAttributeError,
    GridError,
    HeuristicError,
    KernelCallError,
    LaunchSignatureError,
)
from tilewright.testing import UnsupportedUtilityError

COMPILED = "compiled"
LAUNCHES = [
    ('add[None](x, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found None (NoneType): round with tilewright.cdiv(n, BLOCK)'),
    ('add[{1:2}](x, 8, BLOCK=8)', ArgumentError, 'a grid is a tuple of one to three sizes, or a function that gives one; found {1: 2} (dict)'),
    ('add[{4}](x, 8, BLOCK=8)', ArgumentError, 'a grid is a tuple of one to three sizes, or a function that gives one; found {4} (set)'),
    ('add[lambda m: m](x, 8, BLOCK=8)', ArgumentError, "a grid is a tuple of one to three sizes, or a function that gives one; found {'x':"),
    ('add[lambda: (1,)](x, 8, BLOCK=8)', GridError, "a grid function takes one argument, the launch's arguments by name: lambda meta: (cdiv(meta['n'], meta['BLOCK']),)"),  # noqa: E501
    ('add[lambda a, b: (1,)](x, 8, BLOCK=8)', GridError, "a grid function takes one argument, the launch's arguments by name: lambda meta: (cdiv(meta['n'], meta['BLOCK']),)"),  # noqa: E501
    ('add[lambda m: (m.BLOCK,)](x, 8, BLOCK=8)', GridAttributeError, "a grid function is given a dict of the arguments: write meta['BLOCK'] in place of meta.BLOCK"),  # noqa: E501
    ('add[int](x, 8, BLOCK=8)', GridError, "a grid function takes one argument, the launch's arguments by name: lambda meta: (cdiv(meta['n'], meta['BLOCK']),)"),  # noqa: E501
    ('add.warmup(x, 8, BLOCK=8)', ArgumentError, 'run and warmup are given the grid by name, as in run(…, grid=(8,)); or write kernel[(8,)](…)'),
    ('add[(1,)](x, 8, 8, BLOCK=8)', LaunchSignatureError, "add: got multiple values for argument 'BLOCK'; its parameters are x, n, BLOCK"),
    ('add[(1,)](x, 8, x=x, BLOCK=8)', LaunchSignatureError, "add: got multiple values for argument 'x'; its parameters are x, n, BLOCK"),
    ('fl[(1,)](x, 1e39)', ArgumentError, "argument 'f' of fl: 1e+39 is beyond the largest fp32"),
    ('tup[(1,)](x, (1e39,))', ArgumentError, "argument 't' of tup: 1e+39 is beyond the largest fp32"),
    ('add[(1,)](torch.float32, 8, BLOCK=8)', ArgumentError, "argument 'x' of add is torch.float32, which stands for an array in warmup(…) alone; launch with an array"),  # noqa: E501
    ('add[(1,)](x, 8, BLOCK=8, num_warps=[4])', ArgumentError, "option 'num_warps' of add is given [4] (list); options are numbers, truth values and text", COMPILED),  # noqa: E501
    ('add[(1,)](x, 8, BLOCK=8, default_dot_input_precision="x")', ArgumentError, "default_dot_input_precision is one of tf32, tf32x3, ieee, bf16x3, bf16x6; found 'x'"),  # noqa: E501
    ('add[()](x, 8, BLOCK=8)', ArgumentError, 'a grid has one to three sizes; found 0: ()'),
    ('add[1.0, ](x, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found 1.0 (float): round with tilewright.cdiv(n, BLOCK)'),
    ('add[1.5](x, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found 1.5 (float): round with tilewright.cdiv(n, BLOCK)'),
    ('add["1"](x, 8, BLOCK=8)', ArgumentError, "grid sizes are integers; found '1' (str): round with tilewright.cdiv(n, BLOCK)"),
    ('add[torch.tensor([1.0])](x, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found'),
    ('add[lambda m: None](x, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found None (NoneType): round with tilewright.cdiv(n, BLOCK)'),
    ('add[lambda m: "ab"](x, 8, BLOCK=8)', ArgumentError, "grid sizes are integers; found 'a' (str): round with tilewright.cdiv(n, BLOCK)"),
    ('add[lambda m: (m["n"]/8,)](x, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found 1.0 (float): round with tilewright.cdiv(n, BLOCK)'),
    ('add[lambda m: lambda q: (1,)](x, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found'),
    ('add[1, 1, 1, 1](x, 8, BLOCK=8)', ArgumentError, 'a grid has one to three sizes; found 4: (1, 1, 1, 1)'),
    ('add[(1, (1,))](x, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found (1,) (tuple): round with tilewright.cdiv(n, BLOCK)'),
    ('add[slice(1)](x, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found slice(None, 1, None) (slice): round with tilewright.cdiv(n, BLOCK)'),
    ('add[1:2](x, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found slice(1, 2, None) (slice): round with tilewright.cdiv(n, BLOCK)'),
    ('add[(i for i in (1,))](x, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found <generator object <genexpr> at'),
    ('add(x, 8, BLOCK=8)', KernelCallError, 'add is a kernel: launch it as add[grid](...), or call it from another kernel'),
    ('add(1)(x, 8)', KernelCallError, 'add is a kernel: launch it as add[grid](...), or call it from another kernel'),
    ('add[(1,)](x, 8, BLOCK=8, grid=(1,))', ArgumentError, "'grid' is neither a parameter of the kernel nor an option of"),
    ('add[(1,)](x, 8, BLOCK=8, warmup=True)', ArgumentError, "'warmup' is neither a parameter of the kernel nor an option of"),
    ('dflt(x, 8)', KernelCallError, 'dflt is a kernel: launch it as dflt[grid](...), or call it from another kernel'),
    ('add[(1,)](x, 8)', LaunchSignatureError, "add: missing 1 required positional argument: 'BLOCK'; its parameters are x, n, BLOCK"),
    ('add[(1,)](x)', LaunchSignatureError, "add: missing 2 required positional arguments: 'n' and 'BLOCK'; its parameters are x, n, BLOCK"),
    ('add[(1,)]()', LaunchSignatureError, "add: missing 3 required positional arguments: 'x', 'n', and 'BLOCK'; its parameters are x, n, BLOCK"),
    ('add[(1,)](x, 8, 8, 8)', LaunchSignatureError, 'add: takes 3 positional arguments but 4 were given; its parameters are x, n, BLOCK'),
    ('add[(1,)](x, 8, BLOKC=8)', LaunchSignatureError, "add: missing 1 required positional argument: 'BLOCK'; its parameters are x, n, BLOCK"),
    ('add[(1,)](x, 8, BLOCK=8, foo=1)', ArgumentError, "'foo' is neither a parameter of the kernel nor an option of"),
    ('add[(1,)](x, 8, BLOCK=8, num_wraps=1)', ArgumentError, "'num_wraps' is neither a parameter of the kernel nor an option of"),
    ('add[(1,)]([1, 2], 8, BLOCK=8)', ArgumentError, "argument 'x' of add: a builtins.list is no kernel argument"),
    ('add[(1,)]({}, 8, BLOCK=8)', ArgumentError, "argument 'x' of add: a builtins.dict is no kernel argument"),
    ('add[(1,)](b"abc", 8, BLOCK=8)', ArgumentError, "argument 'x' of add: a builtins.bytes is no kernel argument"),
    ('add[(1,)](lambda: 0, 8, BLOCK=8)', ArgumentError, "argument 'x' of add: a builtins.function is no kernel argument"),
    ('add[(1,)](1j, 8, BLOCK=8)', ArgumentError, "argument 'x' of add: a builtins.complex is no kernel argument"),
    ('add[(1,)](x, 1j, BLOCK=8)', ArgumentError, "argument 'n' of add: a builtins.complex is no kernel argument"),
    ('add[(1,)](x, 2**64, BLOCK=8)', ArgumentError, "argument 'n' of add: the integer 18446744073709551616 needs more than 64 bits"),
    ('add[(1,)](x, -2**63-1, BLOCK=8)', ArgumentError, "argument 'n' of add: the integer -9223372036854775809 needs more than 64 bits"),
    ('fl[(1,)](x, -1e300)', ArgumentError, "argument 'f' of fl: -1e+300 is beyond the largest fp32"),
    ('fl[(1,)](x, decimal.Decimal(1))', ArgumentError, "argument 'f' of fl: a decimal.Decimal is no kernel argument"),
    ('fl[(1,)](x, fractions.Fraction(1, 2))', ArgumentError, "argument 'f' of fl: a fractions.Fraction is no kernel argument"),
    ('tup[(1,)](x, [1, 2])', ArgumentError, "argument 't' of tup: a builtins.list is no kernel argument"),
    ('tup[(1,)](x, (1, 2**70))', ArgumentError, "argument 't' of tup: the integer 1180591620717411303424 needs more than 64 bits"),
    ('tup[(1,)](x, {"a":1})', ArgumentError, "argument 't' of tup: a builtins.dict is no kernel argument"),
    ('add.warmup(torch.complex64, 8, BLOCK=8, grid=(1,))', ArgumentError, "argument 'x' of add: elements of type torch.complex64 are not known to kernels", COMPILED),  # noqa: E501
    ('add[(1,)](x, 8, BLOCK=torch.tensor(8))', ArgumentError, "argument 'BLOCK' of add: it is declared tl.constexpr, a value known while compiling; found an array (torch.Tensor)"),  # noqa: E501
    ('add[(1,)](x, 8, BLOCK=8, num_warps=3)', ArgumentError, 'num_warps is a power of two; found 3'),
    ('add[(1,)](x, 8, BLOCK=8, num_warps=0)', ArgumentError, 'num_warps is a positive integer; found 0'),
    ('add[(1,)](x, 8, BLOCK=8, num_warps=-1)', ArgumentError, 'num_warps is a positive integer; found -1'),
    ('add[(1,)](x, 8, BLOCK=8, num_warps=2.0)', ArgumentError, 'num_warps is a positive integer; found 2.0'),
    ('add[(1,)](x, 8, BLOCK=8, num_warps="4")', ArgumentError, "num_warps is a positive integer; found '4'"),
    ('add[(1,)](x, 8, BLOCK=8, num_warps=None)', ArgumentError, 'num_warps is a positive integer; found None'),
    ('add[(1,)](x, 8, BLOCK=8, num_warps=True)', ArgumentError, 'num_warps is a positive integer; found True'),
    ('add[(1,)](x, 8, BLOCK=8, num_stages=-1)', ArgumentError, 'num_stages is an integer of 0 or more; found -1'),
    ('add[(1,)](x, 8, BLOCK=8, num_stages=0)', ArgumentError, 'num_stages is 0; at least 1 is needed', COMPILED),
    ('add[(1,)](x, 8, BLOCK=8, num_stages=1.5)', ArgumentError, 'num_stages is an integer of 0 or more; found 1.5'),
    ('add[(1,)](x, 8, BLOCK=8, num_ctas=0)', ArgumentError, 'num_ctas is a positive integer; found 0'),
    ('add[(1,)](x, 8, BLOCK=8, num_ctas="2")', ArgumentError, "num_ctas is a positive integer; found '2'"),
    ('add[(1,)](x, 8, BLOCK=8, debug="no")', ArgumentError, "debug is True or False; found 'no'"),
    ('add[(1,)](x, 8, BLOCK=8, debug=2)', ArgumentError, 'debug is True or False; found 2'),
    ('add[(1,)](x, 8, BLOCK=8, enable_fp_fusion="yes")', ArgumentError, "enable_fp_fusion is True or False; found 'yes'"),
    ('add[(1,)](x, 8, BLOCK=8, stream=0)', ArgumentError, "'stream' is neither a parameter of the kernel nor an option of"),
    ('add[(1,)](x, 8, BLOCK=8, device=0)', ArgumentError, "'device' is neither a parameter of the kernel nor an option of"),
]

HOST = [
    ('add[(T,)](X, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found'),
    ('add.run(X, 8, BLOCK=8)', ArgumentError, 'run and warmup are given the grid by name, as in run(…, grid=(8,)); or write kernel[(8,)](…)'),
    ('triton.heuristics({"BLOCK":lambda a:8})(add)(X, 8)', KernelCallError, 'add is a kernel: launch it as add[grid](...), or call it from another kernel'),
    ('triton.autotune([cfg(BLOCK=8)], ["n"])(add)(X, 8)', KernelCallError, 'add is a kernel: launch it as add[grid](...), or call it from another kernel'),
    ('triton.autotune([cfg(BLOCK=8)], ["n"])(add).run(X, 8)', ArgumentError, 'run and warmup are given the grid by name, as in run(…, grid=(8,)); or write kernel[(8,)](…)'),  # noqa: E501
    ('fl[(1,)](X, np.float64(1e39))', ArgumentError, "argument 'f' of fl: 1e+39 is beyond the largest fp32"),
    ('fl[(1,)](X, np.longdouble(1))', ArgumentError, "argument 'f' of fl: a numpy.longdouble is no kernel argument; pass a float"),
    ('add[(1,)](torch.zeros(64).to_sparse(), 8, BLOCK=8)', ArgumentError, "argument 'x' of add: a Tensor of layout torch.sparse_coo on device cpu has no elements in memory"),  # noqa: E501
    ('add[(1,)](triton.MockTensor(torch.float32), 8, BLOCK=8)', ArgumentError, "argument 'x' of add is"),
    ('add[(1,)](t0, 8, BLOCK=8)', ArgumentError, "argument 'x' of add has 64 elements and no memory: its storage was freed"),
    ('add[(1,)](X, 8, BLOCK=np.array(8))', ArgumentError, "argument 'BLOCK' of add: it is declared tl.constexpr, a value known while compiling; found an array (numpy.ndarray)"),  # noqa: E501
    ('add[(1,)](X, 8, BLOCK=8, num_warps=X)', ArgumentError, "option 'num_warps' of add is given"),
    ('add[(1,)](X, 8, BLOCK=8, maxnreg=0)', ArgumentError, 'maxnreg is 0; at least 1 is needed'),
    ('add[(1,)](X, 8, BLOCK=8, ir_override=5)', ArgumentError, "ir_override is the path of a file with a stage's code; found 5 (int)"),
    ('add[(1,)](X, 8, BLOCK=8, extern_libs={"a":"b"})', ArgumentError, "option 'extern_libs' of add is given {'a': 'b'} (dict); options are numbers, truth values and text"),  # noqa: E501
    ('add[(1,)](X, 8, BLOCK=8, launch_pdl="x")', ArgumentError, "launch_pdl is True or False; found 'x'"),
    ('triton.compile("nofile.ttir")', ArgumentError, 'the IR file nofile.ttir cannot be read (No such file or directory)'),
    ('triton.compile(add)', ArgumentError, 'compile takes an ASTSource, an IRSource or the path of an IR file, not JITFunction'),
    ('triton.compile(ASTSource(add, "*fp32,i32", {"BLOCK":8}))', ArgumentError, "add: the signature is a dict, parameter → type; found '*fp32,i32' (str)"),
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}, {(0,):[["tt.divisibility", 7]]}))', ArgumentError, 'add: attrs of (0,) are [["tt.divisibility", 16]] or nothing; found [[\'tt.divisibility\', 7]]'),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}, {(0,):5}))', ArgumentError, 'add: attrs of (0,) are [["tt.divisibility", 16]] or nothing; found 5'),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target="cpu", options=5)', ArgumentError, "options is a dict, such as {'num_warps': 8}; found 5 (int)"),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target="cpu")[(1,)](X)', LaunchSignatureError, 'add is compiled for the arguments x, n, BLOCK, all of them by position; 1 were given'),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target="cpu")[(1,)](X, 8, 8, 8)', LaunchSignatureError, 'add is compiled for the arguments x, n, BLOCK, all of them by position; 4 were given'),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target="cpu")[(1,)](X, 8.5)', ArgumentError, "argument 'n' of add: it is i32; found float"),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target="cpu")[(1,)](X, 2**40)', ArgumentError, "argument 'n' of add: it is i32, from -2147483648 to 2147483647; found 1099511627776"),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target="cpu")[(1,)](np.zeros(64, np.int8), 8)', ArgumentError, "argument 'x' of add: it is *fp32; found *i8"),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target=GPUTarget("cuda", 12345, 32))', UnsupportedArchError, 'nvidia: unknown architecture 12345'),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target=GPUTarget("cuda", "x", 32))', UnsupportedArchError, "nvidia: unknown architecture 'x'"),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target=GPUTarget("hip", "gfx9999", 32))', UnsupportedArchError, "amd: unknown architecture 'gfx9999'"),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target=GPUTarget(5, 5, 32))', TargetNotFoundError, 'no target 5'),
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target=GPUTarget("cuda", [80], 32))', UnsupportedArchError, 'nvidia: unknown architecture [80]'),  # noqa: E501
    ('driver.set_active("nosuch")', TargetNotFoundError, "no target 'nosuch'"),
    ('driver.set_active("nvidia:sm_12345")', UnsupportedArchError, "nvidia: unknown architecture 'sm_12345'"),
    ('driver.set_active("cpu:x86")', UnsupportedArchError, "cpu: unknown architecture 'x86'"),
    ('setattr(knobs.compilation, "always_compile", "yes")', ArgumentError, "the setting always_compile is on or off: set it to True or False; found 'yes' (str)"),  # noqa: E501
    ('setattr(knobs.compilation, "nonsense", 1)', ArgumentError, "there is no setting 'nonsense' here; there are always_compile, override, dump_ir, store_binary_only, disable_line_info"),  # noqa: E501
    ('setattr(knobs.cache, "dir", 5)', ArgumentError, 'the setting dir is a text; found 5 (int)'),
    ('setattr(knobs.cache, "manager_class", 5)', ArgumentError, 'the setting manager_class is a class; found 5 (int)'),
    ('setattr(knobs.cache, "manager_class", "a:b")', ArgumentError, "the setting manager_class is a class; found 'a:b' (str)"),
    ('setattr(knobs.redis, "port", "x")', ArgumentError, "the setting port is an integer; found 'x' (str)"),
    ('setattr(knobs.runtime, "launch_enter_hook", 5)', ArgumentError, 'launch_enter_hook is a function; found 5 (int)'),
    ('setattr(knobs.runtime, "jit_cache_hook", 5)', ArgumentError, 'jit_cache_hook is a function; found 5 (int)'),
    ('setattr(knobs.compilation, "listener", 5)', ArgumentError, 'listener is a function; found 5 (int)'),
    ('setattr(knobs.language, "fp32_default", "tf33")', ArgumentError, "the setting fp32_default is one of tf32, tf32x3, ieee, bf16x3, bf16x6; found 'tf33' (str)"),  # noqa: E501
    ('setattr(knobs.language, "fp32_default", 5)', ArgumentError, 'the setting fp32_default is one of tf32, tf32x3, ieee, bf16x3, bf16x6; found 5 (int)'),
    ('setattr(knobs.build, "impl", 5)', ArgumentError, 'impl is a function; found 5 (int)'),
    ('setattr(knobs.runtime, "override_arch", 5)', ArgumentError, 'the setting override_arch is a text; found 5 (int)'),
    ('knobs.runtime.launch_enter_hook.add(5)', ArgumentError, 'a hook is called; 5 cannot be'),
    ('TensorDescriptor.from_tensor(T, [8, 8])', ArgumentError, 'shape, strides and block_shape have one entry a dim; found 1, 1 and 2'),
    ('TensorDescriptor.from_tensor(T, 8)', ArgumentError, 'the block_shape of a descriptor is a list of integers; found 8'),
    ('TensorDescriptor.from_tensor(T, [7])', ArgumentError, 'block dims are powers of two; found [7]'),
    ('TensorDescriptor.from_tensor(T, [0])', ArgumentError, 'block dims are powers of two; found [0]'),
    ('TensorDescriptor.from_tensor(T, [-8])', ArgumentError, 'block dims are powers of two; found [-8]'),
    ('TensorDescriptor.from_tensor(T, ["8"])', ArgumentError, "the block_shape of a descriptor is a list of integers; found ['8']"),
    ('TensorDescriptor.from_tensor(T, [8.0])', ArgumentError, 'the block_shape of a descriptor is a list of integers; found [8.0]'),
    ('TensorDescriptor.from_tensor(T, None)', ArgumentError, 'the block_shape of a descriptor is a list of integers; found None'),
    ('TensorDescriptor.from_tensor(T, [8], padding="one")', ArgumentError, "padding is 'zero' or 'nan'; found 'one'"),
    ('TensorDescriptor.from_tensor(T, [8], padding=None)', ArgumentError, "padding is 'zero' or 'nan'; found None"),
    ('TensorDescriptor.from_tensor(T.int(), [8], padding="nan")', ArgumentError, "padding 'nan' needs floating-point elements; these are i32"),
    ('TensorDescriptor.from_tensor(T[1:], [8])', ArgumentError, "the address of a descriptor's array is a multiple of 16 bytes"),
    ('TensorDescriptor.from_tensor(torch.zeros(8, 7), [8, 8])', ArgumentError, 'strides of a descriptor are multiples of 16 bytes but for the last; found 7 elements of 4 bytes'),  # noqa: E501
    ('TensorDescriptor.from_tensor(torch.zeros(8, 8).t(), [8, 8])', ArgumentError, 'the last stride of a descriptor is 1; found 8 (strides [1, 8])'),
    ('TensorDescriptor.from_tensor(torch.zeros(8, 8)[:, ::2], [8, 8])', ArgumentError, 'the last stride of a descriptor is 1; found 2 (strides [8, 2])'),
    ('TensorDescriptor.from_tensor(torch.zeros(2, 2, 2, 2, 2, 4), [1, 1, 1, 1, 1, 4])', ArgumentError, 'a descriptor has one to five dims; the shape has 6'),
    ('TensorDescriptor.from_tensor(torch.tensor(1.0), [])', ArgumentError, 'a descriptor has one to five dims; the shape has 0'),
    ('TensorDescriptor.from_tensor(torch.zeros(8, dtype=torch.complex64), [8])', ArgumentError, 'elements of type torch.complex64 are not known to kernels'),
    ('TensorDescriptor.from_tensor(3, [8])', ArgumentError, 'a int does not tell its strides; give TensorDescriptor a base, shape and strides'),
    ('TensorDescriptor.from_tensor("x", [8])', ArgumentError, 'a str does not tell its strides; give TensorDescriptor a base, shape and strides'),
    ('TensorDescriptor.from_tensor([1, 2], [8])', ArgumentError, 'a list does not tell its strides; give TensorDescriptor a base, shape and strides'),
    ('TensorDescriptor.from_tensor(None, [8])', ArgumentError, 'a NoneType does not tell its strides; give TensorDescriptor a base, shape and strides'),
    ('TensorDescriptor(T, [64], [2], [8])', ArgumentError, 'the last stride of a descriptor is 1; found 2 (strides [2])'),
    ('TensorDescriptor(T, [64], [1, 1], [8])', ArgumentError, 'shape, strides and block_shape have one entry a dim; found 1, 2 and 1'),
    ('TensorDescriptor(T, [-1], [1], [8])', ArgumentError, 'the sizes of a descriptor are 0 to 2^31 - 1; found [-1]'),
    ('TensorDescriptor(T, [2**31], [1], [8])', ArgumentError, 'the sizes of a descriptor are 0 to 2^31 - 1; found [2147483648]'),
    ('TensorDescriptor(T, [64.0], [1], [8])', ArgumentError, 'the shape of a descriptor is a list of integers; found [64.0]'),
    ('TensorDescriptor(T, 64, 1, 8)', ArgumentError, 'the shape of a descriptor is a list of integers; found 64'),
    ('TensorDescriptor(5, [64], [1], [8])', ArgumentError, 'elements of type i are not known to kernels'),
    ('TensorDescriptor(T, [64, 64], [-64, 1], [8, 8])', ArgumentError, 'the strides of a descriptor are not negative; found -64 (strides [-64, 1])'),
    ('create_ragged_descriptor(T, [8])', ArgumentError, 'ragged descriptors are of tensors of 2 or 3 dims, not of 1'),
    ('create_ragged_descriptor(torch.zeros(8, 8), [8])', ArgumentError, 'a block of a tensor of 2 dims has 2 sizes, not 1'),
    ('create_ragged_descriptor(torch.zeros(8, 8), 8)', ArgumentError, 'the block_shape of a descriptor is a list of integers; found 8'),
    ('create_ragged_descriptor(torch.zeros(8, 8), [8, 8], 1)', ArgumentError, 'the ragged dim is any but the last of 2, not 1'),
    ('create_ragged_descriptor(torch.zeros(8, 8), [8, 8], "x")', ArgumentError, "ragged_dim is the number of a dim; found 'x' (str)"),
    ('create_ragged_descriptor(torch.zeros(8, 8), [8, 8], 0.0)', ArgumentError, 'ragged_dim is the number of a dim; found 0.0 (float)'),
    ('create_ragged_descriptor(np.zeros((8, 8), np.float32), [8, 8])', ArgumentError, 'a ragged descriptor is made of a torch tensor; found'),
    ('create_ragged_descriptor(5, [8, 8])', ArgumentError, 'a ragged descriptor is made of a torch tensor; found 5 (int)'),
    ('triton.set_allocator(5)', ArgumentError, 'an allocator is called; 5 cannot be'),
    ('triton.set_allocator("x")', ArgumentError, "an allocator is called; 'x' cannot be"),
    ('triton.autotune([], [])(add)[(1,)](X, 8)', LaunchSignatureError, "add: missing 1 required positional argument: 'BLOCK'; its parameters are x, n, BLOCK"),
    ('triton.autotune(5, ["n"])(add)', ArgumentError, 'autotune: configs is a list of Config(…); found 5 (int)'),
    ('triton.autotune(cfg(BLOCK=8), ["n"])(add)', ArgumentError, 'autotune: configs is a list of Config(…); found Config(BLOCK: 8, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None'),  # noqa: E501
    ('triton.autotune([{"BLOCK":8}], ["n"])(add)', ArgumentError, "autotune: configs is a list of Config(…); found {'BLOCK': 8} (dict)"),
    ('triton.autotune([cfg(BLOCK=8)], None)(add)', ArgumentError, "autotune: key is a list of parameters' names; found None (NoneType)"),
    ('triton.autotune([cfg(BLOCK=8)], "n")(add)', ArgumentError, "autotune: key is a list of parameters' names; found 'n' (str)"),
    ('triton.autotune([cfg(BLOCK=8)], 5)(add)', ArgumentError, "autotune: key is a list of parameters' names; found 5 (int)"),
    ('triton.autotune([cfg(BLOCK=8)], ["n"])(5)', ArgumentError, 'autotune stands over @jit (or another decorator of kernels); found 5, which is no kernel: write @autotune(…) above @jit'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8)], ["n"])(add.fn)', ArgumentError, 'autotune stands over @jit (or another decorator of kernels); found'),
    ('triton.jit(triton.autotune([cfg(BLOCK=8)], ["n"])(add))', KernelCallError, 'jit stands nearest to the function, under autotune and heuristics; found it above Autotuner of add'),  # noqa: E501
    ('triton.jit(triton.heuristics({"BLOCK":lambda a: 8})(add))', KernelCallError, 'jit stands nearest to the function, under autotune and heuristics; found it above Heuristics of add'),  # noqa: E501
    ('triton.jit(add)', KernelCallError, 'add is a kernel already: jit stands over it once'),
    ('triton.autotune([cfg(BLOKC=8)], ["n"])(add)[(1,)](X, 8)', ArgumentError, "a Config of autotune sets 'BLOKC', which is neither a parameter of add nor an option of any target (did you mean BLOCK?)"),  # noqa: E501
    ('triton.autotune([cfg(BLOKC=8), cfg(BLOKC=4)], ["n"])(add)[(1,)](X, 8)', ArgumentError, "a Config of autotune sets 'BLOKC', which is neither a parameter of add nor an option of any target (did you mean BLOCK?)"),  # noqa: E501
    ('triton.autotune([cfg(BLOKC=8, BLOCK=8)], ["n"])(add)[(1,)](X, 8)', ArgumentError, "a Config of autotune sets 'BLOKC', which is neither a parameter of add nor an option of any target (did you mean BLOCK?)"),  # noqa: E501
    ('triton.autotune([cfg(BLOKC=8, BLOCK=8), cfg(BLOCK=4)], ["n"])(add)[(1,)](X, 8)', ArgumentError, "a Config of autotune sets 'BLOKC', which is neither a parameter of add nor an option of any target (did you mean BLOCK?)"),  # noqa: E501
    ('triton.autotune([cfg(num_warp=8, BLOCK=8)], ["n"])(add)[(1,)](X, 8)', ArgumentError, "a Config of autotune sets 'num_warp', which is neither a parameter of add nor an option of any target (did you mean num_"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8)], ["n"])(add)[(1,)](X, 8, BLOCK=8)', ArgumentError, 'BLOCK is given in the launch and in the configurations of autotune; leave it out of the launch'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8)], ["n"])(add)[(1,)](X, 8, 8)', LaunchSignatureError, "add: got multiple values for argument 'BLOCK'; its parameters are x, n, BLOCK"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"])(add)[(1,)](X, 8, 8)', LaunchSignatureError, "add: got multiple values for argument 'BLOCK'; its parameters are x, n, BLOCK"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"])(add)[(1,)](X, 8, BLOCK=8)', ArgumentError, 'BLOCK is given in the launch and in the configurations of autotune; leave it out of the launch'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8)], ["n"])(add)[(1,)](X, 8, num_warps=4)', ArgumentError, 'num_warps is given in the launch and in the configurations of autotune; leave it out of the launch'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"])(add)[(1,)](X, 8, num_warps=4)', ArgumentError, 'num_warps is given in the launch and in the configurations of autotune; leave it out of the launch'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], do_bench=lambda c:1)(add)[(1,)](X, 8)', AutotunerError, 'autotune: do_bench is called as f(call, quantiles=…)'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], do_bench=lambda c, quantiles:None)(add)[(1,)](X, 8)', AutotunerError, 'autotune: do_bench(call, quantiles=(0.5, 0.2, 0.8)) returns a time for each of these, or one time; found None'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], do_bench=lambda c, quantiles:[])(add)[(1,)](X, 8)', AutotunerError, 'autotune: do_bench(call, quantiles=(0.5, 0.2, 0.8)) returns a time for each of these, or one time; found []'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], do_bench=5)(add)[(1,)](X, 8)', ArgumentError, 'autotune: do_bench is a function; found 5 (int)'),
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by=5)(add)[(1,)](X, 8)', ArgumentError, 'autotune: prune_configs_by is a dict with early_config_prune, perf_model, top_k; found 5 (int)'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"nope":5})(add)[(1,)](X, 8)', ArgumentError, "autotune: prune_configs_by has no 'nope'; it takes early_config_prune, perf_model, top_k"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"early_config_prune":5})(add)[(1,)](X, 8)', ArgumentError, 'autotune: early_config_prune is a function; found 5 (int)'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"early_config_prune":lambda c, n, **k:None})(add)[(1,)](X, 8)', AutotunerError, 'autotune: early_config_prune returns a list of the Configs that stay; for add it returned None'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"early_config_prune":lambda c, n, **k:[]})(add)[(1,)](X, 8)', AutotunerError, 'autotune: early_config_prune left no configuration of add; it must leave one'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"early_config_prune":lambda c, n, **k:[5]})(add)[(1,)](X, 8)', AutotunerError, 'autotune: early_config_prune returns a list of the Configs that stay; for add it returned [5]'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"early_config_prune":lambda c:c})(add)[(1,)](X, 8)', AutotunerError, 'autotune: early_config_prune is called as f(configs, named_args, **kwargs)'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"perf_model":5})(add)[(1,)](X, 8)', ArgumentError, 'autotune: perf_model is a function; found 5 (int)'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"perf_model":lambda **k:None, "top_k":1})(add)[(1,)](X, 8)', AutotunerError, 'autotune: perf_model returns the time that it expects, a number; found None (NoneType)'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"perf_model":lambda x:1, "top_k":1})(add)[(1,)](X, 8)', AutotunerError, 'autotune: perf_model is called as f(**arguments)'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"perf_model":lambda **k:1, "top_k":0})(add)[(1,)](X, 8)', ArgumentError, 'top_k is a share of the configurations up to 1.0, or a count; found 0'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"perf_model":lambda **k:1, "top_k":-1})(add)[(1,)](X, 8)', ArgumentError, 'top_k is a share of the configurations up to 1.0, or a count; found -1'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"perf_model":lambda **k:1, "top_k":"x"})(add)[(1,)](X, 8)', ArgumentError, "top_k is a share of the configurations up to 1.0, or a count; found 'x'"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], prune_configs_by={"perf_model":lambda **k:1, "top_k":1.5})(add)[(1,)](X, 8)', ArgumentError, 'top_k is a share of the configurations up to 1.0, or a count; found 1.5'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8)], ["n"], reset_to_zero=["nope"])(add)', ArgumentError, "autotune: 'nope' in reset_to_zero is no parameter of the kernel; it has x, n, BLOCK"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8)], ["n"], reset_to_zero="x")(add)', ArgumentError, "autotune: reset_to_zero is a list of parameters' names; found 'x' (str)"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8)], ["n"], reset_to_zero=5)(add)', ArgumentError, "autotune: reset_to_zero is a list of parameters' names; found 5 (int)"),
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], reset_to_zero=["n"], do_bench=lambda c, quantiles:[c(), 1][1:]*3)(add)[(1,)](X, 8)', ArgumentError, "autotune: 'n' in reset_to_zero is an array that add writes; found 8 (int)"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], restore_value=["n"], do_bench=lambda c, quantiles:[c(), 1][1:]*3)(add)[(1,)](X, 8)', ArgumentError, "autotune: 'n' in restore_value is an array that add writes; found 8 (int)"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], restore_value=["BLOCK"], do_bench=lambda c, quantiles:[c(), 1][1:]*3)(add)[(1,)](X, 8)', ArgumentError, "autotune: 'BLOCK' in restore_value is an array that add writes; found 8 (int)"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8)], ["n"], restore_value=[5])(add)', ArgumentError, 'autotune: 5 in restore_value is no parameter of the kernel; it has x, n, BLOCK'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8)], ["n"], pre_hook=5)(add)[(1,)](X, 8)', ArgumentError, 'autotune: pre_hook is a function; found 5 (int)'),
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"], pre_hook=lambda a:1)(add)[(1,)](X, 8)', AutotunerError, 'autotune: pre_hook is called as f(arguments, reset_only=…)'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8)], ["n"], post_hook=5)(add)[(1,)](X, 8)', ArgumentError, 'autotune: post_hook is a function; found 5 (int)'),
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["x"])(add)[(1,)](X, 8)', ArgumentError, "autotune: argument 'x' of add is a ndarray, by which nothing can be kept; make the key of numbers, such as its sizes"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"])(add)[(1,)](X)', LaunchSignatureError, "add: missing 1 required positional argument: 'n'; its parameters are x, n, BLOCK"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"])(add)[(1,)]()', LaunchSignatureError, "add: missing 2 required positional arguments: 'x' and 'n'; its parameters are x, n, BLOCK"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"])(add)[(1,)](X, 8, 8, 8)', LaunchSignatureError, "add: got multiple values for argument 'BLOCK'; its parameters are x, n, BLOCK"),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"])(add)[(1.5,)](X, 8)', ArgumentError, 'grid sizes are integers; found 1.5 (float): round with tilewright.cdiv(n, BLOCK)'),  # noqa: E501
    ('triton.autotune([cfg(BLOCK=8), cfg(BLOCK=4)], ["n"])(add)[(1,)](X, 8, foo=8)', ArgumentError, "'foo' is neither a parameter of the kernel nor an option of"),  # noqa: E501
    ('triton.Config(5)', ArgumentError, "Config takes a dict of constexpr parameters, Config({'BLOCK': 64}, num_warps=4); found 5 (int)"),
    ('triton.Config("BLOCK=8")', ArgumentError, "Config takes a dict of constexpr parameters, Config({'BLOCK': 64}, num_warps=4); found 'BLOCK=8' (str)"),
    ('triton.Config([("BLOCK", 8)])', ArgumentError, "Config takes a dict of constexpr parameters, Config({'BLOCK': 64}, num_warps=4); found [('BLOCK', 8)] (list)"),  # noqa: E501
    ('triton.Config({5:8})', ArgumentError, "the keys of a Config are parameters' names; found 5 (int)"),
    ('triton.Config({"BLOCK":8}, num_warp=4)', LaunchSignatureError, "Config has no argument 'num_warp' (did you mean num_warps?); it takes a dict of constexpr parameters, and num_warps, num"),  # noqa: E501
    ('triton.Config({"BLOCK":8}, num_wraps=4)', LaunchSignatureError, "Config has no argument 'num_wraps' (did you mean num_warps?); it takes a dict of constexpr parameters, and num_warps, nu"),  # noqa: E501
    ('triton.Config({"BLOCK":8}, num_warps="4")', ArgumentError, "num_warps of a Config is an integer; found '4' (str)"),
    ('triton.Config({"BLOCK":8}, maxnreg="x")', ArgumentError, "maxnreg of a Config is an integer; found 'x' (str)"),
    ('triton.Config({"BLOCK":8}, pre_hook=5)', ArgumentError, 'Config: pre_hook is a function; found 5 (int)'),
    ('triton.Config({"BLOCK":8}, ir_override=5)', ArgumentError, 'ir_override of a Config is the path of a file; found 5 (int)'),
    ('triton.heuristics(5)(add)', ArgumentError, 'heuristics takes a dict, {parameter: function of the arguments}; found 5 (int)'),
    ('triton.heuristics([1])(add)', ArgumentError, 'heuristics takes a dict, {parameter: function of the arguments}; found [1] (list)'),
    ('triton.heuristics({"nope":lambda a:8})(add)[(1,)](X, 8, BLOCK=8)', ArgumentError, "heuristics sets 'nope', which is neither a parameter of add nor an option of any target; the kernel has x, n, BLOCK"),  # noqa: E501
    ('triton.heuristics({"BLOCK":8})(add)', ArgumentError, "heuristics: the rule of 'BLOCK' is a function of the arguments by name; found 8"),
    ('triton.heuristics({"BLOCK":8})(add)[(1,)](X, 8)', ArgumentError, "heuristics: the rule of 'BLOCK' is a function of the arguments by name; found 8"),
    ('triton.heuristics({"BLOCK":lambda:8})(add)[(1,)](X, 8)', AutotunerError, "heuristics: the rule of 'BLOCK' is called as rule(arguments by name)"),
    ('triton.heuristics({"BLOCK":lambda a:a["q"]})(add)[(1,)](X, 8)', HeuristicError, "the rule of 'BLOCK' in heuristics asks for 'q', which the launch does not give; it gives x, n, grid, warmup"),  # noqa: E501
    ('triton.heuristics({"BLOCK":lambda a:8})(add)[(1,)](X, 8, 8)', LaunchSignatureError, "add: got multiple values for argument 'BLOCK'; its parameters are x, n, BLOCK"),  # noqa: E501
    ('triton.heuristics({"BLOCK":lambda a:8})(5)', ArgumentError, 'heuristics stands over @jit (or another decorator of kernels); found 5, which is no kernel: write @heuristics(…) above @'),  # noqa: E501
    ('triton.heuristics({"BLOCK":lambda a:8})(add.fn)', ArgumentError, 'heuristics stands over @jit (or another decorator of kernels); found'),
    ('triton.heuristics({5:lambda a:8})(add)', ArgumentError, "the keys of heuristics are parameters' names; found 5 (int)"),
    ('triton.heuristics(lambda a:8)(add)', ArgumentError, 'heuristics takes a dict, {parameter: function of the arguments}; found'),
    ('triton.jit(lambda x: x)', KernelCallError, "the source of '<lambda>' cannot be read (could not get source code); define jit functions in a file or a notebook cell"),  # noqa: E501
    ('triton.jit(Cls)', KernelCallError, 'Cls is a class; jit takes functions defined with def'),
    ('triton.jit(len)', KernelCallError, 'len is a builtin_function_or_method without source in Python; jit takes functions defined with def'),
    ('triton.jit(print)', KernelCallError, 'print is a builtin_function_or_method without source in Python; jit takes functions defined with def'),
    ('triton.jit(np.sin)', KernelCallError, 'sin is a ufunc without source in Python; jit takes functions defined with def'),
    ('triton.jit(5)', ArgumentError, 'jit decorates a function, not 5'),
    ('triton.jit("x")', ArgumentError, "jit decorates a function, not 'x'"),
    ('triton.jit(executed)', KernelCallError, "the source of 'executed' cannot be read (could not get source code); define jit functions in a file or a notebook cell"),  # noqa: E501
    ('triton.jit(asynchronous)', KernelCallError, 'asynchronous is an async function, and kernels wait for nothing; define it with def'),
    ('triton.jit(generator)', KernelCallError, 'generator is a generator, since it has a yield; kernels return values, or store them'),
    ('triton.jit(asyncgen)', KernelCallError, 'asyncgen is an async function, and kernels wait for nothing; define it with def'),
    ('triton.jit(varargs)[(1,)](X, 8)', ArgumentError, 'varargs cannot be launched: parameters of a kernel are listed one by one, and *a is not'),
    ('triton.jit(kwargs_)[(1,)](X, a=8)', ArgumentError, 'kwargs_ cannot be launched: parameters of a kernel are listed one by one, and **a is not'),
    ('triton.jit(Meth().m)', KernelCallError, 'jit is put over a method of an object or class (Meth.m); a kernel has no self: write @staticmethod above @jit'),
    ('triton.jit(Meth.c)', KernelCallError, 'jit is put over a method of an object or class (Meth.c); a kernel has no self: write @staticmethod above @jit'),
    ('triton.jit(functools.partial(plain, 1))', KernelCallError, 'functools.partial'),
    ('triton.jit(staticm)', KernelCallError, 'jit is put over a staticmethod (plain); a kernel has no self: write @staticmethod above @jit'),
    ('triton.jit(Callable_())', KernelCallError, ''),
    ('triton.jit(prop)', ArgumentError, 'jit decorates a function, not'),
    ('triton.jit(do_not_specialize=5)(plain)', ArgumentError, "jit: do_not_specialize is a list of parameters' names or positions; found 5 (int)"),
    ('triton.jit(do_not_specialize="x")(plain)', ArgumentError, "jit: do_not_specialize is a list of parameters' names or positions; found 'x' (str)"),
    ('triton.jit(debug="maybe")(plain)', ArgumentError, "jit: debug is True or False; found 'maybe' (str)"),
    ('triton.jit(noinline="maybe")(plain)', ArgumentError, "jit: noinline is True or False; found 'maybe' (str)"),
    ('triton.jit(repr="name")(plain)[(1,)](X)', ArgumentError, "jit: repr is a function; found 'name' (str)"),
    ('triton.jit(repr=5)(plain)[(1,)](X)', ArgumentError, 'jit: repr is a function; found 5 (int)'),
    ('triton.jit(repr=lambda: "x")(plain)[(1,)](X)', ArgumentError, 'repr of plain is called with the specialisation, which has constants and signature'),
    ('triton.jit(launch_metadata=5)(plain)[(1,)](X)', ArgumentError, 'jit: launch_metadata is a function; found 5 (int)'),
    ('add.add_pre_run_hook(5)', ArgumentError, 'a hook is called; 5 cannot be'),
    ('add.preload("x")', ArgumentError, "preload takes the specialization_data that a jit_cache_hook was handed; found 'x'"),
    ('add.preload("{}")', ArgumentError, "preload takes the specialization_data that a jit_cache_hook was handed; found '{}' (parts are missing)"),
    ('add.preload(5)', ArgumentError, 'preload takes the specialization_data that a jit_cache_hook was handed; found 5'),
    ('triton.jit(badname)[(1,)](X, 8)', KernelCallError, "the parameter '_tw_type' of badname has to be called otherwise: names that start with _tw_ are the"),
    ('testing.do_bench(5)', ArgumentError, 'what is measured is a function without arguments, lambda: kernel[grid](x); found 5 (int)'),
    ('testing.do_bench(None)', ArgumentError, 'what is measured is a function without arguments, lambda: kernel[grid](x); found None (NoneType)'),
    ('testing.do_bench(lambda: 1, warmup="x")', ArgumentError, "warmup is a number of milliseconds of 0 or more; found 'x'"),
    ('testing.do_bench(lambda: 1, warmup=-1)', ArgumentError, 'warmup is a number of milliseconds of 0 or more; found -1'),
    ('testing.do_bench(lambda: 1, rep=-5)', ArgumentError, 'rep is a number of milliseconds of 0 or more; found -5'),
    ('testing.do_bench(lambda: 1, rep=None)', ArgumentError, 'rep is a number of milliseconds of 0 or more; found None'),
    ('testing.do_bench(lambda: 1, rep=float("nan"))', ArgumentError, 'rep is a number of milliseconds of 0 or more; found nan'),
    ('testing.do_bench(lambda: 1, quantiles=0.5, rep=1)', ArgumentError, 'quantiles is a list of numbers from 0 to 1, such as [0.2, 0.5, 0.8]; found 0.5'),
    ('testing.do_bench(lambda: 1, quantiles=[1.5])', ArgumentError, 'quantiles lie from 0 to 1; found 1.5'),
    ('testing.do_bench(lambda: 1, quantiles=["x"])', ArgumentError, "quantiles is a list of numbers from 0 to 1, such as [0.2, 0.5, 0.8]; found ['x']"),
    ('testing.do_bench(lambda: 1, return_mode="avg")', ArgumentError, "return_mode is one of mean, median, min, max, all; found 'avg'"),
    ('testing.do_bench(lambda: 1, return_mode=None)', ArgumentError, 'return_mode is one of mean, median, min, max, all; found None'),
    ('testing.do_bench(lambda: 1, grad_to_none=5, rep=1)', ArgumentError, 'grad_to_none is a list of tensors, whose gradients are cleared; found 5'),
    ('testing.do_bench(lambda: 1, grad_to_none=[5], rep=1)', ArgumentError, 'grad_to_none is a list of tensors, whose gradients are cleared; found [5]'),
    ('testing.do_bench(lambda x: 1)', ArgumentError, 'what is measured is called without arguments, lambda: kernel[grid](x)'),
    ('testing.do_bench(add)', KernelCallError, 'add is a kernel: launch it as add[grid](...), or call it from another kernel'),
    ('testing.do_bench_cudagraph(lambda: 1)', TilewrightError, 'device graphs are not possible on target cpu:native: they need torch and a device that it knows. Use do_bench'),  # noqa: E501
    ('testing.do_bench_cudagraph(5)', ArgumentError, 'what is measured is a function without arguments, lambda: kernel[grid](x); found 5 (int)'),
    ('testing.assert_close("a", 2)', ArgumentError, "assert_close compares numbers; found 'a' (str)"),
    ('testing.assert_close(1, 1, atol="x")', ArgumentError, "atol is a number of 0 or more, or a function of x's dtype that gives one; found 'x'"),
    ('testing.assert_close(1, 1, atol=-1)', ArgumentError, "atol is a number of 0 or more, or a function of x's dtype that gives one; found -1"),
    ('testing.Benchmark(x_names=["N"], x_vals=[1], line_arg="p", line_vals=["a"], line_names=["A", "B"], plot_name="x", args={})', ArgumentError, 'line_vals has 1 entries and line_names 2; they go together'),  # noqa: E501
    ('testing.Benchmark(x_names="N", x_vals=[1], line_arg="p", line_vals=["a"], line_names=["A"], plot_name="x", args={})', ArgumentError, "x_names is a list of arguments' names; found 'N'"),  # noqa: E501
    ('testing.perf_report(5)', ArgumentError, 'perf_report takes a Benchmark or a list of them; found 5 (int)'),
    ('testing.perf_report([5])', ArgumentError, 'perf_report takes a Benchmark or a list of them; found 5 (int)'),
    ('testing.get_dram_gbps()', UnsupportedUtilityError, "the driver of cpu:native does not tell the memory's clock and bus width; measure a copy with do_bench"),  # noqa: E501
    ('testing.get_max_tensorcore_tflops("fp16", 1)', UnsupportedUtilityError, "target 'cpu' does not tell max_tensorcore_tflops; nvidia does"),
    ('testing.geomean([])', ArgumentError, 'geomean takes numbers above 0, one at least; found []'),
    ('testing.geomean([0])', ArgumentError, 'geomean takes numbers above 0, one at least; found [0]'),
    ('testing.geomean([-1])', ArgumentError, 'geomean takes numbers above 0, one at least; found [-1]'),
    ('triton.cdiv(5, 0)', ArgumentError, 'cdiv(5, 0) divides by zero'),
    ('triton.cdiv(5, 2.5)', ArgumentError, 'cdiv takes integers; found 2.5 (float)'),
    ('triton.cdiv("a", 2)', ArgumentError, "cdiv takes integers; found 'a' (str)"),
    ('triton.next_power_of_2("a")', ArgumentError, "next_power_of_2 takes an integer; found 'a' (str)"),
    ('triton.next_power_of_2(2.5)', ArgumentError, 'next_power_of_2 takes an integer; found 2.5 (float)'),
    ('triton.next_power_of_2(None)', ArgumentError, 'next_power_of_2 takes an integer; found None (NoneType)'),
    ('add[np.array([1.0, 1])](X, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found np.float64(1.0) (float64): round with tilewright.cdiv(n, BLOCK)'),
    ('add[(torch.tensor(1.0),)](X, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found'),
    ('add[2**31](X, 8, BLOCK=8)', ArgumentError, 'the grid is (2147483648, 1, 1); allowed are up to 2147483647 programs along each of x, y and z'),
    ('add[2**70](X, 8, BLOCK=8)', ArgumentError, 'the grid is (1180591620717411303424, 1, 1); allowed are up to 2147483647 programs along each of x, y and z'),
    ('add[Cls()](X, 8, BLOCK=8)', ArgumentError, 'grid sizes are integers; found'),
    ('add[(1,)](object(), 8, BLOCK=8)', ArgumentError, "argument 'x' of add: a builtins.object is no kernel argument"),
    ('add[(1,)](bytearray(100), 8, BLOCK=8)', ArgumentError, "argument 'x' of add: a builtins.bytearray is no kernel argument"),
    ('add[(1,)](Cls, 8, BLOCK=8)', ArgumentError, "argument 'x' of add: a builtins.type is no kernel argument"),
    ('add[(1,)](X, np.complex64(8), BLOCK=8)', ArgumentError, "argument 'n' of add: a builtins.complex is no kernel argument"),
    ('add[(1,)](X, np.datetime64(8, "s"), BLOCK=8)', ArgumentError, "argument 'n' of add: a datetime.datetime is no kernel argument"),
    ('tup[(1,)](X, (1, object()))', ArgumentError, "argument 't' of tup: a builtins.object is no kernel argument"),
    ('add[(1,)](np.zeros(8, np.complex64), 8, BLOCK=8)', ArgumentError, "argument 'x' of add: elements of type complex64 are not known to kernels"),
    ('add[(1,)](np.zeros(8, ">f4"), 8, BLOCK=8)', ArgumentError, "argument 'x' of add: the array is big-endian (>f4); convert it to native byte order"),
    ('add[(1,)](np.zeros(8, object), 8, BLOCK=8)', ArgumentError, "argument 'x' of add: elements of type object are not known to kernels"),
    ('add[(1,)](np.zeros(8, "S4"), 8, BLOCK=8)', ArgumentError, "argument 'x' of add: elements of type |S4 are not known to kernels"),
    ('add[(1,)](np.zeros(8, [("a", "f4")]), 8, BLOCK=8)', ArgumentError, "argument 'x' of add: elements of type [('a', '<f4')] are not known to kernels"),
    ('add[(1,)](np.zeros(8, np.longdouble), 8, BLOCK=8)', ArgumentError, "argument 'x' of add: elements of type float128 are not known to kernels"),
    ('add[(1,)](torch.zeros(64, dtype=torch.complex64), 8, BLOCK=8)', ArgumentError, "argument 'x' of add: elements of type torch.complex64 are not known to kernels"),  # noqa: E501
    ('add[(1,)](torch.zeros(64, device="meta"), 8, BLOCK=8)', ArgumentError, "argument 'x' of add lies on device 'meta'"),
    ('add[(1,)](np.float32, 8, BLOCK=8)', ArgumentError, "argument 'x' of add: a builtins.type is no kernel argument"),
    ('add.warmup(np.float32, 8, BLOCK=8, grid=(1,))', ArgumentError, "argument 'x' of add: a builtins.type is no kernel argument"),
    ('add[(1,)](memoryview(X), 8, BLOCK=8)', ArgumentError, "argument 'x' of add: a builtins.memoryview is no kernel argument"),
    ('triton.reinterpret(X, tl.float16)', ArgumentError, 'elements of float32 have 32 bits, and fp16 has 16; they must be equal'),
    ('triton.reinterpret(X, "abc")', ArgumentError, 'elements of type abc are not known to kernels'),
    ('triton.reinterpret(3, tl.float32)', ArgumentError, 'reinterpret takes an array; a int is none'),
    ('triton.reinterpret(X, 5)', ArgumentError, 'elements of type 5 are not known to kernels'),
    ('triton.reinterpret(X, None)', ArgumentError, 'elements of type None are not known to kernels'),
    ('add[(1,)](X, 8, BLOCK=X)', ArgumentError, "argument 'BLOCK' of add: it is declared tl.constexpr, a value known while compiling; found an array (numpy.ndarray)"),  # noqa: E501
    ('add[(1,)](X, 8, BLOCK=T)', ArgumentError, "argument 'BLOCK' of add: it is declared tl.constexpr, a value known while compiling; found an array (torch.Tensor)"),  # noqa: E501
    ('add[(1,)](X, 8, BLOCK=8, maxnreg="a")', ArgumentError, "maxnreg is an integer or None; found 'a'"),
    ('add[(1,)](X, 8, BLOCK=8, ir_override="nosuch.ttir")', ArgumentError, 'ir_override: nosuch.ttir cannot be read (No such file or directory)'),
    ('add[(1,)](X, 8, BLOCK=8, ir_override="nosuch.ptx")', ArgumentError, 'ir_override is a file whose ending names a stage of target'),
    ('add[(1,)](X, 8, BLOCK=8, launch_cooperative_grid=True)', ArgumentError, "does not have option 'launch_cooperative_grid' (given True)"),
    ('add[(1,)](X, 8, BLOCK=8, warp_size=64)', ArgumentError, "does not have option 'warp_size' (given 64)"),
    ('add[(1,)](X, 8, BLOCK=8, cluster_dims=(2, 1, 1))', ArgumentError, "does not have option 'cluster_dims' (given (2, 1, 1)"),
    ('add[(1,)](X, 8, BLOCK=8, sanitize_overflow="x")', ArgumentError, "sanitize_overflow is True or False; found 'x'"),
    ('add[(1,)](X, 8, BLOCK=8, waves_per_eu=2)', ArgumentError, "'waves_per_eu' is neither a parameter of the kernel nor an option of"),
    ('add[(1,)](X, 8, BLOCK=8, num_buffers_warp_spec=2)', ArgumentError, "does not have option 'num_buffers_warp_spec' (given 2)"),
    ('triton.compile(5)', ArgumentError, 'compile takes an ASTSource, an IRSource or the path of an IR file, not 5'),
    ('triton.compile(ASTSource(add, {"x":"*fp32"}))', ArgumentError, 'add: no type or constexpr value is given for n, BLOCK'),
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}))', ArgumentError, 'add: no type or constexpr value is given for BLOCK'),
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32", "BLOCK":"constexpr"}))', ArgumentError, 'add: no type or constexpr value is given for BLOCK'),
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8, "foo":1}))', ArgumentError, "add has no parameter 'foo'; it has x, n, BLOCK"),
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32", "z":"i32"}, {"BLOCK":8}))', ArgumentError, "add has no parameter 'z'; it has x, n, BLOCK"),
    ('triton.compile(ASTSource(add.fn, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}))', ArgumentError, 'ASTSource takes a function decorated with jit'),
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target="nosuch")', TargetNotFoundError, "no target 'nosuch'"),
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target=5)', TargetNotFoundError, 'a target is text or a GPUTarget; found 5'),
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target="cpu", options={"foo":1})', ArgumentError, "'foo' is neither a parameter of the kernel nor an option of"),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target="cpu", options={5:1})', ArgumentError, '5 is neither a parameter of the kernel nor an option of'),  # noqa: E501
    ('triton.compile(ASTSource(add, {"x":"*fp32", "n":"i32"}, {"BLOCK":8}), target="cpu")[(1.5,)](X, 8)', ArgumentError, 'grid sizes are integers; found 1.5 (float): round with tilewright.cdiv(n, BLOCK)'),  # noqa: E501
    ('add[(1,)](Placed(0), 8, BLOCK=8), add[(1,)](Placed(1), 8, BLOCK=8)', DeviceMismatchError, "the arrays of add lie on cpu:1, and the current device, on which it would run, is 0; launch it inside `with torch.cpu.device(1):`"),  # noqa: E501
    ('two[(1,)](Placed(0), Placed(1))', DeviceMismatchError, "argument 'y' of two lies on cpu:1, and 'x' on cpu:0; a launch takes arrays of one device"),
    ('tup[(1,)](Placed(0), (1, Placed(1)))', DeviceMismatchError, "argument 't[1]' of tup lies on cpu:1, and 'x' on cpu:0"),
    ('fl[(1,)](X, np.float32(3)), fl[(1,)](X, np.float16("inf")), tup[(1,)](X, (np.longdouble(1),))', ArgumentError, "argument 't' of tup: a numpy.longdouble is no kernel argument"),
    ('driver.set_active(5)', TargetNotFoundError, "set_active takes a target, as text or a GPUTarget, or an object with get_current_target; found 5 (int)"),
    ('triton.compile(ASTSource(add, {"x": "*fp32", "n": "i32"}, {"BLOCK": 8}), target=GPUTarget("cuda", 90, 64))', UnsupportedArchError, "nvidia:sm_90a has warps of 32 lanes"),
    ('triton.autotune([cfg(BLOCK=8)], ["n"], cache_results="maybe")(add)', ArgumentError, "autotune: cache_results is True or False; found 'maybe'"),
    ('triton.compile(ASTSource(add, {"x": "*fp32:16", "n": "i32"}, {"BLOCK": 8}), target="cpu")', TypeMismatchError, "signature type 'fp32:16' is unknown"),
]

LAUNCH = "add[(1,)](X, 8, BLOCK=8)"
ENVIRONMENT = [
    ({"TILEWRIGHT_TARGET": "nonsense"}, LAUNCH, TargetNotFoundError, "the environment variable TILEWRIGHT_TARGET is 'nonsense': no target 'nonsense'"),
    ({"TILEWRIGHT_TARGET": ":::"}, LAUNCH, TargetNotFoundError, "TILEWRIGHT_TARGET is ':::': a target is written NAME[:ARCH[:sim]]"),
    ({"TILEWRIGHT_TARGET": "cpu:sim"}, LAUNCH, UnsupportedArchError, "TILEWRIGHT_TARGET is 'cpu:sim': cpu: unknown architecture 'sim'"),
    ({"TILEWRIGHT_TARGET": "cpu::sim"}, LAUNCH, UnsupportedArchError, "target 'cpu' has no simulator; leave out ':sim'"),
    ({"TILEWRIGHT_TARGET": "nvidia:sm_80:simulator"}, LAUNCH, TargetNotFoundError, "found 'nvidia:sm_80:simulator'"),
    ({"TILEWRIGHT_TARGET": "gfx942"}, LAUNCH, TargetNotFoundError, "an arch is written amd:gfx942"),
    ({"TILEWRIGHT_TARGET": "nvidia:sm_80"}, LAUNCH, ArgumentError, "argument 'x' of add lies on device 'cpu', and target nvidia:sm_80 takes arrays on cuda"),
    ({"TILEWRIGHT_INTERPRET": "maybe"}, "triton.jit(plain)", ArgumentError, "the environment variable TILEWRIGHT_INTERPRET is on (1, true, yes, on) or off (0, false, no, off); found 'maybe'"),  # noqa: E501
    ({"TRITON_INTERPRET": "2"}, "triton.jit(plain)", ArgumentError, "the environment variable TRITON_INTERPRET is on"),
    ({"TILEWRIGHT_ALWAYS_COMPILE": "x"}, "fresh(add)[(1,)](X, 8, BLOCK=8)", ArgumentError, "the environment variable TILEWRIGHT_ALWAYS_COMPILE is on"),
    ({"TRITON_DEBUG": "abc"}, "fresh(add)[(1,)](X, 8, BLOCK=8)", ArgumentError, "the environment variable TRITON_DEBUG is on"),
    ({"TILEWRIGHT_EXPLAIN": "maybe"}, "fresh(add)[(1,)](X, 8, BLOCK=8)", ArgumentError, "the environment variable TILEWRIGHT_EXPLAIN is on"),
    ({"TILEWRIGHT_PRINT_TIMES": "maybe"}, "fresh(add)[(1,)](X, 8, BLOCK=8)", ArgumentError, "the environment variable TILEWRIGHT_PRINT_TIMES is on"),
    ({"TRITON_DEFAULT_FP_FUSION": "perhaps"}, "fresh(add)[(1,)](X, 8, BLOCK=8)", ArgumentError, "the environment variable TRITON_DEFAULT_FP_FUSION is on"),
    ({"TRITON_F32_DEFAULT": "tf33"}, "fresh(add)[(1,)](X, 8, BLOCK=8)", ArgumentError, "the environment variable TRITON_F32_DEFAULT is one of tf32, tf32x3, ieee, bf16x3, bf16x6; found 'tf33'"),  # noqa: E501
    ({"TILEWRIGHT_OVERRIDE_ARCH": "sm_9"}, "fresh(add)[(1,)](X, 8, BLOCK=8)", UnsupportedArchError, "cpu: unknown architecture 'sm_9'"),
    ({"TILEWRIGHT_NUM_THREADS": "abc"}, "num_threads()", ArgumentError, "the environment variable TILEWRIGHT_NUM_THREADS is an integer of 1 or more; found 'abc'"),
    ({"TILEWRIGHT_NUM_THREADS": "-3"}, "num_threads()", ArgumentError, "the environment variable TILEWRIGHT_NUM_THREADS is an integer of 1 or more; found '-3'"),
    ({"TILEWRIGHT_COMPILE_PROCESSES": "abc"}, "processes()", ArgumentError, "the environment variable TILEWRIGHT_COMPILE_PROCESSES is an integer of 1 or more"),
    ({"TRITON_COMPILE_PROCESSES": "-1"}, "processes()", ArgumentError, "the environment variable TRITON_COMPILE_PROCESSES is an integer of 1 or more"),
    ({"TRITON_CACHE_MANAGER": "nonsense"}, "knobs.cache.manager_class", ArgumentError, "the environment variable TRITON_CACHE_MANAGER names a class as package.module:Class"),
    ({"TILEWRIGHT_CACHE_MANAGER": "os:nonsense"}, "knobs.cache.manager_class", ArgumentError, "names a class as package.module:Class (module 'os' has no attribute 'nonsense')"),  # noqa: E501
    ({"TILEWRIGHT_CACHE_MANAGER": "nosuchmodule:X"}, "knobs.cache.manager_class", ArgumentError, "names a class as package.module:Class (No module named 'nosuchmodule')"),
    ({"TILEWRIGHT_CACHE_MANAGER": "os:path"}, "knobs.cache.manager_class", ArgumentError, "TILEWRIGHT_CACHE_MANAGER names a class as package.module:Class; found 'os:path'"),
    ({"TRITON_REDIS_PORT": "x"}, "knobs.redis.port", ArgumentError, "the environment variable TRITON_REDIS_PORT is an integer; found 'x'"),
    ({"DISABLE_PTXAS_OPT": "maybe"}, "knobs.nvidia.disable_ptxas_opt", ArgumentError, "the environment variable DISABLE_PTXAS_OPT is on"),
    ({"AMDGCN_USE_BUFFER_OPS": "maybe"}, "knobs.amd.option_defaults()", ArgumentError, "the environment variable AMDGCN_USE_BUFFER_OPS is on"),
]
