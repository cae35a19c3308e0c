"""A quick reader for locks in the very form that `dump_lock` writes.

Nearly every lock is in that form, and reading it as YAML takes longer than the rest of a verify.
The proof that nothing was misread is to write it again: only a lock whose text comes out byte for
byte the same is taken. All others, with whatever is wrong with them, are read as YAML.
"""

from __future__ import annotations

import re

from dsv4port.errors import BadInputError
from dsv4port.manifest.lock import Lock, LockedFile, LockedPatch, SourceKind, dump_lock
from dsv4port.manifest.values import Name
from dsv4port.patch.quote import unquote

_HEAD = re.compile(
    r"#.*\n#.*\nformat: \d+\ntool: (.+)\nstack: (.+)\npin: (.+)\nsource: (.+)\n"
    r"base: \{tree: (.+), commit: (.+)\}\nresult: \{tree: (.+), commit: (.+)\}\n"
)
_PATCH = re.compile(
    r"- \{patchset: (.+?), file: (.+?), sha256: (.+?), patch_id: (.+?), commit: (.+?), "
    r"tree: (.+?)\}"
)
_FILE = re.compile(
    r"- \{path: (.+?), before: (?:null|(\d{6}) (\w+)), after: (?:null|(\d{6}) (\w+)), "
    r"sha256: (.+?), patches: \[(.+)\]\}"
)


def read_canonical_lock(text: str) -> Lock | None:
    """The lock in `text`, or None where the text is not what `dump_lock` writes."""
    try:
        lock = _read(text)
    except (BadInputError, ValueError):
        return None
    return lock if lock is not None and dump_lock(lock) == text else None


def _read(text: str) -> Lock | None:
    head = _HEAD.match(text)
    if head is None:
        return None
    lines = text[head.end() :].split("\n")
    at = next((number for number, line in enumerate(lines) if line.startswith("files:")), 0)
    patches = [_PATCH.fullmatch(line) for line in lines[1:at]]
    files = [_FILE.fullmatch(line) for line in lines[at + 1 : -1]]
    if at == 0 or None in patches or None in files:
        return None
    tool, stack, pin, source, base_tree, base_commit, tree, commit = map(_word, head.groups())
    return Lock(
        tool=tool,
        stack=Name(stack),
        pin=Name(pin),
        source=SourceKind(source),
        base_tree=base_tree,
        base_commit=base_commit,
        tree=tree,
        commit=commit,
        patches=tuple(_patch(row) for row in patches if row is not None),
        files=tuple(_file(row) for row in files if row is not None),
    )


def _patch(row: re.Match[str]) -> LockedPatch:
    patchset, file, sha256, patch_id, commit, tree = row.groups()
    return LockedPatch(
        Name(_word(patchset)), _word(file), _word(sha256), _optional(patch_id), _word(commit),
        _word(tree),
    )  # fmt: skip


def _file(row: re.Match[str]) -> LockedFile:
    path, mode_before, before, mode, after, sha256, patches = row.groups()
    return LockedFile(
        unquote(_word(path).encode()),
        None if mode_before is None else int(mode_before, 8),
        before,
        None if mode is None else int(mode, 8),
        after,
        _optional(sha256),
        tuple(map(_word, patches.split(", "))),
    )


def _word(word: str) -> str:
    """What a word that `write_text` wrote stands for; a wrong guess is found out later."""
    return word[1:-1].replace("''", "'") if word.startswith("'") else word


def _optional(word: str) -> str | None:
    return None if word == "null" else _word(word)
