"""The gate that YAML comes in through.

It accepts a small part of YAML: one document of mappings with text keys, sequences and scalars.
Anchors, aliases, tags and duplicate keys are refused, so a file means what it looks like and cannot
blow up. Scalars have no types of their own.

Files are read event by event, without positions. Only an error reads the file again, to find the
line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dsv4port.errors import ManifestError
from dsv4port.manifest.scalars import Word, is_typed
from dsv4port.manifest.values import shown

MAX_DEPTH = 32
"""How deep mappings and sequences may nest."""

# What YAML does not allow in a file, even quoted. Compiling it takes longer than reading a file.
_UNPRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


def plain_values(label: str, text: str) -> object:
    """What a YAML file holds: mappings, lists and text; `Word` where text is not quoted and another
    reader would take it for something else.

    Parameters:
        label: the name of the file in messages.

    Raises:
        ManifestError: the text is outside of what the gate accepts.
    """
    return _Builder(label, text).build()


def line_of(text: str, path: tuple[str | int, ...]) -> int:
    """The line, from 1, on which the key or item at ``path`` begins."""
    yaml, loader = _yaml()
    node = yaml.compose(text, Loader=loader)
    line = node.start_mark.line
    for step in path:
        if isinstance(step, int):
            node = node.value[step]
            line = node.start_mark.line
        else:
            key, node = next(pair for pair in node.value if pair[0].value == step)
            line = key.start_mark.line
    return int(line) + 1


class _Builder:
    """Builds plain values from parser events, refusing what the gate does not accept."""

    __slots__ = ("alias", "label", "loader", "next", "scalar", "text", "yaml")

    def __init__(self, label: str, text: str) -> None:
        self.label = label
        self.text = text
        self.yaml, self.loader = _yaml()
        self.alias, self.scalar = self.yaml.AliasEvent, self.yaml.ScalarEvent
        self.next: Callable[[], Any] = lambda: None

    def build(self) -> object:
        yaml = self.yaml
        try:
            self.next = self.loader(self.text).get_event
            self.next()  # the start of the stream
            start = self.next()
            if isinstance(start, yaml.StreamEndEvent):
                raise ManifestError(f"{self.label}:1: is empty")
            if start.tags:
                raise self._refuse(start, "a %TAG directive has no place in a manifest")
            value = self._value(self.next(), 1)
            self.next()  # the end of the document
            after = self.next()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark is not None else 1
            raise ManifestError(
                f"{self.label}:{line}: is not valid YAML: {error.problem or error.context}"
            ) from error
        except yaml.reader.ReaderError as error:
            raise self._unprintable() from error
        if not isinstance(after, yaml.StreamEndEvent):
            raise self._refuse(after, "starts a second document; a manifest is one document")
        return value

    def _value(self, event: Any, depth: int) -> object:
        kind = type(event)
        if kind is self.alias:
            raise self._refuse(
                event, f"the alias {shown('*' + event.anchor)} is refused; write the value out"
            )
        if event.anchor is not None:
            raise self._refuse(event, f"the anchor {shown('&' + event.anchor)} is refused")
        if event.tag is not None:
            raise self._refuse(event, f"the tag {shown(event.tag)} is refused; quote text instead")
        if kind is self.scalar:
            value: str = event.value
            return Word(value) if event.implicit[0] and is_typed(value) else value
        if depth > MAX_DEPTH:
            raise self._refuse(event, f"nests deeper than {MAX_DEPTH} levels")
        if kind is self.yaml.SequenceStartEvent:
            return self._sequence(depth)
        return self._mapping(depth)

    def _sequence(self, depth: int) -> list[object]:
        end = self.yaml.SequenceEndEvent
        items = []
        while type(event := self.next()) is not end:
            items.append(self._value(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, object]:
        end = self.yaml.MappingEndEvent
        entries: dict[str, object] = {}
        while type(event := self.next()) is not end:
            if type(event) is not self.scalar and type(event) is not self.alias:
                raise self._refuse(event, "a key must be text, not a mapping or a list")
            key = self._value(event, depth)
            if type(key) is not str:
                raise self._refuse(
                    event, f"the key {shown(str(key))} is not text in YAML; quote it"
                )
            if key in entries:
                raise self._refuse(event, f"the key {shown(key)} is there twice")
            entries[key] = self._value(self.next(), depth + 1)
        return entries

    def _refuse(self, event: Any, problem: str) -> ManifestError:
        return ManifestError(f"{self.label}:{event.start_mark.line + 1}: {problem}")

    def _unprintable(self) -> ManifestError:
        found = re.search(_UNPRINTABLE, self.text)
        assert found is not None
        line = self.text.count("\n", 0, found.start()) + 1
        return ManifestError(
            f"{self.label}:{line}: holds the character U+{ord(found[0]):04X}, which YAML does not "
            "allow"
        )


def _yaml() -> tuple[Any, Any]:
    import yaml

    return yaml, getattr(yaml, "CSafeLoader", yaml.SafeLoader)
