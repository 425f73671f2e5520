"""The scoreboard: what each counter proves, and what touches a register too early."""

import numpy as np
import pytest
from snippets import run_snippet

from tilewright.targets.amd.isa.errors import UnknownInstruction, UseBeforeWait

DATA = np.arange(4096, dtype=np.uint32)
ADDRESS = DATA.ctypes.data


def run(arch, text, waves=1, **more):
    lanes = np.arange(64 if arch.startswith("gfx9") else 32, dtype=np.uint32)
    base = np.array([ADDRESS], np.uint64)
    return run_snippet(arch, text, vgprs={0: lanes * 4, 1: lanes}, sgprs={2: base}, memory=[DATA], lds=np.zeros(4096, np.uint8), waves=waves, **more)


def load(arch, register, count=1):
    if arch.startswith(("gfx9", "gfx10")):
        return f"global_load_dword{'' if count == 1 else f'x{count}'} {span(register, count)}, v0, s[2:3]"
    return f"global_load_b{32 * count} {span(register, count)}, v0, s[2:3]"


def span(register, count):
    return f"v{register}" if count == 1 else f"v[{register}:{register + count - 1}]"


def lds_load(arch, register):
    return f"ds_read_b32 v{register}, v0" if arch.startswith(("gfx9", "gfx10")) else f"ds_load_b32 v{register}, v0"


def scalar_load(arch, register):
    return f"s_load_dword s{register}, s[2:3], 0x0" if arch.startswith(("gfx9", "gfx10")) else f"s_load_b32 s{register}, s[2:3], 0x0"


def wait(arch, n, counter="vm"):
    if arch.startswith("gfx12"):
        return f"s_wait_{ {'vm': 'load', 'lds': 'ds', 'smem': 'km'}[counter]}cnt {hex(n)}"
    return f"s_waitcnt {'vmcnt' if counter == 'vm' else 'lgkmcnt'}({n})"


ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"]
USE = "v_mov_b32_e32 v9, v{0}"


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", ["vm", "lds", "smem"])
def test_a_load_is_waited_for(arch, kind):
    code, use = {"vm": (load(arch, 5), USE.format(5)), "lds": (lds_load(arch, 5), USE.format(5)), "smem": (scalar_load(arch, 6), "v_mov_b32_e32 v9, s6")}[kind]
    run(arch, f"{code}\n{wait(arch, 0, kind)}\n{use}")
    with pytest.raises(UseBeforeWait) as error:
        run(arch, f"{code}\nv_mov_b32_e32 v8, v0\n{use}")
    message = str(error.value)
    counter = {"vm": "load", "lds": "ds", "smem": "km"}[kind] + "cnt" if arch == "gfx1201" else "vmcnt" if kind == "vm" else "lgkmcnt"
    assert f"{'s6' if kind == 'smem' else 'v5'} is read while a load may still write it (line 1, pc 0: {code})" in message and f"wait for {counter}" in message
    assert "k.py:3" in message and use in message


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", ["vm", "lds"])
def test_loads_of_a_kind_finish_in_order(arch, kind):
    code = [load(arch, r) if kind == "vm" else lds_load(arch, r) for r in (4, 5, 6)]
    head = "\n".join([*code, wait(arch, 1, kind)])
    run(arch, f"{head}\n{USE.format(4)}\n{USE.format(5)}")
    with pytest.raises(UseBeforeWait, match="v6 is read"):
        run(arch, f"{head}\n{USE.format(6)}")


@pytest.mark.parametrize("arch", ARCHS)
def test_scalar_loads_finish_in_any_order(arch):
    head = f"{scalar_load(arch, 6)}\n{scalar_load(arch, 7)}\n"
    with pytest.raises(UseBeforeWait, match="s6 is read"):
        run(arch, f"{head}{wait(arch, 1, 'smem')}\nv_mov_b32_e32 v9, s6")
    run(arch, f"{head}{wait(arch, 0, 'smem')}\nv_mov_b32_e32 v9, s6")


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_scalar_loads_do_not_prove_an_lds_load(arch):
    """Both are in flight on lgkmcnt, which is one lower when either is done."""
    with pytest.raises(UseBeforeWait, match="v5 is read"):
        run(arch, f"{lds_load(arch, 5)}\n{scalar_load(arch, 6)}\n{wait(arch, 1, 'lds')}\n{USE.format(5)}")


def test_gfx12_counts_them_apart():
    run("gfx1201", f"{lds_load('gfx1201', 5)}\n{scalar_load('gfx1201', 6)}\ns_wait_dscnt 0x0\n{USE.format(5)}")
    run("gfx1201", f"{lds_load('gfx1201', 5)}\n{load('gfx1201', 6)}\ns_wait_loadcnt_dscnt 0x100\n{USE.format(5)}")
    with pytest.raises(UseBeforeWait, match="v6 is read"):
        run("gfx1201", f"{lds_load('gfx1201', 5)}\n{load('gfx1201', 6)}\ns_wait_loadcnt_dscnt 0x100\n{USE.format(6)}")
    run("gfx1201", f"{lds_load('gfx1201', 5)}\n{load('gfx1201', 6)}\ns_wait_loadcnt_dscnt 0x0\n{USE.format(6)}")
    run("gfx1201", f"{lds_load('gfx1201', 5)}\n{load('gfx1201', 6)}\ns_wait_idle\n{USE.format(6)}")


@pytest.mark.parametrize("arch, proves", [("gfx942", True), ("gfx1030", False), ("gfx1100", False)])
def test_stores_count_with_loads_on_gfx9_only(arch, proves):
    """gfx9: a store after the load is what vmcnt(1) leaves in flight; later generations count it elsewhere."""
    store = "global_store_dword v0, v1, s[2:3]" if arch != "gfx1100" else "global_store_b32 v0, v1, s[2:3]"
    text = f"{load(arch, 5)}\n{store}\n{wait(arch, 1)}\n{USE.format(5)}"
    if proves:
        run(arch, text)
    else:
        with pytest.raises(UseBeforeWait):
            run(arch, text)
        run(arch, text.replace("vmcnt(1)", "vmcnt(0)"))


@pytest.mark.parametrize("arch", ARCHS)
def test_overwriting_what_a_load_will_write(arch):
    with pytest.raises(UseBeforeWait, match="v6 is overwritten while a load may still write it"):
        run(arch, f"{load(arch, 4, 4)}\nv_mov_b32_e32 v6, 0")
    with pytest.raises(UseBeforeWait, match="v5 is overwritten"):  # another kind of load may finish first
        run(arch, f"{load(arch, 5)}\n{lds_load(arch, 5)}")
    with pytest.raises(UseBeforeWait, match="s6 is overwritten"):
        run(arch, f"{scalar_load(arch, 6)}\n{scalar_load(arch, 6)}")
    run(arch, f"{load(arch, 5)}\n{load(arch, 5)}\n{wait(arch, 0)}\n{USE.format(5)}")
    run(arch, f"{load(arch, 4, 4)}\n{wait(arch, 0)}\nv_mov_b32_e32 v6, 0")


@pytest.mark.parametrize("arch", ARCHS)
def test_addresses_and_stored_data_are_uses(arch):
    store = "global_store_dword" if arch.startswith(("gfx9", "gfx10")) else "global_store_b32"
    with pytest.raises(UseBeforeWait, match="v5 is read"):
        run(arch, f"{load(arch, 5)}\n{store} v0, v5, s[2:3]")
    with pytest.raises(UseBeforeWait, match="v5 is read"):
        run(arch, f"{load(arch, 5)}\n{store} v5, v1, s[2:3]")


def test_matrix_operands_are_uses():
    with pytest.raises(UseBeforeWait, match="v5 is read"):
        run("gfx942", f"{load('gfx942', 5)}\nv_mfma_f32_16x16x4_f32 v[8:11], v1, v5, 0")
    with pytest.raises(UseBeforeWait, match="v10 is overwritten"):
        run("gfx942", f"{load('gfx942', 10)}\nv_mfma_f32_16x16x4_f32 v[8:11], v1, v5, 0")


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_a_barrier_proves_nothing(arch):
    barrier = "s_barrier" if arch == "gfx942" else "s_barrier_signal -1\ns_barrier_wait -1"
    with pytest.raises(UseBeforeWait):
        run(arch, f"{load(arch, 5)}\n{barrier}\n{USE.format(5)}", waves=2)


def test_waves_wait_for_themselves():
    """Only wave 1 waits (wave 0 branches around): wave 0 is the one that uses too early."""
    text = f"{load('gfx942', 5)}\nv_readfirstlane_b32 s8, v2\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc1 over\ns_waitcnt vmcnt(0)\nover:\n{USE.format(5)}"
    lanes = np.arange(64, dtype=np.uint32)
    base = np.array([ADDRESS], np.uint64)
    wave = np.repeat(np.arange(2, dtype=np.uint32), 64).reshape(2, 64)
    for first, late in ((wave, 0), (1 - wave, 1)):
        with pytest.raises(UseBeforeWait, match=rf"wave {late}\b"):
            run_snippet("gfx942", text, vgprs={0: lanes * 4, 2: first}, sgprs={2: base}, memory=[DATA], waves=2)


def test_a_counter_at_its_limit_stalls():
    """More than 63 loads are never in flight, so the first two of 65 are done when the last was issued."""
    many = "\n".join(load("gfx942", 10 + i) for i in range(64))
    run("gfx942", f"{load('gfx942', 5)}\n{many}\n{USE.format(5)}")
    with pytest.raises(UseBeforeWait, match="v11 is read"):
        run("gfx942", f"{load('gfx942', 5)}\n{many}\n{USE.format(10)}\n{USE.format(11)}")


def test_flat_loads_count_twice_and_only_zero_proves_them():
    text = "flat_load_dword v5, v[6:7]\n{0}\n" + USE.format(5)
    address = np.array([ADDRESS], np.uint64)
    for waiting, fine in (("s_waitcnt vmcnt(0) lgkmcnt(0)", True), ("s_waitcnt vmcnt(0)", False), ("s_waitcnt lgkmcnt(0)", False)):
        def go(waiting=waiting):
            run_snippet("gfx942", text.format(waiting), vgprs={6: np.broadcast_to(address, 64)}, memory=[DATA])
        if fine:
            go()
        else:
            with pytest.raises(UseBeforeWait, match="vmcnt and lgkmcnt"):
                go()


def test_immediates_of_s_waitcnt():
    """The numbers of the encoding: gfx9 lgkmcnt(0) is 0xc07f, gfx11's 0xfc07."""
    run("gfx942", f"{lds_load('gfx942', 5)}\ns_waitcnt 0xc07f\n{USE.format(5)}")
    with pytest.raises(UseBeforeWait):
        run("gfx942", f"{load('gfx942', 5)}\ns_waitcnt 0xc07f\n{USE.format(5)}")
    run("gfx1100", f"{lds_load('gfx1100', 5)}\ns_waitcnt 0xfc07\n{USE.format(5)}")
    run("gfx1100", f"{load('gfx1100', 5)}\ns_waitcnt 0x03f7\n{USE.format(5)}")
    with pytest.raises(UnknownInstruction):
        run("gfx1201", "s_waitcnt 0")
    with pytest.raises(UnknownInstruction):
        run("gfx1100", "s_wait_loadcnt 0x0")


def test_unchecked_runs_do_not_mind():
    run("gfx942", f"{load('gfx942', 5)}\n{USE.format(5)}", check=False)
