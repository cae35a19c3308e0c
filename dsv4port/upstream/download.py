"""Bring an archive into the cache: resumed where possible, and hashed before anybody looks.

While it grows the file is ``<name>.part``; it gets its name when its hash is the pinned one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path
from typing import BinaryIO

from dsv4port.errors import EnvironmentProblemError, HashMismatchError, NetworkError
from dsv4port.upstream.files import writing
from dsv4port.upstream.http import Answer, Http, PassingProblemError
from dsv4port.upstream.index import ArchiveLocation
from dsv4port.upstream.progress import NO_PROGRESS, Progress
from dsv4port.upstream.retry import Patience

SIZE_LIMIT = 1 << 30
"""Longest archive accepted, in bytes; a source distribution has a twentieth of it."""

_BLOCK = 1 << 16
_WORTH_RESUMING = 1 << 20
"""So many bytes gained make a broken connection not count as a failure in a row."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


def download(
    location: ArchiveLocation,
    destination: Path,
    sha256: str,
    http: Http,
    *,
    patience: Patience,
    limit: int = SIZE_LIMIT,
    progress: Progress = NO_PROGRESS,
) -> None:
    """Make `destination` the archive at `location`; the caller holds the download's lock.

    Raises:
        HashMismatchError: what came has another hash; it is removed.
        NetworkError: it could not be fetched; what came is kept to go on from.
        EnvironmentProblemError: the cache cannot be written to.
    """
    path = location.path
    if path is not None:
        adopt(path, destination, sha256, limit=limit, progress=progress)
        return
    part = destination.with_name(f"{destination.name}.part")
    run = _Run(location, part, http, patience, limit, progress)
    try:
        with writing(part):
            part.parent.mkdir(parents=True, exist_ok=True)
            run.complete(sha256)
            part.replace(destination)
            run.forget_validator()
    finally:
        run.end_progress()


def adopt(
    file: Path,
    destination: Path,
    sha256: str,
    *,
    limit: int = SIZE_LIMIT,
    progress: Progress = NO_PROGRESS,
) -> None:
    """Copy a local archive into the cache, if it has the hash.

    What is kept is what was hashed: a link would change with the file.

    Raises:
        HashMismatchError: it has another hash.
        EnvironmentProblemError: it cannot be read, or the cache cannot be written to.
    """
    part = destination.with_name(f"{destination.name}.copy.part")
    try:
        source = file.open("rb")
        size = os.fstat(source.fileno()).st_size
    except OSError as error:
        raise EnvironmentProblemError(
            f"cannot read {file}: {error.strerror}", fix="name an archive that exists"
        ) from error
    progress.start(f"copying {file.name}", size)
    try:
        with source, writing(part):
            part.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            copied = 0
            with part.open("wb") as target:
                while block := source.read(1 << 20):
                    copied += len(block)
                    if copied > limit:
                        part.unlink()
                        raise HashMismatchError(
                            f"{file} has more than {limit} bytes, so it is not the archive",
                            fix="name the archive whose sha256 manifests/pins.yaml records",
                        )
                    digest.update(block)
                    target.write(block)
                    progress.advance(len(block))
                target.flush()
                os.fsync(target.fileno())
            if digest.hexdigest() != sha256:
                part.unlink()
                raise mismatch(sha256, digest.hexdigest(), str(file))
            part.replace(destination)
    finally:
        progress.finish()


def mismatch(wanted: str, got: str, source: str) -> HashMismatchError:
    """The error for an archive that does not have the pinned hash."""
    return HashMismatchError(
        f"{source}: the pin says sha256 {wanted}, the file has {got}",
        fix="do not use this file; check where it came from, and the pin in manifests/pins.yaml",
    )


class _Run:
    """One download: the file so far, its running hash, and what the server said of it."""

    def __init__(
        self,
        location: ArchiveLocation,
        part: Path,
        http: Http,
        patience: Patience,
        limit: int,
        progress: Progress,
    ) -> None:
        self._location = location
        self._part = part
        self._validator_file = part.with_name(f"{part.name}.validator")
        self._http = http
        self._patience = patience
        self._limit = limit
        self._progress = progress
        self._digest = hashlib.sha256()
        self._have = 0
        self._validator: str | None = None
        self._total = location.size
        self._shown = False
        self._spliced = False

    def complete(self, sha256: str) -> None:
        """Get all of the file and check it.

        Parts that came one by one may belong to different files, which the hash shows; then all
        of it is fetched once more before the hash counts.
        """
        with self._part.open("a+b") as file:
            self._take_over(file)
            if self._have and self._digest.hexdigest() == sha256:
                return
            self._fetch(file)
            if self._digest.hexdigest() != sha256 and self._spliced:
                self._progress.notice(
                    "the parts of the download do not fit together; starting over"
                )
                self._start_over(file)
                self._fetch(file)
            os.fsync(file.fileno())
        got = self._digest.hexdigest()
        if got != sha256:
            self._part.unlink()
            self.forget_validator()
            raise mismatch(sha256, got, self._location.shown)

    def end_progress(self) -> None:
        """Say that the work ended, if it was said that it began."""
        if self._shown:
            self._progress.finish()

    def forget_validator(self) -> None:
        """Remove the note about the unfinished file."""
        self._validator_file.unlink(missing_ok=True)

    def _take_over(self, file: BinaryIO) -> None:
        """Hash what an earlier run left."""
        file.seek(0)
        while block := file.read(1 << 20):
            self._digest.update(block)
            self._have += len(block)
        if self._have > self._limit:
            self._start_over(file)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            self._validator = self._validator_file.read_text("ascii") or None

    def _start_over(self, file: BinaryIO) -> None:
        file.truncate(0)
        if self._shown:
            self._progress.advance(-self._have)
        self._digest = hashlib.sha256()
        self._have = 0
        self._spliced = False
        self._total = self._location.size
        self._note_validator(None)

    def _fetch(self, file: BinaryIO) -> None:
        """Ask until all of the file is there."""
        failures = 0
        while True:
            before = self._have
            try:
                self._ask_once(file)
            except PassingProblemError as problem:
                gained = self._have - before
                failures = 1 if gained >= _WORTH_RESUMING else failures + 1
                if failures > self._patience.retries:
                    raise
                self._patience.wait(failures, problem, self._progress)
            else:
                return

    def _ask_once(self, file: BinaryIO) -> None:
        # Compression on the way would make lengths and ranges mean something else.
        headers = {"Accept-Encoding": "identity"}
        if self._have:
            headers["Range"] = f"bytes={self._have}-"
            if self._validator is not None:
                headers["If-Range"] = self._validator
        answer = self._http.get(self._location.url, headers)
        try:
            self._expect(answer, file)
            self._receive(answer, file)
        finally:
            answer.close()

    def _expect(self, answer: Answer, file: BinaryIO) -> None:
        """Make sure that the body goes on where the file ends, and learn the total length."""
        if answer.status == 416:
            # There is nothing after what we have, so it is not the start of this file.
            had = self._have
            self._start_over(file)
            raise self._broken(f"the server has nothing after byte {had}")
        if answer.status == 206:
            total = self._expect_rest(answer, file)
        else:
            if self._have:
                self._start_over(file)
            self._note_validator(_validator(answer))
            total = _length(answer)
        self._total = total if total is not None else self._location.size
        if self._total is not None and self._total > self._limit:
            raise NetworkError(
                f"{self._location.shown}: it has {self._total} bytes, more than {self._limit}",
                fix="check the index that pip's configuration names",
            )
        if not self._shown:
            self._progress.start(f"downloading {self._location.filename}", self._total)
            self._progress.advance(self._have)
            self._shown = True

    def _expect_rest(self, answer: Answer, file: BinaryIO) -> int | None:
        """The total length, None when not said."""
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", "").strip())
        start = int(match.group(1)) if match else -1
        total = int(match.group(3)) if match and match.group(3) != "*" else None
        changed = self._validator is not None and _validator(answer) not in (None, self._validator)
        if not self._have or start != self._have or changed:
            self._start_over(file)
            raise self._broken("the server sent another part of the file than was asked for")
        if total is not None and self._total is not None and total != self._total:
            self._start_over(file)
            raise self._broken("the file on the server changed")
        self._spliced = True
        return total

    def _receive(self, answer: Answer, file: BinaryIO) -> None:
        end = self._total if self._total is not None else self._limit
        try:
            # One byte more than expected tells a longer file from one that is complete.
            while block := answer.block(min(_BLOCK, end + 1 - self._have)):
                if self._have + len(block) > end:
                    self._start_over(file)
                    raise NetworkError(
                        f"{self._location.shown}: the server sends more than {end} bytes",
                        fix="check the index that pip's configuration names",
                    )
                file.write(block)
                self._digest.update(block)
                self._have += len(block)
                self._progress.advance(len(block))
        finally:
            file.flush()
        if self._total is not None and self._have < self._total:
            raise self._broken(f"the connection ended after {self._have} of {self._total} bytes")

    def _broken(self, what: str) -> PassingProblemError:
        return PassingProblemError(f"{self._location.shown}: {what}")

    def _note_validator(self, validator: str | None) -> None:
        self._validator = validator
        if validator is None:
            self.forget_validator()
        else:
            self._validator_file.write_text(validator, "ascii")


def _validator(answer: Answer) -> str | None:
    """What `If-Range` takes to say "if it is still the same file"; weak tags do not do."""
    tag = answer.headers.get("etag", "").strip()
    if tag.startswith('"') and tag.isascii():
        return tag
    modified = answer.headers.get("last-modified", "").strip()
    return modified if modified and modified.isascii() else None


def _length(answer: Answer) -> int | None:
    text = answer.headers.get("content-length", "").strip()
    return int(text) if text.isdecimal() else None
