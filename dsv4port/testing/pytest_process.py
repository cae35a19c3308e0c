"""One pytest in a process of its own, which sees the tree, its environment and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsv4port.errors import BadInputError, Dsv4portError, EnvironmentProblemError
from dsv4port.quick_dataclass import dataclass
from dsv4port.testing import record
from dsv4port.upstream.files import remove_tree

_PACKAGE = Path(__file__).resolve().parents[1]
_DROPPED = ("PYTHON", "PYTEST_", "VLLM_", "TRITON_", "HYPOTHESIS_", "DSV4PORT_TREE", "TORCH")
"""Prefixes of variables that could change what is tested."""
_INI = """[pytest]
addopts = -ra --import-mode=importlib
"""
_INI_STRICT = _INI.replace("-ra", "-ra --strict-markers")
_FULL = re.compile(r"No space left|Disk quota exceeded|File too large")
_TAIL = 12


@dataclass(frozen=True, slots=True)
class PytestRun:
    """What to run, and where.

    Parameters:
        name: names its files in `work`.
        targets: test files.
        root: node ids are relative to it.
        strict: unknown markers are errors.
        markers, keyword: pytest's ``-m`` and ``-k``; empty for none.
        plugins: further plugins, by module name.
    """

    name: str
    targets: tuple[Path, ...]
    root: Path
    tree: Path
    device: str
    strict: bool = True
    markers: str = ""
    keyword: str = ""
    network: bool = False
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PytestAnswer:
    """What pytest recorded; ``document`` is the content of `record`'s file."""

    code: int
    document: Mapping[str, Any]
    junit: Path
    log: Path


def run_pytest(wanted: PytestRun, interpreter: Path, work: Path) -> PytestAnswer:
    """Run pytest to its end, failures of tests included.

    Parameters:
        work: a folder for its files: log, results, and all that tests write.

    Raises:
        EnvironmentProblemError: pytest was killed, could not start, or its record is not whole.
        BadInputError: the tests cannot even be asked for: a broken conftest, a wrong selection.
    """
    scratch = work / f"{wanted.name}.files"
    remove_tree(scratch)
    for folder in ("tmp", "cwd", "import", "cache"):
        (scratch / folder).mkdir(parents=True)
    # Of the packages beside this one, which may hold an installed vLLM, only this one is visible.
    (scratch / "import" / _PACKAGE.name).symlink_to(_PACKAGE)
    ini = scratch / "pytest.ini"
    ini.write_text(_INI_STRICT if wanted.strict else _INI)
    result, junit, log = (work / f"{wanted.name}.{kind}" for kind in ("json", "xml", "log"))
    for file in (result, junit, log):
        file.unlink(missing_ok=True)
    command = [
        str(interpreter), "-s", "-m", "pytest", "-q", "--no-header", "-W", "ignore",
        "-c", str(ini), f"--rootdir={wanted.root}", f"--confcutdir={wanted.root}",
        "-p", "no:cacheprovider", "-p", "dsv4port.testing.plugin", "-p", "dsv4port.testing.record",
        *(word for plugin in wanted.plugins for word in ("-p", plugin)),
        f"--basetemp={scratch / 'tmp' / 'pytest'}", f"--junitxml={junit}",
        f"--result-file={result}", f"--vllm-tree={wanted.tree}", f"--device={wanted.device}",
        "--isolated", *(["--with-network"] if wanted.network else []),
        *(["-m", wanted.markers] if wanted.markers else []),
        *(["-k", wanted.keyword] if wanted.keyword else []),
        *map(str, wanted.targets),
    ]  # fmt: skip
    with log.open("wb") as stream:
        code = _wait(command, scratch, _environment(wanted, interpreter, scratch), stream)
    document = _read(result)
    if code < 0 or document is None or code in (3, 4):
        raise _broken(wanted, code, log)
    return PytestAnswer(code, document, junit, log)


def _wait(command: Sequence[str], scratch: Path, environment: dict[str, str], stream: Any) -> int:
    try:
        process = subprocess.Popen(
            command, cwd=scratch / "cwd", env=environment, stdin=subprocess.DEVNULL,
            stdout=stream, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except OSError as error:
        raise EnvironmentProblemError(
            f"{command[0]} cannot be started: {error.strerror}", fix="check the environment"
        ) from error
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _environment(wanted: PytestRun, interpreter: Path, scratch: Path) -> dict[str, str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)
    }
    environment.update(
        PATH=f"{interpreter.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        PYTHONNOUSERSITE="1",
        # The tree is under verification, and so are the tests: no bytecode beside them.
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONPATH=f"{scratch / 'import'}{os.pathsep}{wanted.tree}",
        HYPOTHESIS_STORAGE_DIRECTORY=str(scratch / "cache" / "hypothesis"),
        TRITON_CACHE_DIR=str(scratch / "cache" / "triton"),
        TORCHINDUCTOR_CACHE_DIR=str(scratch / "cache" / "inductor"),
        VLLM_CACHE_ROOT=str(scratch / "cache" / "vllm"),
        VLLM_CONFIG_ROOT=str(scratch / "cache" / "vllm-config"),
        # No plugin of an installed package may change what is tested, and nobody is told of it.
        VLLM_PLUGINS="",
        VLLM_NO_USAGE_STATS="1",
        TMPDIR=str(scratch / "tmp"),
    )
    if not wanted.network:
        environment["HF_HUB_OFFLINE"] = "1"
    if wanted.device == "cpu":
        environment.update(TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")
    return environment


def _read(file: Path) -> Mapping[str, Any] | None:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    whole = isinstance(found, dict) and found.get("format") == record.FORMAT
    return found if whole and isinstance(found.get("tests"), list) else None


def _broken(wanted: PytestRun, code: int, log: Path) -> Dsv4portError:
    said = log.read_text("utf-8", "backslashreplace")
    details = [line for line in said.strip().splitlines() if line.strip()][-_TAIL:]
    what = f"the tests {wanted.name} did not run to their end"
    if code < 0:
        fix = f"see {log}; a test may have taken all memory, or crashed the interpreter"
        return EnvironmentProblemError(
            f"{what}: pytest was ended by signal {-code}", fix=fix, details=details
        )
    if _FULL.search(said):
        return EnvironmentProblemError(
            f"{what}: no space left", fix="free some space, then run it again", details=details
        )
    if code == 4:
        return BadInputError(
            f"{what}: pytest could not begin", fix=f"see {log}: a conftest, an option or a file",
            details=details,
        )  # fmt: skip
    return EnvironmentProblemError(
        f"{what}: it left no whole record (exit code {code})", fix=f"see {log}", details=details
    )
