"""Turn a source distribution, a gzipped tar archive, into git objects in one pass.

The archive is never unpacked to disk. A second thread inflates ahead, because zlib lets go of
Python's lock; the rest, mostly compressing the blobs, happens in the caller's thread.
"""

from __future__ import annotations

import contextlib
import gzip
import queue
import re
import tarfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from dsv4port.errors import BadInputError, EnvironmentProblemError, UnsafePathError
from dsv4port.git.objects import MODE_EXECUTABLE, MODE_FILE, MODE_SYMLINK
from dsv4port.git.pack import ObjectSink
from dsv4port.upstream.progress import NO_PROGRESS, Progress
from dsv4port.upstream.safety import shown_path
from dsv4port.upstream.tree import TreeBuilder

_BLOCK = 1 << 20
_BLOCKS_AHEAD = 4
_RATIO_COUNTS_FROM = 64 << 20
_OWNER_MAY_EXECUTE = 0o100
_FIX_READ = "make it readable for this user, or use another copy"
_FIX = "do not use this archive; get the pin from another source and compare the hash"


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may grow to; far above any real one, far below what fills a disk.

    Parameters:
        members: entries of all kinds.
        total: bytes after inflating.
        file: bytes of one file, which is held in memory.
        ratio: inflated to compressed size, looked at from 64 MiB on.
    """

    members: int = 200_000
    total: int = 4 << 30
    file: int = 256 << 20
    ratio: int = 200


DEFAULT_LIMITS = ArchiveLimits()


def import_archive(
    archive: Path,
    sink: ObjectSink,
    *,
    limits: ArchiveLimits = DEFAULT_LIMITS,
    progress: Progress = NO_PROGRESS,
) -> str:
    """Write every file of an archive, without its top folder, and return the tree's id.

    Raises:
        UnsafePathError: a member would leave the tree, reach into ``.git``, or be written
            through a symbolic link.
        BadInputError: the archive is damaged, beyond the limits, or not shaped like an sdist.
        EnvironmentProblemError: the archive cannot be read.
    """
    where = archive.name
    try:
        size = archive.stat().st_size
        file = archive.open("rb")
    except OSError as error:
        raise EnvironmentProblemError(
            f"cannot read {archive}: {error.strerror}", fix=_FIX_READ
        ) from error
    progress.start(f"importing {where}", size, "bytes")
    try:
        with file, _Inflater(file, size, where, limits, progress) as stream:
            builder = TreeBuilder(sink, where=where)
            top = b""
            for count, member in enumerate(_members(stream, where), 1):
                if count > limits.members:
                    raise BadInputError(
                        f"{where}: it has more than {limits.members} members", fix=_FIX
                    )
                folder, path = _split(member, where)
                if top and folder != top:
                    raise BadInputError(
                        f"{where}: it has two top folders, {shown_path(top)} and "
                        f"{shown_path(folder)}",
                        fix=_FIX,
                    )
                top = folder
                _add(builder, member, top, path, stream, where, limits)
            return builder.write()
    finally:
        progress.finish()


def _add(
    builder: TreeBuilder,
    member: tarfile.TarInfo,
    top: bytes,
    path: bytes,
    stream: _Inflater,
    where: str,
    limits: ArchiveLimits,
) -> None:
    if member.isdir():
        if path:
            builder.add_folder(path)
    elif not path:
        raise BadInputError(
            f"{where}: {shown_path(top)} lies at the top, outside of one folder", fix=_FIX
        )
    elif member.issym():
        builder.add_file(path, MODE_SYMLINK, _bytes(member.linkname))
    elif member.islnk():
        target = _bytes(member.linkname).removeprefix(b"./")
        builder.add_again(path, target.removeprefix(top + b"/"))
    elif member.isreg() and not member.issparse():
        if not 0 <= member.size <= limits.file:
            raise BadInputError(
                f"{where}: {shown_path(path)} has {member.size} bytes; the limit is {limits.file}",
                fix=_FIX,
            )
        mode = MODE_EXECUTABLE if member.mode & _OWNER_MAY_EXECUTE else MODE_FILE
        builder.add_file(path, mode, stream.exactly(member.size))
    else:
        raise UnsafePathError(
            f"{where}: {shown_path(path)} is neither file, folder nor link", fix=_FIX
        )


def _split(member: tarfile.TarInfo, where: str) -> tuple[bytes, bytes]:
    """Top folder and the path below it."""
    name = _bytes(member.name)
    if name.startswith(b"/"):
        raise UnsafePathError(f"{where}: the path {shown_path(name)} is absolute", fix=_FIX)
    top, _, path = name.removeprefix(b"./").partition(b"/")
    # Whatever the top folder is called, it goes; but a name like this one wants something else.
    if top in (b"", b".", b"..") or re.fullmatch(rb"[A-Za-z]:", top) is not None:
        raise UnsafePathError(
            f"{where}: the path {shown_path(name)} is not below a top folder", fix=_FIX
        )
    return top, path


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _members(stream: _Inflater, where: str) -> Iterator[tarfile.TarInfo]:
    """Headers in order; whatever of a member's data was not read is skipped.

    The iterator of `tarfile` takes a damaged header for the end of the archive. Reading headers
    one by one tells them apart.
    """
    try:
        # Some versions of tarfile try to go back when the end marker comes first.
        if stream.peek(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("there is no file in it")
        archive = tarfile.TarFile(
            fileobj=cast(BinaryIO, stream), mode="r", encoding="utf-8", errors="surrogateescape"
        )
        member = archive.next()
        while member is not None:
            yield member
            stream.seek(archive.offset)
            member = _next_header(archive)
        # Nothing may follow the end marker but padding.
        while block := stream.read(_BLOCK):
            if block.count(0) != len(block):
                raise BadInputError(f"{where}: data follows the end of the archive", fix=_FIX)
    except (tarfile.TarError, ValueError) as error:
        raise BadInputError(f"{where}: damaged tar archive: {error}", fix=_FIX) from error


def _next_header(archive: tarfile.TarFile) -> tarfile.TarInfo | None:
    try:
        return tarfile.TarInfo.fromtarfile(archive)
    except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
        return None
    except tarfile.EmptyHeaderError as error:  # type: ignore[attr-defined]
        raise tarfile.ReadError("it ends without an end marker") from error


class _Inflater:
    """The inflated bytes of a gzip file: `read`, `tell` and forward `seek`, as tarfile needs."""

    def __init__(
        self,
        file: BinaryIO,
        size: int,
        where: str,
        limits: ArchiveLimits,
        progress: Progress,
    ) -> None:
        self._file = file
        self._where = where
        self._limits = limits
        self._size = size
        self._progress = progress
        self._reported = 0
        self._blocks: queue.Queue[tuple[bytes, int] | BaseException | None] = queue.Queue(
            _BLOCKS_AHEAD
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._inflate, name="inflate", daemon=True)
        self._block = b""
        self._start = 0
        self._position = 0
        self._ended = False

    def __enter__(self) -> _Inflater:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        # A full queue would keep the thread from seeing that.
        with contextlib.suppress(queue.Empty):
            while True:
                self._blocks.get_nowait()
        self._thread.join()

    def tell(self) -> int:
        """Bytes given out so far."""
        return self._position

    def seek(self, position: int) -> None:
        """Skip forward to `position`, or to the end where that comes first."""
        if position < self._position:
            raise ValueError("an archive can only be read forward")
        while self._position < position and self.read(min(position - self._position, _BLOCK)):
            pass

    def read(self, amount: int = -1) -> bytes:
        """The next `amount` bytes, fewer only at the end."""
        if amount > max(self._limits.file, _BLOCK):
            # Asked for by tarfile: an extended header, which says how long the name is.
            raise BadInputError(f"{self._where}: a header has {amount} bytes", fix=_FIX)
        block, start = self._block, self._start
        if 0 <= amount <= len(block) - start:
            self._start = start + amount
            self._position += amount
            return block[start : start + amount]
        parts = [block[start:]]
        missing = amount - len(parts[0])
        self._block, self._start = b"", 0
        while missing > 0 or amount < 0:
            block = self._next_block()
            if not block:
                break
            part = block if amount < 0 else block[:missing]
            parts.append(part)
            missing -= len(part)
            if len(part) < len(block):
                self._block, self._start = block, len(part)
        data = b"".join(parts)
        self._position += len(data)
        return data

    def peek(self, amount: int) -> bytes:
        """What `read` will give next."""
        data = self.read(amount)
        self._block, self._start = data + self._block[self._start :], 0
        self._position -= len(data)
        return data

    def exactly(self, amount: int) -> bytes:
        """The next `amount` bytes.

        Raises:
            BadInputError: the archive ends before.
        """
        data = self.read(amount)
        if len(data) != amount:
            raise BadInputError(f"{self._where}: the archive ends inside a file", fix=_FIX)
        return data

    def _next_block(self) -> bytes:
        if self._ended:
            return b""
        item = self._blocks.get()
        if isinstance(item, BaseException):
            self._ended = True
            raise item
        if item is None:
            self._ended = True
            return b""
        block, consumed = item
        self._progress.advance(consumed - self._reported)
        self._reported = consumed
        return block

    def _inflate(self) -> None:
        """Body of the thread. Its errors are raised where the blocks are read."""
        outcome: BaseException | None = None
        total = 0
        try:
            with gzip.GzipFile(fileobj=self._file, mode="rb") as stream:
                while (block := stream.read(_BLOCK)) and not self._stopped.is_set():
                    total += len(block)
                    # Asking from the other thread would wait for the read that is under way.
                    consumed = min(self._file.tell(), self._size)
                    self._check_size(total, consumed)
                    self._blocks.put((block, consumed))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            outcome = BadInputError(f"{self._where}: damaged gzip file: {error}", fix=_FIX)
        except OSError as error:
            outcome = EnvironmentProblemError(
                f"cannot read {self._where}: {error.strerror}", fix=_FIX_READ
            )
        except BaseException as error:
            outcome = error
        if not self._stopped.is_set():
            self._blocks.put(outcome)

    def _check_size(self, total: int, consumed: int) -> None:
        if total > self._limits.total:
            raise BadInputError(
                f"{self._where}: it inflates to more than {self._limits.total} bytes", fix=_FIX
            )
        if total > _RATIO_COUNTS_FROM and total > self._limits.ratio * consumed:
            raise BadInputError(
                f"{self._where}: it inflates to more than {self._limits.ratio} times its size",
                fix=_FIX,
            )
