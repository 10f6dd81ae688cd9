#!/usr/bin/env python3
"""Writes sums of tensor cores as PyPI's mmasim 2.1.1 computes them, for a test of `sums.h`.

Each line has sixteen numbers a and sixteen b in bf16, c in f32, and c + sum(a b) in f32 on Ampere and
on Hopper, in hexadecimal. Usage: tensor-sums.py [CASES] > src/selftest/tests/tensor_sums.txt
"""

import sys

import torch
from mmasim.nv_ptx import MMA

KINDS = 8


def case(kind: int, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs of one kind: alike, spread, cancelling, with zeros, tiny, huge, small or large c."""
    def normal(count: int) -> torch.Tensor:
        return torch.randn(count, generator=random)

    a, b, c = normal(16), normal(16), normal(1)
    spread = {1: 12.0, 4: 8.0, 5: 4.0}.get(kind, 1.0)
    a *= torch.exp2(spread * normal(16))
    b *= torch.exp2(spread * normal(16))
    if kind == 2:
        a[8:], b[8:] = -a[:8], b[:8] * (1 + 2.0**-7 * torch.round(normal(8)))
    if kind == 3:
        a[torch.rand(16, generator=random) < 0.5] = 0.0
        c *= torch.rand(1, generator=random) < 0.5
    if kind == 4:
        a, b, c = a * 2.0**-70, b * 2.0**-66, c * 2.0**-140
    if kind == 5:
        a, b = a * 2.0**60, b * 2.0**60
    if kind in (6, 7):
        c *= 2.0 ** (12 if kind == 7 else -20)
    return a.bfloat16(), b.bfloat16(), c


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    random = torch.Generator().manual_seed(1)
    cases = [case(number % KINDS, random) for number in range(count)]
    a, b = (torch.stack([one[part] for one in cases]) for part in (0, 1))
    c = torch.cat([one[2] for one in cases])
    shape = "m16n8k16.f32.bf16.bf16.f32"
    sums = [MMA(name, shape).dpa(a, b, c.clone()) for name in ("Ampere", "Hopper")]
    words = [x.view(torch.int32).tolist() for x in (c, *sums)]
    halves = [x.view(torch.int16).tolist() for x in (a, b)]
    for number in range(count):
        line = [f"{x & 0xFFFF:04x}" for part in halves for x in part[number]]
        line += [f"{part[number] & 0xFFFFFFFF:08x}" for part in words]
        print(" ".join(line))


main()
