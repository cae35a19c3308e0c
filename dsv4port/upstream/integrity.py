"""Whether an import in the cache still is what was written."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dsv4port.upstream.cache import Cache
from dsv4port.upstream.records import Record

_CHECKSUM = 20


def damage(cache: Cache, record: Record) -> str | None:
    """What is wrong with an import, None when nothing is.

    Both files end in a checksum of themselves, the index also has the pack's, and the pack is
    named after it. The checksums are SHA-1 and guard against accidents; the objects in the pack
    are checked by their ids whenever git unpacks them.
    """
    pack, index = cache.pack_files(record.pack)
    for file in (pack, index):
        checksum = _intact_checksum(file)
        if checksum is None:
            return f"the cached file {file} is damaged"
        if file is pack and checksum.hex() != record.pack:
            return f"the cached file {file} is another one"
    with index.open("rb") as stream:
        stream.seek(-2 * _CHECKSUM, 2)
        if stream.read(_CHECKSUM).hex() != record.pack:
            return f"the cached file {index} belongs to another pack"
    from dsv4port.git.process import Git

    named = Git(cache.store).run(
        "rev-parse", record.reference, f"{record.commit}^{{tree}}", accept=(0, 128)
    )
    if named.text.split() != [record.commit, record.tree]:
        return f"the reference {record.reference} in {cache.store} is not what was imported"
    return None


def _intact_checksum(file: Path) -> bytes | None:
    """The checksum at the end of a file, None when it is not the checksum of what is before."""
    digest = hashlib.sha1(usedforsecurity=False)
    held = b""
    try:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                held += block
                digest.update(held[:-_CHECKSUM])
                held = held[-_CHECKSUM:]
    except OSError:
        return None
    return held if held == digest.digest() else None
