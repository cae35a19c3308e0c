"""A repository for one run: it sees the objects of others, keeps its own, and is thrown away.

The cache is never written to, and a dry run leaves nothing behind. git works on it as on any
repository, so diffs and range-diffs of commits that exist nowhere else are git's own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from dsv4port.git.pack import PackWriter
from dsv4port.git.process import Git
from dsv4port.git.reader import ObjectReader
from dsv4port.git.repository import Repository


class Workshop:
    """Use as a context manager.

    Parameters:
        others: common folders of repositories whose objects are seen.
    """

    def __init__(self, others: Sequence[Path]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="dsv4port-port-"))
        self._exit = ExitStack()
        try:
            git_dir = self._folder / "work.git"
            Git().run(
                "init", "--quiet", "--bare", "--template=", "--object-format=sha1",
                "--initial-branch=none", str(git_dir),
            )  # fmt: skip
            self.repository = Repository(git_dir, git_dir)
            info = git_dir / "objects" / "info"
            info.mkdir(exist_ok=True)
            folders = [os.fsencode(other / "objects") + b"\n" for other in others]
            (info / "alternates").write_bytes(b"".join(folders))
            shallow = [
                line
                for other in others
                if (other / "shallow").is_file()
                for line in (other / "shallow").read_text("ascii").split()
            ]
            if shallow:
                (git_dir / "shallow").write_text("".join(f"{one}\n" for one in set(shallow)))
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def __enter__(self) -> Workshop:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def git(self) -> Git:
        """git bound to the repository."""
        return self.repository.git

    def reader(self) -> ObjectReader:
        """A reader of all objects that are finished when it is first asked."""
        return self._exit.enter_context(ObjectReader(self.git))

    def pack(self) -> PackWriter:
        """A pack of new objects; the caller finishes it."""
        return self._exit.enter_context(PackWriter(self.repository.objects))

    def folder(self, name: str) -> Path:
        """An empty folder for files that go away with the workshop."""
        path = self._folder / name
        path.mkdir()
        return path

    def diff(self, old: str, new: str) -> bytes:
        """The diff of two trees or commits in the form that patch files have here."""
        return self.git.run(
            "diff-tree", "-r", "-p", "--full-index", "--binary", "-M", "--no-ext-diff",
            "--no-textconv", "--no-color", old, new, "--",
        ).stdout  # fmt: skip
