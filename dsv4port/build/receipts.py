"""What a kernel build made: written beside the libraries, held against them by ``verify``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from dsv4port import __version__
from dsv4port.build.workplace import build_folder, kernels_folder
from dsv4port.errors import BadInputError
from dsv4port.manifest.files import write_atomically
from dsv4port.manifest.project import Project
from dsv4port.manifest.values import check_sha256
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.files import sha256_of

RECEIPT_FORMAT = 1
RECEIPT = "receipt.json"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A library: ``file`` lies beside the receipt, ``sources`` are paths in the patchset with the
    SHA-256 that was compiled, ``key`` is the cache's."""

    kernel: str
    file: str
    sha256: str
    size: int
    architectures: tuple[str, ...]
    exports: tuple[str, ...]
    key: str
    sources: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        check_sha256("sha256", self.sha256)
        check_sha256("key", self.key)
        for _, digest in self.sources:
            check_sha256("sources", digest)


@dataclass(frozen=True, slots=True)
class KernelReceipt:
    """All libraries of a patchset as they were built; ``compiler`` says by what."""

    patchset: str
    compiler: str
    artifacts: tuple[Artifact, ...]


class KernelMismatch(Enum):
    """What is wrong with a library that was built."""

    MISSING = "kernel-missing"
    """It is not there."""
    CHANGED = "kernel-changed"
    """Its content is not what was built."""
    STALE = "kernel-stale"
    """A source is not the one that it was built from."""


@dataclass(frozen=True, slots=True)
class KernelFinding:
    """One mismatch: the library or source, and the reason in words."""

    kind: KernelMismatch
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """The libraries of some patchsets held against their receipts."""

    checked: int
    findings: tuple[KernelFinding, ...]


def write_receipt(folder: Path, receipt: KernelReceipt) -> Path:
    """Write the receipt; the libraries it names are there already. Raises OSError."""
    data: dict[str, Any] = {
        "format": RECEIPT_FORMAT,
        "patchset": receipt.patchset,
        "tool": f"dsv4port {__version__}",
        "compiler": receipt.compiler,
        "artifacts": [
            {
                "kernel": one.kernel,
                "file": one.file,
                "sha256": one.sha256,
                "size": one.size,
                "architectures": list(one.architectures),
                "exports": list(one.exports),
                "key": one.key,
                "sources": dict(one.sources),
            }
            for one in receipt.artifacts
        ],
    }
    path = folder / RECEIPT
    write_atomically(path, (json.dumps(data, indent=1) + "\n").encode())
    return path


def read_receipt(folder: Path) -> KernelReceipt | None:
    """The receipt in a folder, None where nothing was built.

    Raises:
        BadInputError: it is there, and is none.
    """
    path = folder / RECEIPT
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    try:
        if data["format"] != RECEIPT_FORMAT:
            raise _damaged(path, f"format {data['format']} is not {RECEIPT_FORMAT}")
        return KernelReceipt(
            patchset=str(data["patchset"]),
            compiler=str(data["compiler"]),
            artifacts=tuple(
                Artifact(
                    kernel=str(row["kernel"]),
                    file=str(row["file"]),
                    sha256=str(row["sha256"]),
                    size=int(row["size"]),
                    architectures=tuple(map(str, row["architectures"])),
                    exports=tuple(map(str, row["exports"])),
                    key=str(row["key"]),
                    sources=tuple((str(name), str(one)) for name, one in row["sources"].items()),
                )
                for row in data["artifacts"]
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def check_kernels(project: Project, patchsets: Iterable[str]) -> KernelCheck:
    """Hold what was built for these patchsets against the receipts, and against the sources.

    A patchset whose kernels were not built has no receipt, and nothing is said about it.

    Raises:
        BadInputError: a receipt is damaged.
    """
    checked = 0
    findings: list[KernelFinding] = []
    if not build_folder(project).is_dir():
        return KernelCheck(0, ())
    for patchset in patchsets:
        folder = kernels_folder(project, patchset)
        receipt = read_receipt(folder)
        for artifact in receipt.artifacts if receipt is not None else ():
            checked += 1
            findings += _check(project, patchset, folder, artifact)
    return KernelCheck(checked, tuple(findings))


def _check(
    project: Project, patchset: str, folder: Path, artifact: Artifact
) -> Iterator[KernelFinding]:
    label = f"{patchset}/{artifact.file}"
    try:
        found = sha256_of(folder / artifact.file)
    except FileNotFoundError:
        yield KernelFinding(KernelMismatch.MISSING, label, "built, and not there any more")
    else:
        if found != artifact.sha256:
            reason = f"built with sha256 {artifact.sha256}, found {found}"
            yield KernelFinding(KernelMismatch.CHANGED, label, reason)
    for path, built in artifact.sources:
        try:
            now = sha256_of(project.patchset_folder(patchset) / path)
        except FileNotFoundError:
            now = "no file"
        if now != built:
            reason = f"{artifact.kernel} was built from sha256 {built}, found {now}"
            yield KernelFinding(KernelMismatch.STALE, f"{patchset}/{path}", reason)


def _damaged(path: Path, why: str) -> BadInputError:
    return BadInputError(
        f"{path} is damaged: {why}", fix="run `dsv4port build --kernels` for the patchset again"
    )
