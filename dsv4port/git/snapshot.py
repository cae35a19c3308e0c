"""Keep what a checkout holds under a reference, before anything of it is overwritten.

The commit's tree is what is on disk. Its parents are everything else that would lose its name:
the commit that is checked out first, then the branch where it stands elsewhere, what is staged
where that is something else again, and the commits of an operation that is under way.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from dsv4port.git.checkout import BRANCH, RECOVERY, Checkout
from dsv4port.git.on_disk import is_on_disk

_IDENTITY = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "dsv4port"), ("EMAIL", "dsv4port@dsv4port.invalid"))
}

_OPERATION_HEADS = (
    "MERGE_HEAD", "MERGE_AUTOSTASH", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD",
    "rebase-merge/orig-head", "rebase-merge/autostash", "rebase-merge/stopped-sha",
    "rebase-apply/orig-head", "rebase-apply/autostash",
)  # fmt: skip
"""Files in which git names commits that nothing else may name any more."""

_ID = re.compile(rb"\b[0-9a-f]{40}\b")


def snapshot(
    checkout: Checkout, extra: Iterable[bytes], why: str, *, left_out: Collection[bytes] = ()
) -> str:
    """Commit everything that is on disk (ignored files only where named in `extra`).

    Nothing on disk, in the index or on the branch changes.

    Parameters:
        left_out: folders that are not looked into: repositories of their own.

    Returns:
        The reference under RECOVERY that holds the commit.
    """
    checkout.state.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=checkout.state, prefix="snapshot-") as folder:
        tree = _tree_on_disk(checkout, Path(folder) / "index", extra, left_out)
        staged = _tree_staged(checkout, Path(folder) / "staged")
    parents = ["HEAD", *_commits_without_a_name(checkout)]
    if staged not in (None, tree, checkout.git.run("rev-parse", "HEAD^{tree}").text):
        assert staged is not None
        parents.append(_commit(checkout, staged, ["HEAD"], f"staged, {why}"))
    commit = _commit(checkout, tree, parents, why)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    taken = checkout.repository.references(RECOVERY)
    name, number = f"{RECOVERY}{stamp}", 1
    while name in taken:
        number += 1
        name = f"{RECOVERY}{stamp}-{number}"
    checkout.repository.update_references([(name, commit, "0" * 40)], why)
    return name


def _tree_on_disk(
    checkout: Checkout, index: Path, extra: Iterable[bytes], left_out: Collection[bytes]
) -> str:
    # A fresh index: flags like assume-unchanged in the user's would hide changes.
    environment = {"GIT_INDEX_FILE": str(index)}
    checkout.git.run("read-tree", "HEAD", environment=environment)
    paths = [b":/", *(b":(exclude,top,literal)" + path.rstrip(b"/") for path in left_out)]
    checkout.git.run(
        "add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul",
        stdin=b"".join(path + b"\0" for path in paths), environment=environment,
    )  # fmt: skip
    # What is gone from disk was taken out of the index above, and cannot be named.
    named = b"".join(path + b"\0" for path in extra if is_on_disk(checkout.path, path))
    if named:
        checkout.git.run(
            "--literal-pathspecs", "add", "--force", "--pathspec-from-file=-",
            "--pathspec-file-nul", stdin=named, environment=environment,
        )  # fmt: skip
    return checkout.git.run("write-tree", environment=environment).text


def _tree_staged(checkout: Checkout, index: Path) -> str | None:
    """The tree that the user's index holds, without what is in conflict; None without an index."""
    try:
        shutil.copyfile(checkout.git_dir / "index", index)
    except FileNotFoundError:
        return None
    environment = {"GIT_INDEX_FILE": str(index)}
    rows = checkout.git.run("ls-files", "--unmerged", "-z", environment=environment).stdout
    in_conflict = {row.partition(b"\t")[2] for row in rows.split(b"\0")[:-1]}
    if in_conflict:
        checkout.git.run(
            "update-index", "--force-remove", "-z", "--stdin",
            stdin=b"".join(path + b"\0" for path in in_conflict), environment=environment,
        )  # fmt: skip
    return checkout.git.run("write-tree", environment=environment).text


def _commits_without_a_name(checkout: Checkout) -> list[str]:
    """Commits that a publish takes the last name from, HEAD apart."""
    positions = checkout.positions()
    found = dict.fromkeys(_named_by_operation(checkout.git_dir))
    if BRANCH in positions:
        found[positions[BRANCH]] = None
    found.pop(positions.get("HEAD", ""), None)
    asked = "".join(f"{commit}\n" for commit in found).encode()
    kinds = checkout.git.run("cat-file", "--batch-check", stdin=asked).text.splitlines()
    return [row.split(" ")[0] for row in kinds if row.split(" ")[1] == "commit"]


def _named_by_operation(git_dir: Path) -> Iterator[str]:
    for name in _OPERATION_HEADS:
        try:
            data = (git_dir / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        yield from (found.decode() for found in _ID.findall(data))


def _commit(checkout: Checkout, tree: str, parents: Iterable[str], why: str) -> str:
    arguments = [word for parent in parents for word in ("-p", parent)]
    return checkout.git.run("commit-tree", tree, *arguments, "-m", why, environment=_IDENTITY).text
