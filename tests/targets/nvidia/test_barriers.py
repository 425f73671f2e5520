"""mbarriers, named and cluster barriers, fences: the text of each form, and that ptxas takes them all."""

import re

import pytest
from hopper_texts import BAR, bars, lower, module

from tilewright.dialects.errors import InternalCompilerError

SETUP = f'''  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %arr = "ttg.local_alloc"() : () -> {bars(4)}
  %bar = "ttg.memdesc_index"(%arr, %two) : ({bars(4)}, i32) -> {BAR}
'''
ARGS = "%i: i32, %p: i1"
B1 = f"({BAR}) -> ()"
ADDRESS = r"\[%r\d+\]"
THREAD0 = r"setp\.(eq|ne)\.b32\s+%p\d+, %r\d+, 0;"

# name, op, what the PTX has (a regular expression, whitespace loosened), what it must not have
FORMS = [
    ("init", f'"ttng.init_barrier"(%bar) {{count = 5 : i32}} : {B1}',
     THREAD0 + rf".*mbarrier\.init\.shared::cta\.b64 {ADDRESS}, 5;.*fence\.mbarrier_init\.release\.cluster;", None),
    ("inval", f'"ttng.inval_barrier"(%bar) : {B1}', THREAD0 + rf".*mbarrier\.inval\.shared::cta\.b64 {ADDRESS};", None),
    ("expect", f'"ttng.barrier_expect"(%bar, %p) {{size = 8192 : i32}} : ({BAR}, i1) -> ()',
     rf"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, {ADDRESS}, 8192;", None),
    ("wait", f'"ttng.wait_barrier"(%bar, %i) : ({BAR}, i32) -> ()',
     rf"WL\d+:\s+mbarrier\.try_wait\.parity\.shared::cta\.b64 P1, {ADDRESS}, %r\d+;\s+@P1 bra DN\d+;\s+bra WL\d+;\s+DN\d+:", r"%p\d+, %r\d+, 0;"),
    ("wait_pred", f'"ttng.wait_barrier"(%bar, %i, %p) : ({BAR}, i32, i1) -> ()', r"@%p\d+ bra.*mbarrier\.try_wait\.parity", None),
    ("arrive", f'"ttng.arrive_barrier"(%bar) {{count = 1 : i32}} : {B1}', THREAD0 + rf".*mbarrier\.arrive\.shared::cta\.b64 _, {ADDRESS};",
     r"bar\.warp"),
    ("arrive_count", f'"ttng.arrive_barrier"(%bar, %p) {{count = 3 : i32}} : ({BAR}, i1) -> ()',
     rf"mbarrier\.arrive\.shared::cta\.b64 _, {ADDRESS}, 3;", None),
    ("arrive_warp", f'"ttng.arrive_barrier"(%bar) {{count = 1 : i32, scope = "warp"}} : {B1}',
     rf"and\.b32\s+%r\d+, %r\d+, 31;.*bar\.warp\.sync\s+-1;.*mbarrier\.arrive\.shared::cta\.b64 _, {ADDRESS};", None),
    ("arrive_warp_group", f'"ttng.arrive_barrier"(%bar) {{count = 1 : i32, scope = "warp_group"}} : {B1}',
     rf"and\.b32\s+%r\d+, %r\d+, 127;.*mbarrier\.arrive\.shared::cta\.b64 _, {ADDRESS};", r"bar\.warp"),
    ("arrive_remote", f'"ttng.arrive_barrier_remote"(%bar, %i) {{count = 1 : i32}} : ({BAR}, i32) -> ()',
     r"mapa\.shared::cluster\.u32 RA, %r\d+, %r\d+;\s+mbarrier\.arrive\.shared::cluster\.b64 _, \[RA\];", None),
    ("named", '"ttng.named_barrier"() {id = 3 : i32, threads = 128 : i32, arrive = false} : () -> ()', r"bar\.sync\s+3, 128;", None),
    ("named_arrive", '"ttng.named_barrier"() {id = 4 : i32, threads = 256 : i32, arrive = true} : () -> ()', r"bar\.arrive\s+4, 256;", None),
    ("named_groups", '"ttng.named_barrier"() {id = 2 : i32, threads = 128 : i32, arrive = false, per_warp_group} : () -> ()',
     r"shr\.u32\s+(%r\d+), %r\d+, 7;.*(?:add\.s32|or\.b32)\s+(%r\d+), \1, 2;.*bar\.sync\s+\2, 128;", None),
    ("cluster_arrive", '"ttng.cluster_arrive"() {relaxed = false} : () -> ()', r"barrier\.cluster\.arrive;", None),
    ("cluster_relaxed", '"ttng.cluster_arrive"() {relaxed = true} : () -> ()', r"barrier\.cluster\.arrive\.relaxed;", None),
    ("cluster_wait", '"ttng.cluster_wait"() : () -> ()', r"barrier\.cluster\.wait;", None),
    ("fence", '"ttng.fence_async_shared"() {b_cluster = false} : () -> ()', r"fence\.proxy\.async\.shared::cta;", None),
    ("fence_cluster", '"ttng.fence_async_shared"() {b_cluster = true} : () -> ()', r"fence\.proxy\.async\.shared::cluster;", None),
    ("registers", '"ttng.set_max_registers"() {registers = 40 : i32, increase = false} : () -> ()', r"setmaxnreg\.dec\.sync\.aligned\.u32\s+40;", None),
    ("more_registers", '"ttng.set_max_registers"() {registers = 240 : i32, increase = true} : () -> ()',
     r"setmaxnreg\.inc\.sync\.aligned\.u32\s+240;", None),
]


@pytest.mark.parametrize("name, op, has, lacks", FORMS, ids=[f[0] for f in FORMS])
def test_form(name, op, has, lacks):
    # eight warps, so that the first of a warp group is not thread 0 of all
    ptx = lower(module(SETUP + op, ARGS, num_warps=8), num_warps=8, assembled=False).ptx
    assert re.search(has, ptx, re.S), ptx
    assert lacks is None or not re.search(lacks, ptx), ptx


def test_ptxas_takes_all_forms():
    lower(module(SETUP + "\n".join(f[1] for f in FORMS), ARGS, num_warps=8), num_warps=8)


def test_barriers_are_eight_bytes_at_distinct_aligned_places():
    body = SETUP + "\n".join(f'''  %n{i} = arith.constant {i} : i32
  %b{i} = "ttg.memdesc_index"(%arr, %n{i}) : ({bars(4)}, i32) -> {BAR}
  "ttng.init_barrier"(%b{i}) {{count = 1 : i32}} : {B1}''' for i in range(4)) + f'''
  %bi = "ttg.memdesc_index"(%arr, %i) : ({bars(4)}, i32) -> {BAR}
  "ttng.wait_barrier"(%bi, %c0) : ({BAR}, i32) -> ()'''
    found = lower(module(body, ARGS), assembled=False)
    base = [int(m) for m in re.findall(r"add\.s32\s+%r\d+, %r\d+, (\d+);", found.ptx)]
    assert {16, 32, 48} <= set(base) and found.metadata["shared"] == 64
    assert re.search(r"shl\.b32\s+%r\d+, %r\d+, 4;", found.ptx)  # 16 bytes from one to the next, wherever the index comes from
    # one fence after the last of several
    assert len(re.findall(r"mbarrier\.init", found.ptx)) == 4 and len(re.findall(r"fence\.mbarrier_init", found.ptx)) == 1
    # and a barrier between making and waiting
    assert re.search(r"fence\.mbarrier_init.*bar\.sync\s+0;.*try_wait", found.ptx, re.S)


def test_pred_that_is_known():
    true, false = (SETUP + f"  %k = arith.constant {v}\n" + f'"ttng.barrier_expect"(%bar, %k) {{size = 64 : i32}} : ({BAR}, i1) -> ()'
                   for v in ("true", "false"))
    assert "expect_tx" in lower(module(true, ARGS), assembled=False).ptx
    assert "expect_tx" not in lower(module(false, ARGS), assembled=False).ptx


@pytest.mark.parametrize("op, message", [
    ('"ttng.arrive_barrier"(%bar) {count = 1 : i32, scope = "lane"} : ' + B1, "scope must be one of"),
    ('"ttng.barrier_expect"(%bar, %p) {size = 1048576 : i32} : (' + BAR + ", i1) -> ()", "at most 1048575"),
    ('"ttng.named_barrier"() {id = 1 : i32, threads = 64 : i32, arrive = false} : () -> ()', "id must be 2 to 15"),
    ('"ttng.named_barrier"() {id = 2 : i32, threads = 48 : i32, arrive = false} : () -> ()', "multiple of 32"),
    ('"ttng.set_max_registers"() {registers = 44 : i32, increase = false} : () -> ()', "multiple of 8"),
])
def test_verifiers(op, message):
    with pytest.raises(Exception, match=message):
        lower(module(SETUP + op, ARGS), assembled=False)


def test_one_thread_code_has_no_barriers_of_all():
    body = f'''{SETUP}  "ttng.warp_specialize"() ({{ "ttng.warp_return"() : () -> () }}, {{
      "ttng.named_barrier"() {{id = 2 : i32, threads = 64 : i32, arrive = false}} : () -> ()
      "ttng.warp_return"() : () -> () }}) {{consumer_registers = 0 : i32, producer_registers = 0 : i32}} : () -> ()'''
    with pytest.raises(InternalCompilerError, match="one thread alone"):
        lower(module(body, ARGS), assembled=False)
