"""`fetch`: from the command line to the cache."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.synthetic import DEMO_FILES, SyntheticProject, make_repository, pack_sdist, tree_id


def test_fetches_by_name_and_says_what_it_is(demo: SyntheticProject) -> None:
    result = demo.succeed("fetch", "v1.0.0")
    tree = tree_id(DEMO_FILES)
    assert result.out.startswith("v1.0.0  sdist  fetched  commit ")
    assert f"tree {tree[:12]} as recorded" in result.out
    again = demo.run("fetch", "v1.0.0", "--json").json
    assert again["cache"] == str(demo.cache)
    assert again["pruned"] is None
    [row] = again["pins"]
    assert row["tree"] == tree
    assert (row["pin"], row["source"], row["fetched"], row["recorded"]) == (
        "v1.0.0", "sdist", False, True,
    )  # fmt: skip


def test_the_commit_is_the_same_on_another_machine(
    demo: SyntheticProject, demo_template: SyntheticProject, tmp_path: Path
) -> None:
    other = demo_template.copy(tmp_path / "other")
    first = demo.run("fetch", "v1.0.0", "--json").json["pins"][0]["commit"]
    assert (
        other.run("fetch", "v1.0.0", "--json", TZ="Asia/Tokyo").json["pins"][0]["commit"] == first
    )


def test_all(demo: SyntheticProject) -> None:
    answer = demo.run("fetch", "--all", "--json").json
    assert [row["pin"] for row in answer["pins"]] == ["v1.0.0", "v1.1.0"]


def test_a_pin_is_fetched_once_when_named_twice(demo: SyntheticProject) -> None:
    assert len(demo.run("fetch", "v1.0.0", "v1.0.0", "--json").json["pins"]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no PIN was given"),
        (["v1.0.0", "--all"], "give PINs or --all, not both"),
        (["--all", "--from", "."], "--from needs exactly one PIN"),
        (["--all", "--unused", "3"], "--unused needs --prune"),
        (["--prune", "--unused", "-1"], "invalid value for '--unused'"),
        (["--source", "wheel", "v1.0.0"], "invalid value for '--source'"),
        (["--from", "nowhere", "v1.0.0"], "invalid value for '--from'"),
    ],
)
def test_usage(demo: SyntheticProject, arguments: list[str], message: str) -> None:
    result = demo.run("fetch", *arguments)
    assert result.code == 2
    assert message in result.err


def test_no_pin_lists_the_pins(demo: SyntheticProject) -> None:
    assert "→ name one of v1.0.0, v1.1.0, or use --all\n" in demo.run("fetch").err


def test_unknown_pin(demo: SyntheticProject) -> None:
    result = demo.run("fetch", "v1.0.00")
    assert result.code == 5
    assert "did you mean `v1.0.0`" in result.err


def test_from_an_archive_without_any_index(demo: SyntheticProject, tmp_path: Path) -> None:
    archive = demo.archives / "vllm-1.0.0.tar.gz"
    given = tmp_path / "given.tar.gz"
    archive.rename(given)
    result = demo.run("fetch", "v1.0.0", "--from", str(given), "--json")
    assert result.json["pins"][0]["tree"] == tree_id(DEMO_FILES)


def test_wrong_sha256(demo: SyntheticProject, tmp_path: Path) -> None:
    other = pack_sdist(tmp_path, "vllm", "1.0.0", {**DEMO_FILES, "evil.py": b"import os\n"})
    for arguments in (["--from", str(other)], []):
        if not arguments:
            (demo.archives / other.name).write_bytes(other.read_bytes())
        result = demo.run("fetch", "v1.0.0", *arguments)
        assert result.code == 5, result
        assert "sha256" in result.err
        assert "→ " in result.err
        answer = demo.run("fetch", "v1.0.0", *arguments, "--json").json
        assert answer["error"]["kind"] == "HashMismatch"
        assert answer["pins"] == []
    assert "in the cache" not in demo.run("list", "pins").out


def test_wrong_tree(demo: SyntheticProject) -> None:
    demo.pins["v1.0.0"]["sdist"]["tree"] = "1" * 40
    demo.write_pins()
    result = demo.run("fetch", "v1.0.0")
    assert result.code == 5
    assert "1" * 40 in result.err and tree_id(DEMO_FILES) in result.err


def test_no_network(demo: SyntheticProject) -> None:
    index = {
        "PIP_NO_INDEX": "0",
        "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
        "PIP_FIND_LINKS": "",
    }
    result = demo.run("fetch", "v1.0.0", **index)
    assert result.code == 6, result
    assert "127.0.0.1" in result.err
    assert "→ " in result.err
    answer = demo.run("fetch", "v1.0.0", "--json", **index).json
    assert answer["error"]["kind"] == "Network"


def test_a_failure_in_the_middle_tells_what_was_fetched(demo: SyntheticProject) -> None:
    (demo.archives / "vllm-1.1.0.tar.gz").unlink()
    result = demo.run("fetch", "--all", "--json")
    assert result.code == 6
    assert [row["pin"] for row in result.json["pins"]] == ["v1.0.0"]


def test_git_source_and_mirror(demo: SyntheticProject, tmp_path: Path) -> None:
    upstream = tmp_path / "upstream"
    commit = make_repository(upstream, DEMO_FILES)
    demo.pins["v1.0.0"]["git"] = {"url": "https://example.invalid/vllm.git", "commit": commit}
    demo.write_pins()
    result = demo.run("fetch", "v1.0.0", "--source", "git", "--mirror", upstream.as_uri(), "--json")
    [row] = result.json["pins"]
    assert (row["source"], row["commit"], row["tree"]) == ("git", commit, tree_id(DEMO_FILES))
    assert "git (in the cache)" in demo.run("list", "pins").out


def test_a_pin_without_the_source(demo: SyntheticProject) -> None:
    result = demo.run("fetch", "v1.0.0", "--source", "git")
    assert result.code == 5
    assert "has no git source" in result.err


def test_prune_keeps_what_another_project_may_need(locked: SyntheticProject) -> None:
    del locked.pins["v1.1.0"]
    locked.write_pins()
    result = locked.run("fetch", "--prune", "--json")
    assert result.code == 0
    answer = result.json
    assert answer["pins"] == []
    assert all(name.startswith("downloads/") for name in answer["pruned"]["removed"])
    assert answer["pruned"]["unused"] == ["pins/v1.1.0-sdist"]
    assert answer["pruned"]["busy"] == []
    again = locked.succeed("fetch", "--prune", "--unused", "1")
    assert again.out == (
        "pruned 0 entries, 0 B freed\n"
        "not of this project's pins; `--prune --unused DAYS` removes what is unused:\n"
        "  pins/v1.1.0-sdist\n"
    )


def test_prune_unused_removes_what_nobody_used(locked: SyntheticProject) -> None:
    del locked.pins["v1.1.0"]
    locked.write_pins()
    answer = locked.run("fetch", "--prune", "--unused", "0", "--json").json
    assert "pins/v1.1.0-sdist" in answer["pruned"]["removed"]
    assert answer["pruned"]["unused"] == []
    assert answer["pruned"]["freed"] > 0
    # What a checkout and the other pin need is there still.
    locked.succeed("apply", "demo")


def test_deep_repairs_a_damaged_cache(locked: SyntheticProject) -> None:
    [pack, *_] = sorted((locked.cache / "store.git" / "objects" / "pack").glob("*.pack"))
    pack.chmod(0o644)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0xFF
    pack.write_bytes(data)
    result = locked.run("fetch", "--all", "--deep", "--json")
    assert result.code == 0, result
    assert [row["fetched"] for row in result.json["pins"]].count(True) == 1
    assert any("importing" in notice for notice in result.json["notices"])
    assert not any(row["fetched"] for row in locked.run("fetch", "--all", "--json").json["pins"])


def test_waits_for_another_download_and_says_so(demo: SyntheticProject) -> None:
    lock = demo.cache / "locks" / "import-v1.0.0-sdist.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [sys.executable, "-m", "dsv4port", "fetch", "v1.0.0"],
            cwd=demo.root, env=demo.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        notice = process.stderr.readline()
        assert notice.startswith("note: waiting for another dsv4port that is importing v1.0.0")
        time.sleep(0.1)
        assert process.poll() is None
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.startswith("v1.0.0")


def test_interrupted(demo: SyntheticProject) -> None:
    lock = demo.cache / "locks" / "import-v1.0.0-sdist.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [sys.executable, "-m", "dsv4port", "fetch", "v1.0.0"],
            cwd=demo.root, env=demo.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline().startswith("note: waiting")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err == "error: interrupted\n→ run the command again to finish its work\n"


def test_cache_that_cannot_be_written_to(demo: SyntheticProject) -> None:
    demo.cache.write_text("a file is in the way")
    result = demo.run("fetch", "v1.0.0")
    assert result.code == 6
    assert "→ set DSV4PORT_CACHE" in result.err
