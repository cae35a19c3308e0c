"""Patch files follow the commits of the checkout, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.synthetic import Change, SyntheticProject, git, write_files

from dsv4port.apply.refresh import RefreshOutcome, RefreshReport, refresh_patchset
from dsv4port.errors import RefusedError, UsageError
from dsv4port.manifest.project import Project


def refresh(
    project: SyntheticProject, name: str = "alpha", *, drop: tuple[str, ...] = ()
) -> RefreshReport:
    return refresh_patchset(Project(project.root), name, project.checkout, drop=drop)


def files(project: SyntheticProject) -> dict[str, bytes]:
    folder = project.root / "patchsets"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def outcomes(report: RefreshReport) -> list[RefreshOutcome]:
    return [patch.outcome for patch in report.patches]


def series(project: SyntheticProject, name: str = "alpha") -> list[str]:
    return (project.root / "patchsets" / name / "v1.0.0" / "series").read_text().split()


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_nothing_to_do_changes_no_byte(name: str, applied: SyntheticProject) -> None:
    before = files(applied)
    report = refresh(applied, name)
    assert set(outcomes(report)) == {RefreshOutcome.KEPT}
    assert not report.written
    assert files(applied) == before


def test_an_amended_commit_rewrites_its_file_alone(applied: SyntheticProject) -> None:
    before = files(applied)
    write_files(applied.checkout, {"vllm/config.py": b"amended = True\n"})
    git(applied.checkout, "commit", "-qa", "--amend", "--no-edit")
    report = refresh(applied, "beta")
    assert outcomes(report) == [RefreshOutcome.REWRITTEN]
    now = files(applied)
    assert now.keys() == before.keys()
    [changed] = [name for name in now if now[name] != before[name]]
    assert changed.startswith("beta/v1.0.0/0001")
    assert b"+amended = True" in now[changed]


def test_a_rewritten_series_comes_out_as_the_checkout(applied: SyntheticProject) -> None:
    write_files(applied.checkout, {"vllm/config.py": b"amended = True\n"})
    git(applied.checkout, "commit", "-qa", "--amend", "--no-edit")
    tree = git(applied.checkout, "rev-parse", "HEAD^{tree}")
    refresh(applied, "beta")
    applied.succeed("lock", "demo")
    applied.succeed("apply", "demo", "--force")
    assert git(applied.checkout, "rev-parse", "HEAD^{tree}") == tree
    assert outcomes(refresh(applied, "beta")) == [RefreshOutcome.KEPT]


def test_a_new_commit_becomes_a_patch(applied: SyntheticProject) -> None:
    before = series(applied, "beta")
    write_files(applied.checkout, {"vllm/new.py": b"x = 1\n"})
    git(applied.checkout, "add", "vllm/new.py")
    git(applied.checkout, "commit", "-qm", "[Core] A new thing")
    assert outcomes(refresh(applied, "beta"))[-1] is RefreshOutcome.ADDED
    assert series(applied, "beta") == [*before, "0002-a-new-thing.patch"]


def test_a_dropped_commit_is_refused_without_drop(applied: SyntheticProject) -> None:
    before, names = files(applied), series(applied, "beta")
    git(applied.checkout, "reset", "-q", "--hard", "HEAD~1")
    with pytest.raises(RefusedError, match=names[0]):
        refresh(applied, "beta")
    assert files(applied) == before


def test_a_dropped_commit_goes_with_drop(applied: SyntheticProject) -> None:
    last = series(applied)[-1]
    git(applied.checkout, "reset", "-q", "--hard", "HEAD~2")
    assert outcomes(refresh(applied, drop=(last,)))[-1] is RefreshOutcome.DROPPED
    assert last not in series(applied)
    assert not (applied.root / "patchsets/alpha/v1.0.0" / last).exists()


@pytest.mark.parametrize("dry_run", [False, True])
def test_the_only_patch_cannot_be_dropped(dry_run: bool, applied: SyntheticProject) -> None:
    [only] = series(applied, "beta")
    git(applied.checkout, "reset", "-q", "--hard", "HEAD~1")
    before = files(applied)
    with pytest.raises(UsageError, match="beta would have no patch left") as caught:
        refresh_patchset(
            Project(applied.root), "beta", applied.checkout, drop=[only], dry_run=dry_run
        )
    assert files(applied) == before
    assert "patchset.yaml" in (caught.value.fix or "")
    assert caught.value.details == (f"without {only}",)


def test_the_last_patch_can_be_dropped_when_a_new_one_takes_its_place(
    applied: SyntheticProject,
) -> None:
    [only] = series(applied, "beta")
    git(applied.checkout, "reset", "-q", "--hard", "HEAD~1")
    write_files(applied.checkout, {"vllm/new.py": b"x = 1\n"})
    git(applied.checkout, "add", "vllm/new.py")
    git(
        applied.checkout, "commit", "-qm", "Another\n\nPatchset: beta\nPatch-File: 0007-other.patch"
    )
    report = refresh(applied, "beta", drop=(only,))
    assert RefreshOutcome.DROPPED in outcomes(report)
    assert series(applied, "beta") == ["0007-other.patch"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("0009-later.patch", "was applied without it"),
        ("nothing.patch", "it is not in the series"),
        ("0001-Core-Count-the-loads-of-a-worker.patch", "it still has its commit"),
    ],
)
def test_what_drop_cannot_do_is_refused(name: str, message: str, applied: SyntheticProject) -> None:
    folder: Path = applied.root / "patchsets/alpha/v1.0.0"
    (folder / "0009-later.patch").write_bytes((folder / series(applied)[0]).read_bytes())
    with (folder / "series").open("a") as listing:
        listing.write("0009-later.patch\n")
    lost = series(applied)[2]
    git(applied.checkout, "rebase", "-q", "--onto", "HEAD~2", "HEAD~1")
    before = files(applied)
    with pytest.raises(UsageError, match=f"cannot drop {name}: .*{message}") as caught:
        refresh(applied, drop=(lost, name))
    assert caught.value.fix
    assert files(applied) == before
    if name.startswith("0009"):
        assert caught.value.details == (f"can be dropped: {lost}",)


def test_an_entry_that_was_not_applied_stays(applied: SyntheticProject) -> None:
    folder: Path = applied.root / "patchsets/alpha/v1.0.0"
    data = (folder / series(applied)[0]).read_bytes()
    (folder / "0009-later.patch").write_bytes(data)
    with (folder / "series").open("a") as listing:
        listing.write("0009-later.patch\n")
    before = files(applied)
    assert outcomes(refresh(applied))[-1] is RefreshOutcome.NOT_APPLIED
    assert files(applied) == before


def test_uncommitted_changes_are_refused(applied: SyntheticProject) -> None:
    write_files(applied.checkout, {"vllm/config.py": b"x\n"})
    with pytest.raises(RefusedError, match="in no commit"):
        refresh(applied)


contents = st.lists(
    st.sampled_from(
        [b"a\n", b"b\r\n", b"\n", b"-- \n", b"diff --git a/x b/x\n", b"From x\n", b"\xff\n"]
    ),
    max_size=6,
).map(b"".join)
subjects = st.sampled_from(["[Core][DSV4] Änderung", "plain", "Re: [PATCH] not a mail", "x " * 60])
steps = st.lists(st.tuples(subjects, contents, st.booleans()), min_size=1, max_size=4)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=steps)
def test_commits_made_anew_say_what_the_files_say(
    steps: list[tuple[str, bytes, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Other committers give the commits other ids, so that every patch is rendered and compared."""
    project = SyntheticProject(tmp_path_factory.mktemp("generated"))
    project.add_pin("v1.0.0", {"vllm/a.txt": b"start\n", "vllm/b.txt": b"1\n2\n3\n4\n5\n"})
    changes = [
        Change(subject.strip(), {"vllm/a.txt": data + b"%d" % number + b"\n" * end})
        for number, (subject, data, end) in enumerate(steps)
    ]
    project.add_patchset("alpha", "v1.0.0", changes)
    project.add_stack("demo", "v1.0.0", ["alpha"])
    project.succeed("apply", "demo", "--unlocked")
    before = files(project)
    git(project.checkout, "rebase", "-q", "--force-rebase", f"HEAD~{len(steps)}")
    assert set(outcomes(refresh(project))) == {RefreshOutcome.KEPT}
    assert files(project) == before


def new_commit(project: SyntheticProject, content: str, *options: str) -> None:
    (project.checkout / "vllm/new.py").write_text(content)
    git(project.checkout, "add", "vllm/new.py")
    git(project.checkout, "commit", "--quiet", *options)


def test_a_new_commit_is_added_once(applied: SyntheticProject) -> None:
    new_commit(applied, "x = 1\n", "--message", "[Core] New one")
    applied.succeed("refresh", "beta")
    before = series(applied, "beta")
    assert before[-1] == "0002-new-one.patch"
    again = applied.run("refresh", "beta", "--json").json
    assert not again["written"]
    assert series(applied, "beta") == before
    applied.succeed("lock", "demo")
    applied.succeed("apply", "demo", "--force")
    applied.succeed("verify", "--deep")


def test_a_new_version_of_an_added_patch_is_asked_for(applied: SyntheticProject) -> None:
    new_commit(applied, "x = 1\n", "--message", "[Core] New one")
    applied.succeed("refresh", "beta")
    before = series(applied, "beta")
    new_commit(applied, "x = 2\n", "--amend", "--no-edit")
    refused = applied.run("refresh", "beta", "--json")
    assert refused.code == 4, refused
    assert "0002-new-one.patch" in refused.json["error"]["what"]
    assert series(applied, "beta") == before
    trailers = "Patchset: beta\nPatch-File: 0002-new-one.patch"
    new_commit(applied, "x = 2\n", "--amend", "-m", "[Core] New one", "-m", trailers)
    applied.succeed("refresh", "beta")
    assert series(applied, "beta") == before
    assert b"+x = 2" in (applied.root / "patchsets/beta/v1.0.0/0002-new-one.patch").read_bytes()


def test_what_a_kill_left_half_written_goes_with_the_next_refresh(
    applied: SyntheticProject,
) -> None:
    folder = applied.root / "patchsets/beta/v1.0.0"
    (folder / ".0001-x.patch.0123abcd.tmp").write_bytes(b"half")
    new_commit(applied, "x = 1\n", "--message", "[Core] New one")
    applied.succeed("refresh", "beta")
    assert not list(folder.glob(".*"))
