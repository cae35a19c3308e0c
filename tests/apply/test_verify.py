"""Every way in which a checkout can differ from its lock is found and named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.synthetic import SyntheticProject, git

from dsv4port.apply.installed import verify_installed
from dsv4port.apply.verify import Finding, Mismatch, VerifyReport, verify_checkout
from dsv4port.errors import BadInputError
from dsv4port.manifest.lock import load_lock
from dsv4port.manifest.project import Project


def verify(project: SyntheticProject, *, deep: bool = False) -> VerifyReport:
    return verify_checkout(Project(project.root), "demo", project.checkout, deep=deep)


def kinds(report: VerifyReport) -> set[tuple[Mismatch, str]]:
    return {(found.kind, found.subject) for found in report.findings}


def test_an_applied_stack_holds(applied: SyntheticProject) -> None:
    for deep in (False, True):
        report = verify(applied, deep=deep)
        assert report.holds, report.findings
        assert report.patches_checked == 4


def _replace_by_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("config.py")


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    ("name", "change", "kind"),
    [
        ("vllm/worker.py", lambda path: path.write_bytes(b"x\n"), Mismatch.CONTENT),
        ("vllm/__init__.py", lambda path: path.write_bytes(b"x\n"), Mismatch.CONTENT),
        ("vllm/worker.py", lambda path: path.unlink(), Mismatch.MISSING),
        ("README.md", lambda path: path.unlink(), Mismatch.MISSING),
        ("tools/check.sh", lambda path: path.chmod(0o644), Mismatch.MODE),
        ("vllm/worker.py", _replace_by_link, Mismatch.TYPE),
        ("vllm/more.py", lambda path: path.write_bytes(b""), Mismatch.EXTRA),
    ],
)
def test_a_changed_file_is_named(
    name: str,
    change: Callable[[Path], object],
    kind: Mismatch,
    deep: bool,
    applied: SyntheticProject,
) -> None:
    change(applied.checkout / name)
    assert kinds(verify(applied, deep=deep)) == {(kind, name)}


def test_a_finding_names_the_patches(applied: SyntheticProject) -> None:
    (applied.checkout / "csrc/scale.cu").write_bytes(b"x\n")
    [found] = verify(applied).findings
    assert [key.partition("/")[0] for key in found.patches] == ["alpha"]


def test_staged_only(applied: SyntheticProject) -> None:
    path = applied.checkout / "vllm/__init__.py"
    content = path.read_bytes()
    path.write_bytes(b"staged\n")
    git(applied.checkout, "add", "vllm/__init__.py")
    path.write_bytes(content)
    assert ("vllm/__init__.py") in {found.subject for found in verify(applied).findings}


def test_one_more_commit(applied: SyntheticProject) -> None:
    (applied.checkout / "vllm/__init__.py").write_bytes(b"x\n")
    git(applied.checkout, "commit", "-qam", "more")
    head = git(applied.checkout, "rev-parse", "HEAD")
    assert (Mismatch.HISTORY, head) in kinds(verify(applied))


def test_an_amended_message(applied: SyntheticProject) -> None:
    git(applied.checkout, "commit", "-q", "--amend", "-m", "other words")
    [found] = verify(applied).findings
    assert found.kind is Mismatch.HISTORY
    assert found.subject.startswith("beta/")


@pytest.mark.parametrize("deep", [False, True])
def test_an_edited_patch_file(deep: bool, applied: SyntheticProject) -> None:
    [patch] = (applied.root / "patchsets/beta/v1.0.0").glob("*.patch")
    patch.write_bytes(patch.read_bytes().replace(b"+    block_size = 32", b"+    block_size = 64"))
    found = kinds(verify(applied, deep=deep))
    assert (Mismatch.PATCH_FILE, f"beta/{patch.name}") in found


def test_an_edited_lock(applied: SyntheticProject) -> None:
    file = applied.root / "manifests/locks/demo.lock.yaml"
    tree = load_lock(Project(applied.root), "demo").tree
    other = "0" * 8 + tree[8:]
    file.write_text(file.read_text().replace(tree, other))
    report = verify(applied, deep=True)
    assert not report.holds
    assert Mismatch.REBUILT in {found.kind for found in report.findings}


def test_deep_looks_behind_the_stat_cache(applied: SyntheticProject) -> None:
    git(applied.checkout, "update-index", "--assume-unchanged", "vllm/__init__.py")
    (applied.checkout / "vllm/__init__.py").write_bytes(b"tampered\n")
    assert kinds(verify(applied, deep=True)) == {(Mismatch.CONTENT, "vllm/__init__.py")}


def test_a_rebase_under_way(applied: SyntheticProject) -> None:
    git(applied.checkout, "rebase", "-i", "HEAD~1", GIT_SEQUENCE_EDITOR="sed -i 1ibreak")
    assert Mismatch.OPERATION in {found.kind for found in verify(applied).findings}


@pytest.fixture
def installed(applied: SyntheticProject, tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    shutil.copytree(applied.checkout / "vllm", folder / "vllm")
    return folder


def check_installed(project: SyntheticProject, folder: Path) -> tuple[Finding, ...]:
    return verify_installed(load_lock(Project(project.root), "demo"), folder).findings


def test_an_installed_copy_holds(applied: SyntheticProject, installed: Path) -> None:
    assert check_installed(applied, installed) == ()


def test_an_installed_copy_that_differs(applied: SyntheticProject, installed: Path) -> None:
    (installed / "vllm/extra.py").unlink()
    (installed / "vllm/worker.py").write_bytes(b"x\n")
    (installed / "vllm/config.py").write_bytes(applied.trees["v1.0.0"]["vllm/config.py"])  # type: ignore[arg-type]
    found = {row.subject: row for row in check_installed(applied, installed)}
    assert {name: row.kind for name, row in found.items()} == {
        "vllm/extra.py": Mismatch.MISSING,
        "vllm/worker.py": Mismatch.CONTENT,
        "vllm/config.py": Mismatch.CONTENT,
    }
    assert "not patched" in found["vllm/config.py"].reason
    assert all(row.patches for row in found.values())


def test_an_installed_folder_without_the_package(applied: SyntheticProject, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="has no vllm"):
        check_installed(applied, tmp_path)
