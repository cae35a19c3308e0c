"""``vllm serve …``: what a command line says, as far as the contract of a stack asks for it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from dsv4port.errors import BadInputError
from dsv4port.quick_dataclass import dataclass

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_PROGRAMS = ("vllm", "vllm.entrypoints.cli.main")
_ALIASES = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dcp": "--decode-context-parallel-size",
    "-pcp": "--prefill-context-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-q": "--quantization",
    "-cc": "--compilation-config",
    "-sc": "--speculative-config",
    "-ac": "--attention-config",
    "--attention-backend": "--attention-config.backend",
    "--cudagraph-capture-sizes": "--compilation-config.cudagraph_capture_sizes",
    "--max-cudagraph-capture-size": "--compilation-config.max_cudagraph_capture_size",
}
_INTEGERS = {
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--decode-context-parallel-size",
    "--prefill-context-parallel-size",
    "--ubatch-size",
    "--max-num-seqs",
    "--max-num-batched-tokens",
}
_FLAGS = {
    "--enable-expert-parallel",
    "--enable-dbo",
    "--disable-custom-all-reduce",
    "--async-scheduling",
    "--enable-lora",
    "--enforce-eager",
}
_TEXTS = {"--kv-cache-dtype", "--quantization", "--dtype"}
_OBJECTS = {"--compilation-config", "--speculative-config", "--attention-config"}


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """The options of a command that are looked at, by vLLM's long names.

    Parameters:
        values: integers, texts and flags.
        objects: the three configurations given as JSON or key by key.
        ignored: options that say nothing about the contract, for people to see.
    """

    model: str
    values: Mapping[str, Any]
    objects: Mapping[str, Mapping[str, Any]]
    ignored: tuple[str, ...]


def parse_serve_command(text: str) -> ServeCommand:
    """Read a command, or a shell script that sets variables and then has the command.

    Variables that the text sets are put in where it uses them; nothing is run.

    Raises:
        BadInputError: there is no ``vllm serve`` in it, or an option has no proper value.
    """
    variables: dict[str, str] = {}
    for words in _lines(text):
        words = [_expanded(word, variables) for word in words]
        if words[0] == "export":
            words = words[1:]
        while words and (found := _ASSIGNMENT.fullmatch(words[0])):
            variables[found[1]] = found[2]
            words = words[1:]
        for at, (program, verb) in enumerate(pairwise(words)):
            if program.rpartition("/")[2] in _PROGRAMS and verb == "serve":
                return _parse(words[at + 2 :])
    raise BadInputError("there is no `vllm serve` in it", fix="give the whole command")


def _lines(text: str) -> Iterator[list[str]]:
    """The words of each command; a backslash joins lines."""
    try:
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words
    except ValueError as error:
        raise BadInputError(
            f"the command cannot be read: {str(error).lower()}", fix="close the quotes"
        ) from error


def _expanded(word: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], found[0]), word)


def _parse(words: list[str]) -> ServeCommand:
    values: dict[str, Any] = {}
    objects: dict[str, dict[str, Any]] = {name: {} for name in _OBJECTS}
    given: set[str] = set()
    ignored: list[str] = []
    model = ""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-"):
            model = model or word
            continue
        name, joined, value = word.partition("=")
        name = _long_name(name)
        negated = f"--{name.removeprefix('--no-')}"
        if name in _FLAGS or (name.startswith("--no-") and negated in _FLAGS):
            values[negated if name.startswith("--no-") else name] = not name.startswith("--no-")
            continue
        owner, _, key = name.partition(".")
        known = name in _INTEGERS | _TEXTS or owner in _OBJECTS
        several = name == "--compilation-config.cudagraph_capture_sizes" and not joined
        taken: list[str] = [value] if joined else []
        while not joined and at < len(words) and not _is_option(words[at]):
            taken.append(words[at])
            at += 1
            if known and not several:
                break
        if not known:
            ignored.append(name)
            continue
        if not taken:
            raise BadInputError(f"{word} has no value", fix="give it one")
        if owner not in _OBJECTS:
            values[name] = _integer(name, taken[0]) if name in _INTEGERS else taken[0]
        elif key:
            objects[owner][key] = [_json(one) for one in taken] if several else _json(taken[0])
            given.add(owner)
        else:
            objects[owner].update(_object(name, taken[0]))
            given.add(owner)
    return ServeCommand(
        model, values, {name: one for name, one in objects.items() if name in given},
        tuple(dict.fromkeys(ignored)),
    )  # fmt: skip


def _long_name(name: str) -> str:
    owner, dot, key = name.partition(".")
    if name in _ALIASES:
        return _ALIASES[name]
    if name.startswith("--"):
        # vLLM takes underscores for dashes.
        owner = owner.replace("_", "-")
    return f"{_ALIASES.get(owner, owner)}{dot}{key}"


def _is_option(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word)


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise BadInputError(
            f"{name} must be a whole number, is {text!r}", fix="correct it"
        ) from error


def _object(name: str, text: str) -> dict[str, Any]:
    found: Any = None
    reader: Callable[[str], Any] = json.loads
    try:
        found = reader(text)
    except ValueError as error:
        raise BadInputError(f"{name} is no JSON: {error}", fix="check the quotes") from error
    if not isinstance(found, dict):
        raise BadInputError(f"{name} must be a JSON object", fix="write it as {...}")
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
