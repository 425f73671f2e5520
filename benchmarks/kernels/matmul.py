"""Matrix products: tiles by pointers, and tiles by descriptors in a persistent loop."""

from switch import tl, triton


@triton.jit
def tile_of(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of the tile's place: GROUP_M rows of tiles are done before the next columns, so that operands stay in L2."""
    rows = tl.cdiv(M, BLOCK_M)
    columns = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * columns
    first = tile // in_group * GROUP_M
    size = min(rows - first, GROUP_M)
    return first + (tile % in_group) % size, (tile % in_group) // size


@triton.jit
def matmul_pointers(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn,
                    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
                    WRAP: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr):
    """y = x w (+ b) (relu). Rows and columns past the end: read from the start again (WRAP), else masked."""
    pid_m, pid_n = tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    if WRAP:
        x_ptrs = x_ptr + (rows % M)[:, None] * stride_xm + depth[None, :] * stride_xk
        w_ptrs = w_ptr + depth[:, None] * stride_wk + (columns % N)[None, :] * stride_wn
    else:
        x_ptrs = x_ptr + rows[:, None] * stride_xm + depth[None, :] * stride_xk
        w_ptrs = w_ptr + depth[:, None] * stride_wk + columns[None, :] * stride_wn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        if WRAP:
            x = tl.load(x_ptrs, mask=depth[None, :] < left, other=0.0)
            w = tl.load(w_ptrs, mask=depth[:, None] < left, other=0.0)
        else:
            x = tl.load(x_ptrs, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
            w = tl.load(w_ptrs, mask=(depth[:, None] < left) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(x, w, acc)
        x_ptrs += BLOCK_K * stride_xk
        w_ptrs += BLOCK_K * stride_wk
    if BIAS:
        acc += tl.load(b_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(y_ptr + rows[:, None] * stride_ym + columns[None, :] * stride_yn, acc.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def matmul_descriptors(x_desc, w_desc, y_desc, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                       GROUP_M: tl.constexpr, PROGRAMS: tl.constexpr, HALVES: tl.constexpr, FLATTEN: tl.constexpr,
                       WARP_SPECIALIZE: tl.constexpr, OUT: tl.constexpr):
    """y = x wᵀ, w given (N, K). Each of PROGRAMS programs takes every PROGRAMS-th tile; HALVES: the tile is stored in two halves."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE):
        pid_m, pid_n = tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row = pid_m * BLOCK_M
        column = pid_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BLOCK_K)):
            x = x_desc.load([row, k * BLOCK_K])
            w = w_desc.load([column, k * BLOCK_K])
            acc = tl.dot(x, tl.trans(w), acc)
        if HALVES:
            left, right = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
            y_desc.store([row, column], left.to(OUT))
            y_desc.store([row, column + BLOCK_N // 2], right.to(OUT))
        else:
            y_desc.store([row, column], acc.to(OUT))
