"""Write many objects at once: one pack file with its index, no git process.

Spawning git, or writing loose objects, is what makes other ways slow. The pack holds whole
objects, no deltas: later reads are faster, and the size matters little for what a series adds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Protocol

from dsv4port.errors import InternalError
from dsv4port.git.objects import ObjectKind, object_id
from dsv4port.quick_dataclass import dataclass


class ObjectSink(Protocol):
    """Where new objects go: a pack, or memory for a rehearsal."""

    def add(self, kind: ObjectKind, data: bytes) -> str:
        """Take an object, return its id."""
        ...

    def read(self, identifier: str) -> bytes | None:
        """The data of an object added before, None when it was not."""
        ...


class Rehearsal:
    """An object sink that writes nothing; blobs stay readable."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def add(self, kind: ObjectKind, data: bytes) -> str:
        """Return the id the object would have."""
        identifier = object_id(kind, data)
        if kind is ObjectKind.BLOB:
            self._blobs[identifier] = data
        return identifier

    def read(self, identifier: str) -> bytes | None:
        """The data of a blob added before."""
        return self._blobs.get(identifier)


@dataclass(frozen=True, slots=True)
class PackFile:
    """A finished pack: its name (hex checksum), both paths, and how many objects it holds."""

    name: str
    pack: Path
    index: Path
    count: int


class _Place(NamedTuple):
    """Where an object lies in the pack: offset and length in bytes, CRC-32 of those bytes."""

    offset: int
    length: int
    checksum: int


class PackWriter:
    """Collect objects into one pack under ``<objects>/pack``; nothing is visible before finish.

    Use as a context manager: leaving it without `finish` removes what was written.

    Parameters:
        objects: the ``objects`` folder of a repository.
        compression: zlib level, 0 to 9.
    """

    def __init__(self, objects: Path, *, compression: int = 1) -> None:
        self._folder = objects / "pack"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._level = compression
        self._places: dict[str, _Place] = {}
        descriptor, name = tempfile.mkstemp(prefix="tmp_dsv4port_", dir=self._folder)
        self._temporary = Path(name)
        self._file: BinaryIO = os.fdopen(descriptor, "w+b", buffering=1 << 20)
        self._file.write(b"PACK" + struct.pack(">II", 2, 0))
        self._position = 12
        self._open = True

    def __enter__(self) -> PackWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._places

    def add(self, kind: ObjectKind, data: bytes) -> str:
        """Write one object (once, however often it is added) and return its id."""
        identifier = object_id(kind, data)
        if identifier not in self._places:
            self.add_deflated(kind, identifier, len(data), zlib.compress(data, self._level))
        return identifier

    def add_deflated(self, kind: ObjectKind, identifier: str, size: int, deflated: bytes) -> None:
        """Write an object that the caller has hashed and deflated, for example in a thread.

        Parameters:
            size: length of the data before it was deflated, in bytes.
        """
        if identifier in self._places:
            return
        byte = (kind.value << 4) | (size & 0x0F)
        size >>= 4
        header = bytearray()
        while size:
            header.append(byte | 0x80)
            byte = size & 0x7F
            size >>= 7
        header.append(byte)
        packed = bytes(header) + deflated
        self._file.write(packed)
        self._places[identifier] = _Place(self._position, len(packed), zlib.crc32(packed))
        self._position += len(packed)

    def read(self, identifier: str) -> bytes | None:
        """The data of an object added before; None when this pack does not hold it.

        After `finish` git has the objects, and nothing is read here any more.
        """
        place = self._places.get(identifier)
        if place is None or not self._open:
            return None
        self._file.flush()
        self._file.seek(place.offset)
        packed = self._file.read(place.length)
        self._file.seek(0, os.SEEK_END)
        start = 0
        while packed[start] & 0x80:
            start += 1
        return zlib.decompress(packed[start + 1 :])

    def finish(self) -> PackFile | None:
        """Make the pack visible to git. Returns None when no object was added.

        The file reaches the disk before its index does, and the index before this returns, so
        that a reference written afterwards never names an object that is not there.
        """
        if not self._open:
            raise InternalError("the pack is already finished")
        if not self._places:
            self.discard()
            return None
        self._file.seek(8)
        self._file.write(struct.pack(">I", len(self._places)))
        self._file.flush()
        self._file.seek(0)
        digest = hashlib.sha1(usedforsecurity=False)
        while block := self._file.read(1 << 20):
            digest.update(block)
        self._file.write(digest.digest())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._open = False
        name = digest.hexdigest()
        pack = self._folder / f"pack-{name}.pack"
        index = self._folder / f"pack-{name}.idx"
        if not index.exists():
            self._temporary.chmod(0o444)
            self._temporary.rename(pack)
            self._write_index(index, digest.digest())
        else:
            self._temporary.unlink()
        return PackFile(name, pack, index, len(self._places))

    def discard(self) -> None:
        """Remove what was written so far; does nothing after `finish`."""
        if self._open:
            self._open = False
            self._temporary.unlink(missing_ok=True)
            # What is still buffered cannot always be written, and need not be.
            with contextlib.suppress(OSError):
                self._file.close()

    def _write_index(self, index: Path, pack_checksum: bytes) -> None:
        """Pack index version 2 (see git's ``gitformat-pack``)."""
        identifiers = sorted(self._places)
        fanout, counts = [], [0] * 256
        for identifier in identifiers:
            counts[int(identifier[:2], 16)] += 1
        total = 0
        for count in counts:
            total += count
            fanout.append(total)
        small: list[int] = []
        large: list[int] = []
        for identifier in identifiers:
            offset = self._places[identifier].offset
            if offset < 1 << 31:
                small.append(offset)
            else:
                small.append((1 << 31) | len(large))
                large.append(offset)
        body = b"".join(
            (
                b"\377tOc" + struct.pack(">I", 2),
                struct.pack(">256I", *fanout),
                bytes.fromhex("".join(identifiers)),
                struct.pack(f">{total}I", *(self._places[i].checksum for i in identifiers)),
                struct.pack(f">{total}I", *small),
                struct.pack(f">{len(large)}Q", *large),
                pack_checksum,
            )
        )
        body += hashlib.sha1(body, usedforsecurity=False).digest()
        descriptor, name = tempfile.mkstemp(prefix="tmp_dsv4port_", dir=self._folder)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o444)
            temporary.rename(index)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
