"""A checkout made by this package: its own repository, work tree, and how they are compared.

What a file on disk holds is judged by content wherever something could be lost or wrongly
certified; git's stat cache only says where to look.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Collection, Iterable
from enum import Enum
from pathlib import Path

from dsv4port.errors import EnvironmentProblemError, NotOurCheckoutError, RefusedError
from dsv4port.git.changes import Change as Change
from dsv4port.git.changes import ChangeState as ChangeState
from dsv4port.git.changes import Looking
from dsv4port.git.objects import (
    MODE_EXECUTABLE,
    MODE_FILE,
    MODE_SUBMODULE,
    MODE_SYMLINK,
    Entry,
    blob_id,
)
from dsv4port.git.on_disk import is_on_disk
from dsv4port.git.positions import positions
from dsv4port.git.process import NEUTRAL_ATTRIBUTES, Git, require_version
from dsv4port.git.repository import Repository
from dsv4port.quick_dataclass import dataclass

BRANCH = "refs/heads/dsv4port"
"""The branch that is checked out: where the last publish went, and what the user commits to."""

PUBLISHED = "refs/dsv4port/published"
"""What the last publish put there; the branch moves away from it when the user commits."""

PIN = "refs/dsv4port/pin"
"""The pin that the last publish stands on."""

RECOVERY = "refs/dsv4port/recovery/"
"""Below here lies what `--force` saved before it overwrote anything."""

_UNFINISHED = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or `git am`",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}


class DiskState(Enum):
    """How a path on disk relates to the entry it should be."""

    SAME = "same"
    """Type, executable bit and content agree."""
    MISSING = "missing"
    """Nothing is there."""
    CONTENT = "content"
    """A file or link with other content."""
    MODE = "mode"
    """The content agrees, the executable bit does not."""
    TYPE = "type"
    """Something of another type is there (folder, link, file, device)."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A work tree with its own ``.git`` folder, made by `create_checkout`."""

    path: Path

    @property
    def git_dir(self) -> Path:
        """The repository's folder."""
        return self.path / ".git"

    @property
    def state(self) -> Path:
        """Where this package keeps receipt, journal and lock of the checkout."""
        return self.git_dir / "dsv4port"

    @property
    def repository(self) -> Repository:
        """The repository of the checkout."""
        return Repository(self.git_dir, self.git_dir)

    @property
    def git(self) -> Git:
        """git bound to repository and work tree."""
        return Git(self.git_dir, self.path)

    def disk_path(self, path: bytes) -> Path:
        """Where a path of the tree lies on disk."""
        return self.path / os.fsdecode(path)

    def unfinished_operation(self) -> str | None:
        """A git operation of the user's that is under way, in words."""
        for name, words in _UNFINISHED.items():
            if (self.git_dir / name).exists():
                return words
        return None

    def positions(self) -> dict[str, str]:
        """Ids of HEAD, the branch, PUBLISHED and PIN, as far as they exist."""
        return positions(self.git_dir, (BRANCH, PUBLISHED, PIN))

    def on_our_branch(self) -> bool:
        """Whether HEAD stands on BRANCH."""
        return (self.git_dir / "HEAD").read_bytes().strip() == b"ref: " + BRANCH.encode()

    def changes(self, *, ignored: bool = False) -> list[Change]:
        """Paths that differ from HEAD, found with git's stat cache. Sorted by path."""
        with self.look(ignored=ignored) as looking:
            return looking.changes()

    def look(self, *, ignored: bool = False) -> Looking:
        """Start asking git for the changes, without waiting for the answer."""
        return Looking(self.git, ignored=ignored)

    def disk_state(self, path: bytes, entry: Entry) -> DiskState:
        """Compare one path on disk with an entry, by content."""
        return disk_state(f"{self.path}/{os.fsdecode(path)}", entry)

    def read_tree(self, *arguments: str, inherit: Collection[int] = ()) -> None:
        """Run ``git read-tree``: index, and with ``-u`` the work tree, become another tree."""
        self.git.run("read-tree", *arguments, inherit=inherit)

    def write_files(self, paths: Iterable[bytes], *, inherit: Collection[int] = ()) -> None:
        """Write paths of the index to disk, over whatever is there."""
        names = b"".join(path + b"\0" for path in paths)
        if names:
            self.git.run("checkout-index", "--force", "-z", "--stdin", stdin=names, inherit=inherit)

    def refresh_index(self) -> None:
        """Note in the index which files on disk are as it says (speeds up later comparisons)."""
        self.git.run("update-index", "-q", "--refresh", accept=(0, 1))

    def snapshot(self, extra: Iterable[bytes], why: str) -> str:
        """Commit everything that is on disk (ignored files only where named in `extra`).

        The commit's parent is HEAD, so commits of the user's are kept too. Nothing on disk, in
        the index or on the branch changes.

        Returns:
            The reference under RECOVERY that holds the commit.
        """
        import tempfile

        self.state.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.state, prefix="snapshot-") as folder:
            # A fresh index: flags like assume-unchanged in the user's would hide changes.
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self.git.run("read-tree", "HEAD", environment=index)
            self.git.run("add", "--all", "--", ":/", environment=index)
            # What is gone from disk was taken out of the index above, and cannot be named.
            named = b"".join(path + b"\0" for path in extra if is_on_disk(self.path, path))
            if named:
                self.git.run(
                    "--literal-pathspecs", "add", "--force", "--pathspec-from-file=-",
                    "--pathspec-file-nul", stdin=named, environment=index,
                )  # fmt: skip
            tree = self.git.run("write-tree", environment=index).text
        commit = self.git.run(
            "commit-tree", tree, "-p", "HEAD", "-m", why, environment=_RECOVERY_IDENTITY
        ).text
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        taken = self.repository.references(RECOVERY)
        name, number = f"{RECOVERY}{stamp}", 1
        while name in taken:
            number += 1
            name = f"{RECOVERY}{stamp}-{number}"
        self.repository.update_references([(name, commit, "0" * 40)], why)
        return name


_RECOVERY_IDENTITY = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "dsv4port"), ("EMAIL", "dsv4port@dsv4port.invalid"))
}


def disk_state(path: Path | str, entry: Entry) -> DiskState:
    """Compare a path on disk with a tree entry, by content."""
    # Called for hundreds of files: plain os functions cost half of what Path's methods do.
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return DiskState.MISSING
    if entry.mode == MODE_SUBMODULE:
        return DiskState.SAME if stat.S_ISDIR(found.st_mode) else DiskState.TYPE
    if entry.mode == MODE_SYMLINK:
        if not stat.S_ISLNK(found.st_mode):
            return DiskState.TYPE
        same = blob_id(os.fsencode(os.readlink(path))) == entry.id  # noqa: PTH115
        return DiskState.SAME if same else DiskState.CONTENT
    if not stat.S_ISREG(found.st_mode):
        return DiskState.TYPE
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        content = file.readall()
    if blob_id(content) != entry.id:
        return DiskState.CONTENT
    mode = MODE_EXECUTABLE if found.st_mode & stat.S_IXUSR else MODE_FILE
    return DiskState.SAME if mode == entry.mode else DiskState.MODE


def open_checkout(path: Path) -> Checkout:
    """Open a checkout that `create_checkout` made.

    Raises:
        NotOurCheckoutError: the folder is missing, or is something else; says what.
    """
    way_out = "name another folder with `--checkout`, or move this one away"
    empty = path.is_dir() and not any(path.iterdir())
    if empty or not path.exists():
        raise NotOurCheckoutError(
            f"there is no checkout at {path}" + (": the folder is empty" if empty else ""),
            fix="make one with `dsv4port apply STACK` or `dsv4port reset PIN`",
        )
    if not path.is_dir():
        raise NotOurCheckoutError(f"{path} is not a folder", fix=way_out)
    git_dir = path / ".git"
    if not git_dir.exists():
        surrounding = _surrounding_repository(path)
        where = f"; it lies inside the repository {surrounding}" if surrounding else ""
        raise NotOurCheckoutError(f"{path} is no git checkout of its own{where}", fix=way_out)
    if not git_dir.is_dir() or git_dir.is_symlink():
        raise NotOurCheckoutError(
            f"{path} is a linked work tree or submodule of another repository", fix=way_out
        )
    if not (git_dir / "dsv4port").is_dir():
        raise NotOurCheckoutError(
            f"{path} is a git repository that dsv4port did not make", fix=way_out
        )
    _require_neutral_attributes(git_dir)
    return Checkout(path)


def _require_neutral_attributes(git_dir: Path) -> None:
    """Refuse attributes that would have git change contents, or run a filter's program."""
    file = git_dir / "info" / "attributes"
    try:
        if file.read_bytes() == NEUTRAL_ATTRIBUTES:
            return
    except FileNotFoundError:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(NEUTRAL_ATTRIBUTES)
        return
    raise RefusedError(
        f"{file} is not as dsv4port wrote it: with other attributes git can run filters",
        fix="remove the file; it is written anew",
    )


def _surrounding_repository(path: Path) -> Path | None:
    return next((folder for folder in path.resolve().parents if (folder / ".git").exists()), None)


def create_checkout(
    path: Path, pack: Path, index: Path, commit: str, *, shallow: bool = False
) -> Checkout:
    """Make a checkout of `commit`; it appears under `path` whole or not at all.

    Parameters:
        path: a folder that does not exist yet, or is empty.
        pack, index: files that hold the commit and all it needs.
        shallow: the commit's parents are not in the pack.

    Raises:
        NotOurCheckoutError: something else is at `path`.
    """
    import shutil
    import tempfile

    from dsv4port.git.switch import settle_new_files

    require_version()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        open_checkout(path)
        raise RefusedError(
            f"{path} is a checkout already", fix="use it with `dsv4port apply STACK`"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name}.new-"
    for leftover in path.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=path.parent))
    try:
        checkout = Checkout(temporary)
        Git().run(
            "init", "--quiet", "--template=", "--object-format=sha1",
            f"--initial-branch={BRANCH.removeprefix('refs/heads/')}", str(temporary),
        )  # fmt: skip
        (checkout.git_dir / "info").mkdir(exist_ok=True)
        (checkout.git_dir / "info" / "attributes").write_bytes(NEUTRAL_ATTRIBUTES)
        checkout.state.mkdir()
        add_pack(checkout, pack, index, shallow=commit if shallow else None)
        checkout.repository.update_references(
            [(name, commit, "0" * 40) for name in (BRANCH, PUBLISHED, PIN)], "checkout of the pin"
        )
        # Thousands of files: here a second writer pays, for a series it only costs.
        checkout.git.run("-c", "checkout.workers=2", "read-tree", "--reset", "-u", commit)
        settle_new_files(checkout.git_dir, temporary)
        temporary.chmod(0o755)
        if path.exists():
            path.rmdir()
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Checkout(path)


def add_pack(checkout: Checkout, pack: Path, index: Path, *, shallow: str | None) -> None:
    """Give the checkout a pack of the cache, by hard link where the file systems allow it.

    The checkout keeps its own name for the data: pruning the cache cannot break it.

    Parameters:
        shallow: a commit of the pack whose parents are not there.
    """
    if shallow is not None:
        listing = checkout.git_dir / "shallow"
        known = listing.read_text().split() if listing.exists() else []
        if shallow not in known:
            listing.write_text("".join(f"{commit}\n" for commit in (*known, shallow)))
    folder = checkout.git_dir / "objects" / "pack"
    folder.mkdir(parents=True, exist_ok=True)
    for source in (pack, index):
        target = folder / source.name
        if target.exists():
            continue
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise EnvironmentProblemError(
                    f"no space left at {folder}", fix="free some space, then run it again"
                ) from error
            import shutil

            partial = target.with_name(f"tmp_{source.name}")
            shutil.copyfile(source, partial)
            partial.rename(target)
