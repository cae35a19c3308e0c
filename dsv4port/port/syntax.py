"""A merge finer than lines must not break what parsed before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dsv4port.apply.languages import language_of
from dsv4port.port.edits import Edit, apply_edits
from dsv4port.port.file_merge import Decided
from dsv4port.port.merge import Resolution, Verdict, merged_lines
from dsv4port.port.text import Text


def parses(path: bytes, lines: Sequence[bytes]) -> bool | None:
    """Whether a text is free of syntax errors; None where no grammar serves it."""
    language = language_of(path)
    if language is None:
        return None
    if path.endswith((b".py", b".pyi")):
        # The grammar lets pass what Python refuses: indentation, misplaced keywords.
        return _is_python(b"".join(lines))
    from dsv4port.apply.grammar import parse

    return not parse(language, b"".join(lines)).root_node.has_error


def _is_python(content: bytes) -> bool:
    import ast
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def without_broken(
    base: Text, edits: Sequence[Edit], target: Text, decided: list[Decided]
) -> list[Decided]:
    """The same, but edits that were merged finer than lines are in conflict if they break it.

    Where target or patched base do not parse either, nothing can be concluded.
    """
    finer = [one for one in decided if one.resolution.verdict.finer and one.settled]
    if not finer or not parses(target.path, target.lines):
        return decided
    applied = [one.resolution for one in decided if one.settled]
    if parses(target.path, merged_lines(target.lines, applied)):
        return decided
    if not parses(base.path, apply_edits(base.lines, edits)):
        return decided
    return [
        replace(one, resolution=_broken(one.resolution)) if one in finer else one for one in decided
    ]


def _broken(found: Resolution) -> Resolution:
    return Resolution(
        found.edits, Verdict.CONFLICT, found.start, found.stop, None,
        f"{found.reason}; together they do not parse", found.score,
    )  # fmt: skip
