"""What became of a file or a definition of the old tree in the new one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from dsv4port.drift.facts import Flag, SymbolKind
from dsv4port.drift.index import (
    Found,
    Missing,
    ModuleFound,
    Outside,
    TreeIndex,
    absolute,
    module_of,
)
from dsv4port.drift.likeness import blanked, line_likeness, token_likeness
from dsv4port.drift.signature import name_likeness
from dsv4port.drift.syntax import Syntax

_MANY = 60
"""Files or scopes that are looked at for evidence; more say nothing new."""
_MOVED = 0.6
"""Least likeness of a definition of the same name to count as the one that moved, where callers
went along; without them it takes `_SURELY_MOVED`."""
_SURELY_MOVED = 0.9
_FILE_MOVED = 0.5
_LEAST_LIKE = 0.2
"""Least likeness of a function or class that callers switched to, to be its new name."""
_KEPT_TREES = 32
_FILE_REPLACED = 0.35


class State(Enum):
    """What became of something."""

    THERE = "there"
    """It is where it was (perhaps changed), or is found there all the same."""
    MOVED = "moved"
    """It is elsewhere under the same name."""
    RENAMED = "renamed"
    """Something very like it is in its place under another name."""
    REMOVED = "removed"
    """It is gone, as far as can be seen."""
    UNKNOWN = "unknown"
    """It cannot be known: a file does not parse, or a class depends on something outside."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a definition.

    ``importable`` says that the old import still gives it. ``reasons`` are for people.
    """

    state: State
    new: Found | None = None
    importable: bool = False
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileFate:
    """What became of a file; ``likeness`` is the share of common lines."""

    state: State
    path: str | None = None
    likeness: float = 1.0
    replaced: bool = False


class Comparison:
    """Two trees, and what was found out about them so far."""

    def __init__(self, old: TreeIndex, new: TreeIndex) -> None:
        self.old = old
        self.new = new
        self._fates: dict[tuple[str, str], Fate] = {}
        self._files: dict[str, FileFate] = {}
        self._switched: dict[tuple[str, str], Counter[str]] = {}
        self._syntax: dict[str, Syntax] = {}

    def syntax(self, index: TreeIndex, path: str) -> Syntax:
        """What the syntax of a file of either tree says; read once."""
        blob = index.files[path]
        known = self._syntax.get(blob)
        if known is None:
            if len(self._syntax) >= _KEPT_TREES:
                self._syntax.pop(next(iter(self._syntax)))
            known = self._syntax[blob] = Syntax(index.content(path))
        return known

    # ---- files

    @cached_property
    def added_paths(self) -> frozenset[str]:
        """Paths that only the new tree has."""
        return frozenset(self.new.files.keys() - self.old.files.keys())

    @cached_property
    def _added_by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in sorted(self.added_paths):
            found.setdefault(path.rpartition("/")[2], []).append(path)
        return found

    def file(self, path: str) -> FileFate:
        """What became of a file of the old tree."""
        known = self._files.get(path)
        if known is None:
            known = self._files[path] = self._file(path)
        return known

    def _file(self, path: str) -> FileFate:
        blob = self.old.files[path]
        if self.new.files.get(path) == blob:
            return FileFate(State.THERE, path)
        there = path in self.new.files
        for other in self.new.paths_of_blob.get(blob, ()):
            if other in self.added_paths and not there:
                return FileFate(State.MOVED, other)
        content = self.old.content(path)
        kept = line_likeness(content, self.new.content(path)) if there else 0.0
        if there and (kept >= _FILE_REPLACED or self._symbols_stayed(path)):
            return FileFate(State.THERE, path, kept)
        best = FileFate(State.REMOVED, None, 0.0)
        for other in self._file_candidates(path):
            share = line_likeness(content, self.new.content(other))
            enough = share >= _FILE_MOVED or (share >= 0.2 and self._symbols_went(path, other))
            if enough and share > best.likeness:
                best = FileFate(State.MOVED, other, share)
        if there and (best.path is None or best.likeness <= kept + 0.2):
            return FileFate(State.THERE, path, kept)
        return FileFate(best.state, best.path, best.likeness, replaced=there)

    def _file_candidates(self, path: str) -> list[str]:
        votes: Counter[str] = Counter()
        name = path.rpartition("/")[2]
        for other in self._added_by_name.get(name, ()):
            votes[other] += 2
        if name != "__init__.py":
            for other in self.new.files:
                # The name may have been taken by another file before.
                if other.endswith(f"/{name}") and other != path and self._is_new_at(other):
                    votes[other] += 1
        for last in sorted(_own_names(self.old, path))[: 4 * _MANY]:
            defining = self.new.defining_paths(last)
            if len(defining) <= 12:
                for other in defining:
                    if other in self.added_paths or self._is_new_at(other):
                        votes[other] += 1
        ending = path.rpartition(".")[2]
        votes_of_kind = [
            (count + (other.rpartition(".")[2] == ending), other)
            for other, count in votes.items()
            if other != path
        ]
        return [other for _, other in sorted(votes_of_kind, key=lambda one: (-one[0], one[1]))[:5]]

    def _is_new_at(self, path: str) -> bool:
        """Whether a path of the new tree holds other content than it did in the old one."""
        if path not in self.old.files:
            return True
        if self.old.files[path] == self.new.files.get(path) or path not in self.new.files:
            return False
        return line_likeness(self.old.content(path), self.new.content(path)) < _FILE_REPLACED

    def _symbols_stayed(self, path: str) -> bool:
        """Whether the path still holds part of what it defined."""
        before, after = _own_names(self.old, path), _own_names(self.new, path)
        return len(before & after) > len(before) / 4

    def _symbols_went(self, path: str, other: str) -> bool:
        before, after = _own_names(self.old, path), _own_names(self.new, other)
        symbols = self.old.facts(path).symbols
        # Constants are many and say little where there are functions or classes.
        before = {name for name in before if symbols[name].kind in _CALLED} or before
        return len(before) > 0 and len(before & after) >= max(1, len(before) / 2)

    # ---- definitions

    def fate(self, found: Found) -> Fate:
        """What became of a definition of the old tree."""
        known = self._fates.get(found.key)
        if known is None:
            known = self._fates[found.key] = self._fate(found)
        return known

    def _fate(self, found: Found) -> Fate:
        there = self.new.find(found.path, found.name)
        if there is not None:
            return Fate(State.THERE, there, True)
        if found.path in self.new.files and not self.new.facts(found.path).readable:
            return Fate(State.UNKNOWN)
        if found.owner and found.symbol.kind is not SymbolKind.OPERATOR and "::" not in found.name:
            return self._member_fate(found)
        again = self._again(found)
        if again is not None:
            return again
        moved = self._moved(found)
        if moved is not None:
            return moved
        return self._renamed(found) or Fate(State.REMOVED)

    def _again(self, found: Found) -> Fate | None:
        """The same name through the same import, or in the file that the old one became."""
        if found.path.endswith(".py"):
            answer = self.new.lookup(found.module, found.name)
            if isinstance(answer, Found):
                return Fate(State.MOVED, answer, True, (f"imported again by {found.path}",))
            if isinstance(answer, Outside) and found.path in self.new.files:
                return Fate(State.UNKNOWN)
        if found.path not in self.new.files:
            home = self.file(found.path)
            if home.path is not None:
                there = self.new.find(home.path, found.name)
                if there is not None:
                    return Fate(State.MOVED, there, False, (f"the file is {home.path} now",))
        return None

    def _moved(self, found: Found) -> Fate | None:
        """A definition of the same name that only the new tree has, if it is the same thing."""
        if found.last in _COMMON or len(self.new.defining_paths(found.last)) > _MANY:
            return None
        best: tuple[float, Found] | None = None
        for other in self.new.definitions_of(found.last):
            if (
                other.name != found.name
                or other.symbol.kind is not found.symbol.kind
                or self.old.find(other.path, other.name) is not None
            ):
                continue
            likeness = self.likeness(found, other)
            if likeness >= _MOVED and (best is None or likeness > best[0]):
                best = (likeness, other)
        if best is None:
            return None
        likeness, other = best
        hint = f"{other.place} has one of that name, {likeness:.0%} alike"
        if self._is_copy(found.path, other.path) or self._belongs_to_another(found, other):
            return Fate(State.REMOVED, None, False, (f"{hint}, a copy",))
        kept, left = self._callers_went_along(found, other)
        sure = likeness >= _SURELY_MOVED and found.symbol.kind is not SymbolKind.VARIABLE
        if (left and not kept) or not (kept or sure):
            return self._renamed(found) or Fate(State.REMOVED, None, False, (hint,))
        reasons = [f"{likeness:.0%} alike"]
        if kept:
            reasons.append(f"{kept} of its callers use it there")
        return Fate(State.MOVED, other, False, tuple(reasons))

    def _is_copy(self, path: str, other: str) -> bool:
        """Whether a new file repeats what the old one still has: forked from it, not split off."""
        if path not in self.new.files or other not in self.added_paths:
            return False
        here, there = _own_names(self.new, path), _own_names(self.new, other)
        went = (_own_names(self.old, path) - here) & there
        return len(here & there) >= max(2, len(went))

    def _belongs_to_another(self, found: Found, other: Found) -> bool:
        """Whether another definition that is gone is more like the new one."""
        likeness = self.likeness(found, other)
        return any(
            self.likeness(one, other) > likeness
            for one in self.old.definitions_of(found.last)
            if one.name == found.name
            and one.key != found.key
            and self.new.find(one.path, one.name) is None
        )

    def _callers_went_along(self, found: Found, other: Found) -> tuple[int, int]:
        """Callers that use the definition at its new place, and those that stopped using it."""
        kept = left = 0
        if found.symbol.kind is SymbolKind.VARIABLE:
            for path in self.old.mentions(found.last):
                if path in self.new.files and path != found.path and self._imports(path, found):
                    if self._leads_to(path, found.last, other):
                        kept += 1
                    else:
                        left += 1
            return kept, left
        for path, scope in self._callers(found):
            if self.new.find(path, scope) is None and scope:
                if self.new.find(other.path, scope) is not None:
                    kept += 1
                continue
            if path not in self.new.files:
                continue
            called = {call.callee for call in self.new.calls(path) if call.scope == scope}
            uses = [callee for callee in called if callee.rpartition(".")[2] == found.last]
            if any(self._leads_to(path, callee, other) for callee in uses):
                kept += 1
            else:
                left += 1
        return kept, left

    def _leads_to(self, path: str, callee: str, target: Found) -> bool:
        module = module_of(path)
        facts = self.new.facts(path)
        first, _, rest = callee.partition(".")
        answer = self.new.resolve(module, callee)
        if isinstance(answer, Outside) and first in facts.inner:
            bound = facts.inner[first]
            start = self.new.follow(module, path, bound.module, bound.name, bound.level)
            answer = self.new.chain(start, rest.split(".") if rest else ())
        return isinstance(answer, Found) and answer.key == target.key

    def _callers(self, found: Found) -> Iterator[tuple[str, str]]:
        """(path, scope) of calls in the old tree that reach the definition by its name."""
        seen: set[tuple[str, str]] = set()
        for path, call in self.old.callers_of(found.last):
            if (path, call.scope) in seen or len(seen) >= _MANY:
                continue
            if "." in call.callee and found.owner:
                # A method: whose it is shows in its name at best.
                if path != found.path and len(found.last) < 8:
                    continue
            elif path != found.path and not self._imports(path, found):
                continue
            seen.add((path, call.scope))
            yield path, call.scope

    def _imports(self, path: str, found: Found) -> bool:
        facts = self.old.facts(path)
        if not path.endswith(".py"):
            return True
        module = module_of(path)
        for bound in (*facts.imports.values(), *facts.inner.values()):
            if bound.name == found.last:
                answer = self.old.follow(module, path, bound.module, bound.name, bound.level)
                if isinstance(answer, Found) and answer.key == found.key:
                    return True
            elif bound.name is None or bound.name == found.module.rpartition(".")[2]:
                target = (
                    bound.module
                    if bound.name is None
                    else (f"{absolute(module, path, bound.module, bound.level)}.{bound.name}")
                )
                if found.module.startswith(target):
                    return True
        return False

    def switched_to(self, found: Found) -> Counter[str]:
        """Names that the callers of a definition call instead of it in the new tree."""
        known = self._switched.get(found.key)
        if known is not None:
            return known
        votes: Counter[str] = Counter()
        for path, scope in self._callers(found):
            home = path if path in self.new.files else self.file(path).path
            if home is None:
                continue
            before = {c.callee.rpartition(".")[2] for c in self.old.calls(path) if c.scope == scope}
            after = {c.callee.rpartition(".")[2] for c in self.new.calls(home) if c.scope == scope}
            if after and found.last not in after:
                votes.update(after - before)
        self._switched[found.key] = votes
        return votes

    # ---- members

    def _member_fate(self, found: Found) -> Fate:
        owner = self.old.find(found.path, found.owner)
        if owner is None or owner.symbol.kind is not SymbolKind.CLASS:
            return Fate(State.REMOVED)
        home = self.fate(owner)
        if home.new is None or home.new.symbol.kind is not SymbolKind.CLASS:
            # The class has gone, which is said where it is named; an object of whatever took its
            # place may well have the member.
            return Fate(State.UNKNOWN)
        answer = self.new.member(home.new, found.last)
        if isinstance(answer, Found):
            reasons = () if answer.owner == home.new.name else (f"inherited from {answer.owner}",)
            return Fate(State.THERE, answer, True, reasons)
        if isinstance(answer, (Outside, ModuleFound)):
            return Fate(State.UNKNOWN)
        if not self.new.outside_bases(home.new) <= self.old.outside_bases(owner):
            return Fate(State.UNKNOWN)
        if found.symbol.kind is SymbolKind.ATTRIBUTE and self._still_named(found.last, home.new):
            return Fate(State.UNKNOWN)
        return self._renamed_member(found, owner, home.new) or Fate(State.REMOVED)

    def _still_named(self, name: str, home: Found) -> bool:
        """Whether the class's files still use the name: it may be set in a way that hides it."""
        paths = {one.path for one in self.new.lineage(home).classes}
        return not paths.isdisjoint(self.new.mentions(name))

    def _renamed_member(self, found: Found, owner: Found, home: Found) -> Fate | None:
        had = {name for one in self.old.lineage(owner).classes for name, _ in self.old.members(one)}
        rivals = [
            member
            for one in self.new.lineage(home).classes
            for name, member in self.new.members(one)
            if name not in had
        ]
        return self._best_name(found, rivals)

    def _renamed(self, found: Found) -> Fate | None:
        path = found.path
        if path not in self.new.files:
            home = self.file(path).path
            if home is None:
                return None
            path = home
        had = self.old.facts(found.path).symbols
        rivals = [
            Found(module_of(path), path, name, symbol)
            for name, symbol in self.new.facts(path).symbols.items()
            if name not in had and "." not in name
        ]
        return self._best_name(found, rivals)

    def _best_name(self, found: Found, rivals: Iterable[Found]) -> Fate | None:
        """The rival that most likely is the definition under another name."""
        switched = self.switched_to(found) if found.symbol.kind in _CALLED else Counter[str]()
        alike = [one for one in rivals if _same_sort(found, one)]
        if not alike:
            return None
        lines = self._line_votes(found, [one.last for one in alike])
        best: tuple[float, Found, tuple[str, ...]] | None = None
        for one in alike:
            body = self.likeness(found, one)
            named = name_likeness(found.last, one.last)
            calls = switched.get(one.last, 0)
            votes = lines.get(one.last, 0)
            score = self._rename_score(found, one, body, named, calls, votes)
            if best is None or score > best[0]:
                reasons = [f"{body:.0%} alike"] if found.symbol.kind in _CALLED else []
                if calls:
                    reasons.append(f"{calls} of its callers call that instead")
                if votes:
                    reasons.append(f"{votes} lines have that name in its place")
                best = (score, one, tuple(reasons))
        if best is None or best[0] < 1.0 or self._is_more_like_another(found, best[1]):
            return None
        if found.symbol.kind in _CALLED and self.likeness(found, best[1]) < _LEAST_LIKE:
            # Its users do something else now; that is a hint, not its new name.
            hint = f"see {best[1].name} at {best[1].place}"
            return Fate(State.REMOVED, None, False, (*best[2], hint))
        return Fate(State.RENAMED, best[1], False, best[2])

    def _is_more_like_another(self, found: Found, one: Found) -> bool:
        """Whether another definition that is gone from the same place is more like the new one."""
        if found.symbol.kind not in _CALLED:
            return False
        likeness = self.likeness(found, one)
        calls = self.switched_to(found).get(one.last, 0)
        rivals = [
            Found(found.module, found.path, name, symbol)
            for name, symbol in self.old.facts(found.path).symbols.items()
            if _parent(name) == found.owner
            and name != found.name
            and symbol.kind is found.symbol.kind
            and self.new.find(one.path, f"{one.owner}.{_last(name)}".lstrip(".")) is None
        ]
        return any(
            self.likeness(rival, one) > likeness
            and self.switched_to(rival).get(one.last, 0) >= calls
            for rival in rivals[:_MANY]
        )

    def _rename_score(
        self, found: Found, one: Found, body: float, named: float, calls: int, votes: int
    ) -> float:
        evidence = 0.5 * (calls > 0) + 0.1 * min(calls, 4) + 0.35 * min(votes, 4)
        if found.symbol.kind in _CALLED:
            return 1.3 * body + 0.5 * named + evidence
        score = 0.6 * named + evidence
        if found.symbol.annotation and found.symbol.annotation == one.symbol.annotation:
            score += 0.25
        if found.symbol.value and found.symbol.value == one.symbol.value:
            score += 0.15
        if self._same_neighbours(found, one):
            score += 0.3
        return score

    def _same_neighbours(self, found: Found, one: Found) -> bool:
        """Whether a field stands between the same fields, or beside one of them."""
        owner, home = found.owner, one.owner
        before = [name for name in self.old.facts(found.path).symbols if _parent(name) == owner]
        after = [name for name in self.new.facts(one.path).symbols if _parent(name) == home]
        at, there = before.index(found.name), after.index(one.name)
        return (at > 0 and there > 0 and _last(before[at - 1]) == _last(after[there - 1])) or (
            at + 1 < len(before)
            and there + 1 < len(after)
            and _last(before[at + 1]) == _last(after[there + 1])
        )

    def _line_votes(self, found: Found, names: list[str]) -> Counter[str]:
        """Lines of the old tree that stand in the new one with another name in their place."""
        votes: Counter[str] = Counter()
        if len(found.last) < 4:
            return votes
        looked = 0
        for path in self.old.mentions(found.last):
            blob = self.new.files.get(path)
            if blob is None or blob == self.old.files[path]:
                continue
            looked += 1
            if looked > _MANY:
                break
            before = {
                line
                for line in blanked(self.old.content(path).splitlines(), found.last)
                if not _LISTED.fullmatch(line)
            }
            if not before:
                continue
            lines = self.new.content(path).splitlines()
            for name in names:
                votes[name] += len(before & blanked(lines, name))
        return votes

    def likeness(self, old: Found, new: Found) -> float:
        """How alike two definitions are, 0 to 1."""
        if old.symbol.body and old.symbol.body == new.symbol.body:
            return 1.0
        if old.symbol.kind in (SymbolKind.VARIABLE, SymbolKind.ATTRIBUTE):
            first, second = old.symbol.value or "", new.symbol.value or ""
            return (
                1.0
                if first and first == second
                else token_likeness(first.encode(), second.encode()) * (len(first) > 8)
            )
        return token_likeness(_source(self.old, old), _source(self.new, new))


_LISTED = re.compile(rb"(?:from|import)\b.*|[\"']?\0[\"']?,?")
"""Lines that only list a name: any other name may stand there."""
_CALLED = (SymbolKind.FUNCTION, SymbolKind.CLASS)
_COMMON = frozenset(("logger", "main", "T", "P", "R"))
_READ = (SymbolKind.VARIABLE, SymbolKind.ATTRIBUTE)


def _same_sort(old: Found, new: Found) -> bool:
    """Whether one could stand for the other."""
    if new.last.startswith("__"):
        return False
    readable = (*_READ,) if old.symbol.kind in _READ else (old.symbol.kind,)
    if new.symbol.kind in readable:
        return True
    # A field may become a property, and the other way round.
    was = old.symbol.kind in _READ or bool(old.symbol.flags & Flag.PROPERTY)
    now = new.symbol.kind in _READ or bool(new.symbol.flags & Flag.PROPERTY)
    return was and now


def _source(index: TreeIndex, found: Found) -> bytes:
    lines = index.content(found.path).splitlines()
    return b"\n".join(lines[found.symbol.line - 1 : found.symbol.end])


def _own_names(index: TreeIndex, path: str) -> set[str]:
    """The top-level names that a file defines and that could tell it from others."""
    return {
        name
        for name in index.facts(path).symbols
        if ("." not in name or name.startswith("torch.ops.")) and name not in _COMMON
    }


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def is_missing(answer: object) -> bool:
    """Whether the tree owns the place and has nothing there."""
    return isinstance(answer, Missing)
