"""Which tile a GEMV runs with: measured shapes only, everything else none."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.fix

TILES = "vllm/models/deepseek_v4/nvidia/ops/small_m_gemv_tiles.py"
SHAPE = (1, 1024, 4096, 1, (9, 0), "float32")


@pytest.fixture(scope="session")
def tiles(tree_module: Callable[[str], ModuleType]) -> ModuleType:
    return tree_module(TILES)


def table(tiles: ModuleType) -> dict[object, object]:
    return {tiles.GemvShape(*SHAPE): tiles.Tile("simt", 1, 8, 4, 4)}


def select(tiles: ModuleType, **change: object) -> object:
    names = ("m", "n", "k", "groups", "capability", "scale_dtype")
    return tiles.select_tile(table(tiles), **dict(zip(names, SHAPE, strict=True)) | change)


def test_the_measured_shape_has_its_tile(tiles: ModuleType) -> None:
    assert select(tiles) == tiles.Tile("simt", 1, 8, 4, 4)
    assert select(tiles, capability=[9, 0]) == tiles.Tile("simt", 1, 8, 4, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"m": 2},
        {"m": 0},
        {"m": True},
        {"m": 1.0},
        {"m": None},
        {"n": 512},
        {"k": 2048},
        {"groups": 2},
        {"capability": (8, 9)},
        {"capability": (10, 0)},
        {"capability": (9,)},
        {"capability": (9, False)},
        {"capability": 90},
        {"capability": None},
        {"scale_dtype": "int32"},
        {"scale_dtype": "float8_e8m0fnu"},
        {"scale_dtype": None},
        {"scale_dtype": b"float32"},
    ],
    ids=str,
)
def test_any_other_shape_has_none(tiles: ModuleType, change: dict[str, object]) -> None:
    assert select(tiles, **change) is None


@pytest.mark.parametrize(
    "values",
    [
        ("dot", 1, 8, 4, 4),
        ("simt", 0, 8, 4, 4),
        ("simt", 3, 8, 4, 4),
        ("simt", 1, 256, 4, 4),
        ("simt", 1, 8, 0, 4),
        ("simt", 1, 8, 4, True),
        ("mma", 8, 16, 4, 4),
        ("mma", 16, 4, 4, 4),
    ],
    ids=str,
)
def test_an_impossible_tile_cannot_be_built(tiles: ModuleType, values: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"kind|power of two|must divide|tensor cores"):
        tiles.Tile(*values)


def test_a_tile_that_does_not_divide_the_weight_is_not_taken(tiles: ModuleType) -> None:
    tile = tiles.Tile("simt", 1, 8, 32, 4)
    assert tile.fits(1024, 4096)
    assert not tile.fits(1024, 2048)
    assert not tile.fits(100, 4096)
    assert not tile.fits(0, 4096)
    rows = {tiles.GemvShape(1, 1024, 2048, 1, (9, 0), "float32"): tile}
    assert tiles.select_tile(rows, 1, 1024, 2048, 1, (9, 0), "float32") is None


@pytest.mark.parametrize(
    ("path", "name", "weight"),
    [
        ("o_proj_tile_table.py", "O_PROJ_TILES", (1024, 4096)),
        ("gate_up_tile_table.py", "GATE_UP_TILES", (512, 4096)),
    ],
)
def test_every_row_of_the_shipped_tables_is_usable(
    tiles: ModuleType, vllm_tree: Path, path: str, name: str, weight: tuple[int, int]
) -> None:
    source = vllm_tree.joinpath(*TILES.split("/")).with_name(path).read_text()
    # The table imports the tiles by vLLM's name; here they are loaded alone.
    statements = [node for node in ast.parse(source).body if not isinstance(node, ast.ImportFrom)]
    from collections.abc import Mapping
    from types import MappingProxyType

    scope = {
        "Mapping": Mapping,
        "MappingProxyType": MappingProxyType,
        "GemvShape": tiles.GemvShape,
        "Tile": tiles.Tile,
    }
    exec(compile(ast.Module(statements, []), path, "exec"), scope)
    for shape, tile in scope[name].items():
        assert (shape.n, shape.k) == weight
        assert shape.groups == 1
        assert shape.scale_dtype == "float32"
        assert tile.fits(shape.n, shape.k)


def test_the_module_needs_the_standard_library_only(vllm_tree: Path) -> None:
    tree = ast.parse(vllm_tree.joinpath(*TILES.split("/")).read_text())
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Import):
            imported.update(alias.name.split(".")[0] for alias in node.names)
    assert imported <= set(sys.stdlib_module_names)
