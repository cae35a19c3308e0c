"""Every error raised on purpose says what to do next."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dsv4port
from dsv4port import errors

PACKAGE = Path(dsv4port.__file__).parent
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.Dsv4portError)
}


def without_way_out(source: str) -> list[int]:
    """Lines that make an error which has neither a ``fix`` nor a usual one of its class."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Name)
        and (kind := CLASSES.get(call.func.id)) is not None
        and kind is not errors.InternalError
        and kind.usual_fix is None
        and not any(keyword.arg in ("fix", None) for keyword in call.keywords)
    ]


def test_the_check_sees_what_it_must() -> None:
    assert without_way_out('raise UsageError("no")\nraise GitError("no")\n') == [1]
    assert without_way_out('UsageError("no", fix="do this")\nValueError("no")\n') == []


@pytest.mark.parametrize(
    "module", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix()
)
def test_every_error_has_a_way_out(module: Path) -> None:
    assert without_way_out(module.read_text("utf-8")) == []
