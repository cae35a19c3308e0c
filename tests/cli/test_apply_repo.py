"""`apply --repo R --onto T --series DIR`: plumbing for scripts, on any git repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import (
    ALPHA,
    BETA,
    DEMO_FILES,
    NEXT_FILES,
    Change,
    SyntheticProject,
    after,
    git,
    make_patches,
    make_repository,
    tree_id,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    make_repository(tmp_path / "repository", DEMO_FILES)
    return tmp_path / "repository"


def write_series(folder: Path, *changes: Change) -> Path:
    folder.mkdir()
    for name, data in make_patches(DEMO_FILES, changes).items():
        (folder / name).write_bytes(data)
    return folder


def arguments(repository: Path, series: Path, onto: str = "HEAD") -> list[str]:
    return ["apply", "--repo", str(repository), "--onto", onto, "--series", str(series)]


def test_applies_without_any_project(
    demo: SyntheticProject, repository: Path, tmp_path: Path
) -> None:
    series = write_series(tmp_path / "series", *ALPHA, *BETA)
    before = git(repository, "rev-parse", "HEAD")
    result = demo.run(*arguments(repository, series), "--json", cwd=tmp_path)
    assert result.code == 0, result
    answer = result.json
    assert set(answer) == {
        "command", "format", "ok", "exit_code", "notices", "outcome", "patches", "tree",
        "commit", "base_tree", "base_commit",
    }  # fmt: skip
    assert answer["outcome"] == "exact"
    assert answer["tree"] == tree_id(after(DEMO_FILES, *ALPHA, *BETA))
    assert answer["base_commit"] == before
    assert answer["base_tree"] == tree_id(DEMO_FILES)
    assert [set(row) for row in answer["patches"]] == [
        {"file", "outcome", "tree", "commit", "hunks"}
    ] * 4
    assert {key for row in answer["patches"] for hunk in row["hunks"] for key in hunk} == {
        "file", "outcome", "old_scope", "new_scope", "reason", "old_line", "new_line",
    }  # fmt: skip
    # Objects only: no reference moved, no file changed.
    assert git(repository, "rev-parse", "HEAD") == before
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "rev-parse", f"{answer['commit']}^{{tree}}") == answer["tree"]


def test_human(demo: SyntheticProject, repository: Path, tmp_path: Path) -> None:
    series = write_series(tmp_path / "series", *ALPHA)
    result = demo.run(*arguments(repository, series))
    assert result.out.startswith("3 patches applied onto HEAD: 3 exact\ntree ")


def test_onto_a_bare_tree_and_a_bare_repository(
    demo: SyntheticProject, repository: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    series = write_series(tmp_path / "series", *ALPHA)
    answer = demo.run(*arguments(bare, series, onto=tree_id(DEMO_FILES)), "--json").json
    assert answer["tree"] == tree_id(after(DEMO_FILES, *ALPHA))


def test_offsets_are_told(demo: SyntheticProject, repository: Path, tmp_path: Path) -> None:
    series = write_series(tmp_path / "series", ALPHA[0])
    for path in ("vllm/worker.py",):
        content = NEXT_FILES[path]
        assert isinstance(content, bytes)
        (repository / path).write_bytes(content)
    git(repository, "commit", "--quiet", "--all", "--message", "next")
    result = demo.run(*arguments(repository, series), "--json")
    assert result.code == 0, result
    assert result.json["outcome"] == "offset"
    [hunk] = result.json["patches"][0]["hunks"]
    assert (hunk["outcome"], hunk["old_line"], hunk["new_line"]) == ("offset", 5, 9)
    assert hunk["old_scope"] == hunk["new_scope"] == "Worker.load"
    assert "line 5 is line 9 now" in demo.run(*arguments(repository, series)).out


def test_misplaced_names_both_scopes(
    demo: SyntheticProject, repository: Path, tmp_path: Path
) -> None:
    series = write_series(tmp_path / "series", ALPHA[0])
    worker = DEMO_FILES["vllm/worker.py"]
    assert isinstance(worker, bytes)
    # The method is gone from the class it was written for; its twin in the other class stays.
    start, end = worker.index(b"class Worker"), worker.index(b"class SpareWorker")
    (repository / "vllm" / "worker.py").write_bytes(worker[:start] + worker[end:])
    git(repository, "commit", "--quiet", "--all", "--message", "without Worker")
    result = demo.run(*arguments(repository, series))
    assert result.code == 3
    assert "(misplaced)" in result.err
    answer = demo.run(*arguments(repository, series), "--json").json
    assert (answer["outcome"], answer["exit_code"]) == ("misplaced", 3)
    [hunk] = answer["patches"][0]["hunks"]
    assert hunk["outcome"] == "misplaced"
    assert hunk["old_scope"] == "Worker.load"
    assert hunk["new_scope"] == "SpareWorker.load"
    assert hunk["new_line"] is None


def test_conflict(demo: SyntheticProject, repository: Path, tmp_path: Path) -> None:
    series = write_series(tmp_path / "series", *ALPHA, *BETA)
    (repository / "csrc" / "scale.cu").write_bytes(b"// nothing\n")
    git(repository, "commit", "--quiet", "--all", "--message", "gone")
    result = demo.run(*arguments(repository, series), "--json")
    assert result.code == 3
    answer = result.json
    assert answer["ok"] is False
    assert [row["outcome"] for row in answer["patches"]] == ["exact", "exact", "conflict"]
    assert answer["patches"][-1]["tree"] is None
    assert answer["tree"] == answer["patches"][1]["tree"]
    assert answer["error"]["kind"] == "SeriesConflict"


def test_file_that_is_refused_as_a_whole(
    demo: SyntheticProject, repository: Path, tmp_path: Path
) -> None:
    series = write_series(tmp_path / "series", ALPHA[1])
    (repository / "vllm" / "extra.py").write_text("already here\n")
    git(repository, "add", "vllm/extra.py")
    git(repository, "commit", "--quiet", "--message", "extra")
    answer = demo.run(*arguments(repository, series), "--json").json
    rows = {row["file"]: row for row in answer["patches"][0]["hunks"]}
    assert rows["vllm/extra.py"]["outcome"] not in ("exact", "offset")
    assert rows["vllm/extra.py"]["reason"]


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        (["--onto", "HEAD"], 2),
        (["--repo", ".", "--onto", "HEAD"], 2),
        (["--repo", ".", "--onto", "HEAD", "--series", ".", "demo"], 2),
        (["--repo", ".", "--onto", "HEAD", "--series", ".", "--force"], 2),
        (["--repo", ".", "--onto", "HEAD", "--series", ".", "--unlocked"], 2),
        (["--repo", "nowhere", "--onto", "HEAD", "--series", "."], 5),
        (["--repo", ".", "--onto", "nothing", "--series", "."], 5),
        (["--repo", ".", "--onto", "--help", "--series", "."], 5),
        (["--repo", ".", "--onto", "HEAD", "--series", "nowhere"], 5),
        (["--repo", "csrc", "--onto", "HEAD", "--series", "."], 5),
    ],
)
def test_wrong_input(demo: SyntheticProject, repository: Path, extra: list[str], code: int) -> None:
    result = demo.run("apply", *extra, cwd=repository)
    assert result.code == code, result
    assert result.err.startswith("error: ")


def test_malformed_patch_names_file_and_line(
    demo: SyntheticProject, repository: Path, tmp_path: Path
) -> None:
    series = write_series(tmp_path / "series", ALPHA[0])
    [patch] = series.iterdir()
    patch.write_bytes(patch.read_bytes().replace(b"@@ -5,", b"@@ -5,9"))
    result = demo.run(*arguments(repository, series))
    assert result.code == 5
    assert f"{patch.name}:" in result.err
    assert demo.run(*arguments(repository, series), "--json").json["error"]["kind"] == "PatchFormat"


@pytest.mark.parametrize(
    ("listing", "message"),
    [
        (b"# only a comment\n", ":1: names no patch"),
        (b"NAME\nNAME\n", ':2: names "NAME" again, after line 1'),
        (b"NAME -p0\n", ':1: has "-p0" after the file name'),
        (b"../NAME\n", ':1: "../NAME" is no name of a file in this folder'),
        (b"NAME\n\nother.patch\n", ':3: "other.patch" does not exist'),
        (b"NAME\r\n", ":1: has a carriage return"),
        (b"NAME\n# \xff\n", ":2: is not UTF-8"),
    ],
)
def test_a_series_file_is_read_as_strictly_as_a_patchset_s(
    listing: bytes, message: str, demo: SyntheticProject, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    make_repository(repository, DEMO_FILES)
    series = write_series(tmp_path / "series", ALPHA[0])
    [patch] = series.iterdir()
    (series / "series").write_bytes(listing.replace(b"NAME", patch.name.encode()))
    result = demo.run(*arguments(repository, series))
    assert result.code == 5, result
    assert message.replace("NAME", patch.name) in result.err
    assert "\n→ " in result.err


def test_a_series_file_may_leave_patches_out(demo: SyntheticProject, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    make_repository(repository, DEMO_FILES)
    series = write_series(tmp_path / "series", ALPHA[0])
    [patch] = series.iterdir()
    (series / "odd name.txt").write_bytes(patch.read_bytes())
    (series / "series").write_text("# the second one waits\n\n  odd name.txt\n")
    answer = demo.run(*arguments(repository, series), "--json").json
    assert [row["file"] for row in answer["patches"]] == ["odd name.txt"]
