"""Read many objects through one ``git cat-file --batch`` process."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

from dsv4port.errors import GitError
from dsv4port.git.objects import KIND_OF_WORD, ObjectKind
from dsv4port.git.process import Git

_REQUESTS_IN_FLIGHT = 256
"""Names sent before answers are read; together far below the 64 KiB a pipe holds."""


class ObjectReader:
    """Objects of one repository, read in batches. Use as a context manager.

    The process is started with the first read.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ObjectReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            process.wait()

    def find(self, name: str) -> tuple[str, ObjectKind, bytes] | None:
        """Full id, kind and data of what `name` stands for; None when missing or ambiguous.

        `name` is any revision that git understands in one line (an id, an abbreviated id,
        ``<commit>:<path>``).
        """
        return next(self._ask((name,)))

    def find_many(self, names: Iterable[str]) -> Iterator[tuple[str, ObjectKind, bytes] | None]:
        """`find` for several names, in order; every answer must be taken."""
        return self._ask(names)

    def read(self, identifier: str) -> tuple[ObjectKind, bytes]:
        """Kind and data of one object.

        Raises:
            GitError: the repository does not have it.
        """
        return next(self.read_many((identifier,)))

    def read_many(self, identifiers: Sequence[str]) -> Iterator[tuple[ObjectKind, bytes]]:
        """Kind and data of each object, in the order asked for."""
        answers = self._ask(identifiers)
        for identifier, answer in zip(identifiers, answers, strict=True):
            if answer is None:
                raise GitError(
                    f"object {identifier} is missing from the repository",
                    fix="fetch the pin again with `dsv4port fetch`, or run `git fsck` there",
                )
            yield answer[1], answer[2]

    def _ask(self, names: Iterable[str]) -> Iterator[tuple[str, ObjectKind, bytes] | None]:
        if self._process is None:
            self._process = self._git.start("cat-file", "--batch")
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        pending = list(names)
        for start in range(0, len(pending), _REQUESTS_IN_FLIGHT):
            batch = pending[start : start + _REQUESTS_IN_FLIGHT]
            try:
                process.stdin.write(os.fsencode("".join(f"{name}\n" for name in batch)))
                process.stdin.flush()
            except BrokenPipeError as error:
                raise GitError("`git cat-file --batch` ended early") from error
            for _ in batch:
                header = process.stdout.readline()
                words = header.split()
                if not header.endswith(b"\n"):
                    raise GitError("`git cat-file --batch` ended early")
                if len(words) != 3 or words[1] not in KIND_OF_WORD:
                    if words[-1:] not in ([b"missing"], [b"ambiguous"]):
                        raise GitError(f"`git cat-file --batch` answered {header!r}")
                    yield None
                    continue
                size = int(words[2])
                data = process.stdout.read(size + 1)
                if len(data) != size + 1:
                    raise GitError("`git cat-file --batch` ended early")
                yield words[0].decode(), KIND_OF_WORD[words[1]], data[:-1]
