"""Facts of a C, C++ or CUDA file: registered operators, functions, prototypes, includes.

Function bodies come from the outline that placement uses, so macros and ``#if`` are treated alike
there and here. What sits in unsure surroundings is left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from dsv4port.apply.brace_outline import outline
from dsv4port.apply.languages import Language
from dsv4port.apply.scopes import ScopeKind
from dsv4port.drift.facts import (
    EMPTY,
    TEXT_LIMIT,
    Call,
    Facts,
    Parameter,
    ParameterKind,
    Symbol,
    SymbolKind,
)
from dsv4port.drift.python_facts import FileFacts

_COMMENT = re.compile(rb'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_LIBRARY = re.compile(r"\bTORCH_LIBRARY\w*\s*\(\s*(?:CONCAT\([^)]*\)|([\w:]+))\s*,\s*(\w+)")
_DEFINE = re.compile(r'\b(\w+)\s*\.\s*def\s*\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_PROTOTYPE = re.compile(
    r"^[ \t]*((?:[A-Za-z_][\w:<>,&*\s]*?[\s&*]))([A-Za-z_]\w*)\s*\(([^;{}]*?)\)\s*;",
    re.MULTILINE,
)
_CALLED = re.compile(r"\b([A-Za-z_]\w{2,})\s*(?:<[^<>;(){}]{0,80}>\s*)?(?:<<<[^;]*?>>>\s*)?\(")
_NAME_AT_END = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\])?\Z")
_NOT_CALLS = frozenset(
    {
        "if",
        "for",
        "while",
        "switch",
        "return",
        "sizeof",
        "alignof",
        "defined",
        "catch",
        "static_assert",
        "decltype",
    }
)
_LONGEST = 2 << 20


def cpp_facts(content: bytes, language: Language) -> FileFacts:
    """Read one file. Files over 2 MiB (generated tables) give nothing."""
    if len(content) > _LONGEST:
        return FileFacts(EMPTY, [], frozenset())
    includes = tuple(
        (found[1].decode("utf-8", "replace"), content.count(b"\n", 0, found.start()) + 1)
        for found in _INCLUDE.finditer(content)
    )
    code = _COMMENT.sub(_blank_comment, content).decode("utf-8", "replace")
    symbols: dict[str, Symbol] = {}
    variants: dict[str, list[Symbol]] = {}

    def add(name: str, symbol: Symbol) -> None:
        if name in symbols:
            variants.setdefault(name, []).append(symbol)
        else:
            symbols[name] = symbol

    for name, symbol in _operators(code):
        add(name, symbol)
    for name, symbol in _functions(content, language):
        add(name, symbol)
    known = set(symbols)
    for found in _PROTOTYPE.finditer(code):
        name = found[2]
        if name in known or found[1].split()[-1:] in (["return"], ["else"], ["new"]):
            continue
        line = code.count("\n", 0, found.start(2)) + 1
        add(
            name,
            Symbol(SymbolKind.FUNCTION, line, line, parameters=tuple(_parameters(found[3]))),
        )
    calls = [
        Call(found[1], 0, (), True, True, code.count("\n", 0, found.start()) + 1, "")
        for found in _first_of_each(code)
    ]
    words = frozenset(call.callee for call in calls)
    facts = Facts(
        symbols, {name: tuple(many) for name, many in variants.items()}, {}, {}, (), includes
    )
    return FileFacts(facts, calls, words)


def called_names(text: str) -> Iterator[str]:
    """Names that are followed by an argument list."""
    for found in _CALLED.finditer(text):
        if found[1] not in _NOT_CALLS:
            yield found[1]


def _first_of_each(code: str) -> Iterator[re.Match[str]]:
    seen: set[str] = set()
    for found in _CALLED.finditer(code):
        if found[1] not in seen and found[1] not in _NOT_CALLS:
            seen.add(found[1])
            yield found


def _blank_comment(found: re.Match[bytes]) -> bytes:
    text = found[0]
    if text.startswith(b'"'):
        return text
    return b"\n" * text.count(b"\n") or b" "


def _operators(code: str) -> Iterator[tuple[str, Symbol]]:
    libraries = [(found.start(), found[2], found[1] or "") for found in _LIBRARY.finditer(code)]
    for found in _DEFINE.finditer(code):
        schema = " ".join("".join(one[1] for one in _STRING.finditer(found[2])).split())
        name, _, rest = schema.partition("(")
        name = name.strip()
        if not name.replace("::", "_").replace(".", "_").isidentifier():
            continue
        library = ""
        for start, variable, label in libraries:
            if start < found.start() and variable == found[1]:
                library = label
        line = code.count("\n", 0, found.start()) + 1
        yield (
            f"torch.ops.{name}",
            Symbol(
                SymbolKind.OPERATOR, line, code.count("\n", 0, found.end()) + 1,
                parameters=tuple(_schema_parameters(rest.partition("->")[0].rpartition(")")[0])),
                annotation=library, value=_short(rest),
            ),
        )  # fmt: skip


def _schema_parameters(text: str) -> Iterator[Parameter]:
    kind = ParameterKind.NORMAL
    for part in _split(text):
        if part == "*":
            kind = ParameterKind.KEYWORD_ONLY
            continue
        head, equals, default = part.partition("=")
        note, _, name = head.strip().rpartition(" ")
        if name:
            yield Parameter(name, kind, default.strip() if equals else None, note.strip())


def _functions(content: bytes, language: Language) -> Iterator[tuple[str, Symbol]]:
    found = outline(language, content)
    lines = content.splitlines()
    names: list[str | None] = []
    for one in found.definitions:
        outer = None if one.parent is None else names[one.parent]
        if not one.known or (one.parent is not None and outer is None):
            names.append(None)
            continue
        name = one.name
        if one.kind is ScopeKind.NAMESPACE:
            # Namespaces are left out of names: callers mostly leave them out too.
            names.append(outer or "")
            continue
        if one.kind not in (ScopeKind.FUNCTION, ScopeKind.CLASS):
            names.append(None)
            continue
        qualified = f"{outer}::{name}" if outer else name
        names.append(qualified)
        body = b"\n".join(
            stripped for line in lines[one.first : one.last + 1] if (stripped := line.strip())
        )
        yield (
            qualified,
            Symbol(
                SymbolKind.FUNCTION if one.kind is ScopeKind.FUNCTION else SymbolKind.CLASS,
                one.first + 1,
                one.last + 1,
                parameters=tuple(_header_parameters(one.signature, name)),
                body=hashlib.blake2b(body, digest_size=8).hexdigest(),
            ),
        )


def _header_parameters(header: str, name: str) -> Iterator[Parameter]:
    at = header.rfind(f"{name}(")
    if at < 0:
        return
    start = at + len(name) + 1
    depth, end = 1, start
    while end < len(header) and depth:
        depth += (header[end] == "(") - (header[end] == ")")
        end += 1
    yield from _parameters(header[start : end - 1])


def _parameters(text: str) -> Iterator[Parameter]:
    for part in _split(text):
        head, equals, default = part.partition("=")
        head = " ".join(head.split())
        name = _NAME_AT_END.search(head)
        if head in ("void", "...") or name is None:
            continue
        note = head[: name.start()].strip()
        yield Parameter(
            name[1] if note else "", ParameterKind.POSITIONAL_ONLY,
            default.strip() if equals else None, _short(note or head),
        )  # fmt: skip


def _split(text: str) -> Iterator[str]:
    """Parts between the commas that no bracket encloses."""
    depth, part = 0, ""
    for character in text:
        if character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        if character == "," and depth <= 0:
            yield part.strip()
            part = ""
        else:
            part += character
    if part.strip():
        yield part.strip()


def _short(text: str) -> str:
    return text if len(text) <= 4 * TEXT_LIMIT else text[: 4 * TEXT_LIMIT]
