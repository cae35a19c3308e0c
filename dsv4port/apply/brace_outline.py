"""The definitions of a file with braces, macros and ``#if``: C, C++, CUDA.

A grammar alone is not enough here: unknown macros and conditional branches make it lose a brace,
and everything after sits at the wrong depth. So braces are paired by a scan of their own, one
branch of each conditional deciding the depth, and the grammar only says what a pair of braces is.
A pair that it does not explain, outside of functions, makes its inside unknown.

The first branch of a conditional decides which braces are open after it. Another branch is read
too if it leaves the same braces open; if it has no braces, its lines belong to what is around
them. If it leaves others open, that holds inside of a function only; elsewhere it is unknown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from dsv4port.apply.grammar import matches, parse
from dsv4port.apply.languages import Language
from dsv4port.apply.scopes import Definition, Outline, ScopeKind, one_line
from dsv4port.quick_dataclass import dataclass

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
_NEXT = re.compile(rb"\s*\(")
_OPEN, _CLOSE = b"{}"
_KINDS = {kind.value: kind for kind in ScopeKind}

_CODE = frozenset({ScopeKind.FUNCTION, ScopeKind.MACRO})


@dataclass(slots=True)
class _Conditional:
    """An open ``#if``: the braces open before it, and what its branches made of them."""

    before: list[int]
    text: str
    start: int
    taken: list[int] | None = None
    has_braces: bool = False


@dataclass(frozen=True, slots=True)
class _Scan:
    """What a file is apart from its grammar.

    Parameters:
        code: the text without comments, directives and branches that do not count.
        pairs: offset of a closing brace by that of its opening one.
        resumed: where several branches close one brace, the others than the first have a pair of
            their own that begins with the branch; its opening brace by the offset of that begin.
        ends: offsets after which a new declaration can begin, ascending.
        conditions: from which offset on which conditions hold, ascending.
        doubtful: branches that do not count although they open or close something.
    """

    code: bytes
    pairs: dict[int, int]
    resumed: dict[int, int]
    ends: list[int]
    conditions: list[tuple[int, tuple[str, ...]]]
    doubtful: list[tuple[int, int]]


class _Scanner:
    """Reads comments, strings, directives, braces and semicolons, nothing else."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._code = bytearray(text)
        self._pairs: list[tuple[int, int]] = []
        self._resumed: dict[int, int] = {}
        self._opened: list[int] = []
        self._ends = [0]
        self._conditionals: list[_Conditional] = []
        self._conditions: list[tuple[int, tuple[str, ...]]] = [(0, ())]
        self._dropped: list[tuple[int, int]] = []
        self._doubtful: list[tuple[int, int]] = []

    def scan(self) -> _Scan | None:
        """The scan, None where braces or conditionals do not pair up."""
        for token in _TOKEN.finditer(self._text):
            group = token.lastgroup
            start, end = token.span()
            if group == "comment":
                self._blank(start, end)
            elif group == "directive":
                self._blank(start, end)
                self._ends.append(end)
                self._directive(token[0], start, end)
            elif group != "string":
                self._ends.append(end)
                if group == "end":
                    continue
                for conditional in self._conditionals:
                    conditional.has_braces = True
                if group == "open":
                    self._opened.append(start)
                elif self._opened:
                    self._close(self._opened.pop(), start)
                else:
                    return None
        if self._opened or self._conditionals:
            return None
        for start, end in self._dropped:
            self._blank(start, end)
        code = bytes(self._code)
        pairs = {
            start: end
            for start, end in self._pairs
            if code[end] == _CLOSE and (code[start] == _OPEN or start in self._resumed)
        }
        return _Scan(
            code, pairs, self._resumed, self._ends, self._conditions, self._doubtful
        )  # fmt: skip

    def _close(self, opening: int, closing: int) -> None:
        for conditional in self._conditionals:
            if conditional.taken is not None and opening < conditional.start:
                # Outer pairs begin before inner ones; the directive has room for a few.
                start = conditional.start - (len(conditional.before) - len(self._opened))
                self._resumed[start] = opening
                self._pairs.append((start, closing))
                return
        self._pairs.append((opening, closing))

    def _blank(self, start: int, end: int) -> None:
        self._code[start:end] = _spaces(bytes(self._code[start:end]))

    def _directive(self, text: bytes, start: int, end: int) -> None:
        found = _DIRECTIVE.match(text)
        word, rest = (b"", b"") if found is None else found.groups()
        shown = one_line(word + b" " + rest)
        if word in (b"if", b"ifdef", b"ifndef"):
            self._conditionals.append(_Conditional(list(self._opened), shown, end))
        elif not self._conditionals:
            return
        elif word in (b"elif", b"else", b"elifdef", b"elifndef"):
            conditional = self._conditionals[-1]
            self._end_branch(conditional, start)
            self._opened = list(conditional.before)
            conditional.start, conditional.has_braces = end, False
            conditional.text += " " + shown
        elif word == b"endif":
            conditional = self._conditionals.pop()
            self._end_branch(conditional, start)
            self._opened = list(conditional.taken or ())
        else:
            return
        self._conditions.append((end, tuple(one.text for one in self._conditionals)))

    def _end_branch(self, conditional: _Conditional, at: int) -> None:
        if conditional.taken is None:
            conditional.taken = list(self._opened)
            return
        branch = (conditional.start, at)
        if self._opened != conditional.taken:
            self._doubtful.append(branch)
            self._dropped.append(branch)
        elif not conditional.has_braces:
            # It can only be another wording of what the first branch says.
            self._dropped.append(branch)


@dataclass(slots=True)
class _Head:
    """What the grammar says heads a pair of braces; ``kind`` None: braces that open no scope."""

    kind: ScopeKind | None
    name: str
    start: int
    end: int


def outline(language: Language, content: bytes) -> Outline:
    """Read the definitions of ``content``."""
    scan = _Scanner(content).scan()
    rows = _Rows(content)
    if scan is None:
        return Outline((), ((0, rows.last),))
    quiet = re.sub(language.noise.encode(), lambda run: _spaces(run[0]), scan.code)
    return _Builder(scan, _heads(language, quiet), rows).build()


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
                head = _head(_KINDS[name], nodes[0], captures, code)
                if head is not None:
                    heads[captures["body"][0].start_byte] = head
    return heads


def _head(
    kind: ScopeKind, node: Node, captures: dict[str, list[Node]], code: bytes
) -> _Head | None:
    body = captures["body"][0]
    if kind is ScopeKind.FUNCTION:
        named = _name_node(node)
        if named is None:
            return None
        text = named.text or b""
        if named.type == "operator_cast":
            text = text.partition(b"(")[0]
        name = one_line(text)
        if not _is_sure_name(node, named, code):
            # Then only the same header, word for word, is the same function.
            name = one_line(code[node.start_byte : body.start_byte])
    else:
        name = one_line(captures["name"][0].text or b"")
    start = node.start_byte
    while node.parent is not None and node.parent.type == "template_declaration":
        node = node.parent
        start = node.start_byte
    return _Head(kind, name, start, body.end_byte)


def _name_node(function: Node) -> Node | None:
    """The declarator that is a function's name (for a conversion, with its parameters)."""
    declarator = function.child_by_field_name("declarator")
    while declarator is not None:
        inner = declarator.child_by_field_name("declarator")
        if declarator.type == "function_declarator":
            return inner
        if declarator.type == "operator_cast":
            return declarator
        if inner is None:
            # A reference's declarator has no field name.
            inner = next(
                (child for child in declarator.children if child.type.endswith("declarator")), None
            )
        declarator = inner
    return None


def _is_sure_name(function: Node, name: Node, code: bytes) -> bool:
    """Whether the grammar took no word of the header for the name by mistake."""
    if name.has_error or any(
        child.has_error for child in function.children if child.end_byte <= name.start_byte
    ):
        return False
    return name.type == "operator_cast" or _NEXT.match(code, name.end_byte) is not None


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


@dataclass(frozen=True, slots=True)
class _Around:
    """The inside of a pair of braces, up to ``end``.

    ``index`` is that of the innermost definition; ``known`` is False where nothing is certain.
    """

    end: int
    index: int | None
    in_function: bool
    known: bool


class _Builder:
    """Walks the pairs of braces from the outside in and names them."""

    def __init__(self, scan: _Scan, heads: dict[int, _Head], rows: _Rows) -> None:
        self._scan = scan
        self._code = scan.code
        self._heads = heads
        self._rows = rows
        self._definitions: list[Definition] = []
        self._unknown: list[tuple[int, int]] = []
        self._condition_starts = [start for start, _ in scan.conditions]

    def build(self) -> Outline:
        around: list[_Around] = []
        inside: dict[int, _Around] = {}
        for start, end in sorted(self._scan.pairs.items()):
            while around and around[-1].end < start:
                around.pop()
            outer = around[-1] if around else _Around(end, None, False, True)
            opening = self._scan.resumed.get(start)
            inner = self._enter(outer, start, end, None if opening is None else inside.get(opening))
            inside[start] = inner
            around.append(inner)
        for start, end in self._scan.doubtful:
            first, last = self._rows.of(start), self._rows.of(end)
            if not self._is_in_function(first):
                self._unknown.append((first, last))
        return Outline(self._definitions, self._unknown)

    def _is_in_function(self, row: int) -> bool:
        around = [found for found in self._definitions if found.first <= row <= found.last]
        return bool(around) and around[-1].kind in _CODE

    def _enter(self, outer: _Around, start: int, end: int, begun: _Around | None) -> _Around:
        """What is inside of the braces at ``start``; ``begun`` if an earlier pair opened them."""
        if not outer.known:
            return _Around(end, outer.index, outer.in_function, False)
        if begun is not None:
            return self._resume(outer, start, end, begun)
        head = self._head_of(start, end, outer.in_function)
        if head is None and not outer.in_function:
            return self._lose(self._header_start(start), end)
        if head is None or head.kind is None:
            return _Around(end, outer.index, outer.in_function or head is not None, True)
        self._define(head, start, outer.index)
        return _Around(end, len(self._definitions) - 1, head.kind in _CODE, True)

    def _resume(self, outer: _Around, start: int, end: int, begun: _Around) -> _Around:
        """Go on in a namespace or a block of a function; nothing else can be had twice."""
        if not begun.known or begun.index is None:
            return self._lose(start, end)
        found = self._definitions[begun.index]
        if found.kind is ScopeKind.NAMESPACE and not begun.in_function:
            self._define(_Head(found.kind, found.name, start, end + 1), start, outer.index)
            return _Around(end, len(self._definitions) - 1, False, True)
        if outer.in_function and begun.index == outer.index:
            return _Around(end, outer.index, True, True)
        return self._lose(start, end)

    def _lose(self, start: int, end: int) -> _Around:
        self._unknown.append((self._rows.first_of(start), self._rows.of(end)))
        return _Around(end, None, False, False)

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

    def _define(self, head: _Head, brace: int, parent: int | None) -> None:
        assert head.kind is not None
        # What the grammar did not see (blanked noise, attributes) belongs to the definition too.
        start = self._header_start(min(head.start, brace))
        at = bisect_right(self._condition_starts, brace) - 1
        guards = [f"#{guard}" for guard in self._scan.conditions[at][1]]
        self._definitions.append(
            Definition(
                head.kind,
                head.name,
                " ".join((*guards, one_line(self._code[start:brace]))),
                parent,
                True,
                self._rows.first_of(start),
                self._rows.of(head.end - 1),
            )
        )
