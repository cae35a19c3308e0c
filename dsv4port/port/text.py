"""One version of a file: its lines, and the scopes that they are in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from io import BytesIO

from dsv4port.apply.scopes import Scope, ScopeMap, scope_map


def split_lines(content: bytes) -> list[bytes]:
    """The lines with their own ends, split at line feeds only."""
    return BytesIO(content).readlines()


class Text:
    """A version of a file.

    Parameters:
        path: decides which grammar reads the scopes.
        lines: its lines, each with its own end.
    """

    def __init__(self, path: bytes, lines: Sequence[bytes]) -> None:
        self.path = path
        self.lines = list(lines)

    @classmethod
    def of(cls, path: bytes, content: bytes) -> Text:
        """The text of a content."""
        return cls(path, split_lines(content))

    @cached_property
    def content(self) -> bytes:
        """The bytes of the file."""
        return b"".join(self.lines)

    @cached_property
    def counts(self) -> Counter[bytes]:
        """How often each line is there, whatever its indentation."""
        return Counter(b" ".join(line.split()) for line in self.lines)

    @cached_property
    def scopes(self) -> ScopeMap | None:
        """The scopes; None where no grammar serves the file."""
        return scope_map(self.path, self.content)

    def scope(self, row: int) -> Scope | None:
        """The scope of a 0-based row; None is unknown."""
        if self.scopes is None or not 0 <= row < len(self.lines):
            return None
        return self.scopes.scope_of_line(row + 1)

    def span(self, scope: Scope) -> list[tuple[int, int]]:
        """Rows (first, stop) of every definition that is proven to be ``scope``."""
        from dsv4port.apply.scopes import same_scope

        if self.scopes is None:
            return []
        return [
            (first - 1, last)
            for found, first, last in self.scopes.definitions()
            if found is not None and same_scope(scope, found)
        ]
