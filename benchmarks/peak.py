"""What this machine's matrix products reach: the roof that other speeds are held against."""

from __future__ import annotations

import time


def matrix_peak(size: int = 2048, tries: int = 5) -> float:
    """Floating-point operations a second of a large bfloat16 matrix product, best of `tries`."""
    import torch

    left, right = (torch.randn(size, size, dtype=torch.bfloat16) for _ in range(2))
    left @ right
    best = 0.0
    for _ in range(tries):
        began = time.perf_counter()
        left @ right
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best
