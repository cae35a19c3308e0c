"""The definitions of a file with braces, macros and ``#if``: C, C++, CUDA.

A grammar alone is not enough here: unknown macros and conditional branches make it lose a brace,
and everything after sits at the wrong depth. So braces are paired by a scan of their own, one
branch of each conditional deciding the depth, and the grammar only says what a pair of braces is.
A pair that it does not explain, outside of functions, makes its inside unknown.

Branches of a conditional are all read when each of them closes the braces it opens; otherwise the
first one stands for all, and the lines of the others belong to what is around them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dsv4port.apply.grammar import matches, parse
from dsv4port.apply.languages import Language
from dsv4port.apply.scopes import Definition, Outline, ScopeKind, one_line

if TYPE_CHECKING:
    from tree_sitter import Node

_TOKEN = re.compile(
    rb"""
      (?P<comment> //(?:[^\\\n]|\\.)* | /\*.*?(?:\*/|\Z) )
    | (?P<string> (?:\b(?:u8|[uUL]))?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
                | "(?:[^"\\\n]|\\.)*" | (?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+' )
    | (?P<directive> ^[\ \t]*\#(?:[^\\\n/]|\\.|/(?!\*)|/\*.*?\*/)* )
    | (?P<open> \{ ) | (?P<close> \} ) | (?P<end> ; )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_DIRECTIVE = re.compile(rb"\s*#\s*(\w*)\s*(.*)", re.DOTALL)
_NOT_A_NEWLINE = re.compile(rb"[^\n]+")
_MACRO_HEAD = re.compile(r"[A-Z][A-Z0-9_]+ ?\(.*\)\Z", re.DOTALL)
_NAMESPACE_HEAD = re.compile(
    r"(?:(?:inline )?namespace\b ?(?P<name>[\w:]*)|(?P<linkage>extern \"[^\"]*\"))\Z"
)
_ACCESS = re.compile(rb"\s*(?:public|private|protected)\s*:(?!:)")
_FIRST_TEXT = re.compile(rb"\S")
_KINDS = {kind.value: kind for kind in ScopeKind}


@dataclass(slots=True)
class _Branches:
    """A conditional: the braces open before it, and what its branches made of them."""

    before: list[int]
    condition: str
    start: int
    taken: list[int] | None = None
    ranges: list[tuple[int, int]] = field(default_factory=list)
    keep_all: bool = True
    had_braces: bool = False
    pairs_before: int = 0
    first_pairs: int = 0


@dataclass(slots=True)
class _Scan:
    """The text without comments and directives, and its braces.

    ``ends`` are the offsets after which a new declaration can begin. ``broken`` is set when
    braces do not pair up.
    """

    code: bytearray
    pairs: dict[int, int]
    ends: list[int]
    conditions: list[tuple[int, tuple[str, ...]]]
    broken: bool


def _blank(code: bytearray, start: int, end: int) -> None:
    code[start:end] = _NOT_A_NEWLINE.sub(lambda run: b" " * len(run[0]), bytes(code[start:end]))


def _scan(text: bytes) -> _Scan:
    code = bytearray(text)
    pairs: list[tuple[int, int]] = []
    opened: list[int] = []
    ends: list[int] = [0]
    frames: list[_Branches] = []
    conditions: list[tuple[int, tuple[str, ...]]] = [(0, ())]
    dropped: list[tuple[int, int]] = []
    broken = False

    def end_branch(frame: _Branches, at: int) -> None:
        nonlocal pairs
        balanced = opened == frame.before and frame.had_braces
        if frame.taken is None:
            frame.taken = list(opened)
            frame.first_pairs = len(pairs)
            frame.keep_all = opened == frame.before
        else:
            frame.ranges.append((frame.start, at))
            frame.keep_all = frame.keep_all and balanced

    for token in _TOKEN.finditer(text):
        group = token.lastgroup
        start, end = token.span()
        if group == "open":
            opened.append(start)
            ends.append(end)
            for frame in frames:
                frame.had_braces = True
        elif group == "close":
            ends.append(end)
            for frame in frames:
                frame.had_braces = True
            if opened:
                pairs.append((opened.pop(), start))
            else:
                broken = True
        elif group == "end":
            ends.append(end)
        elif group == "comment":
            _blank(code, start, end)
        elif group == "directive":
            _blank(code, start, end)
            ends.append(end)
            word, rest = _DIRECTIVE.match(token[0]).groups()  # type: ignore[union-attr]
            if word in (b"if", b"ifdef", b"ifndef"):
                frames.append(
                    _Branches(
                        list(opened), one_line(word + b" " + rest), end, pairs_before=len(pairs)
                    )
                )
            elif not frames:
                continue
            elif word in (b"elif", b"else", b"elifdef", b"elifndef"):
                frame = frames[-1]
                end_branch(frame, start)
                opened = list(frame.before)
                frame.start, frame.had_braces = end, False
                frame.condition += " " + one_line(word + b" " + rest)
            elif word == b"endif":
                frame = frames.pop()
                end_branch(frame, start)
                assert frame.taken is not None
                if not frame.keep_all:
                    opened = frame.taken
                    dropped.extend(frame.ranges)
            else:
                continue
            conditions.append((end, tuple(frame.condition for frame in frames)))
    for start, end in dropped:
        _blank(code, start, end)
    kept = {
        start: end
        for start, end in pairs
        if code[start] == 0x7B and code[end] == 0x7D
    }  # fmt: skip
    return _Scan(code, kept, ends, conditions, broken or bool(opened) or bool(frames))


@dataclass(slots=True)
class _Head:
    """What the grammar says heads a pair of braces; ``kind`` None: braces that open no scope."""

    kind: ScopeKind | None
    name: str
    start: int
    end: int


def outline(language: Language, content: bytes) -> Outline:
    """Read the definitions of ``content``."""
    scan = _scan(content)
    rows = _Rows(content)
    if scan.broken:
        return Outline((), ((0, rows.last),))
    code = bytes(scan.code)
    quiet = re.sub(language.noise.encode(), lambda run: _spaces(run[0]), code)
    heads = _heads(language, quiet)
    return _Builder(scan, code, heads, rows).build()


def _spaces(text: bytes) -> bytes:
    return _NOT_A_NEWLINE.sub(lambda run: b" " * len(run[0]), text)


def _heads(language: Language, code: bytes) -> dict[int, _Head]:
    """Heads by the offset of the opening brace."""
    heads: dict[int, _Head] = {}
    for captures in matches(language, parse(language, code).root_node):
        for node in captures.get("plain", ()):
            heads.setdefault(node.start_byte, _Head(None, "", node.start_byte, node.end_byte))
        for name, nodes in captures.items():
            if name in _KINDS:
                head = _head(_KINDS[name], nodes[0], captures)
                if head is not None:
                    heads[captures["body"][0].start_byte] = head
    return heads


def _head(kind: ScopeKind, node: Node, captures: dict[str, list[Node]]) -> _Head | None:
    body = captures["body"][0]
    if kind is ScopeKind.FUNCTION:
        name = _function_name(node)
        if name is None:
            return None
    else:
        name = one_line(captures["name"][0].text or b"")
    start = node.start_byte
    while node.parent is not None and node.parent.type == "template_declaration":
        node = node.parent
        start = node.start_byte
    return _Head(kind, name, start, body.end_byte)


def _function_name(node: Node) -> str | None:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None:
        inner = declarator.child_by_field_name("declarator")
        if declarator.type == "function_declarator" and inner is not None:
            return None if inner.has_error else one_line(inner.text or b"")
        if declarator.type == "operator_cast":
            return one_line((declarator.text or b"").partition(b"(")[0])
        if inner is None:
            # A reference's declarator has no field name.
            inner = next(
                (child for child in declarator.children if child.type.endswith("declarator")), None
            )
        declarator = inner
    return None


class _Rows:
    """Rows of byte offsets."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._starts = [0]
        find = content.find
        at = find(b"\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = find(b"\n", at + 1)
        self.last = len(self._starts) - 1

    def of(self, offset: int) -> int:
        return bisect_right(self._starts, offset) - 1

    def first_of(self, offset: int) -> int:
        """The row of ``offset``, or the next one if something else comes first on that row."""
        row = self.of(offset)
        return row if not self._content[self._starts[row] : offset].strip() else row + 1


class _Builder:
    """Walks the pairs of braces from the outside in and names them."""

    def __init__(self, scan: _Scan, code: bytes, heads: dict[int, _Head], rows: _Rows) -> None:
        self._scan = scan
        self._code = code
        self._heads = heads
        self._rows = rows
        self._definitions: list[Definition] = []
        self._unknown: list[tuple[int, int]] = []
        self._condition_starts = [start for start, _ in scan.conditions]

    def build(self) -> Outline:
        # (close, index of the definition or None, whether inside of a function, known)
        around: list[tuple[int, int | None, bool, bool]] = []
        for start, end in sorted(self._scan.pairs.items()):
            while around and around[-1][0] < start:
                around.pop()
            _, parent, in_function, known = around[-1] if around else (0, None, False, True)
            head = self._head_of(start, end, in_function)
            if not known:
                around.append((end, parent, in_function, False))
            elif head is None and not in_function:
                first = self._rows.first_of(self._header_start(start))
                self._unknown.append((first, self._rows.of(end)))
                around.append((end, parent, False, False))
            elif head is None or head.kind is None:
                around.append((end, parent, in_function or head is not None, True))
            else:
                self._define(head, start, end, parent)
                inside = head.kind in (ScopeKind.FUNCTION, ScopeKind.MACRO)
                around.append((end, len(self._definitions) - 1, inside, True))
        return Outline(self._definitions, self._unknown)

    def _head_of(self, start: int, end: int, in_function: bool) -> _Head | None:
        head = self._heads.get(start)
        if head is not None and head.end != end + 1 and head.kind is not None:
            # The grammar closes these braces elsewhere, but it has read their header.
            head = _Head(head.kind, head.name, head.start, end + 1)
        if in_function:
            return head if head is not None and head.kind is ScopeKind.CLASS else None
        text = one_line(self._code[self._header_start(start) : start])
        if (namespace := _NAMESPACE_HEAD.match(text)) is not None:
            name = namespace["linkage"] or namespace["name"] or "(anonymous)"
            return _Head(ScopeKind.NAMESPACE, name, self._header_start(start), end + 1)
        if _MACRO_HEAD.match(text) and (head is None or head.kind is ScopeKind.FUNCTION):
            return _Head(ScopeKind.MACRO, text, self._header_start(start), end + 1)
        return head

    def _header_start(self, brace: int) -> int:
        ends = self._scan.ends
        after = ends[bisect_right(ends, brace) - 1]
        while (access := _ACCESS.match(self._code, after, brace)) is not None:
            after = access.end()
        first = _FIRST_TEXT.search(self._code, after, brace + 1)
        return brace if first is None else first.start()

    def _define(self, head: _Head, brace: int, end: int, parent: int | None) -> None:
        start = min(head.start, self._header_start(brace))
        at = bisect_right(self._condition_starts, brace) - 1
        guards = self._scan.conditions[at][1]
        header = one_line(self._code[start:brace])
        known = True
        self._definitions.append(
            Definition(
                head.kind or ScopeKind.CLASS,
                head.name,
                " ".join((*(f"#{guard}" for guard in guards), header)),
                parent,
                known,
                self._rows.first_of(start),
                self._rows.of(end),
            )
        )
