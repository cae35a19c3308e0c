"""Patch files worth keeping: ``cases/<name>/in.patch`` and what must become of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dsv4port.errors import BadInputError
from dsv4port.patch.mailbox import parse_patch
from dsv4port.patch.model import FilePatch
from dsv4port.patch.quote import display_path
from dsv4port.patch.write import patch_to_bytes

CASES = Path(__file__).parent / "cases"


def _mode(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:o}"


def _summary(file: FilePatch) -> dict[str, Any]:
    """What a file patch says, without what it does not say."""
    summary = {
        "change": file.change.value,
        "old": None if file.old_path is None else display_path(file.old_path),
        "new": None if file.new_path is None else display_path(file.new_path),
        "old_mode": _mode(file.old_mode),
        "new_mode": _mode(file.new_mode),
        "hunks": len(file.hunks),
        "removed": sum(hunk.kinds.count(b"-") for hunk in file.hunks),
        "added": sum(hunk.kinds.count(b"+") for hunk in file.hunks),
        "binary": file.binary is not None and file.binary.forward.method.value,
        "old_end": b"".join(line for hunk in file.hunks for line in hunk.old_lines)[-4:].hex(),
        "new_end": b"".join(line for hunk in file.hunks for line in hunk.new_lines)[-4:].hex(),
    }
    return {key: value for key, value in summary.items() if value}


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir()))
def test_case(case: str) -> None:
    data = (CASES / case / "in.patch").read_bytes()
    expected = yaml.safe_load((CASES / case / "expect.yaml").read_text("utf-8"))
    if "error" in expected:
        with pytest.raises(BadInputError) as caught:
            parse_patch(data, "in.patch")
        assert [caught.value.kind, caught.value.what] == [expected["error"], expected["what"]]
        assert caught.value.fix
        return
    patch = parse_patch(data, "in.patch")
    assert patch_to_bytes(patch) == data
    assert [_summary(file) for file in patch.files] == expected["files"]
    assert patch.trailer.decode() == expected.get("trailer", "")
    author = None if patch.author is None else patch.author.encode().decode("utf-8")
    assert author == expected.get("author")
    message = None if patch.message is None else patch.message.decode("utf-8")
    assert message == expected.get("message")
