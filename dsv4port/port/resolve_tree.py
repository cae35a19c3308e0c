"""What the work tree of an open resolution holds, and what still keeps it from being a decision."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from dsv4port.apply.file_patch import Entry as File
from dsv4port.git.checkout import Checkout
from dsv4port.git.objects import MODE_EXECUTABLE, MODE_FILE, MODE_SYMLINK
from dsv4port.patch.quote import display_path, unquote
from dsv4port.port.parses import syntax_problem
from dsv4port.port.resolve_open import index_row
from dsv4port.port.resolve_state import ResolveState

_MARKER = re.compile(rb"^(?:<{7}|\|{7}|>{7})(?: |\r?$)", re.MULTILINE)


class ResolveTree:
    """The work tree, compared with the target that it stands on.

    Parameters:
        scratch: a file name for a second index; the user's own is never changed.
    """

    def __init__(self, checkout: Checkout, state: ResolveState, scratch: Path) -> None:
        self._checkout = checkout
        self._state = state
        self._scratch = scratch

    def unresolved(self) -> Iterator[str]:
        """What is not decided yet, one sentence each."""
        if not self._checkout.path.is_dir():
            yield "the work tree is gone"
            return
        index = self._unmerged()
        for shown, written in self._state.unmerged.items():
            path = unquote(shown.encode())
            file = self._on_disk(path)
            found = None if file is None else hashlib.sha256(file.content).hexdigest()
            if path in index and found == written:
                yield f"{shown}: not resolved yet (to take it as it is: git add)"
        for path, file in self.changes().items():
            if file is None:
                continue
            before = self._content(path) or b""
            if len(_MARKER.findall(file.content)) > len(_MARKER.findall(before)):
                line = file.content[: _first_marker(file.content)].count(b"\n") + 1
                yield f"{display_path(path)}:{line}: has conflict markers"
        for path in self._untracked():
            yield f"{display_path(path)}: is new (git add it, or remove it)"

    def broken(self, changes: Mapping[bytes, File | None]) -> Iterator[str]:
        """Files that no longer parse."""
        for path, file in changes.items():
            if file is not None:
                problem = syntax_problem(path, file.content, self._content(path))
                if problem is not None:
                    yield f"{display_path(path)}: {problem}"

    def changes(self) -> dict[bytes, File | None]:
        """Files that are not as in the target, by content."""
        listed = self._checkout.git.run(
            "diff", "--name-only", "-z", "--no-renames", self._state.ours, "--"
        )
        changes: dict[bytes, File | None] = {}
        for path in listed.stdout.split(b"\0")[:-1]:
            file = self._on_disk(path)
            if file != self._file(path):
                changes[path] = file
        return changes

    def entry(self, revision: str, path: bytes) -> str | None:
        """``<mode> <blob>`` at a path of a commit or tree; None where there is no file."""
        out = self._checkout.git.run(
            "--literal-pathspecs", "ls-tree", "-z", "--full-tree", revision, "--",
            os.fsdecode(path),
        ).stdout  # fmt: skip
        if not out:
            return None
        mode, kind, blob = out.partition(b"\t")[0].decode().split(" ")
        return f"{mode} {blob}" if kind == "blob" else None

    def diff(self, changes: Mapping[bytes, File | None]) -> tuple[bytes, dict[bytes, str | None]]:
        """Changes as a diff against the target, and the entries that they lead to."""
        if not changes:
            return b"", {}
        git, ours = self._checkout.git, self._state.ours
        index = {"GIT_INDEX_FILE": str(self._scratch)}
        git.run("read-tree", ours, environment=index)
        rows = [index_row(self._checkout, path, file, 0) for path, file in changes.items()]
        git.run("update-index", "-z", "--index-info", stdin=b"".join(rows), environment=index)
        tree = git.run("write-tree", environment=index).text
        self._scratch.unlink()
        diff = git.run(
            "diff-tree", "-r", "-p", "--full-index", "--binary", "-M", "--no-ext-diff",
            "--no-textconv", "--no-color", ours, tree, "--",
        ).stdout  # fmt: skip
        return diff, {path: self.entry(tree, path) for path in changes}

    def _content(self, path: bytes) -> bytes | None:
        file = self._file(path)
        return None if file is None else file.content

    def _file(self, path: bytes) -> File | None:
        """A file of the target."""
        entry = self.entry(self._state.ours, path)
        if entry is None:
            return None
        mode, _, blob = entry.partition(" ")
        return File(int(mode, 8), self._checkout.git.run("cat-file", "blob", blob).stdout)

    def _on_disk(self, path: bytes) -> File | None:
        file = self._checkout.disk_path(path)
        if file.is_symlink():
            return File(MODE_SYMLINK, os.fsencode(file.readlink()))
        if not file.is_file():
            return None
        mode = MODE_EXECUTABLE if os.access(file, os.X_OK) else MODE_FILE
        return File(mode, file.read_bytes())

    def _unmerged(self) -> set[bytes]:
        out = self._checkout.git.run("ls-files", "-u", "-z").stdout
        return {row.partition(b"\t")[2] for row in out.split(b"\0")[:-1]}

    def _untracked(self) -> list[bytes]:
        out = self._checkout.git.run("ls-files", "--others", "--exclude-standard", "-z").stdout
        return out.split(b"\0")[:-1]


def _first_marker(content: bytes) -> int:
    found = _MARKER.search(content)
    return 0 if found is None else found.start()
