"""What vLLM's custom all-reduce accepts on a device: read from the tree's text. Pure."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from dsv4port.errors import BadInputError

_BY_HAND = "name the bytes with --limit"

_TABLE = "CUSTOM_ALL_REDUCE_MAX_SIZES"
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Add: operator.add,
}


def all_reduce_limit(table: str, default: int, capability: str | None, world_size: int) -> int:
    """Bytes below which a tensor reaches custom all-reduce.

    As in the constructor of ``CustomAllreduce``: the table's value for device and world size, and
    never more than `default`; `default` alone where the table has no such device.

    Parameters:
        table: text of ``all_reduce_utils.py``.
        capability: as ``9.0``; None for a device that the table does not have.

    Raises:
        BadInputError: the table has the device, but not for so many ranks.
    """
    sizes = _sizes(table).get(capability or "")
    if sizes is None:
        return default
    if world_size not in sizes:
        raise BadInputError(
            f"vLLM has no limit of custom all-reduce for {world_size} ranks on {capability}",
            fix=f"name another --capability, or the bytes with --limit; there are {sorted(sizes)}",
        )
    return min(sizes[world_size], default)


def default_limit(text: str) -> int:
    """The default of ``max_size`` in the constructor of ``CustomAllreduce``.

    Raises:
        BadInputError: the text has no such constructor.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            names = [one.arg for one in node.args.args]
            if "max_size" in names and node.args.defaults:
                at = names.index("max_size") - len(names)
                return _value(node.args.defaults[at], {})
    raise BadInputError("the tree's CustomAllreduce has no default of max_size", fix=_BY_HAND)


def _sizes(text: str) -> dict[str, dict[int, int]]:
    names: dict[str, int] = {}
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name, value = node.targets[0].id, node.value
        if name == _TABLE and isinstance(value, ast.Dict):
            return {
                str(ast.literal_eval(key)): {
                    int(ast.literal_eval(world)): _value(size, names)
                    for world, size in zip(row.keys, row.values, strict=True)
                    if world is not None
                }
                for key, row in zip(value.keys, value.values, strict=True)
                if key is not None and isinstance(row, ast.Dict)
            }
        try:
            names[name] = _value(value, names)
        except BadInputError:
            continue
    raise BadInputError(f"the tree's all_reduce_utils.py has no {_TABLE}", fix=_BY_HAND)


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        operate = _OPERATORS[type(node.op)]
        return operate(_value(node.left, names), _value(node.right, names))
    raise BadInputError(f"cannot read the number {ast.unparse(node)}", fix=_BY_HAND)
