"""The files in ``evidence/``: what each says it is about, and whether that is still so.

Three kinds are known: results of ``dsv4port test``, files of the pytest plugin ``record`` from
machines that have no dsv4port, and ``bench.yaml``. Other JSON files are listed by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4port.errors import BadInputError
from dsv4port.evidence.bench_file import Bench, find_benches
from dsv4port.quick_dataclass import dataclass
from dsv4port.testing.results import RESULT_KIND, SuiteResult, TestRow, decode_run, rows_of
from dsv4port.testing.suites import SuiteKind

if TYPE_CHECKING:
    from dsv4port.manifest.lock import Lock
    from dsv4port.manifest.project import Project

_RECORD_FORMATS = (1, 2)


class Standing(Enum):
    """What a piece of evidence has to do with the stack as it is locked now."""

    SAME_TREE = "this tree"
    """It was made on the very tree that the lock names."""
    SAME_FILES = "the same files"
    """Another tree, but every file that it names and the stack touches is as locked now."""
    STALE = "another tree"
    """The stack has changed since."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Tests of one pytest run, with where and on what it ran.

    Parameters:
        source: path of the file, relative to the project.
        tests: in the case of a red suite, tests that were to fail.
        command: how it was made, where the file says so.
    """

    source: str
    date: str
    standing: Standing
    kind: SuiteKind
    patchsets: tuple[str, ...]
    device: str
    environment: Mapping[str, Any]
    host: Mapping[str, Any]
    command: tuple[str, ...]
    tests: tuple[TestRow, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EvidenceStore:
    """Everything in the folder that concerns one stack; ``others`` are JSON files not understood
    as results of tests."""

    tests: tuple[Evidence, ...]
    benches: tuple[Bench, ...]
    others: tuple[str, ...]


def load_evidence(project: Project, lock: Lock) -> EvidenceStore:
    """Read the folder ``evidence`` of the project.

    Raises:
        BadInputError: a file is cut off, or of a format that is not known.
    """
    folder = project.root / "evidence"
    benches = find_benches(folder, project.label(folder))
    named = {run.result.source for one in benches for case in one.cases for run in case.runs}
    tests: list[Evidence] = []
    others: list[str] = []
    for file in sorted(folder.glob("**/*.json")):
        label = project.label(file)
        if label in named:
            continue
        values = _values(file, label)
        if values.get("kind") == RESULT_KIND:
            tests += _of_run(file.read_bytes(), label, lock)
        elif "tests" in values and "exit_status" in values:
            tests += _of_record(values, label, lock)
        else:
            others.append(label)
    chosen = tuple(one for one in benches if one.stack in (None, lock.stack))
    return EvidenceStore(tuple(tests), chosen, tuple(others))


def _values(file: Path, label: str) -> dict[str, Any]:
    try:
        values = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(
            f"{label}: is no whole JSON file: {error}", fix="restore the file, or remove it"
        ) from error
    if not isinstance(values, dict):
        raise BadInputError(f"{label}: is no JSON object", fix="restore the file, or remove it")
    return values


def _of_run(data: bytes, label: str, lock: Lock) -> Iterator[Evidence]:
    run = decode_run(data, label)
    for suite in run.suites:
        if not _concerns(suite, run.aliases, lock):
            continue
        same = suite.tree == (lock.base_tree if suite.kind is SuiteKind.RED else lock.tree)
        yield Evidence(
            source=label,
            date=run.date,
            standing=Standing.SAME_TREE if same else Standing.STALE,
            kind=suite.kind,
            patchsets=(suite.patchset,),
            device=_device(run.environment, run.device),
            environment=run.environment,
            host=run.host,
            command=run.command,
            tests=suite.tests,
            problems=suite.problems,
        )


def _concerns(suite: SuiteResult, aliases: Mapping[str, tuple[str, ...]], lock: Lock) -> bool:
    if suite.kind is SuiteKind.RED:
        # Bare pins belong to every stack that has the patchset there.
        return suite.pin == lock.pin and suite.patchset in {one.patchset for one in lock.patches}
    # Another stack with the same tree is as good: tests see the tree, not its name.
    return suite.tree == lock.tree or (
        suite.stack is not None and lock.stack in (suite.stack, *aliases.get(suite.stack, ()))
    )


def _of_record(values: Mapping[str, Any], label: str, lock: Lock) -> Iterator[Evidence]:
    if values.get("format") not in _RECORD_FORMATS:
        raise BadInputError(
            f"{label}: has the format {values.get('format')!r}, which this version does not read",
            fix="read it with the version that wrote it, or make it anew",
        )
    try:
        facts, tests = values["facts"], rows_of(values)
        if facts.get("pin") != lock.pin:
            return
        yield Evidence(
            source=label,
            date=values["date"],
            standing=_standing(facts, values["digests"], lock),
            kind=SuiteKind.PATCHSET,
            patchsets=tuple(sorted({_patchset(one.id) for one in tests})),
            device=_device(values["environment"], "cpu"),
            environment=values["environment"],
            host={},
            command=(),
            tests=tests,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInputError(
            f"{label}: is no whole record of a test run: {error}", fix="restore the file"
        ) from error


def _standing(facts: Mapping[str, str], digests: Mapping[str, str], lock: Lock) -> Standing:
    if facts.get("tree") == lock.tree:
        return Standing.SAME_TREE
    locked = {file.path.decode("utf-8", "surrogateescape"): file.sha256 for file in lock.files}
    touched = {path: digest for path, digest in digests.items() if path in locked}
    if touched and all(locked[path] == digest for path, digest in touched.items()):
        return Standing.SAME_FILES
    return Standing.STALE


def _patchset(identifier: str) -> str:
    parts = identifier.split("/")
    return parts[1] if parts[0] == "patchsets" and len(parts) > 2 else parts[0]


def _device(environment: Mapping[str, Any], otherwise: str) -> str:
    device = environment.get("device")
    if not isinstance(device, Mapping):
        return otherwise.upper()
    return str(device.get("name", otherwise))
