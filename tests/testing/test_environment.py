"""Test environments: made once, whole or not at all, from files that state every version."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.synthetic import SOURCE_ROOT

from dsv4port.errors import BadInputError, EnvironmentProblemError, NetworkError
from dsv4port.manifest.pins import load_pins
from dsv4port.manifest.project import Project
from dsv4port.testing.environment import (
    STAMP,
    TestEnvironment,
    ensure_environment,
    given_environment,
)
from dsv4port.testing.requirements import requirements_for
from dsv4port.upstream.cache import Cache

PIN = "v1.0.0"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose environment has one tiny package, from a folder instead of an index."""
    root = tmp_path / "project"
    (root / "manifests" / "environments").mkdir(parents=True)
    (root / "manifests" / "environments" / f"{PIN}.txt").write_text("tiny==1.0\n")
    make_wheel(tmp_path / "wheels")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return Project(root)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def make_wheel(folder: Path, *, data: int = 0) -> None:
    """A wheel of the package `tiny`, with so many bytes of data beside its one module."""
    folder.mkdir()
    files = {
        **({"tiny.bin": "x" * data} if data else {}),
        "tiny.py": "ANSWER = 42\n",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        rows = []
        for name, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
            rows.append(f"{name},sha256={digest.decode()},{len(text)}")
            wheel.writestr(name, text)
        wheel.writestr(
            "tiny-1.0.dist-info/RECORD", "\n".join([*rows, "tiny-1.0.dist-info/RECORD,,"])
        )


def ask(environment: TestEnvironment, code: str) -> str:
    done = subprocess.run(
        [str(environment.interpreter), "-I", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def builds(cache: Cache) -> list[Path]:
    return sorted((cache.folder / "environments" / "builds").iterdir())


def test_made_once_used_again_and_made_anew_when_damaged(
    project: Project, cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Settings that would send packages elsewhere.
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    first = ensure_environment(project, PIN, cache)
    assert first.made and first.packages["tiny"] == "1.0"
    assert ask(first, "import tiny; print(tiny.ANSWER)") == "42"
    assert ask(first, "import site; print(site.ENABLE_USER_SITE)") == "False"
    assert not (tmp_path / "elsewhere").exists()
    again = ensure_environment(project, PIN, cache)
    assert not again.made
    assert (again.key, again.packages) == (first.key, first.packages)
    (folder,) = builds(cache)
    packages = next(folder.glob("lib/python3*/site-packages"))
    for file in packages.glob("tiny-1.0.dist-info/*"):
        file.unlink()
    (packages / "tiny-1.0.dist-info").rmdir()
    anew = ensure_environment(project, PIN, cache)
    assert anew.made and anew.packages == first.packages
    assert len(builds(cache)) == 1 and builds(cache) != [folder], "the damaged one is gone"


def test_an_unfinished_build_is_no_environment(project: Project, cache: Cache) -> None:
    key = requirements_for(project, PIN).key
    half = cache.folder / "environments" / "builds" / f"{key}.half"
    (half / "bin").mkdir(parents=True)
    (half / "bin" / "python").symlink_to(sys.executable)
    (cache.folder / "environments" / key).symlink_to(Path("builds") / half.name)
    made = ensure_environment(project, PIN, cache)
    assert made.made and made.packages["tiny"] == "1.0"
    assert not half.exists()
    stamp = json.loads((made.interpreter.parent.parent / STAMP).read_text())
    assert stamp["packages"] == made.packages


@pytest.mark.parametrize(
    ("setting", "value", "error", "words"),
    [
        ("PIP_FIND_LINKS", "", BadInputError, "not to be had"),
        ("PIP_INDEX_URL", "http://127.0.0.1:9/simple", NetworkError, "no package index"),
    ],
)
def test_a_failure_leaves_nothing_half_made(
    project: Project, cache: Cache, monkeypatch: pytest.MonkeyPatch,
    setting: str, value: str, error: type[Exception], words: str,
) -> None:  # fmt: skip
    if setting == "PIP_INDEX_URL":
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        # pip tells of a broken connection when it tries again.
        monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv(setting, value)
    with pytest.raises(error, match=words) as raised:
        ensure_environment(project, PIN, cache)
    assert getattr(raised.value, "fix", None)
    assert builds(cache) == []


def test_a_full_disk_is_named(
    project: Project, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on the size of files stands for the full disk, which only root could make."""
    make_wheel(tmp_path / "large", data=8 << 20)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "large"))
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from dsv4port.cli.exit_codes import explain\n"
        "from dsv4port.manifest.project import Project\n"
        "from dsv4port.testing.environment import ensure_environment\n"
        "from dsv4port.upstream.cache import Cache\n"
        "try:\n"
        "    ensure_environment(Project(Path(sys.argv[1])), 'v1.0.0', Cache(Path(sys.argv[2])))\n"
        "except Exception as error:\n"
        "    failure = explain(error)\n"
        "    print(failure.what, failure.fix)\n"
        "    sys.exit(failure.exit_code)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(SOURCE_ROOT))
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 4096 && exec "$@"', "bash", sys.executable, "-c", script,
         str(project.root), str(cache.folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 6, done
    assert "space" in done.stdout
    assert builds(cache) == []


@pytest.mark.parametrize(
    "line", ["tiny", "tiny>=1", "-r other.txt", "tiny @ file:///x", "tiny==1.*"]
)
def test_a_line_that_leaves_the_version_open_is_refused(project: Project, line: str) -> None:
    file = project.root / "manifests" / "environments" / f"{PIN}.txt"
    file.write_text(f"# why\nother==1.0  # fine\n{line}\n")
    with pytest.raises(BadInputError, match=r"v1\.0\.0\.txt:3"):
        requirements_for(project, PIN)


def test_every_pin_of_this_project_has_requirements(tmp_path: Path) -> None:
    real = Project(SOURCE_ROOT)
    for pin in load_pins(real):
        text = requirements_for(real, pin).content.decode()
        assert "\ntorch==2.13.0\n" in text and "\ntriton==3.6.0\n" in text
    for pin in ("v0.23.9", "nightly"):
        with pytest.raises(BadInputError, match="nobody knows") as raised:
            requirements_for(real, pin)
        assert f"manifests/environments/{pin}.txt" in (raised.value.fix or "")


def test_the_key_follows_the_content(project: Project) -> None:
    before = requirements_for(project, PIN).key
    file = project.root / "manifests" / "environments" / f"{PIN}.txt"
    file.write_text("tiny==1.1\n")
    assert requirements_for(project, PIN).key != before


def test_a_given_interpreter_needs_pytest(tmp_path: Path) -> None:
    assert given_environment(Path(sys.executable)).packages["pytest"] == pytest.__version__
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
    with pytest.raises(EnvironmentProblemError, match="has no pytest"):
        given_environment(tmp_path / "v" / "bin" / "python")
    with pytest.raises(EnvironmentProblemError, match="no Python that runs"):
        given_environment(tmp_path / "nowhere")
