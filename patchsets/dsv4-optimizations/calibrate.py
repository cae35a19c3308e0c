"""Measure tiles and write the tables: which shapes run as GEMV, and how.

    python patchsets/dsv4-optimizations/calibrate.py TREE --out DIR

TREE is a patched tree. DIR receives `o_proj_tile_table.py`, `gate_up_tile_table.py` and
`calibration.json`. A shape gets a row only if its best tile was faster, by more than the margin,
than the kernels it replaces, measured here and in turn with it. Where those kernels are not
available nothing is known to be faster, so the tables come out empty. The files go into the patch
by hand, and with them the numbers of warps of the inverse RoPE.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "tests"))

TOKENS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 16, 20, 32, 40, 64)
INV_ROPE_TOKENS = (1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 64, 80, 128, 160, 256, 320)
# A tile must win by this much: repeated measurements differ by about one in a hundred.
MARGIN = 0.03
WORKERS = 14

Shape = tuple[str, int, int, int, int]  # kind, block_m, block_n, k_blocks, num_warps


def candidates(tokens: int, a_scaled: bool, k: int) -> Iterator[Shape]:
    """Tiles whose registers and shared memory are in a range that can win."""
    rows = 1
    while rows < tokens:
        rows *= 2
    for block_m, block_n, k_blocks, warps in itertools.product(
        sorted({min(rows, 1), min(rows, 2), min(rows, 4), min(rows, 8)}),
        (1, 2, 4, 8, 16),
        (2, 4, 8, 16, 32),
        (1, 2, 4, 8),
    ):
        sums = block_m * block_n * k_blocks * 128 // (32 * warps)
        weights = block_n * k_blocks * 128 // (32 * warps)
        if 16 <= weights <= 128 and sums <= 128 and k % (k_blocks * 128) == 0:
            yield ("simt", block_m, block_n, k_blocks, warps)
    if not a_scaled or tokens == 1:
        return
    wide = (16,) if rows <= 16 else (16, min(rows, 64))
    for block_m, block_n, k_blocks, warps in itertools.product(
        wide, (8, 16, 32), (2, 4, 8, 16), (2, 4, 8, 16)
    ):
        # FP16 copies of both operands pass through shared memory.
        if (block_m + block_n) * k_blocks * 128 * 2 <= 160_000 and warps <= 2 * k_blocks:
            yield ("mma", block_m, block_n, k_blocks, warps)


def compile_some(task: tuple[str, list[tuple[Shape, bool, int, int]]]) -> int:
    """Fill Triton's cache on disk by running each tile once; in a process of its own."""
    tree, tiles = task
    kernels = Kernels(Path(tree))
    done = 0
    for shape, a_scaled, n, k in tiles:
        if kernels.run_once(shape, a_scaled, n, k):
            done += 1
    return done


class Kernels:
    def __init__(self, tree: Path) -> None:
        import torch
        from kernel_tree import INV_ROPE, NVIDIA_OPS, KernelTree

        self.torch = torch
        loaded = KernelTree(tree)
        self.gemv = loaded.module(f"{NVIDIA_OPS}.small_m_gemv")
        self.inv_rope = loaded.module(INV_ROPE)

    def run_once(self, shape: Shape, a_scaled: bool, n: int, k: int) -> bool:
        torch = self.torch
        a = torch.zeros(1, 1, k, device="cuda", dtype=torch.bfloat16)
        a_scale = None
        if a_scaled:
            a, a_scale = a.to(torch.float8_e4m3fn), torch.ones(1, 1, k // 128, device="cuda")
        weight = torch.zeros(1, n, k, device="cuda").to(torch.float8_e4m3fn)
        w_scale = torch.ones(1, n // 128, k // 128, device="cuda")
        out = torch.empty(1, 1, n, device="cuda", dtype=torch.bfloat16)
        try:
            self.gemv.small_m_gemv(a, a_scale, weight, w_scale, out, self.gemv.Tile(*shape))
            torch.cuda.synchronize()
        except Exception as error:  # A tile that needs too much of the device.
            print(f"{shape}: {type(error).__name__}", file=sys.stderr)
            return False
        return True


def best_tile(
    launches: dict[Shape, Callable[[int], None]], measure: Callable[..., Any]
) -> tuple[Shape, float]:
    """Two rounds: all of them briefly, then the best few for longer."""
    brief = measure({str(shape): launch for shape, launch in launches.items()}, 32, 7)
    ranked = sorted(launches, key=lambda shape: brief[str(shape)].median)[:5]
    longer = measure({str(shape): launches[shape] for shape in ranked}, 64, 21)
    winner = min(ranked, key=lambda shape: longer[str(shape)].median)
    return winner, longer[str(winner)].median


def calibrate_gemv(
    kernels: Kernels,
    name: str,
    size: tuple[int, int],
    tokens: int,
    a_scaled: bool,
    usable: set[tuple[Shape, bool, int, int]],
    replaced: dict[str, Callable[..., Callable[[int], None]]],
) -> dict[str, Any]:
    import torch
    from measuring import compare
    from problems import Weights, fp8, scales

    n, k = size
    weights = _weights(Weights, n, k)
    out = torch.empty(tokens, 1, n, device="cuda", dtype=torch.bfloat16)
    a: Any = fp8(tokens, 1, k) if a_scaled else torch.randn(tokens, 1, k, device="cuda").bfloat16()
    a_scale = scales(tokens, 1, k // 128) if a_scaled else None

    def launch_with(shape: Shape) -> Callable[[int], None]:
        tile = kernels.gemv.Tile(*shape)

        def launch(number: int) -> None:
            weight, w_scale = weights[number]
            kernels.gemv.small_m_gemv(a, a_scale, weight, w_scale, out, tile)

        return launch

    shapes = [s for s in candidates(tokens, a_scaled, k) if (s, a_scaled, n, k) in usable]
    winner, _ = best_tile({shape: launch_with(shape) for shape in shapes}, compare)
    others = {title: make(tokens, weights) for title, make in replaced.items()}
    times = compare({"gemv": launch_with(winner)} | others)
    result = {
        "what": name,
        "tokens": tokens,
        "tile": winner,
        "tried": len(shapes),
        "microseconds": {title: vars(timing) for title, timing in times.items()},
        "ratio": {t: round(times["gemv"].median / times[t].median, 4) for t in others},
    }
    print(json.dumps(result), flush=True)
    return result


_KEPT: dict[tuple[int, int], Any] = {}


def _weights(cls: Any, n: int, k: int) -> Any:
    if (n, k) not in _KEPT:
        _KEPT[n, k] = cls.of(n, k)
    return _KEPT[n, k]


class WithWarps:
    """A kernel that is launched with this many warps, whatever the caller says."""

    def __init__(self, kernel: Any, warps: int) -> None:
        self.kernel = kernel
        self.warps = warps

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        run = self.kernel[grid]
        return lambda *args, **meta: run(*args, **meta | {"num_warps": self.warps})


def calibrate_inv_rope(kernels: Kernels, tokens: int) -> dict[str, Any]:
    from measuring import compare
    from problems import Attention

    arguments = Attention.of(tokens).arguments()
    per_head = kernels.inv_rope._fused_inv_rope_fp8_quant_per_head

    def launch_with_warps(warps: int) -> Callable[[int], None]:
        """Upstream's kernel with more warps to a head, and so fewer values to a thread."""

        def start(_: int) -> None:
            kernels.inv_rope._fused_inv_rope_fp8_quant_per_head = WithWarps(per_head, warps)
            kernels.inv_rope.fused_inv_rope_fp8_quant(*arguments)
            kernels.inv_rope._fused_inv_rope_fp8_quant_per_head = per_head

        return start

    times = compare({f"{warps} warps": launch_with_warps(warps) for warps in (1, 2, 4)})
    result = {
        "what": "inverse RoPE",
        "tokens": tokens,
        "microseconds": {name: vars(timing) for name, timing in times.items()},
        "ratio": {
            name: round(timing.median / times["1 warps"].median, 4)
            for name, timing in times.items()
        },
    }
    print(json.dumps(result), flush=True)
    return result


def table_source(variable: str, what: str, rows: dict[str, str], about: str) -> str:
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        "# SPDX-FileCopyrightText: Copyright contributors to the vLLM project",
        f'"""Measured tiles of {what}. Written by a calibration run.',
        "",
        *about.splitlines(),
        '"""',
        "",
        "from collections.abc import Mapping",
        "from types import MappingProxyType",
        "",
        "from vllm.models.deepseek_v4.nvidia.ops.small_m_gemv_tiles import GemvShape, Tile",
        "",
    ]
    if not rows:
        lines.append(f"{variable}: Mapping[GemvShape, Tile] = MappingProxyType({{}})")
    else:
        lines.append(f"{variable}: Mapping[GemvShape, Tile] = MappingProxyType(")
        lines.append("    {")
        for shape, tile in rows.items():
            lines.append(f"        GemvShape({shape}): Tile({tile}),")
        lines += ["    }", ")"]
    return "\n".join(lines) + "\n"


def rows_of(
    results: list[dict[str, Any]], size: tuple[int, int], capability: tuple[int, int]
) -> dict[str, str]:
    rows = {}
    for result in results:
        ratio = result["ratio"].get("replaced")
        if ratio is None or ratio > 1 - MARGIN:
            continue
        kind, *numbers = result["tile"]
        shape = f'{result["tokens"]}, {size[0]}, {size[1]}, 1, {capability}, "float32"'
        rows[shape] = f'"{kind}", {", ".join(map(str, numbers))}'
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    from problems import GATE_UP, O_PROJ

    wanted = {
        (shape, True, *O_PROJ) for tokens in TOKENS for shape in candidates(tokens, True, O_PROJ[1])
    } | {(shape, False, *GATE_UP) for shape in candidates(1, False, GATE_UP[1])}
    ordered = sorted(wanted)
    print(f"{len(ordered)} tiles to compile", flush=True)
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(WORKERS) as pool:
        tasks = [(str(options.tree), ordered[i::WORKERS]) for i in range(WORKERS)]
        print(sum(pool.map(compile_some, tasks)), "compiled", flush=True)

    import torch
    from replaced_paths import column_scales, deep_gemm, einsum, quantize, upstream_ops

    kernels = Kernels(options.tree)
    usable = {tile for tile in ordered if kernels.run_once(*tile)}
    gemm, ops = deep_gemm(), upstream_ops()

    def einsum_launch(tokens: int, weights: Any) -> Callable[[int], None]:
        from problems import fp8

        n, k = O_PROJ
        a = fp8(1, tokens, k).transpose(0, 1)
        a_scale = column_scales(tokens, k // 128, "cuda").fill_(0.01).unsqueeze(1)
        out = torch.empty(tokens, 1, n, device="cuda", dtype=torch.bfloat16)
        return lambda number: einsum(gemm, a, a_scale, *weights[number], out)

    def linear_launch(tokens: int, weights: Any) -> Callable[[int], None]:
        n, k = GATE_UP
        x = torch.randn(tokens, k, device="cuda").bfloat16()
        q = torch.empty(tokens, k, device="cuda", dtype=torch.float8_e4m3fn)
        scale = column_scales(tokens, k // 128, "cuda")
        out = torch.empty(tokens, n, device="cuda", dtype=torch.bfloat16)

        def launch(number: int) -> None:
            weight, w_scale = weights[number]
            quantize(ops, x, q, scale, False)
            gemm.fp8_gemm_nt((q, scale), (weight[0], w_scale[0]), out, disable_ue8m0_cast=True)

        return launch

    o_proj = [
        calibrate_gemv(
            kernels,
            "O projection",
            O_PROJ,
            tokens,
            True,
            usable,
            {"replaced": einsum_launch} if gemm else {},
        )
        for tokens in TOKENS
    ]
    gate_up = [
        calibrate_gemv(
            kernels,
            "gate-up",
            GATE_UP,
            1,
            False,
            usable,
            {"replaced": linear_launch} if gemm and ops else {},
        )
    ]
    inv_rope = [calibrate_inv_rope(kernels, tokens) for tokens in INV_ROPE_TOKENS]

    capability = torch.cuda.get_device_capability()
    name = torch.cuda.get_device_name()
    import triton

    from dsv4port.testing.record import environment

    about = (
        f"{name}, Triton {triton.__version__}, torch {torch.__version__}. Weights outside the L2\n"
        f"cache, medians of captured launches. A row won by more than {MARGIN:.0%} over DeepGEMM."
    )
    options.out.mkdir(parents=True, exist_ok=True)
    for file, variable, what, results, size in (
        ("o_proj_tile_table.py", "O_PROJ_TILES", "the O projection's GEMV", o_proj, O_PROJ),
        ("gate_up_tile_table.py", "GATE_UP_TILES", "the shared gate-up GEMV", gate_up, GATE_UP),
    ):
        source = table_source(variable, what, rows_of(results, size, capability), about)
        (options.out / file).write_text(source)
    (options.out / "calibration.json").write_text(
        json.dumps(
            {
                "format": 1,
                "environment": environment(),
                "margin": MARGIN,
                "o_proj": o_proj,
                "gate_up": gate_up,
                "inv_rope": inv_rope,
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
