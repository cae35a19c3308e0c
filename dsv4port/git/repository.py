"""A repository of any shape, opened without ever falling through to one that surrounds it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dsv4port.errors import BadInputError, RefusedError
from dsv4port.git.objects import Entry, ObjectKind
from dsv4port.git.process import Git
from dsv4port.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository by its git folder; `common` is where its objects and references live."""

    git_dir: Path
    common: Path

    @property
    def git(self) -> Git:
        """git bound to this repository, without a work tree."""
        return Git(self.git_dir)

    @property
    def objects(self) -> Path:
        """The folder of the object store."""
        return self.common / "objects"

    def commit_id(self, revision: str) -> str:
        """Full id of the commit that `revision` names; tags are peeled.

        Raises:
            BadInputError: it names no commit.
        """
        return self._resolve(revision, "commit")

    def tree_id(self, revision: str) -> str:
        """Full id of the tree that `revision` (a tree, commit or tag) names."""
        return self._resolve(revision, "tree")

    def _resolve(self, revision: str, kind: str) -> str:
        found = self.git.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{{kind}}}",
            accept=(0, 1, 128),
        )  # fmt: skip
        if found.code != 0:
            raise BadInputError(
                f"`{revision}` names no {kind} in {self.git_dir}",
                fix="check the name, or fetch it into that repository first",
            )
        return found.text.splitlines()[-1]

    def write_object(self, kind: ObjectKind, data: bytes) -> str:
        """Write one object into the store and return its id."""
        word = kind.word.decode()
        return self.git.run("hash-object", "-w", "-t", word, "--stdin", stdin=data).text

    def references(self, *prefixes: str) -> dict[str, str]:
        """Ids of all references below the prefixes, by full name, in name order."""
        listed = self.git.run("for-each-ref", "--format=%(objectname) %(refname)", *prefixes).text
        pairs = (line.split(" ", 1) for line in listed.splitlines())
        return {name: identifier for identifier, name in pairs}

    def update_references(self, updates: Iterable[tuple[str, str, str | None]], why: str) -> None:
        """Move references together or not at all.

        Parameters:
            updates: (full name, new id, old id). An old id of None means any; of forty zeros,
                that the reference must not exist.

        Raises:
            RefusedError: a reference is no longer at its old id.
        """
        lines = ["start"]
        for name, new, old in updates:
            lines.append(f"update {name} {new}" + (f" {old}" if old is not None else ""))
        lines += ["prepare", "commit", ""]
        done = self.git.run(
            "update-ref", "-m", why, "--no-deref", "--stdin",
            stdin="\n".join(lines).encode(), accept=(0, 128), environment=_IDENTITY,
        )  # fmt: skip
        if done.code != 0:
            raise RefusedError(
                "a reference moved while the command ran",
                fix="look at the repository with `dsv4port status`, then run the command again",
                details=done.stderr.decode("utf-8", "backslashreplace").splitlines(),
            )

    def first_parents(self, tip: str, base: str) -> list[tuple[str, str]] | None:
        """(commit, tree) of every commit after `base` up to `tip`, oldest first.

        None when `base` is not reached by first parents, or a merge lies on the way.
        """
        return self.list_first_parents(tip, base).commits()

    def list_first_parents(self, tip: str, base: str) -> FirstParents:
        """`first_parents` without waiting for the answer."""
        return FirstParents(self.git, tip, base)

    def changed_entries(self, old: str, new: str) -> dict[bytes, tuple[Entry | None, Entry | None]]:
        """Files that differ between two trees: path to (entry in old, entry in new)."""
        return self.compare(old, new).changed_entries()

    def compare(self, old: str, new: str) -> Comparison:
        """`changed_entries` without waiting for the answer."""
        return Comparison(self.git, old, new)

    def list_tree(self, tree: str) -> dict[bytes, Entry]:
        """Every file of a tree by path, submodule entries included."""
        out = self.git.run("ls-tree", "-r", "-z", "--full-tree", tree).stdout
        files: dict[bytes, Entry] = {}
        for row in out.split(b"\0")[:-1]:
            head, _, path = row.partition(b"\t")
            mode, _, identifier = head.split(b" ")
            files[path] = Entry(int(mode, 8), identifier.decode())
        return files


class Comparison:
    """git at work on `Repository.changed_entries`. A context manager: git does not outlive it."""

    def __init__(self, git: Git, old: str, new: str) -> None:
        self.ends = (old, new)
        self._running = git.begin("diff-tree", "-r", "-z", "--no-renames", old, new, "--")

    def changed_entries(self) -> dict[bytes, tuple[Entry | None, Entry | None]]:
        """The answer; may be taken once."""
        fields = self._running.finish().stdout.split(b"\0")
        changes: dict[bytes, tuple[Entry | None, Entry | None]] = {}
        for head, path in zip(fields[0::2], fields[1::2], strict=False):
            old_mode, new_mode, old_id, new_id, _ = head[1:].decode().split(" ")
            changes[path] = (_entry(old_mode, old_id), _entry(new_mode, new_id))
        return changes

    def __enter__(self) -> Comparison:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.abandon()


class FirstParents:
    """git at work on `Repository.first_parents`; take its `commits`, or `abandon` it."""

    def __init__(self, git: Git, tip: str, base: str) -> None:
        self._tip, self._base = tip, base
        self._running = None if tip == base else git.begin(
            "log", "--first-parent", "--format=%H %T %P", tip, f"^{base}", "--"
        )  # fmt: skip

    def commits(self) -> list[tuple[str, str]] | None:
        """The answer; may be taken once."""
        if self._running is None:
            return []
        commits: list[tuple[str, str]] = []
        expected = self._tip
        for line in self._running.finish(accept=(0, 128)).text.splitlines():
            commit, tree, *parents = line.split(" ")
            if commit != expected or len(parents) != 1:
                return None
            commits.append((commit, tree))
            expected = parents[0]
        return commits[::-1] if commits and expected == self._base else None

    def abandon(self) -> None:
        """End git, if it still runs."""
        if self._running is not None:
            self._running.abandon()


_IDENTITY = {
    "GIT_COMMITTER_NAME": "dsv4port",
    "GIT_COMMITTER_EMAIL": "dsv4port@dsv4port.invalid",
    "GIT_AUTHOR_NAME": "dsv4port",
    "GIT_AUTHOR_EMAIL": "dsv4port@dsv4port.invalid",
}
"""Who writes reference logs and recovery commits; git refuses to guess on a bare machine."""


def _entry(mode: str, identifier: str) -> Entry | None:
    return None if mode == "000000" else Entry(int(mode, 8), identifier)


def open_repository(folder: Path) -> Repository:
    """Open the repository that `folder` itself is: a work tree's root, or a bare repository.

    A folder inside another repository is refused: git would silently work on that one.

    Raises:
        BadInputError: `folder` is no repository, or stores objects by SHA-256.
    """
    if not folder.is_dir():
        raise BadInputError(f"no such folder: {folder}", fix="name an existing git repository")
    absolute = folder.resolve()
    # A git that cannot look above the folder either opens the folder itself or fails.
    probe = Git().run(
        "-C", str(absolute), "rev-parse", "--absolute-git-dir", "--git-common-dir",
        "--show-prefix", "--show-object-format",
        accept=(0, 128), environment={"GIT_CEILING_DIRECTORIES": os.fspath(absolute.parent)},
    )  # fmt: skip
    lines = probe.text.split("\n")
    inside = len(lines) == 4 and lines[2] != ""
    if probe.code != 0 or inside:
        raise BadInputError(
            f"{folder} is not a git repository itself",
            fix="name the root of a work tree, or a bare repository",
            details=probe.stderr.decode("utf-8", "backslashreplace").splitlines()[:3],
        )
    git_dir, common, _, object_format = lines
    if object_format != "sha1":
        raise BadInputError(
            f"{folder} stores objects by {object_format}; only sha1 repositories are supported",
            fix="clone it into a sha1 repository",
        )
    return Repository(Path(git_dir), (absolute / common).resolve())
