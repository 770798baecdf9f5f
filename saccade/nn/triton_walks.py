"""The kernels of nn/triton_blocks.py: a walk of a tile of queries over the keys it sees, or of keys over their queries.

Shapes: B sentences, T tokens of the longest, N rows of all sentences, H heads, K head width.
"""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# mypy: disallow-untyped-decorators=False, check-untyped-defs=False

from saccade.nn.triton_residual import constexpr, jit, tl


# Pointers are moved to a tile with 64-bit offsets; within it 32 bits are enough.
@jit
def _sentence(offsets, lengths, b, T, PACKED: constexpr):
    """Its first row, its length, and where the rows end that are written for it."""
    length = tl.load(lengths + b).to(tl.int32)
    begin = b.to(tl.int64) * T
    end = length * 0 + T
    if PACKED:
        begin = tl.load(offsets + b).to(tl.int64)
        end = length
    return begin, length, end


@jit
def _task(B, tiles, chunks, SPLIT: constexpr, H: constexpr):
    """Of this program: sentence, head, tile, and the chunk of its walk, or −1 where it takes the walk as a whole."""
    at = tl.program_id(0)
    walks = B * H * SPLIT * chunks
    long = at < walks
    rest = tl.where(long, at // chunks, at - walks)
    across = tl.where(long, SPLIT, tiles - SPLIT)
    tile = tl.where(long, 0, SPLIT) + rest % across
    return rest // across // H, rest // across % H, tile, tl.where(long, at % chunks, -1)


@jit
def _keys_seen(
    tile, chunk, tiles, CAUSAL: constexpr, FIRST: constexpr, REACH: constexpr, SUB: constexpr, CHUNK: constexpr
):
    """By a tile of queries: begin and count of the run of first tiles, then of the near ones behind them."""
    end = tl.minimum(tile + 1, tiles) if CAUSAL else tiles
    first = tl.where(chunk >= 0, chunk * CHUNK, 0)
    firsts = tl.minimum(end - first, tl.where(chunk >= 0, CHUNK, FIRST))
    near = tl.maximum((tile // SUB - REACH) * SUB, FIRST)
    nears = tl.where(chunk >= 0, 0, tl.minimum((tile // SUB + REACH + 1) * SUB, end) - near)
    return first, tl.maximum(firsts, 0), near, tl.maximum(nears, 0)


@jit
def _queries_seeing(
    tile, chunk, tiles, CAUSAL: constexpr, FIRST: constexpr, REACH: constexpr, SUB: constexpr, CHUNK: constexpr
):
    """A tile of keys: the same two runs, of tiles of queries."""
    first = tl.where(chunk >= 0, tl.maximum(chunk * CHUNK, tile if CAUSAL else 0), 0)
    firsts = tl.minimum(tl.where(chunk >= 0, (chunk + 1) * CHUNK, 0 if CAUSAL else FIRST), tiles) - first
    near = tl.maximum(tile if CAUSAL else (tile // SUB - REACH) * SUB, FIRST)
    nears = tl.where(chunk >= 0, 0, tl.minimum((tile // SUB + REACH + 1) * SUB, tiles) - near)
    return first, tl.maximum(firsts, 0), near, tl.maximum(nears, 0)


@jit
def _visited(t, first, firsts, near, nears, further, EACH: constexpr, DRAWN: constexpr, SUB: constexpr):
    """The tile that a walk visits t-th: first ones, near ones, those of drawn blocks; `further` lists EACH × blocks."""
    tile = tl.where(t < firsts, first + t, near + t - firsts)
    if DRAWN > 0:
        beyond = t - firsts - nears
        block = tl.load(further + beyond // SUB, mask=beyond >= 0, other=0).to(tl.int32) // EACH
        tile = tl.where(beyond >= 0, block * SUB + beyond % SUB, tile)
    return tile


@jit
def _listed(drawn, b, h, block, blocks, EVEN: constexpr, DRAWN: constexpr, WIDE: constexpr, H: constexpr):
    """Where the list of what is drawn for a block of queries begins, and how many there are: behind them is −1."""
    here = drawn + (((0 if EVEN else b) * H + h).to(tl.int64) * blocks + block) * DRAWN
    column = tl.arange(0, WIDE)
    there = tl.load(here + column, mask=column < DRAWN, other=-1) >= 0
    return here, tl.sum(there.to(tl.int32), 0)


@jit
def _read(pointer, stride, first, end, TILE: constexpr, K: constexpr):
    rows = tl.arange(0, TILE)
    at = rows[:, None] * stride + tl.arange(0, K)[None, :]
    return tl.load(pointer + first.to(tl.int64) * stride + at, mask=first + rows[:, None] < end, other=0.0)


@jit
def _write(pointer, stride, first, length, end, value, TILE: constexpr, K: constexpr):
    """Zeros from the length on, up to the end."""
    rows = tl.arange(0, TILE)
    at = rows[:, None] * stride + tl.arange(0, K)[None, :]
    value = tl.where(first + rows[:, None] < length, value, 0.0).to(pointer.dtype.element_ty)
    tl.store(pointer + first.to(tl.int64) * stride + at, value, mask=first + rows[:, None] < end)


@jit
def _keep(parts, value, TILE: constexpr, K: constexpr):
    """As a partial result: programs that leave one come first, and each has its place."""
    at = tl.arange(0, TILE)[:, None] * K + tl.arange(0, K)[None, :]
    tl.store(parts + tl.program_id(0).to(tl.int64) * TILE * K + at, value)


@jit
def _scores(product, query, key, length, slope2, scale2, CAUSAL: constexpr, BAND: constexpr, SLOPED: constexpr):
    """(q·k K^-½ − slope · distance) log₂e, -inf where a query may not look; places are broadcast to the product."""
    scores = product * scale2
    if SLOPED:
        scores -= slope2 * tl.abs(query - key).to(tl.float32)
    may_look = key < length
    if CAUSAL:
        may_look = may_look & (key <= query)
    if BAND >= 0:
        may_look = may_look & (tl.abs(query - key) <= BAND)
    return tl.where(may_look, scores, float("-inf"))


@jit
def forward(
    q, k, v, out, lse, parts, parts_lse, drawn, slopes, offsets, lengths, row, head, B, T, N, tiles, chunks, scale2,
    PACKED: constexpr, EVEN: constexpr, CAUSAL: constexpr, BAND: constexpr, SLOPED: constexpr, FIRST: constexpr,
    SPLIT: constexpr, REACH: constexpr, DRAWN: constexpr, WIDE: constexpr, SUB: constexpr, CHUNK: constexpr,
    TILE: constexpr, H: constexpr, K: constexpr,
):  # fmt: skip
    """One tile of queries, or a chunk of a first one's walk, with the online softmax (Dao et al. 2022, algorithm 1)."""
    b, h, tile, chunk = _task(B, tiles, chunks, SPLIT, H)
    begin, length, end = _sentence(offsets, lengths, b, T, PACKED)
    here, i = begin * row + h * head, tile * TILE
    first, firsts, near, nears = _keys_seen(tile, chunk, tl.cdiv(length, TILE), CAUSAL, FIRST, REACH, SUB, CHUNK)
    further, visits = drawn, firsts + nears
    if DRAWN > 0:
        further, some = _listed(drawn, b, h, tile // SUB, tl.cdiv(tiles, SUB), EVEN, DRAWN, WIDE, H)
        visits += tl.where(chunk < 0, some * SUB, 0)
    slope2 = tl.load(slopes + h).to(tl.float32) * 1.4426950408889634 if SLOPED else 0.0
    rows, columns = i + tl.arange(0, TILE), tl.arange(0, TILE)
    q_tile = _read(q + here, row, i, length, TILE, K)
    highest = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    mean = tl.zeros((TILE, K), tl.float32)
    for t in range(0, tl.where(i < length, visits, 0)):
        j = _visited(t, first, firsts, near, nears, further, 1, DRAWN, SUB) * TILE
        k_tile, v_tile = _read(k + here, row, j, length, TILE, K), _read(v + here, row, j, length, TILE, K)
        product = tl.dot(q_tile, tl.trans(k_tile), input_precision="tf32x3")
        scores = _scores(product, rows[:, None], j + columns[None, :], length, slope2, scale2, CAUSAL, BAND, SLOPED)
        higher = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # nothing of the window yet: no NaN
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(highest - base)
        total = total * shrink + tl.sum(weights, 1)
        mean = mean * shrink[:, None]
        mean += tl.dot(weights.to(v_tile.dtype), v_tile, input_precision="tf32x3")
        highest = higher
    some = tl.where(total == 0.0, 1.0, total)
    mean, normaliser = mean / some[:, None], highest + tl.log2(some)
    if chunk >= 0:
        _keep(parts, mean, TILE, K)
        tl.store(parts_lse + tl.program_id(0).to(tl.int64) * TILE + columns, normaliser)
    else:
        _write(out + (begin * H + h) * K, H * K, i, length, end, mean, TILE, K)
        tl.store(lse + h.to(tl.int64) * N + begin + rows, normaliser, mask=rows < length)


@jit
def queries_backward(
    q, k, v, out, lse, dout, mean_slope, dq, parts, drawn, slopes, offsets, lengths,
    row, head, o_row, o_head, d_row, d_head, B, T, N, tiles, chunks, scale, scale2,
    PACKED: constexpr, EVEN: constexpr, CAUSAL: constexpr, BAND: constexpr, SLOPED: constexpr, FIRST: constexpr,
    SPLIT: constexpr, REACH: constexpr, DRAWN: constexpr, WIDE: constexpr, SUB: constexpr, CHUNK: constexpr,
    TILE: constexpr, H: constexpr, K: constexpr,
):  # fmt: skip
    """The same walk again, for dq; and the mean slope of each row, Σ dout × out (Dao et al. 2022, equation 4)."""
    b, h, tile, chunk = _task(B, tiles, chunks, SPLIT, H)
    begin, length, end = _sentence(offsets, lengths, b, T, PACKED)
    here, i = begin * row + h * head, tile * TILE
    first, firsts, near, nears = _keys_seen(tile, chunk, tl.cdiv(length, TILE), CAUSAL, FIRST, REACH, SUB, CHUNK)
    further, visits = drawn, firsts + nears
    if DRAWN > 0:
        further, some = _listed(drawn, b, h, tile // SUB, tl.cdiv(tiles, SUB), EVEN, DRAWN, WIDE, H)
        visits += tl.where(chunk < 0, some * SUB, 0)
    slope2 = tl.load(slopes + h).to(tl.float32) * 1.4426950408889634 if SLOPED else 0.0
    rows, columns = i + tl.arange(0, TILE), tl.arange(0, TILE)
    q_tile = _read(q + here, row, i, length, TILE, K)
    dout_tile = _read(dout + begin * o_row + h * o_head, o_row, i, length, TILE, K)
    out_tile = _read(out + (begin * H + h) * K, H * K, i, length, TILE, K)
    average = tl.sum(dout_tile.to(tl.float32) * out_tile.to(tl.float32), 1)
    per_row = h.to(tl.int64) * N + begin + rows
    tl.store(mean_slope + per_row, average, mask=rows < tl.where(chunk <= 0, length, 0))
    normaliser = tl.load(lse + per_row, mask=rows < length, other=0.0)
    dq_tile = tl.zeros((TILE, K), tl.float32)
    for t in range(0, tl.where(i < length, visits, 0)):
        j = _visited(t, first, firsts, near, nears, further, 1, DRAWN, SUB) * TILE
        k_tile, v_tile = _read(k + here, row, j, length, TILE, K), _read(v + here, row, j, length, TILE, K)
        product = tl.dot(q_tile, tl.trans(k_tile), input_precision="tf32x3")
        scores = _scores(product, rows[:, None], j + columns[None, :], length, slope2, scale2, CAUSAL, BAND, SLOPED)
        weights = tl.exp2(scores - normaliser[:, None])
        slopes_of = tl.dot(dout_tile, tl.trans(v_tile), input_precision="tf32x3")
        dscores = (weights * (slopes_of - average[:, None])).to(k_tile.dtype)
        dq_tile += tl.dot(dscores, k_tile, input_precision="tf32x3")
    if chunk >= 0:
        _keep(parts, dq_tile * scale, TILE, K)
    else:
        _write(dq + begin * d_row + h * d_head, d_row, i, length, end, dq_tile * scale, TILE, K)


@jit
def keys_backward(
    q, k, v, lse, dout, mean_slope, dk, dv, of_keys, of_values, by, starts, slopes, offsets, lengths,
    row, head, o_row, o_head, d_row, d_head, B, T, N, tiles, chunks, scale, scale2,
    PACKED: constexpr, EVEN: constexpr, CAUSAL: constexpr, BAND: constexpr, SLOPED: constexpr, FIRST: constexpr,
    SPLIT: constexpr, REACH: constexpr, DRAWN: constexpr, WIDE: constexpr, SUB: constexpr, CHUNK: constexpr,
    TILE: constexpr, H: constexpr, K: constexpr,
):  # fmt: skip
    """One tile of keys, or a chunk of a first one's walk: dk and dv; scores stand keys by queries."""
    b, h, tile, chunk = _task(B, tiles, chunks, SPLIT, H)
    begin, length, end = _sentence(offsets, lengths, b, T, PACKED)
    here, j = begin * row + h * head, tile * TILE
    first, firsts, near, nears = _queries_seeing(tile, chunk, tl.cdiv(length, TILE), CAUSAL, FIRST, REACH, SUB, CHUNK)
    further, visits = by, firsts + nears
    if DRAWN > 0:
        table, blocks = ((0 if EVEN else b) * H + h).to(tl.int64), tl.cdiv(tiles, SUB)
        start = tl.load(starts + table * (blocks + 1) + tile // SUB)
        further = by + table * blocks * DRAWN + start
        some = tl.load(starts + table * (blocks + 1) + tile // SUB + 1) - start
        visits += tl.where(chunk < 0, some * SUB, 0)
    slope2 = tl.load(slopes + h).to(tl.float32) * 1.4426950408889634 if SLOPED else 0.0
    keys, columns = j + tl.arange(0, TILE), tl.arange(0, TILE)
    k_tile, v_tile = _read(k + here, row, j, length, TILE, K), _read(v + here, row, j, length, TILE, K)
    dk_tile, dv_tile = tl.zeros((TILE, K), tl.float32), tl.zeros((TILE, K), tl.float32)
    for t in range(0, tl.where(j < length, visits, 0)):
        i = _visited(t, first, firsts, near, nears, further, DRAWN, DRAWN, SUB) * TILE
        q_tile = _read(q + here, row, i, length, TILE, K)
        dout_tile = _read(dout + begin * o_row + h * o_head, o_row, i, length, TILE, K)
        rows = i + columns
        per_row = h.to(tl.int64) * N + begin + rows
        normaliser = tl.load(lse + per_row, mask=rows < length, other=0.0)
        average = tl.load(mean_slope + per_row, mask=rows < length, other=0.0)
        product = tl.dot(k_tile, tl.trans(q_tile), input_precision="tf32x3")
        scores = _scores(product, rows[None, :], keys[:, None], length, slope2, scale2, CAUSAL, BAND, SLOPED)
        weights = tl.exp2(scores - normaliser[None, :])
        dv_tile += tl.dot(weights.to(dout_tile.dtype), dout_tile, input_precision="tf32x3")
        slopes_of = tl.dot(v_tile, tl.trans(dout_tile), input_precision="tf32x3")
        dscores = (weights * (slopes_of - average[None, :])).to(q_tile.dtype)
        dk_tile += tl.dot(dscores, q_tile, input_precision="tf32x3")
    if chunk >= 0:
        _keep(of_keys, dk_tile * scale, TILE, K)
        _keep(of_values, dv_tile, TILE, K)
    else:
        _write(dk + begin * d_row + h * d_head, d_row, j, length, end, dk_tile * scale, TILE, K)
        _write(dv + begin * d_row + h * d_head, d_row, j, length, end, dv_tile, TILE, K)


@jit
def merge(
    parts, parts_lse, whole, lse, offsets, lengths, row, head, T, N, chunks,
    PACKED: constexpr, WEIGHED: constexpr, SPLIT: constexpr, CHUNK: constexpr, TILE: constexpr, SLAB: constexpr,
    TOGETHER: constexpr, H: constexpr, K: constexpr,
):  # fmt: skip
    """Some rows of a first tile out of its chunks: their sum, or their mean by the weights that each had in it."""
    at = tl.program_id(0)
    tile, h, b = at % SPLIT, at // SPLIT % H, at // SPLIT // H
    begin, length, end = _sentence(offsets, lengths, b, T, PACKED)
    within = tl.program_id(1) * SLAB + tl.arange(0, SLAB)
    highest = tl.full((SLAB,), float("-inf"), tl.float32)
    total = tl.zeros((SLAB,), tl.float32)
    merged = tl.zeros((SLAB, K), tl.float32)
    count = tl.cdiv(length, TILE * CHUNK)
    for chunk in range(0, count, TOGETHER):
        some = chunk + tl.arange(0, TOGETHER)[:, None]
        rows = (at.to(tl.int64) * chunks + some) * TILE + within[None, :]
        there = (some < count) & (within[None, :] >= 0)
        columns = tl.arange(0, K)[None, None, :]
        part = tl.load(parts + rows[:, :, None] * K + columns, mask=there[:, :, None], other=0.0)
        if WEIGHED:
            normaliser = tl.load(parts_lse + rows, mask=there, other=float("-inf"))
            higher = tl.maximum(highest, tl.max(normaliser, 0))
            base = tl.where(higher == float("-inf"), 0.0, higher)
            weight, shrink = tl.exp2(normaliser - base[None, :]), tl.exp2(highest - base)
            merged = merged * shrink[:, None] + tl.sum(part * weight[:, :, None], 0)
            total = total * shrink + tl.sum(weight, 0)
            highest = higher
        else:
            merged += tl.sum(part, 0)
    first = tile * TILE + tl.program_id(1) * SLAB
    if WEIGHED:
        sure = tl.where(total == 0.0, 1.0, total)
        merged = merged / sure[:, None]
        place = tile * TILE + within
        tl.store(lse + h.to(tl.int64) * N + begin + place, highest + tl.log2(sure), mask=place < length)
    _write(whole + begin * row + h * head, row, first, length, end, merged, SLAB, K)
