"""A result file gives back the run it was made of, and one that was cut or changed gives none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4port.errors import BadInputError
from dsv4port.testing.neutral import neutral_rows
from dsv4port.testing.outcomes import Outcome
from dsv4port.testing.results import SuiteResult, TestRow, TestRun, decode_run, encode_run
from dsv4port.testing.suites import SuiteKind

text = st.text(max_size=20)
rows = st.builds(
    TestRow,
    id=text,
    outcome=st.sampled_from(Outcome),
    reason=st.none() | text.filter(bool),
    seconds=st.floats(0, 1e6),
    markers=st.lists(text, max_size=2).map(tuple),
    measured=st.dictionaries(text, st.integers() | st.floats(0, 1) | text, max_size=2),
)
suites = st.builds(
    SuiteResult,
    kind=st.sampled_from(SuiteKind),
    patchset=text,
    stack=st.none() | text,
    pin=text,
    tree=text,
    lock_sha256=st.none() | text,
    seconds=st.floats(0, 1e6),
    tests=st.lists(rows, max_size=4).map(tuple),
    problems=st.lists(text, max_size=2).map(tuple),
)
runs = st.builds(
    TestRun,
    tool=text,
    date=text,
    command=st.lists(text, max_size=3).map(tuple),
    device=text,
    host=st.dictionaries(text, st.integers(), max_size=2),
    environment=st.dictionaries(text, text, max_size=2),
    aliases=st.dictionaries(text, st.lists(text, max_size=2).map(tuple), max_size=2),
    suites=st.lists(suites, max_size=3).map(tuple),
)


@given(runs)
@settings(deadline=None)
def test_what_was_written_is_read(run: TestRun) -> None:
    data = encode_run(run)
    assert decode_run(data, "x") == run
    # The longest line is that of one test or of one value.
    assert json.loads(data)["holds"] is run.holds


@given(runs, st.floats(0, 0.99))
@settings(deadline=None)
def test_what_was_cut_off_is_refused(run: TestRun, share: float) -> None:
    data = encode_run(run)
    with pytest.raises(BadInputError, match="no whole result"):
        decode_run(data[: int(share * (len(data) - 3))], "x")


def a_run(*outcomes: Outcome, kind: SuiteKind = SuiteKind.PATCHSET, **changes: Any) -> TestRun:
    tests = tuple(
        TestRow(str(number), one, None, 1.0, (), {}) for number, one in enumerate(outcomes)
    )
    suite = SuiteResult(kind, "p", "s", "v1.0.0", "t", None, 1.0, tests, **changes)
    return TestRun("0.1.0", "", (), "cpu", {}, {}, {}, (suite,))


@pytest.mark.parametrize(
    ("outcomes", "failed", "holds"),
    [
        ([Outcome.PASSED], False, True),
        ([Outcome.PASSED, Outcome.SKIPPED, Outcome.DESELECTED, Outcome.XFAILED], False, True),
        ([Outcome.PASSED, Outcome.FAILED], True, False),
        ([Outcome.PASSED, Outcome.ERROR], True, False),
        ([Outcome.PASSED, Outcome.ENVIRONMENT], False, False),
        ([], True, False),
        ([Outcome.SKIPPED, Outcome.DESELECTED], True, False),
    ],
)
def test_the_verdict(outcomes: list[Outcome], failed: bool, holds: bool) -> None:
    run = a_run(*outcomes)
    assert (run.failed, run.holds) == (failed, holds)


@pytest.mark.parametrize(
    ("outcome", "word", "bad"),
    [
        (Outcome.FAILED, "red", False),
        (Outcome.ERROR, "red by error", False),
        (Outcome.PASSED, "green", True),
        (Outcome.XPASSED, "green", True),
        (Outcome.SKIPPED, "unknown", True),
        (Outcome.ENVIRONMENT, "unknown", True),
        (Outcome.XFAILED, "unknown", True),
        (Outcome.DESELECTED, "left out", False),
    ],
)
def test_the_verdict_on_a_bare_pin(outcome: Outcome, word: str, bad: bool) -> None:
    run = a_run(Outcome.FAILED, outcome, kind=SuiteKind.RED)
    assert run.red_counts.get(word)
    assert run.failed is bad
    assert run.counts == {}, "nothing of a bare pin counts as a test of the stack"


def test_problems_beside_the_tests_count() -> None:
    assert a_run(Outcome.PASSED, problems=("the tests changed the tree",)).failed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"holds": false', b'"holds": true'),
        (b'"outcome": "failed"', b'"outcome": "passed"'),
        (b'"outcome": "failed"', b'"outcome": "fine"'),
        (b'"format": 1', b'"format": 2'),
        (b'"device"', b'"gadget"'),
    ],
)
def test_what_was_touched_up_is_refused(old: bytes, new: bytes) -> None:
    data = encode_run(a_run(Outcome.PASSED, Outcome.FAILED))
    assert old in data
    with pytest.raises(BadInputError, match="no whole result"):
        decode_run(data.replace(old, new), "x")


def test_reasons_name_no_folder_of_the_machine() -> None:
    places = [(Path("/home/x/project"), "PROJECT"), (Path("/home/x/project/tree"), "TREE")]
    rows = [
        TestRow("a", Outcome.FAILED, "in /home/x/project/tree/a.py of /home/x/project", 1, (), {}),
        TestRow("b", Outcome.FAILED, "x" * 1000, 1, (), {}),
        TestRow("c", Outcome.PASSED, None, 1, (), {}),
    ]
    found = [row.reason for row in neutral_rows(rows, places)]
    assert found[0] == "in TREE/a.py of PROJECT"
    assert found[1] is not None and len(found[1]) == 401
    assert found[2] is None
