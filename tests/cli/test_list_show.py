"""`list` and `show`: what the manifests say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.synthetic import Change, Executable, SyntheticProject, make_patches

BETA_PATCH = "beta/0001-Bugfix-DSV4-Gr-ere-Bl-cke.patch"


def test_list(locked: SyntheticProject) -> None:
    result = locked.succeed("list")
    assert result.out == (
        "pins:\n"
        "  v1.0.0  sdist (in the cache)\n"
        "  v1.1.0  sdist (in the cache)\n"
        "\n"
        "patchsets:\n"
        "  alpha  v1.0.0  Patchset alpha\n"
        "  beta   v1.0.0  Patchset beta\n"
        "\n"
        "stacks:\n"
        "  demo  v1.0.0  locked  alpha, beta  Stack demo\n"
    )
    answer = locked.run("list", "--json").json
    assert [row["name"] for row in answer["pins"]] == ["v1.0.0", "v1.1.0"]
    assert answer["patchsets"][1] == {"name": "beta", "title": "Patchset beta", "pins": ["v1.0.0"]}
    assert answer["stacks"][0]["locked"] is True


@pytest.mark.parametrize("section", ["pins", "patchsets", "stacks"])
def test_list_one_section(demo: SyntheticProject, section: str) -> None:
    assert demo.succeed("list", section).out.startswith(f"{section}:\n")
    answer = demo.run("list", section, "--json").json
    assert {"pins", "patchsets", "stacks"} & set(answer) == {section}


def test_list_nothing_there(demo: SyntheticProject) -> None:
    import shutil

    shutil.rmtree(demo.root / "patchsets")
    shutil.rmtree(demo.root / "manifests" / "stacks")
    assert demo.succeed("list").out.endswith("\npatchsets: none\n\nstacks: none\n")


def test_list_section_that_is_none(demo: SyntheticProject) -> None:
    assert demo.run("list", "patches").code == 2


def test_show_pin(locked: SyntheticProject) -> None:
    answer = locked.run("show", "v1.0.0", "--json").json
    assert answer["kind"] == "pin"
    assert answer["pin"]["sdist"]["sha256"] == locked.pins["v1.0.0"]["sdist"]["sha256"]
    assert len(answer["pin"]["sdist"]["cached"]) == 40
    text = locked.succeed("show", "v1.0.0").out
    assert locked.pins["v1.0.0"]["sdist"]["tree"] in text


def test_show_stack(locked: SyntheticProject) -> None:
    answer = locked.run("show", "demo", "--json").json
    assert answer["kind"] == "stack"
    assert len(answer["stack"]["patches"]) == 4
    assert answer["stack"]["lock"]["files"] == 5
    assert "5 files touched" in locked.succeed("show", "demo").out


def test_show_stack_without_lock(demo: SyntheticProject) -> None:
    assert demo.run("show", "demo", "--json").json["stack"]["lock"] is None


@pytest.fixture
def full(demo: SyntheticProject) -> SyntheticProject:
    """A patchset that uses every key of a manifest."""
    manifest: dict[str, Any] = {
        "why": "Because " + "it is long, " * 20,
        "origin": {
            "written": "adapted", "seed": "the seed", "prs": [12, "https://example.org/pr/3"],
            "author": "Ada", "note": "a note on it",
        },
        "requires": [{"patchset": "alpha", "reason": "r1", "breaks": "b1"}],
        "conflicts": [{"patchset": "delta", "reason": "r2", "breaks": "b2"}],
        "companions": [{"patchset": "beta", "reason": "r3", "breaks": "b3"}],
        "preconditions": [
            {"path": "vllm/config.py", "contains": "MAX_BATCH  = 64", "why": "w1"},
            {"path": "vllm/none.py", "absent": True, "why": "w2"},
        ],
        "upstreamed": [{"pin": "v1.1.0", "prs": [77]}],
        "hazards": [{"condition": "c1", "effect": "e1", "evidence": "v1"}],
        "guard": {
            "name": "the guard", "module": "vllm/g.py", "summary": "s1", "fields": {"f1": "m1"},
        },
        "tests": [],
        "upstream_tests": ["tests/test_up.py"],
        "not_run": [{"what": "n1", "why": "n2"}],
        "excluded": [{"item": "i1", "reason": "x1"}],
        "refused": {"v1.1.0": "z1"},
    }  # fmt: skip
    demo.add_patchset("gamma", "v1.0.0", [Change("Add", {"g.py": b"x\n"})], **manifest)
    return demo


def test_show_patchset_shows_the_whole_manifest(full: SyntheticProject) -> None:
    text = full.succeed("show", "gamma").out
    flat = " ".join(text.split())
    for part in (
        "patchset gamma: Patchset gamma", "adapted; author Ada; asked for by the seed",
        "PR #12, https://example.org/pr/3; a note on it", "alpha: r1; without it: b1",
        "delta: r2; together: b2", "beta: r3; without it: b3", "on v1.1.0: z1",
        "vllm/none.py is not there: w2", "since v1.1.0 PR #77", "when c1: e1 (v1)",
        "the guard in vllm/g.py: s1", "f1: m1", "tests/test_up.py", "n1: n2", "i1: x1",
        "v1.0.0: 1 patch 0001-Add.patch",
    ):  # fmt: skip
        assert part in flat, part
    assert "\n      'MAX_BATCH  = 64'\n" in text
    assert max(map(len, text.splitlines())) <= 100


def test_show_patchset_json_has_every_key(full: SyntheticProject) -> None:
    from dataclasses import fields

    from dsv4port.manifest.patchset import Patchset

    answer = full.run("show", "gamma", "--json").json
    shown = answer["patchset"]
    assert {field.name for field in fields(Patchset)} | {"folder"} == set(shown)
    assert shown["series"] == {"v1.0.0": ["0001-Add.patch"]}
    assert shown["hazards"] == [{"condition": "c1", "effect": "e1", "evidence": "v1"}]
    assert shown["excluded"] == [{"item": "i1", "reason": "x1"}]
    assert shown["not_run"] == [{"what": "n1", "why": "n2"}]
    assert shown["guard"]["fields"] == [["f1", "m1"]]
    assert shown["origin"]["written"] == "adapted"


def test_show_patch(demo: SyntheticProject) -> None:
    result = demo.succeed("show", BETA_PATCH)
    assert "  author    Zoë Müller <zoe@example.org>\n" in result.out
    assert "  date      2026-01-01T16:30:00-07:30\n" in result.out
    assert "  subject   [Bugfix][DSV4] Größere Blöcke\n" in result.out
    assert "  modify  +1 -1  vllm/config.py\n" in result.out
    answer = demo.run("show", BETA_PATCH, "--json").json
    patch = answer["patch"]
    assert answer["kind"] == "patch"
    assert (patch["patchset"], patch["pin"]) == ("beta", "v1.0.0")
    assert patch["files"] == [
        {"path": "vllm/config.py", "old_path": "vllm/config.py", "change": "modify",
         "old_mode": "100644", "new_mode": "100644", "hunks": 1, "added": 1, "removed": 1,
         "binary": False}
    ]  # fmt: skip


def test_show_patch_by_other_names(demo: SyntheticProject) -> None:
    expected = demo.succeed("show", BETA_PATCH)
    assert demo.run("show", BETA_PATCH.removesuffix(".patch")) == expected
    assert demo.run("show", BETA_PATCH.replace("/", "/v1.0.0/")) == expected


def test_show_patch_of_every_kind(demo: SyntheticProject) -> None:
    changes = [
        Change("All", {
            "tools/run.sh": b"#!/bin/sh\nexec python -m vllm\n",
            "vllm/data.bin": bytes(range(255, -1, -1)),
            "vllm/worker.py": None,
            "vllm/moved.py": demo.trees["v1.0.0"]["vllm/worker.py"],
            "b\tad\u202e.py": Executable(b"x\n"),
            "PKG-INFO": None,
        }),
    ]  # fmt: skip
    [file] = demo.add_patchset("gamma", "v1.0.0", changes)
    rows = {
        row["path"]: row
        for row in demo.run("show", f"gamma/{file}", "--json").json["patch"]["files"]
    }
    assert (rows["tools/run.sh"]["old_mode"], rows["tools/run.sh"]["new_mode"]) == (
        "100755",
        "100644",
    )
    assert rows["vllm/data.bin"]["binary"] is True
    assert rows["vllm/moved.py"]["change"] == "rename"
    assert rows["vllm/moved.py"]["old_path"] == "vllm/worker.py"
    assert rows["PKG-INFO"]["change"] == "delete"
    text = demo.succeed("show", f"gamma/{file}").out
    assert "vllm/worker.py → vllm/moved.py" in text
    assert "mode 100755 → 100644" in text
    assert "\u202e" not in text and "\\342\\200\\256" in text


def test_show_patch_that_several_pins_have(demo: SyntheticProject) -> None:
    folder = demo.root / "patchsets" / "beta"
    manifest = folder / "patchset.yaml"
    manifest.write_text(
        manifest.read_text().replace('"v1.0.0": "v1.0.0"', '"v1.0.0": "v1.0.0", "v1.1.0": "v1.1.0"')
    )
    demo.write_series(
        "beta",
        "v1.1.0",
        {Path(BETA_PATCH).name: (folder / "v1.0.0" / Path(BETA_PATCH).name).read_bytes()},
    )
    result = demo.run("show", BETA_PATCH)
    assert result.code == 2
    assert f"→ name it as {BETA_PATCH.replace('/', '/v1.0.0/')}\n" in result.err
    answer = demo.run("show", BETA_PATCH.replace("/", "/v1.1.0/"), "--json").json
    assert answer["patch"]["pin"] == "v1.1.0"


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("demos", 5, "did you mean `demo`?"),
        ("alpha/0009-none.patch", 5, "has no patch"),
        ("alpha/v9/0001-x.patch", 5, "has no series"),
        ("nope/0001-x.patch", 5, "there is no patchset"),
        ("a/b/c/d", 2, "a patch is named"),
        ("../demo", 5, ""),
    ],
)
def test_show_unknown(demo: SyntheticProject, name: str, code: int, message: str) -> None:
    result = demo.run("show", name)
    assert result.code == code, result
    assert message in result.err


def test_show_a_name_of_several_things(demo: SyntheticProject) -> None:
    demo.add_stack("alpha", "v1.0.0", ["alpha"])
    result = demo.run("show", "alpha")
    assert result.code == 2
    assert "→ say which with --kind stack\n" in result.err
    assert demo.run("show", "alpha", "--kind", "stack", "--json").json["kind"] == "stack"
    assert demo.run("show", "alpha", "--kind", "patchset", "--json").json["kind"] == "patchset"


def test_show_malformed_patch(demo: SyntheticProject) -> None:
    patch = demo.root / "patchsets" / "beta" / "v1.0.0" / Path(BETA_PATCH).name
    patch.write_bytes(
        patch.read_bytes().replace(b"@@ -4,", b"@@ -4,9").replace(b"@@ -5,", b"@@ -5,9")
    )
    result = demo.run("show", BETA_PATCH)
    assert result.code == 5, result
    assert f"error: patchsets/beta/v1.0.0/{patch.name}:" in result.err


def test_make_patches_keeps_the_subject() -> None:
    patches = make_patches({"a": b"a\n"}, [Change("[A][B] c", {"a": b"b\n"})])
    assert list(patches) == ["0001-A-B-c.patch"]
    assert b"Subject: [A][B] c\n" in patches["0001-A-B-c.patch"]
