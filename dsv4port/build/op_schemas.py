"""The operator schemas that C++ sources declare: ``ops.def("name(Tensor a) -> ()")``. Pure.

Read from text, without a preprocessor: what stands below an ``#if`` may be left out of a build, and
is marked so. A namespace that is made of the extension's name is known by its ending only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsv4port.quick_dataclass import dataclass

_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<directive>^[ \t]*\#[ \t]*(?P<word>\w+)(?:[^\n\\]|\\\n|\\.)*)
  | (?P<library>\b(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT|_EXPAND)?\s*\(\s*
        (?P<space>CONCAT\s*\(\s*\w+\s*,\s*\w+\s*\)|\w+)\s*,\s*(?P<holder>\w+)\s*\))
  | (?P<def>\b(?P<object>\w+)\s*\.\s*def\s*\(\s*(?P<text>(?:"(?:[^"\\\n]|\\.)*"\s*)+))
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_NAME = re.compile(r"\s*(?:(\w+)::)?(\w+)(?:\.(\w+))?")


@dataclass(frozen=True, slots=True)
class DeclaredOp:
    """One ``def``.

    Parameters:
        namespace: the namespace, or with `by_ending` the end of it (empty: any).
        schema: the text without the namespace; only the name where C++ infers the rest.
        conditional: below an ``#if``, so a build may lack it.
        file, line: where it stands.
    """

    namespace: str
    by_ending: bool
    name: str
    schema: str
    conditional: bool
    file: str
    line: int


def declared_ops(text: str, file: str) -> list[DeclaredOp]:
    """Every operator that a source file declares, in order."""
    return list(_declared(text, file))


def _declared(text: str, file: str) -> Iterator[DeclaredOp]:
    depth = 0
    holders: dict[str, tuple[str, bool]] = {}
    for token in _TOKEN.finditer(text):
        if token["directive"]:
            word = token["word"]
            if word in ("if", "ifdef", "ifndef"):
                depth += 1
            elif word == "endif":
                depth = max(0, depth - 1)
        elif token["library"]:
            holders[token["holder"]] = _namespace(token["space"])
        elif token["def"] and token["object"] in holders:
            schema = "".join(_STRING.findall(token["text"]))
            match = _NAME.match(schema)
            if match is None:
                continue
            namespace, by_ending = holders[token["object"]]
            if match[1]:
                namespace, by_ending = match[1], False
                schema = schema.split("::", 1)[1]
            name = match[2] + (f".{match[3]}" if match[3] else "")
            line = text.count("\n", 0, token.start()) + 1
            yield DeclaredOp(namespace, by_ending, name, schema.strip(), depth > 0, file, line)


def _namespace(space: str) -> tuple[str, bool]:
    if space.startswith("CONCAT"):
        return space.rsplit(",", 1)[1].strip(" )\n\t"), True
    return ("", True) if space == "TORCH_EXTENSION_NAME" else (space, False)
