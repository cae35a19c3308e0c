"""Pytest plugin that writes what a run of patchset tests found: one JSON file, to be cited.

Load it with `-p dsv4port.testing.record --result-file FILE`. It needs pytest and the standard
library only, so it runs on a machine that has kernels and little else.

The file says where the run took place (device, driver, versions), what was under test (facts and
digests that the caller names), and for every test its outcome (`outcomes.py`) with the reason, its
seconds, and what the test measured. A test measures with pytest's own `record_property`.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from dsv4port.testing.hardware import DESELECTED
from dsv4port.testing.outcomes import Outcome, environment_problem
from dsv4port.testing.plugin import MARKERS

FORMAT = 2
"""1 had neither seconds nor the outcomes `environment` and `deselected`."""

DRIVER_FILE = Path("/proc/driver/nvidia/version")
_REASON_LIMIT = 2000


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("result file")
    group.addoption("--result-file", metavar="FILE", help="write results as JSON to FILE")
    group.addoption(
        "--result-fact",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="put KEY: VALUE into the result file; may be given more than once",
    )
    group.addoption(
        "--result-digest",
        metavar="PATH",
        action="append",
        default=[],
        help="put the sha256 of PATH, of the tree or of the project, into the result file; of a "
        "folder, that of every file below it",
    )


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("--result-file")
    # Workers of pytest-xdist report to the process that started them; only that one writes.
    if name and not hasattr(config, "workerinput"):
        facts = _facts(config.getoption("--result-fact"))
        roots = [Path(config.getoption("--vllm-tree") or "."), config.rootpath]
        digests = _digests(config.getoption("--result-digest"), roots)
        config.pluginmanager.register(Recorder(Path(name), facts, digests), "result-recorder")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note on the report what only the exception itself can tell."""
    report = yield
    if call.excinfo is not None and report.failed:
        # An attribute of a report travels with it to the process that records.
        report.environment_problem = environment_problem(call.excinfo.value)  # type: ignore[attr-defined]
    return report


class Recorder:
    """Collects the reports of one session, and writes them at its end."""

    def __init__(self, file: Path, facts: dict[str, str], digests: dict[str, str]) -> None:
        self.file = file
        self.facts = facts
        self.digests = digests
        self.tests: dict[str, dict[str, Any]] = {}
        self.interrupted = False

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """A run that was broken off records nothing: its tests would look like all there are.

        pytest also ends this way by itself where files could not be collected; they are reported.
        """
        self.interrupted = not isinstance(excinfo.value, pytest.Session.Interrupted)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = self.tests.setdefault(
            report.nodeid,
            {
                "id": report.nodeid,
                "outcome": Outcome.PASSED.value,
                "reason": None,
                "seconds": 0.0,
                "markers": [name for name in _marker_names() if name in report.keywords],
                "measured": {},
            },
        )
        row["measured"].update(report.user_properties)
        row["seconds"] = round(row["seconds"] + report.duration, 3)
        # The first phase that went wrong is the one to name.
        if row["outcome"] == Outcome.PASSED.value:
            outcome = _outcome(report)
            row["outcome"] = outcome.value
            row["reason"] = None if outcome is Outcome.PASSED else _reason(report, outcome)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that is skipped, or fails, as a whole has no tests to report."""
        if report.outcome != "passed":
            self.tests[report.nodeid] = {
                "id": report.nodeid,
                "outcome": (Outcome.ERROR if report.failed else Outcome.SKIPPED).value,
                "reason": _reason(report),
                "seconds": 0.0,
                "markers": [],
                "measured": {},
            }

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.interrupted:
            return
        for identifier, reason, markers in session.config.stash.get(DESELECTED, []):
            self.tests[identifier] = {
                "id": identifier,
                "outcome": Outcome.DESELECTED.value,
                "reason": reason,
                "seconds": 0.0,
                "markers": [name for name in _marker_names() if name in markers],
                "measured": {},
            }
        rows = sorted(self.tests.values(), key=lambda row: str(row["id"]))
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
        document = {
            "format": FORMAT,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "environment": environment(),
            "facts": self.facts,
            "digests": self.digests,
            "exit_status": int(exitstatus),
            "outcomes": counts,
            "tests": rows,
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_name(self.file.name + ".partial")
        partial.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
        partial.replace(self.file)


def environment() -> dict[str, Any]:
    """Where this process runs. Versions of torch and Triton only if they were imported."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "pytest": pytest.__version__,
        "driver": _driver(),
        "device": None,
    }
    for name in ("torch", "triton"):
        module = sys.modules.get(name)
        found[name] = getattr(module, "__version__", None)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found["device"] = {
            "name": properties.name,
            "capability": [properties.major, properties.minor],
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
        }
    return found


def _driver() -> str | None:
    try:
        text = DRIVER_FILE.read_text()
    except OSError:
        return None
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    return found.group(0) if found else None


def _marker_names() -> tuple[str, ...]:
    return tuple(marker.partition(":")[0] for marker in MARKERS)


def _outcome(report: pytest.TestReport) -> Outcome:
    if hasattr(report, "wasxfail"):
        return Outcome.XFAILED if report.outcome == "skipped" else Outcome.XPASSED
    if report.outcome != "failed":
        return Outcome(report.outcome)
    if getattr(report, "environment_problem", None) is not None:
        return Outcome.ENVIRONMENT
    return Outcome.FAILED if report.when == "call" else Outcome.ERROR


def _reason(
    report: pytest.TestReport | pytest.CollectReport, outcome: Outcome | None = None
) -> str:
    if isinstance(report.longrepr, tuple):
        said = str(report.longrepr[2])
    else:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = str(getattr(crash, "message", None) or _error_first(report.longreprtext))
    if outcome is Outcome.ENVIRONMENT:
        said = f"{getattr(report, 'environment_problem', '')}: {said}"
    return said[:_REASON_LIMIT]


def _error_first(text: str) -> str:
    """Text of a file that could not be collected, with the error itself in the first line."""
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return f"{errors[-1]}\n{text}" if errors else text


def _facts(pairs: list[str]) -> dict[str, str]:
    facts = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not key or not separator:
            raise pytest.UsageError(f"--result-fact wants KEY=VALUE, got {pair!r}")
        facts[key] = value
    return facts


def _digests(names: list[str], roots: list[Path]) -> dict[str, str]:
    """Names are looked up in the roots, in order, and shown relative to the one that has them."""
    digests = {}
    for name in names:
        root = next((root for root in roots if (root / name).exists()), None)
        if root is None:
            searched = ", ".join(str(root) for root in roots)
            raise pytest.UsageError(f"--result-digest: there is no {name} in {searched}")
        path = root / name
        files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
        for file in sorted(files):
            shown = file.relative_to(root) if file.is_relative_to(root) else file
            digests[shown.as_posix()] = hashlib.sha256(file.read_bytes()).hexdigest()
    return digests
