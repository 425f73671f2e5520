"""A product of microscaled matrices, B transposed; with scales by rows, or shuffled as Triton's tutorial stores them for CDNA 4."""

from switch import tl, triton


@triton.jit
def rows_of(scales, ROWS: tl.constexpr, GROUPS: tl.constexpr, SHUFFLED: tl.constexpr):
    """[ROWS, GROUPS] of a tile of scales as it was loaded."""
    if SHUFFLED:
        scales = scales.reshape(ROWS // 32, GROUPS // 8, 4, 16, 2, 2, 1).permute(0, 5, 3, 1, 4, 2, 6)
    return scales.reshape(ROWS, GROUPS)


@triton.jit
def matmul_scaled(x_ptr, x_scale_ptr, w_ptr, w_scale_ptr, y_ptr, M, N, K, G, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                  X: tl.constexpr, W: tl.constexpr, SHUFFLED: tl.constexpr, STRIDE: tl.constexpr):
    """X, W: formats. G: scales of a row; STRIDE: they are counted by it, rather than by K, of which compilers know less."""
    GROUPS = G if STRIDE else K // 32
    X_PACK: tl.constexpr = 2 if X == "e2m1" else 1
    W_PACK: tl.constexpr = 2 if W == "e2m1" else 1
    TOGETHER: tl.constexpr = 32 if SHUFFLED else 1  # rows of scales in a row of memory
    tiles = tl.cdiv(M, BLOCK_M)
    row, column = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    i, j = row * BLOCK_M + tl.arange(0, BLOCK_M), column * BLOCK_N + tl.arange(0, BLOCK_N)
    x = x_ptr + i[:, None] * (K // X_PACK) + tl.arange(0, BLOCK_K // X_PACK)[None, :]
    w = w_ptr + j[:, None] * (K // W_PACK) + tl.arange(0, BLOCK_K // W_PACK)[None, :]
    g = tl.arange(0, BLOCK_K // 32 * TOGETHER)
    si = row * (BLOCK_M // TOGETHER) + tl.arange(0, BLOCK_M // TOGETHER)
    sj = column * (BLOCK_N // TOGETHER) + tl.arange(0, BLOCK_N // TOGETHER)
    x_scale = x_scale_ptr + si[:, None] * (GROUPS * TOGETHER) + g[None, :]
    w_scale = w_scale_ptr + sj[:, None] * (GROUPS * TOGETHER) + g[None, :]
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for _ in range(0, tl.cdiv(K, BLOCK_K)):
        scales = rows_of(tl.load(x_scale), BLOCK_M, BLOCK_K // 32, SHUFFLED), rows_of(tl.load(w_scale), BLOCK_N, BLOCK_K // 32, SHUFFLED)
        total = tl.dot_scaled(tl.load(x), scales[0], X, tl.load(w).T, scales[1], W, total)
        x += BLOCK_K // X_PACK
        w += BLOCK_K // W_PACK
        x_scale += BLOCK_K // 32 * TOGETHER
        w_scale += BLOCK_K // 32 * TOGETHER
    tl.store(y_ptr + i[:, None] * N + j[None, :], total)
