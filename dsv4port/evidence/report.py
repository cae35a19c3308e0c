"""A stack's report: what it is, what was shown, by which file, and what was not."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.apply.inputs import read_patch_files
from dsv4port.evidence.bench_tables import bench_section
from dsv4port.evidence.comparison import gate_failures
from dsv4port.evidence.markdown import code, table
from dsv4port.evidence.store import Evidence, EvidenceStore, Standing, load_evidence
from dsv4port.evidence.validation import (
    left_out,
    never_passed,
    unproven_patchsets,
    validation_row,
)
from dsv4port.manifest.lock import Lock, load_lock
from dsv4port.manifest.stack import ResolvedStack, resolve_stack
from dsv4port.patch.quote import display_path
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.manifest.patchset import Patchset
    from dsv4port.manifest.project import Project


@dataclass(frozen=True, slots=True)
class Report:
    """The finished text, and what stands in the way of believing it.

    Parameters:
        open_gates: gates that do not hold, stale evidence, patchsets without any; one line each.
        sources: every evidence file that it cites.
    """

    markdown: str
    open_gates: tuple[str, ...]
    sources: tuple[str, ...]


def make_report(project: Project, stack_name: str) -> Report:
    """Put a stack's report together from manifests, lock and ``evidence/``.

    The same files give the same text, wherever and whenever it is made.

    Raises:
        BadInputError: there is no such stack or lock, or a file is not whole.
    """
    stack = resolve_stack(project, stack_name)
    lock = load_lock(project, stack_name)
    store = load_evidence(project, lock)
    gates = tuple(_open_gates(stack, store))
    writer = _Writer(project, stack, lock, store)
    return Report("\n".join(writer.lines(gates)).rstrip("\n") + "\n", gates, writer.sources())


class _Writer:
    """The sections, in order."""

    def __init__(
        self, project: Project, stack: ResolvedStack, lock: Lock, store: EvidenceStore
    ) -> None:
        self.project, self.stack, self.lock, self.store = project, stack, lock, store
        self.patchsets = tuple(member.patchset for member in stack.members)

    def sources(self) -> tuple[str, ...]:
        """Files of evidence, each once."""
        found = [one.source for one in self.store.tests]
        found += [
            run.result.source
            for bench in self.store.benches
            for case in bench.cases
            for run in case.runs
        ]
        return tuple(dict.fromkeys(found))

    def lines(self, gates: tuple[str, ...]) -> Iterator[str]:
        """The whole text, line by line."""
        name = self.stack.stack.name
        yield f"# {self.stack.stack.title}"
        yield ""
        yield f"Made by `dsv4port report {name}` from manifests, lock and evidence."
        yield ""
        for title, section in (
            ("Summary", self._summary()),
            ("Commits", self._commits()),
            ("Root causes", self._causes()),
            ("Files changed", self._files()),
            ("Environment", self._environment()),
            ("Commands", self._commands()),
            ("Validation", self._validation()),
            ("Benchmarks", self._benches()),
            ("Not run", self._not_run()),
            ("Left out on purpose", self._excluded()),
            ("Remaining gates", self._gates(gates)),
        ):
            yield f"## {title}"
            yield ""
            yield from section

    def _summary(self) -> Iterator[str]:
        lock = self.lock
        yield from table(
            ["", ""],
            [
                ["stack", f"`{lock.stack}` for {self.stack.stack.target}"],
                ["pin", f"{lock.pin} ({lock.source.value}), tree `{lock.base_tree}`"],
                ["result", f"tree `{lock.tree}`, commit `{lock.commit}`"],
                ["size", f"{len(lock.patches)} patches, {len(lock.files)} files"],
                ["source", f"`{self.project.label(self.project.lock_file(lock.stack))}`"],
            ],
        )
        for patchset in self.patchsets:
            yield f"- **{patchset.name}**: {patchset.title}."
        yield ""

    def _commits(self) -> Iterator[str]:
        subjects = {}
        for file in read_patch_files(self.stack):
            mail = file.parse(self.project)
            first = (mail.message or b"").partition(b"\n")[0]
            subjects[file.place.key] = first.decode("utf-8", "replace")
        yield from table(
            ["Commit", "Subject", "Patch"],
            [[f"`{one.commit[:12]}`", subjects[one.key], one.key] for one in self.lock.patches],
        )

    def _causes(self) -> Iterator[str]:
        for patchset in self.patchsets:
            yield f"### {patchset.title} (`{patchset.name}`)"
            yield ""
            yield _flat(patchset.why)
            yield ""
            if patchset.origin.note:
                yield _flat(patchset.origin.note)
                yield ""
            if patchset.hazards:
                yield "What can go wrong with it applied:"
                yield ""
                yield from table(
                    ["When", "Then", "Known from"],
                    [[one.condition, one.effect, one.evidence] for one in patchset.hazards],
                )

    def _files(self) -> Iterator[str]:
        rows = []
        for file in self.lock.files:
            kind = (
                "added" if file.before is None else "deleted" if file.after is None else "changed"
            )
            numbers = (key.partition("/") for key in file.patches)
            patches = ", ".join(f"{name} {patch[:4]}" for name, _, patch in numbers)
            rows.append([f"`{display_path(file.path)}`", kind, patches])
        yield from table(["File", "", "Patches"], rows)

    def _environment(self) -> Iterator[str]:
        rows = {}
        for one in self.store.tests:
            found = one.environment
            rows[one.source] = [
                one.device, found.get("driver") or "—", found.get("python"),
                found.get("torch") or "—", found.get("triton") or "—",
                _host(one), one.date[:10], f"`{one.source}`",
            ]  # fmt: skip
        yield from table(
            ["Device", "Driver", "Python", "torch", "Triton", "Machine", "Date", "Source"],
            rows.values(),
        )

    def _commands(self) -> Iterator[str]:
        name = self.stack.stack.name
        yield "To make the tree, prove it and test it:"
        yield ""
        yield from code(
            f"dsv4port apply {name}\ndsv4port verify {name} --deep\n"
            f"dsv4port test {name} --red-on-pin"
        )
        typed = dict.fromkeys((one.command, one.source) for one in self.store.tests if one.command)
        for command, source in typed:
            yield f"`{source}` was made by:"
            yield ""
            yield from code(shlex.join(command))

    def _validation(self) -> Iterator[str]:
        rows = [validation_row(one) for one in self.store.tests]
        if not rows:
            yield "Nothing was recorded."
            yield ""
        yield from table(
            ["Patchset", "What", "On", "Made on", "Outcome", "Seconds", "Source"], rows
        )
        if rows:
            yield "`environment` counts tests that failed for want of something outside, such as a"
            yield "gated download. They are not counted as passed. `deselected` counts tests that"
            yield "need a device, weights or a network that the run had not."
            yield ""
        if self.store.others:
            yield "Further measurements, not of tests:"
            yield ""
            yield from (f"- `{one}`" for one in self.store.others)
            yield ""

    def _benches(self) -> Iterator[str]:
        if not self.store.benches:
            yield "No benchmark of this stack was recorded."
            yield ""
        for bench in self.store.benches:
            yield from bench_section(bench)

    def _not_run(self) -> Iterator[str]:
        rows = [
            [patchset.name, one.what, one.why] for patchset in self.patchsets
            for one in patchset.not_run
        ]  # fmt: skip
        yield from table(["Patchset", "What", "Why"], rows)
        reasons = left_out(self.store.tests)
        if reasons:
            yield "Tests that were left out, or that skipped themselves, by reason:"
            yield ""
            yield from table(["Tests", "Outcome", "Reason", "Source"], reasons)
        missing = never_passed(self.store.tests)
        if missing:
            yield "Tests that never passed in any recorded run of this tree:"
            yield ""
            yield from (f"- `{one}`" for one in missing)
            yield ""

    def _gates(self, gates: tuple[str, ...]) -> Iterator[str]:
        yield from (f"- {one}" for one in gates or ("none in what was recorded",))
        never = sum(len(patchset.not_run) for patchset in self.patchsets)
        if never:
            yield f"- {never} things that were never run, see above under “Not run”"
        yield ""

    def _excluded(self) -> Iterator[str]:
        yield from table(
            ["Patchset", "What", "Why"],
            [
                [patchset.name, one.item, one.reason]
                for patchset in self.patchsets
                for one in patchset.excluded
            ],
        )


def _open_gates(stack: ResolvedStack, store: EvidenceStore) -> Iterator[str]:
    patchsets: list[Patchset] = [member.patchset for member in stack.members]
    for name in unproven_patchsets([one.name for one in patchsets], store.tests):
        yield f"{name}: no test of it passed on this tree in any file of evidence"
    for one in store.tests:
        bad = validation_row(one)
        if one.standing is Standing.STALE:
            yield f"{one.source}: {', '.join(one.patchsets)} ran on another tree; run it again"
        elif _is_bad(one):
            yield f"{one.source}: {bad[0]}, {bad[1]}: {bad[4]}"
    for bench in store.benches:
        for case in bench.cases:
            for failure in gate_failures(case, bench.gates):
                yield f"{bench.label}: concurrency {failure.load}: {failure.what}"
    missing = never_passed(store.tests)
    if missing:
        yield f"{len(missing)} tests never passed in any recorded run of this tree (see above)"


def _is_bad(one: Evidence) -> bool:
    from dsv4port.testing.outcomes import BAD, Outcome
    from dsv4port.testing.results import Redness
    from dsv4port.testing.suites import SuiteKind

    if one.problems:
        return True
    if one.kind is SuiteKind.RED:
        return any(test.redness in (Redness.GREEN, Redness.UNKNOWN) for test in one.tests)
    return any(test.outcome in (*BAD, Outcome.ENVIRONMENT) for test in one.tests)


def _host(one: Evidence) -> str:
    if not one.host:
        return str(one.environment.get("machine", "—"))
    memory = int(one.host["memory_bytes"]) / 1024**3
    return f"{one.host['machine']}, {one.host['cpus']} CPUs, {memory:.0f} GiB"


def _flat(text: str) -> str:
    return " ".join(text.split())


def write_report(report: Report, file: Path) -> None:
    """Write the text, whole or not at all. Raises OSError."""
    from dsv4port.manifest.files import write_atomically

    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, report.markdown.encode())
