"""A series and a stack to other pins: what is written, what is said, what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.port_project import (
    BASE,
    EXTRA,
    GAMMA,
    GAMMA_FILES,
    LAST,
    NEVER,
    NEW_SERVER,
    NEXT,
    applied,
    by_name,
    files_below,
    port_project,
    ported,
    upstream_history,
)
from support.synthetic import Change, SyntheticProject, after, git

A, B, C, D, E, F = GAMMA_FILES


def test_each_patch_gets_the_outcome_that_it_must(project: SyntheticProject) -> None:
    result = project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift", "--json")
    assert result.code == 3, result
    answer = result.json
    assert answer["error"]["kind"] == "Conflict"
    assert answer["error"]["fix"].startswith(f"dsv4port resolve gamma {B} ")
    patches = by_name(answer["pins"][0])["gamma"]["patches"]
    assert {file: row["fate"] for file, row in patches.items()} == {
        A: "upstreamed", B: "conflict", C: "ported", D: "ported", E: "conflict", F: "ported",
    }  # fmt: skip
    assert patches[C]["outcome"] == "partly-upstreamed"
    assert [text.partition(":")[0] for text in patches[C]["upstream_parts"]] == [
        "vllm/client.py hunk 1"
    ]
    assert [text.partition(":")[0] for text in patches[C]["own_parts"]] == ["vllm/server.py hunk 1"]
    assert patches[E]["depends"] == [f"gamma/{B}"]
    assert patches[D]["outcome"] == "offset"


def test_series_is_written_and_applies_to_the_new_pin(project: SyntheticProject) -> None:
    project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift")
    folder = project.root / "patchsets" / "gamma" / "v2.0.0"
    assert (folder / "series").read_text() == f"{C}\n{D}\n{F}\n"
    assert sorted(path.name for path in folder.iterdir()) == [C, D, F, "series"]
    checkout = applied(project, ["gamma"], "v2.0.0")
    expected = NEW_SERVER.replace(b"LIMIT = 4", b"LIMIT = 8").replace(
        b"{server.port}: {state}", b"{server.port} is {state}"
    )
    assert (checkout / "vllm/server.py").read_bytes() == expected
    assert (checkout / "vllm/notes.txt").read_bytes() == b"zero\r\none\r\nzwei\r\nthree\r\nfour\r\n"
    assert (checkout / "vllm/client.py").read_bytes() == NEXT["vllm/client.py"]


def test_author_date_and_message_are_carried(project: SyntheticProject) -> None:
    project.add_patchset(
        "words", "v1.0.0",
        [
            Change(
                "[X][Y] Größer als …", {"vllm/notes.txt": b"one\r\ntwo\r\nthree\r\nvier\r\n"},
                body="Ein Satz.\n\nSigned-off-by: Zoë Müller <zoe@example.org>",
                author="Zoë Müller <zoe@example.org>", date="1767312000 -0730",
            )
        ],
    )  # fmt: skip
    project.succeed("port", "words", "--onto", "v2.0.0", "--no-drift")
    assert (applied(project, ["words"], "v2.0.0") / "vllm/notes.txt").read_bytes() == (
        b"zero\r\none\r\ntwo\r\nthree\r\nvier\r\n"
    )
    said = git(project.checkout, "log", "-1", "--format=%an|%ae|%ad|%s|%b", "--date=raw")
    assert said.startswith(
        "Zoë Müller|zoe@example.org|1767312000 -0730|[X][Y] Größer als …|Ein Satz.\n\nSigned-off-by"
    )


def test_patch_without_a_change_keeps_its_bytes(project: SyntheticProject) -> None:
    project.run("port", "delta", "--onto", "v2.0.0", "--no-drift")
    patchset = project.root / "patchsets" / "delta"
    for file in ("0001-G-A-new-file-on-top.patch", "series"):
        assert (patchset / "v2.0.0" / file).read_bytes() == (
            patchset / "v1.0.0" / file
        ).read_bytes()


def test_range_diff_is_gits(project: SyntheticProject) -> None:
    text = ported(project, "gamma")["gamma"]["range_diff"]
    lines = [line for line in text.splitlines() if line[:1].isdigit()]
    assert [line.split()[2] for line in lines] == ["<", "<", "!", "!", "<", "="]
    assert lines[2].endswith("[C] Say it in words, and strip")


def test_whole_upstreamed_patch_is_recorded_with_its_proof(project: SyntheticProject) -> None:
    before = json.loads((project.root / "patchsets/gamma/patchset.yaml").read_text())
    project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift")
    shown = project.succeed("show", "gamma", "--json").json["patchset"]
    assert shown["series"].keys() == {"v1.0.0", "v2.0.0"}
    import yaml

    after = yaml.safe_load((project.root / "patchsets/gamma/patchset.yaml").read_text())
    (row,) = after.pop("upstreamed")
    assert (row["pin"], row["patches"]) == ("v2.0.0", [A])
    assert row["proof"] == [
        "vllm/client.py hunk 1: upstream made the same change (line 7) (score 1.00)"
    ]
    after["series"].pop("v2.0.0")
    assert after == before


def test_patchset_that_is_upstream_as_a_whole_gets_no_series(project: SyntheticProject) -> None:
    project.add_patchset(
        "epsilon", "v1.0.0", [Change("Other", {"vllm/other.py": NEXT["vllm/other.py"]})]
    )
    row = ported(project, "epsilon")["epsilon"]
    assert row["series"]["state"] == "nothing"
    assert not (project.root / "patchsets/epsilon/v2.0.0").exists()
    project.add_stack("gone", "v2.0.0", ["epsilon"])
    result = project.run("lock", "gone")
    assert result.code == 5
    assert "upstream has the change since v2.0.0" in result.err


def test_dry_run_writes_nothing(project: SyntheticProject) -> None:
    before = files_below(project.root)
    cache = {path: path.stat().st_mtime_ns for path in (project.cache / "store.git").rglob("*")}
    result = project.run("port", "both", "--onto", "v2.0.0", "v3.0.0", "--no-drift", "--dry-run")
    assert result.code == 3
    assert files_below(project.root) == before
    assert not (project.root / ".dsv4port" / "port").exists()
    after = {path: path.stat().st_mtime_ns for path in (project.cache / "store.git").rglob("*")}
    assert after == cache


def test_second_port_finds_the_series_unchanged(project: SyntheticProject) -> None:
    project.run("port", "both", "--onto", "v2.0.0", "--no-drift")
    before = files_below(project.root)
    rows = ported(project, "both")
    assert {row["series"]["state"] for row in rows.values()} == {"unchanged"}
    assert files_below(project.root) == before


def test_other_series_is_refused_with_what_differs(project: SyntheticProject) -> None:
    project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift")
    folder = project.root / "patchsets/gamma/v2.0.0"
    mine = (folder / D).read_bytes().replace(b"Windows line", b"Another line")
    (folder / D).write_bytes(mine)
    (folder / F).unlink()
    (folder / "series").write_text(f"{C}\n{D}\n")
    before = files_below(project.root)
    result = project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift")
    assert result.code == 4, result
    assert f"{D}: differs" in result.err
    assert f"{F}: the port has it, it is not there" in result.err
    assert files_below(project.root) == before
    result = project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift", "--replace", "--json")
    assert result.code == 3
    series = by_name(result.json["pins"][0])["gamma"]["series"]
    assert series["state"] == "replaced"
    assert (project.root / series["aside"] / D).read_bytes() == mine
    assert (folder / "series").read_text() == f"{C}\n{D}\n{F}\n"


def test_folder_of_several_pins_is_not_replaced(project: SyntheticProject) -> None:
    manifest = project.root / "patchsets/delta/patchset.yaml"
    content = json.loads(manifest.read_text())
    content["series"]["v2.0.0"] = "v1.0.0"
    manifest.write_text(json.dumps(content, indent=1))
    project.add_patchset("delta2", "v1.0.0", [Change("N", {"vllm/n.py": b"N = 1\n"})])
    rows = ported(project, "delta")
    # The very same bytes: the shared folder serves the new pin, too.
    assert rows["delta"]["series"]["state"] == "unchanged"
    assert not (project.root / "patchsets/delta/v2.0.0").exists()


def test_stack_is_ported_in_order_and_its_file_is_offered(project: SyntheticProject) -> None:
    answer = project.run("port", "both", "--onto", "v2.0.0", "--no-drift", "--json").json
    offer = answer["pins"][0]["stack_file"]
    file = project.root / offer["file"]
    assert not file.exists()
    file.write_text(offer["text"])
    project.succeed("lock", file.stem)
    project.succeed("apply", file.stem)
    assert (project.checkout / "vllm/extra.py").read_bytes() == EXTRA


def test_several_pins_give_the_matrix(project: SyntheticProject) -> None:
    result = project.run(
        "port", "gamma", "--onto", "v2.0.0", "--onto", "v3.0.0", "--no-drift", "--dry-run", "--json"
    )
    rows = {
        row["patch"]: [cell["text"] for cell in row["cells"]] for row in result.json["matrix"]
    }  # fmt: skip
    assert rows[f"gamma/{A}"] == ["upstreamed", "upstreamed"]
    assert rows[f"gamma/{B}"] == ["conflict", "conflict"]
    assert rows[f"gamma/{C}"] == ["partly-upstreamed ?", "partly-upstreamed ?"]
    text = project.run("port", "gamma", "--onto", "v2.0.0", "v3.0.0", "--no-drift", "--dry-run")
    (line,) = [line for line in text.err.splitlines() if f"gamma/{D} " in line]
    assert line.split() == [f"gamma/{D}", "offset", "offset"]


def test_policy_refuses_a_rung(project: SyntheticProject) -> None:
    result = project.run(
        "port", "gamma", "--onto", "v2.0.0", "--no-drift", "--dry-run", "--policy", "offset=refuse",
        "--json",
    )  # fmt: skip
    patches = by_name(result.json["pins"][0])["gamma"]["patches"]
    assert patches[D]["fate"] == "conflict"
    assert "policy" in patches[D]["hunks"][0]["reason"]


def test_stop_at_first(project: SyntheticProject) -> None:
    result = project.run(
        "port", "gamma", "--onto", "v2.0.0", "--no-drift", "--dry-run", "--stop-at-first", "--json"
    )
    patches = by_name(result.json["pins"][0])["gamma"]["patches"]
    assert [row["fate"] for row in patches.values()] == [
        "upstreamed", "conflict", "not-tried", "not-tried", "not-tried", "not-tried",
    ]  # fmt: skip


def test_required_patchset_comes_along(project: SyntheticProject) -> None:
    project.add_patchset(
        "delta", "v1.0.0", [Change("[G] A new file on top", {"vllm/extra.py": EXTRA})],
        requires=[{"patchset": "gamma", "reason": "r", "breaks": "b"}],
    )  # fmt: skip
    rows = ported(project, "delta")
    assert rows["gamma"]["along"]
    assert rows["gamma"]["series"] is None
    assert not (project.root / "patchsets/gamma/v2.0.0").exists()
    assert (project.root / "patchsets/delta/v2.0.0/series").exists()


def test_required_patchset_with_a_series_counts_as_it_is(project: SyntheticProject) -> None:
    project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift")
    project.add_patchset(
        "zeta", "v1.0.0",
        [Change("[Z] Higher", {"vllm/server.py": LAST.replace(b"LIMIT = 8", b"LIMIT = 9")})],
        base=after(BASE, *GAMMA), requires=[{"patchset": "gamma", "reason": "r", "breaks": "b"}],
    )  # fmt: skip
    result = project.run("port", "zeta", "--onto", "v2.0.0", "--no-drift")
    assert result.code == 0, result
    checkout = applied(project, ["gamma", "zeta"], "v2.0.0")
    assert b"LIMIT = 9" in (checkout / "vllm/server.py").read_bytes()


def test_precondition_that_does_not_hold_is_told(tmp_path: Path) -> None:
    project = port_project(tmp_path, preconditions=NEVER)
    row = ported(project, "gamma")["gamma"]
    assert row["preconditions"] == [
        {"path": "vllm/util.py", "found": "the text is not there", "why": "delta calls it"}
    ]


SAFE = {"path": "vllm/server.py", "contains": "bool(port)"}
"""Upstream's change on v2.0.0."""


@pytest.mark.parametrize(
    ("row", "verdict", "warning"),
    [
        ({"pin": "v2.0.0", "fingerprint": SAFE}, "present", False),
        (
            {
                "pin": "v2.0.0", "fingerprint": SAFE,
                "companion": {"path": "vllm/server.py", "contains": "def guard"},
            },
            "unsafe", True,
        ),
        (
            {
                "pin": "v3.0.0", "fingerprint": SAFE,
                "companion": {"path": "vllm/other.py", "contains": "OTHER"},
            },
            "present", False,
        ),
        ({"pin": "v2.0.0", "fingerprint": {**SAFE, "contains": "nowhere"}}, "expected", True),
        ({"pin": "v3.0.0", "fingerprint": {**SAFE, "contains": "nowhere"}}, "absent", False),
        ({"pin": "v2.0.0", "prs": [7]}, "stated", False),
    ],
)  # fmt: skip
def test_what_the_manifest_says_of_upstream_is_checked(
    project: SyntheticProject, row: dict[str, object], verdict: str, warning: bool
) -> None:
    project.add_patchset(
        "eta", "v1.0.0", [Change("N", {"vllm/n.py": b"N = 1\n"})], upstreamed=[row]
    )
    result = project.run("port", "eta", "--onto", "v2.0.0", "--no-drift", "--dry-run", "--json")
    (check,) = by_name(result.json["pins"][0])["eta"]["upstreamed"]
    assert (check["verdict"], check["warning"]) == (verdict, warning)
    assert result.code == 0
    strict = project.run("port", "eta", "--onto", "v2.0.0", "--no-drift", "--dry-run", "--strict")
    assert strict.code == (1 if warning else 0)
    assert ("WARNING" in strict.out) == warning


def test_history_finds_pull_requests_and_the_breaking_commit(
    project: SyntheticProject, tmp_path: Path
) -> None:
    commits = upstream_history(tmp_path / "history")
    manifest = project.root / "patchsets/gamma/patchset.yaml"
    content = json.loads(manifest.read_text())
    content["upstreamed"] = [{"pin": "v2.0.0", "prs": [101, 999]}]
    manifest.write_text(json.dumps(content, indent=1))
    result = project.run(
        "port", "gamma", "--onto", "v2.0.0", "--no-drift", "--dry-run", "--json",
        "--history", str(tmp_path / "history"),
    )  # fmt: skip
    row = by_name(result.json["pins"][0])["gamma"]
    (check,) = row["upstreamed"]
    assert check["verdict"] == "merged"
    assert f"101 as {commits[2][:12]}" in check["text"]
    for file in (B, E):
        assert row["patches"][file]["breaking"] == {
            "commit": commits[3], "subject": "[Server] Open means a port (#102)",
        }  # fmt: skip
    assert row["patches"][C]["breaking"] is None


def test_drift_is_told_by_patch_and_changes_no_exit_code(project: SyntheticProject) -> None:
    result = project.run("port", "delta", "--onto", "v2.0.0", "--json")
    assert result.code == 0
    (patch,) = by_name(result.json["pins"][0])["delta"]["patches"].values()
    assert [(row["severity"], row["old"]) for row in patch["drift"]] == [
        ("error", "vllm/util.py:1")
    ]
    strict = ("port", "delta", "--from", "v1.0.0", "--onto", "v2.0.0", "--dry-run", "--strict")
    assert project.run(*strict).code == 1
    assert project.run(*strict, "--no-drift").code == 0


def test_default_is_the_nearest_series_without_conflicts(project: SyntheticProject) -> None:
    project.run("port", "both", "--onto", "v2.0.0", "--no-drift")
    pins = ("--onto", "v3.0.0", "--no-drift", "--dry-run", "--json")
    # Of gamma two patches are left out on v2.0.0: what is missing there must not get lost.
    assert project.run("port", "gamma", *pins).json["pins"][0]["from"] == "v1.0.0"
    assert project.run("port", "delta", *pins).json["pins"][0]["from"] == "v2.0.0"


def test_all_pins_of_one_run_are_ported_from_the_same_one(project: SyntheticProject) -> None:
    result = project.run("port", "delta", "--onto", "v2.0.0", "v3.0.0", "--no-drift", "--json")
    assert [pin["from"] for pin in result.json["pins"]] == ["v1.0.0", "v1.0.0"]


def test_refused_pin(project: SyntheticProject) -> None:
    project.add_patchset(
        "theta", "v1.0.0", [Change("N", {"vllm/n.py": b"N = 1\n"})],
        refused={"v2.0.0": "it breaks the server"},
    )  # fmt: skip
    result = project.run("port", "theta", "--onto", "v2.0.0", "--no-drift")
    assert result.code == 5
    assert "it breaks the server" in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["nothing", "--onto", "v2.0.0"], 5, "no patchset or stack"),
        (["gamma", "--onto", "v9.0.0"], 5, "v9.0.0"),
        (["gamma"], 2, "--onto"),
        (["gamma", "--onto", "v1.0.0", "--from", "v1.0.0"], 2, "already"),
        (["gamma", "--onto", "v2.0.0", "--policy", "offset=maybe"], 2, "RUNG=DECISION"),
        (["gamma", "--onto", "v2.0.0", "--repo", ".", "--dry-run"], 2, "for series"),
    ],
)
def test_usage(project: SyntheticProject, arguments: list[str], code: int, text: str) -> None:
    result = project.run("port", *arguments)
    assert result.code == code
    assert text in result.err


def test_series_that_does_not_apply_to_its_own_pin(project: SyntheticProject) -> None:
    patch = project.root / "patchsets/gamma/v1.0.0" / F
    patch.write_bytes(patch.read_bytes().replace(b"-LIMIT = 4", b"-LIMIT = 5"))
    result = project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift")
    assert result.code == 3
    assert f"gamma/{F} does not apply" in result.err
    assert not (project.root / "patchsets/gamma/v2.0.0").exists()


STEPS = ("port-staged", "port-journal-written", "port-one-moved", "port-all-moved")


@pytest.mark.parametrize("step", STEPS)
def test_kill_leaves_the_old_state_or_one_that_is_finished(
    project: SyntheticProject, step: str
) -> None:
    whole = project.copy(project.base.parent / "whole")
    whole.run("port", "both", "--onto", "v2.0.0", "--no-drift")
    before, after = files_below(project.root), files_below(whole.root)
    killed = project.run(
        "port", "both", "--onto", "v2.0.0", "--no-drift", DSV4PORT_TEST_STOP_AT=step
    )
    assert killed.code == -9
    if step == "port-staged":
        assert files_below(project.root) == before
    assert project.run("list").code == 0
    journal = project.root / ".dsv4port/port/journal.json"
    assert journal.exists() == (step != "port-staged")
    if journal.exists():
        assert project.run("port", "both", "--onto", "v2.0.0", "--dry-run").code == 4
    again = project.run("port", "both", "--onto", "v2.0.0", "--no-drift")
    assert again.code == 3
    assert ("interrupted port" in again.err) == (step != "port-staged")
    assert files_below(project.root) == after
    assert not journal.exists()


def test_manifest_that_was_edited_after_a_kill_is_kept_aside(project: SyntheticProject) -> None:
    project.run(
        "port", "delta", "--onto", "v2.0.0", "--no-drift",
        DSV4PORT_TEST_STOP_AT="port-journal-written",
    )  # fmt: skip
    manifest = project.root / "patchsets/delta/patchset.yaml"
    mine = manifest.read_text().replace("To try delta.", "To try delta twice.")
    manifest.write_text(mine)
    assert project.run("resolve", "--status").code == 0
    kept = list((project.root / ".dsv4port/port/replaced").rglob("patchset.yaml"))
    assert [path.read_text() for path in kept] == [mine]


def test_only_one_writes_at_a_time(project: SyntheticProject) -> None:
    import fcntl

    lock = project.root / ".dsv4port" / "lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{os.getpid()}\n")
        file.flush()
        assert project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift").code == 4
        assert project.run("port", "gamma", "--onto", "v2.0.0", "--dry-run").code == 3
