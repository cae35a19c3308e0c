"""Series and upstream rows get into a manifest without touching anything else of it."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dsv4port.manifest.edit import add_series, add_upstreamed
from dsv4port.manifest.patchset import Upstreamed
from dsv4port.manifest.values import Name

PINS = ["v1.0.0", "v1.1.0", "v2.0.0", "v3.0.0"]

BLOCK = """\
# A comment on top.
format: 1
name: alpha   # its name
why: >-
  Some text
  over lines.

series:
  v1.0.0: v1.0.0  # the first
  # The last one so far.
  v2.0.0: v2.0.0

# Below.
hazards: []
"""


def test_entry_goes_where_the_release_stands() -> None:
    text = add_series(BLOCK, "v1.1.0", "v1.1.0", PINS)
    assert text == BLOCK.replace("# the first\n", "# the first\n  v1.1.0: v1.1.0\n")
    text = add_series(BLOCK, "v3.0.0", "other", PINS)
    assert text == BLOCK.replace("  v2.0.0: v2.0.0\n", "  v2.0.0: v2.0.0\n  v3.0.0: other\n")


def test_entry_that_is_there_stays_or_changes_its_folder() -> None:
    assert add_series(BLOCK, "v2.0.0", "v2.0.0", PINS) == BLOCK
    text = add_series(BLOCK, "v1.0.0", "mine", PINS)
    assert text == BLOCK.replace("v1.0.0: v1.0.0", "v1.0.0: mine")
    empty = BLOCK.replace("v2.0.0: v2.0.0", "v2.0.0:")
    assert add_series(empty, "v2.0.0", "v2.0.0", PINS) == empty
    assert "  v2.0.0: mine\n" in add_series(empty, "v2.0.0", "mine", PINS)
    assert "  v2.0.0:\n  v3.0.0: v3.0.0\n" in add_series(empty, "v3.0.0", "v3.0.0", PINS)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("series: {v1.0.0: a}\n", "series: {v1.0.0: a, v2.0.0: b}\n"),
        ('{"series": {"v1.0.0": "a"}}', '{"series": {"v1.0.0": "a", "v2.0.0": "b"}}'),
        (
            '{\n "series": {\n  "v1.0.0": "a"\n }\n}\n',
            '{\n "series": {\n  "v1.0.0": "a",\n  "v2.0.0": "b"\n }\n}\n',
        ),
        ("series:\n    v1.0.0: a", "series:\n    v1.0.0: a\n    v2.0.0: b\n"),
        ("series:\n  v3.0.0: c\n", "series:\n  v3.0.0: c\n  v2.0.0: b\n"),
    ],
)
def test_other_spellings(before: str, after: str) -> None:
    assert add_series(before, "v2.0.0", "b", PINS) == after


ROW = Upstreamed(Name("v2.0.0"), patches=("0001-a.patch",), proof=("x: it's there", "y: #2"))
READ = {"pin": "v2.0.0", "patches": ["0001-a.patch"], "proof": ["x: it's there", "y: #2"]}

UPSTREAMED = """\
upstreamed:
  - pin: v1.0.0
    proof:
      - |
        one
        two

  # Between.
hazards: []
"""


@pytest.mark.parametrize(
    "text",
    [
        BLOCK,
        BLOCK.rstrip("\n"),
        BLOCK + UPSTREAMED.partition("hazards")[0],
        UPSTREAMED,
        "upstreamed: [{pin: v1.0.0}]\nformat: 1\n",
        "upstreamed:\n- pin: v1.0.0\nformat: 1\n",
        '{"format": 1}',
        '{\n "format": 1\n}\n',
    ],
)
def test_upstream_row_is_added_and_the_rest_stays(text: str) -> None:
    before = yaml.safe_load(text)
    after_text = add_upstreamed(text, ROW)
    after = yaml.safe_load(after_text)
    rows = after.pop("upstreamed")
    assert rows == [*before.pop("upstreamed", []), READ]
    assert after == before
    # What was there stands around one insertion.
    pairs = enumerate(zip(text, after_text, strict=False))
    common = next((at for at, (old, new) in pairs if old != new), len(text))
    assert after_text.endswith((text[common:], text[common:] + "\n"))


@given(
    st.lists(st.sampled_from(["a", "b c", "x: y", "- z", "#", "'", '"', "ü", "null", "1.0"])),
    st.booleans(),
)
def test_any_proof_reads_back(words: list[str], block: bool) -> None:
    text = "format: 1\n" if block else '{"format": 1}'
    row = Upstreamed(Name("v1.0.0"), proof=(" ".join(words) or "x",))
    assert yaml.safe_load(add_upstreamed(text, row))["upstreamed"] == [
        {"pin": "v1.0.0", "proof": [row.proof[0]]}
    ]
