"""Test environments: virtual environments in the cache, made once, whole or not at all.

::

    environments/<key>              link to the build that is in use
    environments/builds/<key>.*/    virtual environments; `.dsv4port.json` in each is written last
    environments/<key>.log          what pip said while it was made last

A build is made under the name it will keep, since the programs in it name their folder, and comes
into use when the link is switched. The caller's own environment can be used instead; it is taken
as it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.errors import BadInputError, EnvironmentProblemError, NetworkError
from dsv4port.quick_dataclass import dataclass
from dsv4port.testing.requirements import Requirements, requirements_for
from dsv4port.upstream.files import children, remove_tree, write_atomically, writing
from dsv4port.upstream.progress import NO_PROGRESS, Progress

if TYPE_CHECKING:
    from dsv4port.manifest.project import Project
    from dsv4port.upstream.cache import Cache

STAMP = ".dsv4port.json"
_STAMP_FORMAT = 1
_PROBE = (
    "import importlib.metadata as m, json, sys\n"
    "found = {d.metadata['Name']: d.version for d in m.distributions() if d.metadata['Name']}\n"
    "print(json.dumps([sys.version.split()[0], found]))\n"
)
_PIP_PLACES = {"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIREMENT"}
"""Settings of pip that would send packages elsewhere than into the environment."""
_NETWORK = re.compile(
    r"ConnectionError|NewConnectionError|Max retries exceeded|Temporary failure in name|"
    r"ReadTimeout|ConnectTimeout|ProxyError|SSLError|Could not fetch URL",
)
_FULL = re.compile(r"No space left|Disk quota exceeded|File too large|Errno 28|Errno 122|Errno 27")
_TAIL = 8
_LEAST_SPACE = 64 << 20


@dataclass(frozen=True, slots=True)
class TestEnvironment:
    """An interpreter with what a tree needs.

    Parameters:
        key: name in the cache; None for an environment that the caller gave.
        packages: version by distribution name.
        made: this call made it; False when it was there.
    """

    __test__ = False  # no test class, whatever pytest thinks of the name

    interpreter: Path
    key: str | None
    python: str
    packages: Mapping[str, str]
    made: bool


def given_environment(interpreter: Path) -> TestEnvironment:
    """The environment of an interpreter that the caller named.

    Raises:
        EnvironmentProblemError: it cannot be run, or has no pytest.
    """
    # Not resolved: the link in an environment's bin folder is what makes it one.
    interpreter = interpreter.absolute()
    python, packages = _probe(interpreter)
    if "pytest" not in packages:
        raise EnvironmentProblemError(
            f"{interpreter} has no pytest", fix="install pytest and hypothesis there"
        )
    return TestEnvironment(interpreter, None, python, packages, made=False)


def ensure_environment(
    project: Project, pin: str, cache: Cache, *, progress: Progress = NO_PROGRESS
) -> TestEnvironment:
    """The environment for a pin; made where it is missing or not what was made.

    Raises:
        BadInputError: there is no list of packages for the pin, or a package of it does not exist.
        NetworkError: pip reached no index.
        EnvironmentProblemError: Python cannot make environments, or the disk is full.
    """
    requirements = requirements_for(project, pin)
    folder = cache.folder / "environments"
    found = _whole(folder / requirements.key)
    if found is not None:
        return found
    with cache.lock(
        f"environment-{requirements.key}", what="making a test environment", progress=progress
    ):
        # Whoever held the lock may have done the work.
        found = _whole(folder / requirements.key)
        return found or _make(folder, requirements, progress)


def _whole(link: Path) -> TestEnvironment | None:
    """The environment behind `link`, None where it is missing, unfinished or was changed."""
    try:
        stamp = json.loads((link / STAMP).read_text("utf-8"))
        python, packages = _probe(link / "bin" / "python")
    except (OSError, ValueError, EnvironmentProblemError):
        return None
    known = {"format": _STAMP_FORMAT, "python": python, "packages": packages}
    if stamp != known:
        return None
    return TestEnvironment(link / "bin" / "python", link.name, python, packages, made=False)


def _probe(interpreter: Path) -> tuple[str, dict[str, str]]:
    """Version of an interpreter and of every distribution in it, by running it."""
    try:
        done = subprocess.run(
            [str(interpreter), "-I", "-c", _PROBE],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        python, packages = json.loads(done.stdout)
        return python, dict(sorted(packages.items()))
    except (OSError, subprocess.SubprocessError, ValueError, AttributeError) as error:
        raise EnvironmentProblemError(
            f"{interpreter} is no Python that runs ({type(error).__name__})",
            fix="name the interpreter of a whole environment with --python, or leave it out",
        ) from error


def _make(folder: Path, requirements: Requirements, progress: Progress) -> TestEnvironment:
    key = requirements.key
    progress.notice(f"making the test environment {key} from {requirements.label}, once")
    builds = folder / "builds"
    log = folder / f"{key}.log"
    with writing(folder):
        builds.mkdir(parents=True, exist_ok=True)
        old = [path for path in children(builds) if path.name.startswith(f"{key}.")]
        build = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=builds))
    try:
        with writing(build):
            wanted = build / "requirements.txt"
            wanted.write_bytes(requirements.content)
        _run([sys.executable, "-I", "-m", "venv", str(build)], log, requirements, append=False)
        python = build / "bin" / "python"
        _run(
            [str(python), "-I", "-m", "pip", "install", "--disable-pip-version-check",
             "--no-input", "--requirement", str(wanted)],
            log, requirements, append=True,
        )  # fmt: skip
        version, packages = _probe(python)
        with writing(build):
            stamp = {"format": _STAMP_FORMAT, "python": version, "packages": packages}
            write_atomically(build / STAMP, json.dumps(stamp, indent=1).encode() + b"\n")
            _switch(folder / key, build)
    except BaseException:
        remove_tree(build)
        raise
    for leftover in old:
        remove_tree(leftover)
    return TestEnvironment(folder / key / "bin" / "python", key, version, packages, made=True)


def _switch(link: Path, build: Path) -> None:
    """Bring a finished build into use, in one step."""
    temporary = link.with_name(f".{link.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(Path("builds") / build.name)
    temporary.replace(link)


def _run(command: list[str], log: Path, requirements: Requirements, *, append: bool) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") and name not in _PIP_PLACES
    }
    with writing(log):
        with log.open("ab" if append else "wb") as stream:
            done = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=stream,
                stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
        said = log.read_text("utf-8", "backslashreplace")
    if done.returncode != 0:
        raise _failure(command, done.returncode, said, log, requirements)


def _failure(
    command: list[str], code: int, said: str, log: Path, requirements: Requirements
) -> BadInputError | EnvironmentProblemError:
    details = said.strip().splitlines()[-_TAIL:]
    what = f"the test environment could not be made ({requirements.label})"
    if code < 0:
        return EnvironmentProblemError(
            f"{what}: {Path(command[0]).name} was ended by signal {-code}",
            fix="run the command again; nothing half-made is left", details=details,
        )  # fmt: skip
    # What makes environments keeps the reason to itself when the disk is full.
    if _FULL.search(said) or shutil.disk_usage(log.parent).free < _LEAST_SPACE:
        fix = "free some space (an environment takes 2 GiB), or set DSV4PORT_CACHE to another disk"
        return EnvironmentProblemError(f"{what}: no space", fix=fix, details=details)
    if "venv" in command:
        fix = "install what it names (on Debian: apt install python3-venv), then run it again"
        return EnvironmentProblemError(f"{what}: this Python makes none", fix=fix, details=details)
    if _NETWORK.search(said):
        return NetworkError(f"{what}: pip reached no package index", details=details)
    if "No matching distribution" in said or "Invalid requirement" in said:
        fix = f"correct {requirements.label}, or the package index that pip is set to"
        return BadInputError(f"{what}: a package is not to be had", fix=fix, details=details)
    return EnvironmentProblemError(f"{what}: pip failed", fix=f"see {log}", details=details)
