"""One folder per case in placement_cases: where a hunk lands, or why it is refused.

``base`` is absent where the base is unknown; ``expected`` is there when the patch must apply.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
import yaml

from dsv4port.apply.hunk_result import HunkOutcome
from dsv4port.apply.hunks import apply_hunks
from dsv4port.patch.diff import parse_diff

CASES = sorted(
    path for path in (Path(__file__).parent / "placement_cases").iterdir() if path.is_dir()
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Path) -> None:
    expect = yaml.safe_load((case / "expect.yaml").read_text())
    files, _ = parse_diff((case / "patch.diff").read_bytes(), case.name)
    base = case / "base"
    result = apply_hunks(
        (case / "target").read_bytes(),
        files[0].hunks,
        path=files[0].path,
        base=base.read_bytes() if base.exists() else None,
    )
    reasons = " / ".join(hunk.reason for hunk in result.hunks)
    assert [hunk.outcome.value for hunk in result.hunks] == expect["outcomes"], reasons
    for reason in expect.get("reasons", []):
        assert reason in reasons
    for hunk, (old, new) in zip(result.hunks, expect.get("scopes", []), strict=False):
        assert hunk.old_scope is not None
        assert hunk.new_scope is not None
        assert (hunk.old_scope.name, hunk.new_scope.name) == (old, new)
    if result.content is None:
        assert not (case / "expected").exists(), reasons
        assert not all(hunk.outcome.applied for hunk in result.hunks)
        return
    expected = (case / "expected").read_bytes()
    if result.content != expected:
        found = difflib.unified_diff(
            expected.decode("latin-1").splitlines(),
            result.content.decode("latin-1").splitlines(),
            "expected",
            "found",
            lineterm="",
        )
        pytest.fail("\n".join(found), pytrace=False)


def test_every_outcome_has_a_case() -> None:
    outcomes = {
        outcome
        for case in CASES
        for outcome in yaml.safe_load((case / "expect.yaml").read_text())["outcomes"]
    }

    assert outcomes == {outcome.value for outcome in HunkOutcome}
