"""Import a folder that somebody extracted already, with the same tree as its archive."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dsv4port.errors import BadInputError, EnvironmentProblemError, UnsafePathError
from dsv4port.git.objects import MODE_EXECUTABLE, MODE_FILE, MODE_SYMLINK
from dsv4port.git.pack import ObjectSink
from dsv4port.upstream.progress import NO_PROGRESS, Progress
from dsv4port.upstream.safety import shown_path
from dsv4port.upstream.sdist import DEFAULT_LIMITS, ArchiveLimits
from dsv4port.upstream.tree import TreeBuilder


def import_directory(
    folder: Path,
    sink: ObjectSink,
    *,
    limits: ArchiveLimits = DEFAULT_LIMITS,
    progress: Progress = NO_PROGRESS,
) -> str:
    """Write every file below a folder and return the tree's id.

    Everything counts, ignored files too: the tree of the archive has them as well. A ``.git``
    folder is refused like any other unsafe path.

    Raises:
        UnsafePathError: there is a ``.git``, or something that is neither file, folder nor link.
        BadInputError: it is empty, or beyond the limits.
        EnvironmentProblemError: it cannot be read.
    """
    builder = TreeBuilder(sink, where=str(folder))
    progress.start(f"importing {folder.name}", None, "files")
    total = count = 0
    try:
        root = os.fsencode(folder.absolute())
        pending = [b""]
        while pending:
            prefix = pending.pop()
            with os.scandir(root + b"/" + prefix) as entries:
                for entry in entries:
                    path = prefix + entry.name
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        builder.add_folder(path)
                        pending.append(path + b"/")
                        continue
                    mode, data = _read(entry, path, folder, limits)
                    total += len(data)
                    builder.add_file(path, mode, data)
                    progress.advance(1)
                    if total > limits.total or count > limits.members:
                        raise BadInputError(
                            f"{folder}: it has more than {limits.total} bytes or "
                            f"{limits.members} files",
                            fix="name the extracted top folder of the archive",
                        )
        return builder.write()
    except OSError as error:
        raise EnvironmentProblemError(
            f"cannot read {os.fsdecode(error.filename or folder)}: {error.strerror}",
            fix="make it readable for this user, or use another source of the pin",
        ) from error
    finally:
        progress.finish()


def _read(
    entry: os.DirEntry[bytes], path: bytes, folder: Path, limits: ArchiveLimits
) -> tuple[int, bytes]:
    if entry.is_symlink():
        return MODE_SYMLINK, os.readlink(entry.path)  # noqa: PTH115 (bytes)
    if not entry.is_file(follow_symlinks=False):
        raise UnsafePathError(
            f"{folder}: {shown_path(path)} is neither file, folder nor link",
            fix="name the extracted top folder of the archive",
        )
    # Another process may have put a link or a pipe there since the folder was listed.
    descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limits.file:
            raise BadInputError(
                f"{folder}: {shown_path(path)} is no regular file of at most {limits.file} bytes",
                fix="name the extracted top folder of the archive",
            )
        data = file.read()
    return MODE_EXECUTABLE if status.st_mode & stat.S_IXUSR else MODE_FILE, data
