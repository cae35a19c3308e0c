"""Compile the kernels of a tree for an architecture without a GPU; print their sizes as JSON.

Run as a program: the interpreter's switch decides what Triton's decorator makes of a kernel, once
a process, and the tests beside this file want the other setting.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

CAPABILITY = int(sys.argv[2]) if len(sys.argv) > 2 else 90
POINTERS = {"bf16": "*bf16", "fp8": "*fp8e4nv", "fp32": "*fp32", "i64": "*i64"}


def compile_kernel(
    kernel: Any, pointers: dict[str, str], constants: dict[str, Any], num_warps: int
) -> int:
    """Size of the cubin in bytes; arguments that are neither are 32-bit integers."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        else:
            signature[name] = POINTERS[pointers[name]] if name in pointers else "i32"
    source = ASTSource(kernel, signature, constexprs=constants)
    options = {"num_warps": num_warps, "launch_pdl": True}
    compiled = triton.compile(source, target=GPUTarget("cuda", CAPABILITY, 32), options=options)
    return len(compiled.asm["cubin"])


def inv_rope(module: Any) -> dict[str, int]:
    pointers = {
        "o_ptr": "bf16",
        "positions_ptr": "i64",
        "cos_sin_cache_ptr": "fp32",
        "fp8_ptr": "fp8",
        "scale_ptr": "fp32",
    }
    common = {
        "heads_per_group": 8,
        "fp8_max": 448.0,
        "eps": 1e-10,
        "QUANT_GROUP_SIZE": 128,
        "CHUNKS_PER_HEAD": 4,
        "ROPE_START": 64,
        "HALF_ROPE": 32,
        "USE_GDC": True,
        "launch_pdl": True,
    }
    sizes = {}
    # The stride that is one is a constant in Triton, in each layout another.
    for layout, unit in (("mn_major", "scale_stride_token"), ("k_major", "scale_stride_k")):
        for warps in (1, 2, 4):
            sizes[f"{layout}, {warps} warps"] = compile_kernel(
                module._fused_inv_rope_fp8_quant_per_head,
                pointers,
                common | {"TMA_ALIGNED_SCALES": False, unit: 1},
                warps,
            )
    return sizes


def gemv(module: Any, rows: dict[Any, Any], a_scaled: bool) -> dict[str, int]:
    sizes = {}
    for shape, tile in rows.items():
        kernel = module._gemv_simt if tile.kind == "simt" else module._gemv_mma
        constants = {
            "K": shape.k,
            "QUANT_BLOCK": 128,
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "K_BLOCKS": tile.k_blocks,
            "A_SCALED": a_scaled,
            "USE_GDC": True,
            "launch_pdl": True,
            "w_scale_stride_k": 1,
        }
        pointers = {
            "a_ptr": "fp8" if a_scaled else "bf16",
            "a_scale_ptr": "fp32",
            "w_ptr": "fp8",
            "w_scale_ptr": "fp32",
            "out_ptr": "bf16",
        }
        sizes[f"m={shape.m} {tile}"] = compile_kernel(kernel, pointers, constants, tile.num_warps)
    return sizes


def swiglu(module: Any) -> dict[str, int]:
    sizes = {}
    for ue8m0, block_t in itertools.product((False, True), (1, 8)):
        constants = {
            "half_width": 256,
            "limit": 10.0,
            "fp8_max": 448.0,
            "eps": 1e-10,
            "GROUP_SIZE": 128,
            "BLOCK_T": block_t,
            "USE_UE8M0": ue8m0,
            "USE_LIBDEVICE": True,
            "USE_GDC": True,
            "launch_pdl": True,
        }
        pointers = {"gate_up_ptr": "bf16", "q_ptr": "fp8", "scale_ptr": "fp32"}
        sizes[f"ue8m0={ue8m0}, {block_t} tokens"] = compile_kernel(
            module._swiglu_fp8_quant, pointers, constants, 1
        )
    return sizes


def main(tree: Path) -> None:
    from kernel_tree import INV_ROPE, NVIDIA_OPS, KernelTree

    kernels = KernelTree(tree)
    tiles = kernels.module(f"{NVIDIA_OPS}.small_m_gemv_tiles")
    small = kernels.module(f"{NVIDIA_OPS}.small_m_gemv")
    # The tables' tiles, and one of each kind in case a table is empty.
    o_proj = {
        tiles.GemvShape(1, 1024, 4096, 1, (9, 0), "float32"): tiles.Tile("simt", 1, 8, 4, 4),
        tiles.GemvShape(16, 1024, 4096, 1, (9, 0), "float32"): tiles.Tile("mma", 16, 16, 4, 4),
    } | dict(kernels.module(f"{NVIDIA_OPS}.o_proj_tile_table").O_PROJ_TILES)
    gate_up = {
        tiles.GemvShape(1, 512, 4096, 1, (9, 0), "float32"): tiles.Tile("simt", 1, 4, 4, 4),
    } | dict(kernels.module(f"{NVIDIA_OPS}.gate_up_tile_table").GATE_UP_TILES)
    print(
        json.dumps(
            {
                "inverse RoPE": inv_rope(kernels.module(INV_ROPE)),
                "O projection": gemv(small, o_proj, a_scaled=True),
                "gate-up": gemv(small, gate_up, a_scaled=False),
                "SwiGLU": swiglu(kernels.module(f"{NVIDIA_OPS}.swiglu_fp8_quant")),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
