"""Where upstream moved a file, a function or a piece of text.

Only files that differ between the two trees can have received anything. What is called a move:

* *file*: it is gone, and another one has its content, or most of its lines that it did not have
  before: git's rename detection, but without its lower bound and for files that existed before;
* *definition*: it is gone from its file, a file that did not have it has one of the same kind and
  name, or of another name, whose body is clearly the most similar;
* *text*: its lines are gone from its file and stand, whole and once, in a file that did not have
  them.

A copy is no move: where the original lives on, nothing has moved. Nor has it where upstream put
something else in its place: then those who called it in its file are still there, and call it no
more (:func:`is_replaced`). Everything found here is marked
for review by the default policy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dsv4port.apply.scopes import Scope, ScopeKind
from dsv4port.port.align import similarity
from dsv4port.port.presence import weight
from dsv4port.port.scope_merge import SAME_BODY
from dsv4port.port.text import Text, split_lines
from dsv4port.port.tokens import words

_SAME_FILE = 0.5
"""Share of its lines, by weight, from which a new file is one that is gone."""
_CLEARLY = 0.1
"""By how much the best candidate must be better than the next."""
_TEXT = 40
"""Letters and digits of a piece of text that is looked for in other files."""
_LARGEST = 4 << 20
_TELLING, _TELLING_SHARE = 24, 0.25
"""Longest lines of a file that are looked for first, and the share of them that must be there."""
_FAMILIES = (
    frozenset((b"c", b"h", b"cc", b"cpp", b"cxx", b"hh", b"hpp", b"hxx", b"inl", b"cu", b"cuh",
               b"hip")),
    frozenset((b"py", b"pyi", b"pyx")),
)  # fmt: skip


class _Corpus:
    """The contents of many files in one text, so that one search goes through all of them."""

    def __init__(self, files: dict[bytes, bytes]) -> None:
        self.files = files
        self._paths = list(files)
        self._starts: list[int] = []
        size = 0
        for content in files.values():
            self._starts.append(size)
            size += len(content) + 1
        # A NUL is in no text, so no match reaches over the end of a file.
        self._text = b"\0".join(files.values())

    def places(self, block: bytes) -> Iterator[tuple[bytes, int]]:
        """Every (path, offset) at which a block stands."""
        at = self._text.find(block)
        while at >= 0:
            index = bisect_right(self._starts, at) - 1
            yield self._paths[index], at - self._starts[index]
            at = self._text.find(block, at + 1)


@dataclass(frozen=True, slots=True)
class FileMove:
    """A file under its new path, and how that is known."""

    path: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Home:
    """Where a definition went: the file, and its scope there."""

    path: bytes
    scope: Scope
    reason: str


@dataclass(frozen=True, slots=True)
class TextHome:
    """The file that a piece of text went to."""

    path: bytes
    reason: str


class Relocator:
    """Finds what moved between two trees.

    Parameters:
        changed: lists the paths that differ, with (old id, new id), None where there is no file.
        old: content of a path in the base tree.
        new: content of a path in the target as it is now.
        fetch: reads blobs in one go, so that the two above are quick.
    """

    def __init__(
        self,
        changed: Callable[[], dict[bytes, tuple[str | None, str | None]]],
        old: Callable[[bytes], bytes | None],
        new: Callable[[bytes], bytes | None],
        fetch: Callable[[Iterable[str]], None],
    ) -> None:
        self._list = changed
        self._old = old
        self._new = new
        self._fetch = fetch
        self._changed: dict[bytes, tuple[str | None, str | None]] | None = None
        self._families: dict[bytes, _Corpus] = {}
        self._files: dict[bytes, FileMove | None] = {}

    def file(self, path: bytes, base_id: str | None, content: bytes) -> FileMove | None:
        """The new path of a file that is gone, if one is proven."""
        if path not in self._files:
            self._files[path] = self._find_file(path, base_id, content)
        return self._files[path]

    def _find_file(self, path: bytes, base_id: str | None, content: bytes) -> FileMove | None:
        changed = self._all()
        if base_id is not None:
            same = [
                other for other, (old, new) in changed.items() if new == base_id and old != base_id
            ]
            if len(same) > 1:
                same = [other for other in same if _name(other) == _name(path)]
            if len(same) == 1:
                return FileMove(same[0], "upstream moved the file, unchanged")
        lines = Counter(split_lines(content))
        total = sum(weight(line) * count for line, count in lines.items())
        if not total:
            return None
        ranked: list[tuple[float, bytes]] = []
        telling = sorted(lines, key=weight, reverse=True)[:_TELLING]
        for other, now in self._like(path).files.items():
            if other == path:
                continue
            # Counting all lines of all files takes long; most have nothing of this one.
            if sum(line in now for line in telling) < _TELLING_SHARE * len(telling):
                continue
            gained = Counter(split_lines(now))
            before = self._old(other)
            if before is not None:
                gained.subtract(split_lines(before))
            share = (
                sum(
                    weight(line) * min(count, max(gained[line], 0)) for line, count in lines.items()
                )
                / total
            )
            if _name(other) == _name(path):
                # A like name is evidence too.
                share += _CLEARLY
            ranked.append((share, other))
        ranked.sort(reverse=True)
        if not ranked or ranked[0][0] < _SAME_FILE:
            return None
        if len(ranked) > 1 and ranked[0][0] - ranked[1][0] < _CLEARLY:
            return None
        return FileMove(
            ranked[0][1],
            f"upstream moved the file and changed it: {min(ranked[0][0], 1):.0%} of its lines are "
            "there",
        )

    def definition(self, base: Text, scope: Scope, rows: tuple[int, int]) -> Home | None:
        """The new home of a definition that is gone from its file."""
        step = scope.steps[-1]
        if step.kind is ScopeKind.NAMESPACE:
            return None
        name = step.name.encode("utf-8", "surrogateescape")
        body = words(base.lines[rows[0] : rows[1]])
        ranked: list[tuple[float, Home]] = []
        corpus = self._like(base.path)
        for other in dict.fromkeys(found for found, _ in corpus.places(name)):
            now = corpus.files[other]
            if len(now) > _LARGEST or other == base.path:
                continue
            before = self._old(other)
            if before is not None and before.count(name) >= now.count(name):
                continue
            text = Text.of(other, now)
            if text.scopes is None:
                continue
            for found, first, last in text.scopes.definitions():
                if found is None or found.steps[-1].name != step.name:
                    continue
                if found.steps[-1].kind is not step.kind:
                    continue
                share = similarity(body, words(text.lines[first - 1 : last]))
                if share < SAME_BODY or self._had(other, found):
                    continue
                ranked.append((share, Home(other, found, "")))
        ranked.sort(key=lambda one: -one[0])
        if not ranked or (len(ranked) > 1 and ranked[0][0] - ranked[1][0] < _CLEARLY):
            return None
        share, home = ranked[0]
        return Home(
            home.path, home.scope,
            f"upstream moved {scope.name} to another file; {share:.0%} of its words are the same",
        )  # fmt: skip

    def _had(self, path: bytes, scope: Scope) -> bool:
        before = self._old(path)
        return before is not None and bool(Text.of(path, before).span(scope))

    def text(self, path: bytes, lines: Sequence[bytes]) -> TextHome | None:
        """The new home of a piece of text that is gone from its file."""
        block = b"".join(lines)
        if sum(map(weight, lines)) < _TEXT or not block.endswith(b"\n"):
            return None
        corpus = self._like(path)
        found: list[bytes] = []
        for other, at in corpus.places(block):
            now = corpus.files[other]
            if other == path or (at and now[at - 1] != 0x0A):
                continue
            before = self._old(other)
            if found or (before is not None and block in before):
                return None
            found.append(other)
        if len(found) != 1:
            return None
        return TextHome(found[0], "upstream moved these lines to another file")

    def _all(self) -> dict[bytes, tuple[str | None, str | None]]:
        if self._changed is None:
            self._changed = {path: ids for path, ids in self._list().items() if ids[1] is not None}
        return self._changed

    def _like(self, path: bytes) -> _Corpus:
        """Changed text files of the same kind, as they were when they were first asked for."""
        suffix = _suffix(path)
        if suffix not in self._families:
            kin = next((one for one in _FAMILIES if suffix in one), frozenset((suffix,)))
            changed = self._all()
            paths = [other for other in changed if _suffix(other) in kin]
            self._fetch(found for other in paths if (found := changed[other][1]) is not None)
            contents = {other: self._new(other) for other in paths}
            self._families[suffix] = _Corpus(
                {
                    other: content
                    for other, content in contents.items()
                    if content is not None and b"\0" not in content
                }
            )
        return self._families[suffix]


def is_replaced(base: Text, target: Text, scope: Scope, home: Text) -> bool:
    """Whether callers of a definition that is gone stay in its file and do without it.

    A caller that is gone too is followed to its own callers. One that now calls something else of
    the file ``home``, where the definition is found, does not do without it. Without any caller
    that stays, nothing is known, and the answer is no.
    """
    if base.scopes is None or target.scopes is None or home.scopes is None:
        return False
    there = _names(home) - _names(target)
    bodies = _bodies(base)
    living = {name: text for name, text in _bodies(target).items() if name in bodies}
    gone = {scope.steps[-1].name.encode("utf-8", "surrogateescape")}
    pending = set(gone)
    stays = False
    while pending:
        name = pending.pop()
        for caller, text in bodies.items():
            short = caller.rpartition(".")[2].encode("utf-8", "surrogateescape")
            if name not in text or short in gone:
                continue
            if caller not in living:
                gone.add(short)
                pending.add(short)
            elif (gone | there) & living[caller]:
                return False
            else:
                stays = True
    return stays


def _names(text: Text) -> set[bytes]:
    """The short names of a file's functions."""
    assert text.scopes is not None
    return {
        scope.steps[-1].name.encode("utf-8", "surrogateescape")
        for scope, _, _ in text.scopes.definitions()
        if scope is not None and scope.steps[-1].kind is ScopeKind.FUNCTION
    }


def _bodies(text: Text) -> dict[str, set[bytes]]:
    """The words of each function by its qualified name."""
    assert text.scopes is not None
    return {
        scope.name: set(words(text.lines[first - 1 : last]))
        for scope, first, last in text.scopes.definitions()
        if scope is not None and scope.steps[-1].kind is ScopeKind.FUNCTION
    }


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def _suffix(path: bytes) -> bytes:
    return _name(path).rpartition(b".")[2].lower()
