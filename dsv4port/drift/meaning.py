"""``drift/meaning.yaml``: changes that no tool can see, because name and signature stayed.

Each entry says between which two pins it happened, what it is about, what changed, and which lines
of the two trees show it. It concerns a series that uses one of its symbols or writes one of its
words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsv4port.drift.findings import Concern, Finding, Kind, Severity
from dsv4port.drift.index import Place
from dsv4port.drift.uses import Use, UseKind
from dsv4port.manifest.document import Node, load_document
from dsv4port.manifest.pins import Pins
from dsv4port.manifest.project import Project
from dsv4port.manifest.values import (
    FieldError,
    Name,
    check_filled,
    check_relative_path,
    check_unique,
)

MEANING_FORMAT = 1
MEANING_FILE = Path("drift", "meaning.yaml")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line of a pin's tree, and text that stands in it."""

    pin: Name
    path: str
    line: int
    text: str

    def __post_init__(self) -> None:
        check_relative_path("path", self.path)
        check_filled("text", self.text)
        if self.line < 1:
            raise FieldError("line", f"must be 1 or more, is {self.line}")


@dataclass(frozen=True, slots=True)
class MeaningSymbol:
    """A definition in the older tree: path and qualified name, as in ``a/b.py:Class.method``."""

    path: str
    name: str

    @classmethod
    def parse(cls, text: str) -> MeaningSymbol:
        """Raises FieldError when it has another form."""
        path, colon, name = text.partition(":")
        if not colon or not name or not path:
            raise FieldError("symbols", f"must be `path:name`, is `{text}`")
        check_relative_path("symbols", path)
        return cls(path, name)


@dataclass(frozen=True, slots=True)
class Meaning:
    """One entry.

    Parameters:
        older, newer: neighbouring pins; what changed, changed between them.
        symbols: definitions in the older tree whose users are concerned.
        words: words whose appearance on a line of the series concerns it.
        what: what is different.
        advice: what to do about it, if anything can be said.
    """

    id: Name
    older: Name
    newer: Name
    severity: Severity
    symbols: tuple[MeaningSymbol, ...]
    words: tuple[str, ...]
    what: str
    advice: str | None
    evidence: tuple[Evidence, ...]

    def __post_init__(self) -> None:
        check_filled("what", self.what)
        if not self.symbols and not self.words:
            raise FieldError("symbols", "must name a symbol, or `words` a word")
        check_unique("symbols", self.symbols)
        check_unique("words", self.words)
        for word in self.words:
            if re.fullmatch(r"[A-Za-z_]\w*", word) is None:
                raise FieldError("words", f"must be words of code, one is `{word}`")
        if not self.evidence:
            raise FieldError("evidence", "must name at least one line that shows it")


def load_meanings(project: Project, pins: Pins) -> tuple[Meaning, ...]:
    """Read the project's file; no entries where it has none.

    Raises:
        ManifestError: the file is malformed, or names a pin that the project does not have.
    """
    file = project.root / MEANING_FILE
    if not file.is_file():
        return ()
    root = load_document(file, project.label(file))
    root.require_format(MEANING_FORMAT, update="see docs/drift.md for the present format")
    entries = [_read(node.as_mapping(), pins) for node in root.sequence("entries")]
    with root.child("entries").located():
        check_unique("entries", [one.id for one in entries])
    root.finish()
    return tuple(entries)


def meanings_between(
    entries: Iterable[Meaning], pins: Pins, old: str, new: str
) -> tuple[Meaning, ...]:
    """Entries whose change lies between two pins, in whichever direction."""
    first, last = sorted((pins.position(old), pins.position(new)))
    return tuple(
        one
        for one in entries
        if first <= pins.position(one.older) and pins.position(one.newer) <= last
    )


def meaning_findings(
    entries: Sequence[Meaning], uses: Iterable[Use], lines: Iterable[Concern]
) -> Iterator[Finding]:
    """A finding for each entry that concerns the series."""
    if not entries:
        return
    hits: dict[str, dict[Concern, None]] = {one.id: {} for one in entries}
    by_symbol: dict[tuple[str, str], list[Meaning]] = {}
    by_word: dict[str, list[Meaning]] = {}
    for entry in entries:
        for symbol in entry.symbols:
            by_symbol.setdefault((symbol.path, symbol.name), []).append(entry)
        for word in entry.words:
            by_word.setdefault(word, []).append(entry)
    for use in uses:
        if use.target is not None and use.kind is not UseKind.DEFINE:
            for entry in by_symbol.get(use.target.key, ()):
                hits[entry.id][use.where] = None
    if by_word:
        pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, by_word))})\b")
        for line in lines:
            for word in set(pattern.findall(line.text)):
                for entry in by_word[word]:
                    hits[entry.id][line] = None
    for entry in entries:
        if hits[entry.id]:
            yield _finding(entry, tuple(hits[entry.id]))


def _finding(entry: Meaning, concerns: tuple[Concern, ...]) -> Finding:
    old = next((one for one in entry.evidence if one.pin == entry.older), None)
    new = next((one for one in entry.evidence if one.pin == entry.newer), None)
    return Finding(
        Kind.MEANING, entry.severity, entry.id, " ".join(entry.what.split()),
        None if old is None else Place(old.path, old.line),
        None if new is None else Place(new.path, new.line),
        None if entry.advice is None else " ".join(entry.advice.split()),
        (f"between {entry.older} and {entry.newer}",), concerns,
    )  # fmt: skip


def _read(node: Node, pins: Pins) -> Meaning:
    for key in ("older", "newer"):
        child = node.child(key)
        with child.located():
            pins.pin(child.as_name())
    evidence = tuple(_read_evidence(item.as_mapping(), pins) for item in node.sequence("evidence"))
    with node.located():
        older, newer = node.name("older"), node.name("newer")
        if pins.position(newer) != pins.position(older) + 1:
            raise FieldError("newer", f"must be the pin after {older}")
        found = Meaning(
            node.name("id"), older, newer,
            node.choice("severity", Severity) if node.optional("severity") else Severity.WARNING,
            tuple(MeaningSymbol.parse(text) for text in node.optional_texts("symbols")),
            node.optional_texts("words"), node.text("what"), node.optional_text("advice"), evidence,
        )  # fmt: skip
    node.finish()
    return found


def _read_evidence(node: Node, pins: Pins) -> Evidence:
    with node.located():
        pins.pin(node.name("pin"))
        found = Evidence(
            node.name("pin"), node.text("path"), node.integer("line"), node.text("text")
        )
    node.finish()
    return found
