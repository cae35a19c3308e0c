"""Checks of a built environment, as rows: what imports, what is registered, what fits together."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

from dsv4port.build.op_schemas import DeclaredOp, declared_ops
from dsv4port.build.process import run_logged
from dsv4port.build.targets import Target
from dsv4port.quick_dataclass import dataclass

VERSIONS_PROGRAM = "tools/generate_versions_json.py"

_PROGRAM = Path(__file__).with_name("smoke_program.py")
_MAX_SOURCE = 8 * 1024 * 1024


class CheckKind(Enum):
    """What a check is about; the names of ``--accept``."""

    PACKAGE = "package"
    """The package imports, from the tree that was built."""
    EXTENSION = "extension"
    """A native extension imports."""
    SCHEMA = "schema"
    """Registered operators have the signatures that the sources declare."""
    PACKAGES = "packages"
    """Installed packages satisfy each other's requirements."""
    VERSIONS = "versions"
    """The tree's own check of its docker versions."""


class CheckOutcome(Enum):
    """What became of a check."""

    HOLDS = "holds"
    """As it should be."""
    FAILS = "fails"
    """Not as it should be: the environment is not put in place."""
    ACCEPTED = "accepted"
    """It fails, and the caller said that this may be."""
    NOT_CHECKED = "not-checked"
    """It could not be asked here; the detail says why. Never counted as a pass."""


@dataclass(frozen=True, slots=True)
class Check:
    """One row."""

    kind: CheckKind
    subject: str
    outcome: CheckOutcome
    detail: str


@dataclass(frozen=True, slots=True)
class Extension:
    """A native extension of the built package."""

    module: str
    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Smoke:
    """All rows; the extensions with their hashes; installed packages as ``name==version``."""

    checks: tuple[Check, ...]
    extensions: tuple[Extension, ...]
    packages: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether no check fails."""
        return all(one.outcome is not CheckOutcome.FAILS for one in self.checks)


def tree_ops(source: Path) -> list[DeclaredOp]:
    """Every operator that the C++ and CUDA sources of a tree declare."""
    found: list[DeclaredOp] = []
    for file in sorted((source / "csrc").rglob("*")):
        if file.suffix in (".cpp", ".cu") and file.stat().st_size <= _MAX_SOURCE:
            text = file.read_text("utf-8", "replace")
            found += declared_ops(text, file.relative_to(source).as_posix())
    return found


def smoke(
    target: Target,
    source: Path,
    python: Path,
    environment: Mapping[str, str],
    log: BinaryIO,
    *,
    packages_check: Sequence[str],
    touched: frozenset[str] = frozenset(),
    accept: frozenset[CheckKind] = frozenset(),
) -> Smoke:
    """Check an environment.

    Parameters:
        packages_check: the command that says whether packages fit together.
        touched: files of the tree that the stack touches; operators they declare outside of an
            ``#if`` must be registered.
        accept: kinds that may fail.
    """
    checks, extensions, packages = _imported(target, source, python, environment, log, touched)
    checks.append(
        _ran(CheckKind.PACKAGES, Path(packages_check[0]).name, packages_check, source,
             environment, log)
    )  # fmt: skip
    checks.append(_versions(source, python, environment, log))
    judged = tuple(
        Check(one.kind, one.subject, CheckOutcome.ACCEPTED, one.detail)
        if one.outcome is CheckOutcome.FAILS and one.kind in accept
        else one
        for one in checks
    )
    return Smoke(judged, tuple(extensions), tuple(packages))


def _imported(
    target: Target,
    source: Path,
    python: Path,
    environment: Mapping[str, str],
    log: BinaryIO,
    touched: frozenset[str],
) -> tuple[list[Check], list[Extension], list[str]]:
    ops = tree_ops(source) if target.extensions else []
    asked = {
        "package": target.package,
        "source": str(source),
        "extensions": target.extensions,
        "schemas": [
            {
                "namespace": op.namespace, "by_ending": op.by_ending, "name": op.name,
                "schema": op.schema, "file": op.file, "line": op.line,
                "required": op.file in touched and not op.conditional,
            }
            for op in ops
        ],
    }  # fmt: skip
    said: list[dict[str, Any]] = []

    def hear(line: str) -> None:
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                said.append(found)

    ended = run_logged(
        [str(python), "-I", str(_PROGRAM)], log, cwd=source, environment=environment,
        on_line=hear, stdin=json.dumps(asked).encode(),
    )  # fmt: skip
    checks = [
        Check(CheckKind(one["check"]), one["subject"], CheckOutcome(one["outcome"]), one["detail"])
        for one in said
        if "check" in one
    ]
    last = said[-1] if said else {}
    if not ended.succeeded or "end" not in last:
        subject = str(last.get("begin", target.package))
        detail = f"the process ended with {ended.code} while it was at {subject}"
        checks.append(Check(CheckKind.PACKAGE, subject, CheckOutcome.FAILS, detail))
        return checks, [], []
    extensions = [Extension(**one) for one in last["extensions"]]
    return checks, extensions, list(last["packages"])


def _ran(
    kind: CheckKind,
    subject: str,
    command: Sequence[str],
    source: Path,
    environment: Mapping[str, str],
    log: BinaryIO,
    excuse: Callable[[str], str | None] = lambda line: None,
) -> Check:
    log.write(f"$ {' '.join(command)}\n".encode())
    ended = run_logged(command, log, cwd=source, environment=environment)
    said = ended.tail[-1] if ended.tail else ""
    if ended.succeeded:
        return Check(kind, subject, CheckOutcome.HOLDS, said)
    for line in ended.tail:
        reason = excuse(line)
        if reason is not None:
            return Check(kind, subject, CheckOutcome.NOT_CHECKED, reason)
    shown = "; ".join(ended.tail[:5]) + ("; …" if len(ended.tail) > 5 else "")
    return Check(kind, subject, CheckOutcome.FAILS, shown or f"ended with {ended.code}")


def _versions(source: Path, python: Path, environment: Mapping[str, str], log: BinaryIO) -> Check:
    if not (source / VERSIONS_PROGRAM).is_file():
        return Check(
            CheckKind.VERSIONS, VERSIONS_PROGRAM, CheckOutcome.NOT_CHECKED, "the tree has no such"
        )
    command = [str(python), VERSIONS_PROGRAM, "--check"]
    return _ran(
        CheckKind.VERSIONS, VERSIONS_PROGRAM, command, source, environment, log,
        excuse=lambda line: line if line.startswith("ModuleNotFoundError") else None,
    )  # fmt: skip
