"""From the bytes of a file to its facts, by the language of its name."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import NamedTuple

from dsv4port.apply.languages import Layout, language_of
from dsv4port.drift.facts import Facts, encode_calls, encode_facts
from dsv4port.drift.python_facts import FileFacts, python_facts

DEFINES = 1
"""Role of a word: the file defines a symbol whose last name it is."""
CALLS = 2
"""Role of a word: the file calls something of that last name."""
MENTIONS = 4
"""Role of a word: a name, attribute, keyword or text of the file."""


class Extracted(NamedTuple):
    """Facts of one blob in stored form; ``words`` is (hash of the word, its roles)."""

    blob: str
    facts: bytes
    calls: bytes
    words: list[tuple[int, int]]


def is_source(path: str) -> bool:
    """Whether a file of this name has facts: Python, C, C++ or CUDA."""
    return reader_of(path) is not None


def reader_of(path: str) -> Callable[[bytes], FileFacts] | None:
    """What reads the facts of a file of this name; None where it has none."""
    if path.endswith((".py", ".pyi")):
        return python_facts
    language = language_of(path.encode("utf-8", "surrogateescape"))
    if language is None or language.layout is not Layout.BRACES:
        return None
    found = language

    def read(content: bytes) -> FileFacts:
        from dsv4port.drift.cpp_facts import cpp_facts

        return cpp_facts(content, found)

    return read


def extract(blob: str, path: str, content: bytes) -> Extracted:
    """The facts of a file in stored form."""
    read = reader_of(path)
    assert read is not None
    found = read(content)
    return Extracted(
        blob, _packed(encode_facts(found.facts)), _packed(encode_calls(found.calls)),
        sorted((word_key(word), roles) for word, roles in word_roles(found).items()),
    )  # fmt: skip


def word_roles(found: FileFacts) -> dict[str, int]:
    """Every word of a file with its roles."""
    roles = dict.fromkeys(found.words, MENTIONS)
    for call in found.calls:
        last = call.callee.rpartition(".")[2]
        roles[last] = roles.get(last, 0) | CALLS
    for name in defined_names(found.facts):
        roles[name] = roles.get(name, 0) | DEFINES
    return roles


def defined_names(facts: Facts) -> set[str]:
    """The last names of all symbols of a file."""
    return {name.rpartition(".")[2].rpartition("::")[2] for name in facts.symbols}


def word_key(word: str) -> int:
    """A number for a word. Several words may share one: whoever looks up reads the facts too."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def _packed(value: object) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)
