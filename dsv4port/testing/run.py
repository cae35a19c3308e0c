"""Run the tests of stacks: environment, tree, suites, verdict."""

from __future__ import annotations

import datetime
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4port import __version__
from dsv4port.apply.exclusive import exclusive
from dsv4port.errors import UsageError
from dsv4port.quick_dataclass import dataclass
from dsv4port.testing.environment import (
    TestEnvironment,
    ensure_environment,
    given_environment,
)
from dsv4port.testing.neutral import neutral_rows
from dsv4port.testing.pytest_process import PytestAnswer, PytestRun, run_pytest
from dsv4port.testing.results import SuiteResult, TestRow, TestRun, rows_of
from dsv4port.testing.suites import (
    SuiteKind,
    Target,
    declared_red,
    targets,
    test_files,
    unnamed_files,
)
from dsv4port.testing.trees import TestedTree, bare_tree, given_tree, lock_source, patched_tree
from dsv4port.upstream.progress import NO_PROGRESS, Progress

if TYPE_CHECKING:
    from dsv4port.manifest.patchset import Patchset
    from dsv4port.manifest.project import Project
    from dsv4port.upstream.cache import Cache


@dataclass(frozen=True, slots=True)
class TestWish:
    """What the user asked for.

    Parameters:
        names: stacks and patchsets; empty for every stack.
        pin: only stacks on this pin.
        device: ``cpu``, ``cuda`` or ``musa``.
        keyword: pytest's ``-k``; the tests must be named that way.
        red_on_pin: also run the fix tests on the bare pin, where they must fail.
        upstream: also run vLLM's own tests that manifests name.
        network: tests may use a network.
        interpreter: of a ready environment; None for one from the cache.
        checkout: the user's checkout to test, instead of one of our own.
    """

    __test__ = False  # no test class, whatever pytest thinks of the name

    names: tuple[str, ...] = ()
    pin: str | None = None
    device: str = "cpu"
    keyword: str = ""
    red_on_pin: bool = False
    upstream: bool = True
    network: bool = False
    interpreter: Path | None = None
    checkout: Path | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """The command line that asks for this, without places on the machine."""
        words = ["dsv4port", "test", *self.names]
        words += ["--pin", self.pin] if self.pin else []
        words += ["--device", self.device]
        words += ["-k", self.keyword] if self.keyword else []
        for name, given in (
            ("--red-on-pin", self.red_on_pin),
            ("--no-upstream", not self.upstream),
            ("--network", self.network),
            ("--python PATH", self.interpreter is not None),
            ("--checkout DIR", self.checkout is not None),
        ):
            words += name.split() if given else []
        return tuple(words)


@dataclass(frozen=True, slots=True)
class RunReport:
    """A finished run, the JUnit files of its suites on patched trees, and where its logs are."""

    run: TestRun
    junit: tuple[tuple[str, Path], ...]
    work: Path


def run_tests(
    project: Project, wish: TestWish, cache: Cache, *, progress: Progress = NO_PROGRESS
) -> RunReport:
    """Run everything that was asked for, and say what came out.

    Failing tests are an answer and raise nothing.

    Raises:
        BadInputError: a name, manifest or test file makes no sense.
        ConflictError, StaleLockError: a stack does not apply.
        EnvironmentProblemError: no environment could be made, or pytest was killed.
        LockHeldError: another run of the same project is under way.
    """
    chosen = targets(project, wish.names, wish.pin)
    if wish.checkout is not None and len(chosen) != 1:
        raise UsageError(
            "--checkout is for one stack", fix=f"name it: {', '.join(one.stack for one in chosen)}"
        )
    work = project.state_folder / "test" / "work"
    with exclusive(project.state_folder / "test" / "lock", f"the tests of {project.root}"):
        work.mkdir(parents=True, exist_ok=True)
        runner = _Runner(project, wish, cache, progress, work)
        suites = tuple(suite for target in chosen for suite in runner.target(target))
    assert runner.environment is not None
    return RunReport(
        TestRun(
            tool=__version__,
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            command=wish.command,
            device=wish.device,
            host=_host(),
            environment=_environment(runner.environment, runner.recorded),
            aliases={one.stack: one.aliases for one in chosen if one.aliases},
            suites=suites,
        ),
        tuple(runner.junit),
        work,
    )


class _Runner:
    """State of one run: the environments in use, and what the suites left."""

    def __init__(
        self, project: Project, wish: TestWish, cache: Cache, progress: Progress, work: Path
    ) -> None:
        self.project, self.wish, self.cache = project, wish, cache
        self.progress, self.work = progress, work
        self.environment: TestEnvironment | None = None
        self.recorded: Mapping[str, Any] = {}
        self.junit: list[tuple[str, Path]] = []

    def target(self, target: Target) -> Iterator[SuiteResult]:
        """All suites of one stack."""
        # The tree first: it is quick, and where it fails nobody wants to have waited for pip.
        tree = self._patched(target)
        environment = self._environment_for(target.pin)
        for patchset in target.patchsets:
            yield from self._patchset(tree, environment, patchset)
        if self.wish.red_on_pin:
            source = lock_source(self.project, target.stack)
            bare = bare_tree(
                self.project, target.pin, source, cache=self.cache, progress=self.progress
            )
            for patchset in target.patchsets:
                if test_files(self.project, patchset):
                    yield self._red(bare, environment, patchset)

    def _patched(self, target: Target) -> TestedTree:
        if self.wish.checkout is not None:
            return given_tree(self.project, target.stack, self.wish.checkout)
        return patched_tree(self.project, target.stack, cache=self.cache, progress=self.progress)

    def _environment_for(self, pin: str) -> TestEnvironment:
        if self.wish.interpreter is not None:
            if self.environment is None:
                self.environment = given_environment(self.wish.interpreter)
            return self.environment
        found = ensure_environment(self.project, pin, self.cache, progress=self.progress)
        self.environment = found
        return found

    def _patchset(
        self, tree: TestedTree, environment: TestEnvironment, patchset: Patchset
    ) -> Iterator[SuiteResult]:
        files = test_files(self.project, patchset)
        unnamed = unnamed_files(self.project, patchset)
        if unnamed:
            names = ", ".join(unnamed)
            self.progress.notice(f"the manifest of {patchset.name} says nothing about {names}")
        if files:
            yield self._suite(SuiteKind.PATCHSET, tree, environment, patchset, files)
        if self.wish.upstream and patchset.upstream_tests:
            yield self._upstream(tree, environment, patchset)

    def _upstream(
        self, tree: TestedTree, environment: TestEnvironment, patchset: Patchset
    ) -> SuiteResult:
        files = tuple(tree.path / path for path in patchset.upstream_tests)
        present = tuple(file for file in files if file.is_file())
        absent = [file.relative_to(tree.path).as_posix() for file in files if file not in present]
        problems = [f"{tree.label} has no {path}, which the manifest names" for path in absent]
        if not present:
            return _result(SuiteKind.UPSTREAM, tree, patchset, 0.0, (), problems)
        return self._suite(SuiteKind.UPSTREAM, tree, environment, patchset, present, problems)

    def _red(
        self, bare: TestedTree, environment: TestEnvironment, patchset: Patchset
    ) -> SuiteResult:
        files = test_files(self.project, patchset)
        suite = self._suite(SuiteKind.RED, bare, environment, patchset, files, markers="fix")
        problems = list(suite.problems)
        if not self.wish.keyword:
            marked = {test.id.partition("::")[0] for test in suite.tests}
            problems += [
                f"{path} has no test marked `fix`, which the manifest says it has"
                for path in declared_red(self.project, patchset)
                if path not in marked
            ]
        return _result(suite.kind, bare, patchset, suite.seconds, suite.tests, problems)

    def _suite(
        self,
        kind: SuiteKind,
        tree: TestedTree,
        environment: TestEnvironment,
        patchset: Patchset,
        files: Sequence[Path],
        problems: Sequence[str] = (),
        markers: str = "",
    ) -> SuiteResult:
        label = f"{patchset.name}, {kind.value}, on {tree.label}"
        self.progress.start(label, None, "files")
        upstream = kind is SuiteKind.UPSTREAM
        began = time.monotonic()
        before = tree.state()
        answer = run_pytest(
            PytestRun(
                name=f"{patchset.name}.{kind.value}.{tree.path.name}",
                targets=tuple(files),
                root=tree.path if upstream else self.project.root,
                tree=tree.path,
                device=self.wish.device,
                # vLLM has markers of its own.
                strict=not upstream,
                markers=markers,
                keyword=self.wish.keyword,
                network=self.wish.network,
                plugins=("dsv4port.testing.upstream_on_cpu",)
                if upstream and self.wish.device == "cpu"
                else (),
            ),
            environment.interpreter,
            self.work,
        )  # fmt: skip
        changed = sorted(set(tree.state()) ^ set(before))
        self.progress.finish()
        if changed:
            tree.discard()
        self._keep(answer, label, kind)
        return _result(
            kind, tree, patchset, time.monotonic() - began, self._rows(answer, tree, environment),
            [*problems, *(f"the tests changed the tree: {path}" for path in changed)],
        )  # fmt: skip

    def _rows(
        self, answer: PytestAnswer, tree: TestedTree, environment: TestEnvironment
    ) -> list[TestRow]:
        places = (
            (self.project.root, "PROJECT"),
            (self.work, "WORK"),
            (tree.path, "TREE"),
            # Tests show both the link in the cache and what it leads to.
            (environment.interpreter.parent.parent, "ENVIRONMENT"),
            (environment.interpreter.parent.parent.resolve(), "ENVIRONMENT"),
            (Path(sys.base_prefix), "PYTHON"),
            (Path.home(), "HOME"),
        )
        return neutral_rows(rows_of(answer.document), places)

    def _keep(self, answer: PytestAnswer, label: str, kind: SuiteKind) -> None:
        found = answer.document["environment"]
        # A suite that imports no torch knows nothing about the device.
        if not self.recorded or (found.get("torch") and not self.recorded.get("torch")):
            self.recorded = found
        if kind is not SuiteKind.RED and answer.junit.is_file():
            self.junit.append((label, answer.junit))


def _result(
    kind: SuiteKind, tree: TestedTree, patchset: Patchset, seconds: float, tests: Any,
    problems: Sequence[str],
) -> SuiteResult:  # fmt: skip
    return SuiteResult(
        kind, patchset.name, tree.stack, tree.pin, tree.tree, tree.lock_sha256,
        round(seconds, 2), tuple(tests), tuple(problems),
    )  # fmt: skip


def _environment(environment: TestEnvironment, recorded: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **recorded,
        "environment": environment.key or "given",
        "packages": dict(environment.packages),
    }


def _host() -> dict[str, Any]:
    """What kind of machine it is. Its name says nothing about a result and is left out."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "memory_bytes": pages,
    }
