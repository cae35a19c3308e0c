"""Operands of the real layers, many weights of them, so that each launch finds its own cold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from measuring import copies_for_cold_cache

HEADS, HEAD, ROPE = 8, 512, 64  # Of one rank of eight.
PADDED_HEADS = 64
O_PROJ = (1024, 4096)
GATE_UP = (512, 4096)


def fp8(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").mul_(30).to(torch.float8_e4m3fn)


def scales(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, device="cuda").mul_(0.02).add_(1e-3)


@dataclass
class Weights:
    """Copies of one [N, K] weight with its scales, in one block of memory each."""

    weight: torch.Tensor  # [copies, 1, N, K] float8_e4m3fn
    scale: torch.Tensor  # [copies, 1, N // 128, K // 128] FP32

    @classmethod
    def of(cls, n: int, k: int) -> Weights:
        copies = copies_for_cold_cache(n * k)
        weight = torch.stack([fp8(1, n, k) for _ in range(copies)])
        return cls(weight, scales(copies, 1, n // 128, k // 128))

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        index = number % len(self)
        return self.weight[index], self.scale[index]


@dataclass
class Attention:
    """What the inverse RoPE kernel reads for T tokens."""

    o: torch.Tensor
    positions: torch.Tensor
    cache: torch.Tensor
    heads: int
    groups: int

    @classmethod
    def of(cls, tokens: int, heads: int = HEADS, groups: int = 1) -> Attention:
        padded = torch.randn(tokens, max(PADDED_HEADS, heads), HEAD, device="cuda")
        return cls(
            padded.to(torch.bfloat16)[:, :heads],
            torch.randint(0, 4096, (tokens,), device="cuda"),
            torch.randn(4096, ROPE, device="cuda"),
            heads,
            groups,
        )

    def arguments(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, int]:
        return self.o, self.positions, self.cache, self.groups, self.heads // self.groups
