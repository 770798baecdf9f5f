"""How fast this processor multiplies, and how many target tokens a second it could train if it did nothing else.

python floor.py      prints the rate of one core in GFLOP/s, float32
"""

import resource
import time

WIDTH, INNER, VOCABULARY, LAYERS = 256, 1024, 8000, 3


def flops_per_target_token(model: str, sources_per_target: float) -> float:
    """Multiplications and additions of all matrix products, forward and twice as many backward.

    Left out: attention scores and sums (about 1 % at these lengths), norms, softmax, dropout, the optimiser.
    """
    output = WIDTH * VOCABULARY
    if model == "A":
        encoder = LAYERS * (4 * WIDTH**2 + 2 * WIDTH * INNER)
        keys_and_values = LAYERS * 2 * WIDTH**2
        decoder = LAYERS * (6 * WIDTH**2 + 2 * WIDTH * INNER)
        return 6 * (sources_per_target * (encoder + keys_and_values) + decoder + output)
    half = WIDTH // 2
    encoder = 2 * 4 * half * (WIDTH + half) + WIDTH**2  # both directions, and the keys of general attention
    fed = WIDTH if model == "B" else 0
    decoder = 4 * WIDTH * (WIDTH + fed + WIDTH) + 2 * WIDTH * WIDTH  # the cell, and tanh(W [c; h])
    return 6 * (sources_per_target * encoder + decoder + output)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    print(max(_rate(4096, WIDTH, INNER), _rate(4096, INNER, WIDTH), _rate(1536, 1536, 1536)))


def _rate(rows: int, inner: int, columns: int) -> float:
    """The best of several, per second of processor time: others on the machine shall not count."""
    import torch

    x, w = torch.randn(rows, inner), torch.randn(inner, columns)
    best, repeats = 0.0, max(1, int(2e10 / (2 * rows * inner * columns)))
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        began = _cpu_seconds()
        for _ in range(repeats):
            torch.mm(x, w)
        best = max(best, 2e-9 * rows * inner * columns * repeats / (_cpu_seconds() - began))
    return best


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
