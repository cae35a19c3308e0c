"""Which packages a test environment of a pin has: a file with every package and its version."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from pathlib import Path

from dsv4port.errors import BadInputError
from dsv4port.manifest.project import Project
from dsv4port.quick_dataclass import dataclass

_SHIPPED = Path(__file__).with_name("environments")
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!_-]+(\s*;.*)?")


@dataclass(frozen=True, slots=True)
class Requirements:
    """The packages for one pin.

    ``label`` names the file for people; ``key`` is equal for two environments that must be the
    same: same packages, same interpreter version, same kind of machine.
    """

    label: str
    content: bytes

    @property
    def key(self) -> str:
        """Name of the environment: a hash of all that decides what is in it."""
        machine = f"{sys.implementation.cache_tag} {sys.platform} {platform.machine()}\n"
        return hashlib.sha256(machine.encode() + self.content).hexdigest()[:16]


def requirements_for(project: Project, pin: str) -> Requirements:
    """The file for `pin`: the project's ``manifests/environments/<pin>.txt``, else a shipped one.

    Of the shipped files the one with the highest version up to the pin's is taken.

    Raises:
        BadInputError: there is none, or a line of it leaves a version open.
    """
    own = project.root / "manifests" / "environments" / f"{pin}.txt"
    file = own if own.is_file() else _shipped(project, pin, own)
    content = file.read_bytes()
    label = project.label(file) if file == own else file.name
    _require_versions(content, label)
    return Requirements(label, content)


def _shipped(project: Project, pin: str, own: Path) -> Path:
    version = _version(pin)
    files = {_version(file.stem): file for file in _SHIPPED.glob("since-v*.txt")}
    known = [found for found in files if found is not None]
    usable = [found for found in known if version is not None and found <= version]
    if not usable:
        raise BadInputError(
            f"nobody knows what a test environment of {pin} needs",
            fix=f"write {project.label(own)}: one `package==version` a line",
        )
    return files[max(usable)]


def _version(name: str) -> tuple[int, ...] | None:
    found = _VERSION.fullmatch(name.removeprefix("since-"))
    return None if found is None else tuple(map(int, found.groups()))


def _require_versions(content: bytes, label: str) -> None:
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if text and _PINNED.fullmatch(text) is None:
            raise BadInputError(
                f"{label}:{number}: is not `package==version`",
                fix="state the version; an environment must be the same whenever it is made",
            )
