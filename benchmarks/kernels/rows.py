"""Kernels that one row, read once, goes through: rms norm and cross entropy (the examples have add, softmax and layer norm)."""

from switch import tl, triton


@triton.jit
def rms_norm(x_ptr, w_ptr, y_ptr, stride, n, eps, BLOCK: tl.constexpr):
    """y = x / sqrt(mean(x²) + eps) · w; a row of at most BLOCK elements per program."""
    row = tl.program_id(0).to(tl.int64) * stride
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row + columns, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / n + eps) * w
    tl.store(y_ptr + row + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def cross_entropy(x_ptr, label_ptr, loss_ptr, stride, n, BLOCK: tl.constexpr):
    """loss = log Σ exp(x) − x[label] of each row, in one pass over blocks of the row."""
    row = tl.program_id(0)
    x_ptr += row.to(tl.int64) * stride
    top = tl.full((BLOCK,), -1.0e30, dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, mask=columns < n, other=-1.0e30).to(tl.float32) * 1.4426950408889634
        new = tl.maximum(top, x)
        total = total * tl.exp2(top - new) + tl.exp2(x - new)
        top = new
    most = tl.max(top, 0)
    log_sum = (most + tl.log2(tl.sum(total * tl.exp2(top - most), 0))) * 0.6931471805599453
    right = tl.load(x_ptr + tl.load(label_ptr + row)).to(tl.float32)
    tl.store(loss_ptr + row, log_sum - right)
