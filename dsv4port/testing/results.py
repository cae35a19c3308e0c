"""What a run of tests found: values, their JSON, and the verdict."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from dsv4port.errors import BadInputError
from dsv4port.manifest.files import write_atomically
from dsv4port.quick_dataclass import dataclass, field_names
from dsv4port.testing.outcomes import BAD, Outcome
from dsv4port.testing.suites import SuiteKind

RESULT_FORMAT = 1
RESULT_KIND = "dsv4port test"

_USUAL: Mapping[str, Any] = {"reason": None, "seconds": 0.0, "markers": (), "measured": {}}
"""What a row need not say."""


class Redness(str, Enum):
    """What the bare pin made of a test that must fail there."""

    RED = "red"
    """It failed, as it must."""
    RED_BY_ERROR = "red by error"
    """It could not even be set up there: red too, but it says less."""
    GREEN = "green"
    """It passed: it shows nothing about the patch."""
    UNKNOWN = "unknown"
    """It was skipped, or failed for want of something outside."""
    LEFT_OUT = "left out"
    """The run has not got the device that it needs."""


_REDNESS = {
    Outcome.FAILED: Redness.RED,
    Outcome.ERROR: Redness.RED_BY_ERROR,
    Outcome.PASSED: Redness.GREEN,
    Outcome.XPASSED: Redness.GREEN,
    Outcome.DESELECTED: Redness.LEFT_OUT,
}


@dataclass(frozen=True, slots=True)
class TestRow:
    """One test. ``reason`` is None where it passed; ``measured`` is what the test recorded."""

    __test__ = False  # no test class, whatever pytest thinks of the name

    id: str
    outcome: Outcome
    reason: str | None
    seconds: float
    markers: tuple[str, ...]
    measured: Mapping[str, Any]

    @property
    def redness(self) -> Redness:
        """What it says as a test that must fail."""
        return _REDNESS.get(self.outcome, Redness.UNKNOWN)


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """One pytest: what it ran on, and every test.

    Parameters:
        lock_sha256: of the stack's lock; None on a bare pin.
        problems: what is wrong beside the tests themselves, one line each.
    """

    kind: SuiteKind
    patchset: str
    stack: str | None
    pin: str
    tree: str
    lock_sha256: str | None
    seconds: float
    tests: tuple[TestRow, ...]
    problems: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Number of tests by outcome, without those that are 0."""
        return _counts(one.outcome.value for one in self.tests)

    @property
    def bad(self) -> tuple[TestRow, ...]:
        """Tests that make the answer no."""
        if self.kind is SuiteKind.RED:
            return tuple(
                one for one in self.tests if one.redness in (Redness.GREEN, Redness.UNKNOWN)
            )
        return tuple(one for one in self.tests if one.outcome in BAD)


@dataclass(frozen=True, slots=True)
class TestRun:
    """A whole run, as it is kept.

    Parameters:
        aliases: other stacks with the same tree and patchsets, by the stack that was tested.
        environment: where it ran: device, driver, versions; `record.environment`'s keys and
            ``packages``, ``environment`` (key in the cache, or "given").
    """

    __test__ = False  # no test class, whatever pytest thinks of the name

    tool: str
    date: str
    command: tuple[str, ...]
    device: str
    host: Mapping[str, Any]
    environment: Mapping[str, Any]
    aliases: Mapping[str, tuple[str, ...]]
    suites: tuple[SuiteResult, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Tests by outcome, of all suites on patched trees."""
        return _counts(
            test.outcome.value
            for suite in self.suites
            if suite.kind is not SuiteKind.RED
            for test in suite.tests
        )

    @property
    def red_counts(self) -> dict[str, int]:
        """Tests by redness, of all suites on bare pins."""
        return _counts(
            test.redness.value
            for suite in self.suites
            if suite.kind is SuiteKind.RED
            for test in suite.tests
        )

    @property
    def failed(self) -> bool:
        """Whether the answer is no: a test failed, a fix test is not red, or nothing ran."""
        ran = any(test.outcome.ran for suite in self.suites for test in suite.tests)
        return not ran or any(suite.bad or suite.problems for suite in self.suites)

    @property
    def hindered(self) -> tuple[TestRow, ...]:
        """Tests on patched trees that failed for want of something outside."""
        return tuple(
            test
            for suite in self.suites
            if suite.kind is not SuiteKind.RED
            for test in suite.tests
            if test.outcome is Outcome.ENVIRONMENT
        )

    @property
    def holds(self) -> bool:
        """Whether everything that was to pass passed."""
        return not self.failed and not self.hindered


def _counts(names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))


def rows_of(document: Mapping[str, Any]) -> tuple[TestRow, ...]:
    """The tests of a file that the plugin `record` wrote, of format 1 too."""
    return tuple(map(_row, document["tests"]))


def encode_run(run: TestRun) -> bytes:
    """The content of a result file: JSON with one test a line, so that it can be read in a diff."""
    values: dict[str, Any] = {"kind": RESULT_KIND, "format": RESULT_FORMAT}
    values.update(holds=run.holds, counts=run.counts, red_counts=run.red_counts)
    values.update((name, getattr(run, name)) for name in field_names(TestRun) if name != "suites")
    suites = ",\n".join(map(_encode_suite, run.suites))
    return f'{{\n{_members(values)},\n"suites": [\n{suites}\n]\n}}\n'.encode()


def _encode_suite(suite: SuiteResult) -> str:
    names = [name for name in field_names(SuiteResult) if name != "tests"]
    values = {**{name: getattr(suite, name) for name in names}, "counts": suite.counts}
    rows = ",\n".join(json.dumps(_encode_row(test)) for test in suite.tests)
    return f'{{\n{_members(values)},\n"tests": [\n{rows}\n]\n}}'


def _encode_row(test: TestRow) -> dict[str, Any]:
    """A row without what is as in most rows."""
    values = {name: getattr(test, name) for name in field_names(TestRow)}
    return {name: value for name, value in values.items() if value or name not in _USUAL}


def _members(values: Mapping[str, Any]) -> str:
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items())


def write_run(run: TestRun, file: Path) -> None:
    """Write a result file, whole or not at all. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, encode_run(run))


def decode_run(data: bytes, label: str) -> TestRun:
    """The run in a result file.

    Raises:
        BadInputError: it is not whole, of another format, or its counts are not its tests'.
    """
    try:
        values = json.loads(data)
        if (values.pop("kind"), values.pop("format")) != (RESULT_KIND, RESULT_FORMAT):
            raise ValueError("it is of another kind or format")
        summary = [values.pop(name) for name in ("holds", "counts", "red_counts")]
        suites = tuple(map(_suite, values.pop("suites")))
        aliases = {name: tuple(others) for name, others in values.pop("aliases").items()}
        command = tuple(values.pop("command"))
        run = TestRun(**values, aliases=aliases, command=command, suites=suites)
        if summary != [run.holds, run.counts, run.red_counts]:
            raise ValueError("its summary is not that of its tests")
        return run
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadInputError(
            f"{label}: is no whole result of `dsv4port test`: {error}",
            fix="run the tests again, or restore the file",
        ) from error


def _suite(values: dict[str, Any]) -> SuiteResult:
    values = dict(values)
    counts, kind = values.pop("counts"), SuiteKind(values.pop("kind"))
    tests = tuple(map(_row, values.pop("tests")))
    problems = tuple(values.pop("problems"))
    suite = SuiteResult(**values, kind=kind, tests=tests, problems=problems)
    if counts != suite.counts:
        raise ValueError(f"the counts of {suite.patchset} are not those of its tests")
    return suite


def _row(values: Mapping[str, Any]) -> TestRow:
    values = {**_USUAL, **values}
    changed = {"outcome": Outcome(values["outcome"]), "markers": tuple(values["markers"])}
    return TestRow(**{**values, **changed})
