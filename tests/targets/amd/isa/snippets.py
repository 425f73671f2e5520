"""Run a few instructions with given registers and memory: ``run_snippet``. And a kernel's text around a body: ``kernel_text``."""

import numpy as np

from tilewright.targets.amd.isa.launch import Launch
from tilewright.targets.amd.isa.machine import Machine, load
from tilewright.targets.amd.isa.memory import GlobalMemory
from tilewright.targets.amd.isa.program import WAVE64, parse
from tilewright.targets.amd.isa.state import TTMP, VCC

POISON = 0xA5A5A5A5


def lanes_of(arch):
    return 64 if arch in WAVE64 else 32


def kernel_text(arch, body, vgprs=256, agprs=0, descriptor=(), args=(), kernarg=0, loc=True):
    """LLVM's text of one kernel ``k``. args: lines of (offset, size, kind)."""
    wave64 = arch in WAVE64
    directives = {"next_free_vgpr": vgprs + agprs, "kernarg_size": kernarg, "ieee_mode": 1, "dx10_clamp": 1, "float_denorm_mode_32": 3,
                  "float_denorm_mode_16_64": 3}
    if wave64:
        directives["accum_offset"] = vgprs
    else:
        directives["wavefront_size32"] = 1
    if arch.startswith("gfx12"):
        del directives["ieee_mode"], directives["dx10_clamp"]
    directives |= dict(descriptor)
    lines = [f'\t.amdgcn_target "amdgcn-amd-amdhsa--{arch}"', "\t.text", "\t.type\tk,@function", "k:", '\t.file\t1 "/src" "k.py"']
    for number, line in enumerate(body.strip().splitlines(), 1):
        if loc:
            lines.append(f"\t.loc\t1 {number} 0")
        lines.append(line if line.strip().endswith(":") else "\t" + line.strip())
    lines += ["\ts_endpgm", '\t.section\t.rodata,"a",@progbits', "\t.amdhsa_kernel k"]
    lines += [f"\t\t.amdhsa_{name} {value}" for name, value in directives.items()]
    lines += ["\t.end_amdhsa_kernel", "\t.amdgpu_metadata", "---", "amdhsa.kernels:", "  - .args:"]
    for offset, size, kind in args:
        lines += [f"      - .offset:         {offset}", f"        .size:           {size}", f"        .value_kind:     {kind}"]
    lines += ["    .name:           k", "...", "\t.end_amdgpu_metadata"]
    return "\n".join(lines) + "\n"


class Result:
    """Registers after the snippet. vgpr(k, dtype), agpr(k, dtype): (waves, lanes); sgpr(k), exec, vcc, scc, m0: (waves,); lds: bytes (groups, size)."""

    def __init__(self, machine):
        self.machine, self.batch = machine, machine.batch
        self.lanes = machine.lanes

    def vgpr(self, k, dtype=np.uint32):
        return self._vector(self.batch.v, k, dtype)

    def agpr(self, k, dtype=np.uint32):
        return self._vector(self.batch.a, k, dtype)

    def _vector(self, file, k, dtype):
        if np.dtype(dtype).itemsize == 8:
            return np.ascontiguousarray(np.stack([file[k], file[k + 1]], axis=-1)).view(dtype)[..., 0]
        return file[k].view(dtype)

    def sgpr(self, k, dtype=np.uint32):
        if np.dtype(dtype).itemsize == 8:
            return np.ascontiguousarray(np.stack([self.batch.s[k], self.batch.s[k + 1]], axis=-1)).view(dtype)[..., 0]
        return self.batch.s[k].view(dtype)

    @property
    def exec(self):
        return self.batch.exec

    @property
    def vcc(self):
        return self.sgpr(VCC, np.uint64) if self.lanes == 64 else self.sgpr(VCC).astype(np.uint64)

    @property
    def scc(self):
        return self.batch.scc

    @property
    def m0(self):
        return self.batch.s[124]

    @property
    def lds(self):
        return np.stack([self.machine.lds.contents(g) for g in range(self.machine.lds.groups)])


def _fill(file, registers, waves, shape):
    for k, value in registers.items():
        value = np.asarray(value)
        if value.dtype.kind in "iu" and value.dtype.itemsize == 8 and value.ndim == 0 and -(1 << 31) <= int(value) < 1 << 32:
            value = np.uint32(int(value) & 0xFFFFFFFF)  # a Python int
        if value.dtype == np.float64 and value.ndim == 0:
            value = np.float32(value)
        value = np.broadcast_to(value, shape)
        if value.dtype.itemsize == 8:
            pair = np.ascontiguousarray(value).view(np.uint32).reshape(*shape, 2)
            file[k], file[k + 1] = pair[..., 0], pair[..., 1]
        elif value.dtype.itemsize == 4:
            file[k] = np.ascontiguousarray(value).view(np.uint32)
        else:
            raise TypeError(f"register {k} is given as {value.dtype}: 4 or 8 bytes")


def run_snippet(arch, asm_text, vgprs=None, sgprs=None, agprs=None, lds=None, memory=(), waves=1, exec=None, vcc=None, scc=None, m0=None, groups=1,
                lds_bytes=None, check=True, scratch_bytes=0, descriptor=()):
    """Registers: {k: array broadcastable to (waves · groups, lanes), or (waves · groups,) for scalar ones}, of 4 or 8 bytes (then k and k + 1); a Python
    int is 32 bits. ``memory``: arrays that may be touched (their addresses go into registers). lds: bytes that a work-group's LDS
    holds at first, initialised; lds_bytes: its size where that is not lds's. exec: an int or (waves,) array. Returns a Result."""
    lanes = lanes_of(arch)
    program = parse(kernel_text(arch, asm_text, agprs=256 if arch in WAVE64 else 0, descriptor={"private_segment_fixed_size": scratch_bytes, **dict(descriptor)}))
    code = load(program, program.kernel())
    space = GlobalMemory()
    for array in memory:
        space.add_array(array)
    contents = b"" if lds is None else np.ascontiguousarray(lds).tobytes()
    launch = Launch((groups, 1, 1), (waves * lanes, 1, 1), np.zeros(256, np.uint8), len(contents) if lds_bytes is None else lds_bytes)
    total = waves * groups

    def prepare(machine):
        b = machine.batch
        b.v[...], b.a[...], b.s[...] = POISON, POISON, POISON
        _fill(b.v, vgprs or {}, total, (total, lanes))
        _fill(b.a, agprs or {}, total, (total, lanes))
        _fill(b.s, sgprs or {}, total, (total,))
        b.s[124] = 0 if m0 is None else m0
        b.exec[:] = (1 << lanes) - 1 if exec is None else np.asarray(exec, np.uint64)
        if vcc is not None:
            pair = np.ascontiguousarray(np.broadcast_to(np.asarray(vcc, np.uint64), (total,))).view(np.uint32).reshape(-1, 2)
            b.s[VCC], b.s[VCC + 1] = pair[:, 0], pair[:, 1]
        b.scc[:] = False if scc is None else scc
        for g in range(groups):
            if contents:
                machine.lds.fill(g, np.frombuffer(contents, np.uint8))

    machine = Machine(code, launch, space, check=check, max_waves=total, prepare=prepare)
    machine.run()
    return Result(machine)


__all__ = ["POISON", "TTMP", "Result", "kernel_text", "lanes_of", "run_snippet"]
