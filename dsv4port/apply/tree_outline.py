"""The definitions of a file by its syntax tree: Python, Rust."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsv4port.apply.grammar import errors, matches, parse
from dsv4port.apply.languages import Language, Layout
from dsv4port.apply.scopes import Definition, Outline, ScopeKind, one_line
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tree_sitter import Node

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KINDS = {kind.value: kind for kind in ScopeKind}
_LEADING = frozenset({"decorated_definition"})
_ATTRIBUTES = frozenset({"attribute_item"})


@dataclass(slots=True)
class _Found:
    kind: ScopeKind
    name: str
    signature: str
    column: int
    start: int
    end: int
    first: int
    last: int


def outline(language: Language, content: bytes) -> Outline:
    """Read the definitions of ``content``; what an error may have shifted is unknown."""
    text = content.removeprefix(_BYTE_ORDER_MARK)
    root = parse(language, text).root_node
    found = [
        definition
        for captures in matches(language, root)
        if (definition := _definition(text, captures)) is not None
    ]
    found.sort(key=lambda item: (item.start, -item.end))
    unknown = _unknown(language, found, errors(language, root), len(text))
    definitions: list[Definition] = []
    open_indexes: list[int] = []
    for index, item in enumerate(found):
        while open_indexes and found[open_indexes[-1]].end <= item.start:
            open_indexes.pop()
        parent = open_indexes[-1] if open_indexes else None
        known = not any(start <= item.start < end for start, end in unknown)
        definitions.append(
            Definition(item.kind, item.name, item.signature, parent, known, item.first, item.last)
        )
        open_indexes.append(index)
    rows = [(text.count(b"\n", 0, start), _last_row(text, end)) for start, end in unknown]
    return Outline(definitions, rows)


def _last_row(text: bytes, end: int) -> int:
    """The row of the last text before ``end``."""
    return text.count(b"\n", 0, len(text[:end].rstrip()))


def _definition(text: bytes, captures: dict[str, list[Node]]) -> _Found | None:
    kind, node = next(
        (_KINDS[name], nodes[0]) for name, nodes in captures.items() if name in _KINDS
    )
    last, end_column = node.end_point
    if end_column == 0:
        last -= 1
    if kind is ScopeKind.VARIABLE and last == node.start_point[0]:
        return None
    head = node
    parent = node.parent
    if parent is not None and parent.type in _LEADING:
        head = parent
    while (before := head.prev_sibling) is not None and before.type in _ATTRIBUTES:
        head = before
    body = node.child_by_field_name("body")
    header = one_line(text[node.start_byte : node.end_byte if body is None else body.start_byte])
    name = one_line(captures["name"][0].text or b"") if "name" in captures else header
    parts = _guards(node)
    if kind is not ScopeKind.VARIABLE:
        decorators = one_line(text[head.start_byte : node.start_byte])
        parts += [decorators, header] if decorators else [header]
    return _Found(
        kind,
        name,
        " ".join(parts),
        head.start_point[1],
        head.start_byte,
        node.end_byte,
        head.start_point[0],
        last,
    )


def _guards(node: Node) -> list[str]:
    """Headers of the blocks between a definition and the one around it, outermost first."""
    texts: list[str] = []
    parent = node.parent
    while parent is not None:
        block = next((child for child in parent.children if child.type == "block"), None)
        if block is not None:
            if parent.type in ("function_definition", "class_definition", "function_item"):
                break
            header = (parent.text or b"")[: block.start_byte - parent.start_byte]
            texts.append(one_line(header))
        parent = parent.parent
    return texts[::-1]


def _unknown(
    language: Language, found: list[_Found], broken: list[Node], size: int
) -> list[tuple[int, int]]:
    """Byte ranges whose scopes cannot be known because of syntax errors.

    An error reaches over the innermost definition around it. How far the parser lost its way
    beyond that cannot be seen, except where indentation tells: there the range ends at the next
    definition that begins no further right than the broken one.
    """
    ranges: list[tuple[int, int]] = []
    for node in broken:
        if ranges and ranges[-1][0] <= node.start_byte and node.end_byte <= ranges[-1][1]:
            continue
        around = [
            item
            for item in found
            if item.kind is not ScopeKind.VARIABLE
            and item.start <= node.start_byte
            and node.end_byte <= item.end
            and node.start_byte < max(item.end, item.start + 1)
        ]
        inner = around[-1] if around else None
        if language.layout is not Layout.INDENTATION:
            ranges.append((inner.start, inner.end) if inner is not None else (0, size))
            continue
        start, end, column = _statement_start(node), node.end_byte, 0
        if inner is not None:
            start, end, column = inner.start, max(inner.end, node.end_byte), inner.column
        following = (
            item.start
            for item in found
            if item.start >= end and item.column <= column and item.kind is not ScopeKind.VARIABLE
        )
        ranges.append((start, next(following, size)))
    return ranges


def _statement_start(node: Node) -> int:
    """Where the top-level statement that contains ``node`` starts."""
    while node.parent is not None and node.parent.parent is not None:
        node = node.parent
    return node.start_byte
