"""A checkout made by this package: its own repository, work tree, and how they are compared.

What a file on disk holds is judged by content wherever something could be lost or wrongly
certified; git's stat cache only says where to look.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from dsv4port.errors import EnvironmentProblemError, NotOurCheckoutError, RefusedError
from dsv4port.git.changes import Change as Change
from dsv4port.git.changes import ChangeState as ChangeState
from dsv4port.git.changes import Looking
from dsv4port.git.disk import DiskState as DiskState
from dsv4port.git.disk import disk_state as disk_state
from dsv4port.git.objects import Entry
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
