"""What a port of a series says: per patch, per patchset, and of all together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dsv4port.apply.file_patch import Entry as File
from dsv4port.drift.findings import Finding, Severity
from dsv4port.manifest.patchset import Upstreamed
from dsv4port.manifest.resolution import Resolution
from dsv4port.manifest.stack import PreconditionFailure
from dsv4port.patch.model import FilePatch
from dsv4port.port.engine import PatchPort
from dsv4port.port.outcomes import Outcome
from dsv4port.port.resolutions import StaleResolution
from dsv4port.port.series_input import Member, SeriesPatch
from dsv4port.port.upstream_checks import UpstreamCheck
from dsv4port.upstream.pins import ImportedPin


class Fate(Enum):
    """What becomes of a patch file."""

    PORTED = "ported"
    """It is in the new series."""
    RESOLVED = "resolved"
    """It is in the new series as a person decided earlier, for this very content."""
    UPSTREAMED = "upstreamed"
    """It is not in the new series: upstream has all of it."""
    LEFT_OUT = "left-out"
    """It is not in the new series: a person decided so, for this very content."""
    CONFLICT = "conflict"
    """It is not in the new series: a person must decide."""
    NOT_TRIED = "not-tried"
    """The port was to end at the first conflict, and that came before it."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to decide."""
        return self not in (Fate.CONFLICT, Fate.NOT_TRIED)

    @property
    def in_series(self) -> bool:
        """Whether the new series has the patch."""
        return self in (Fate.PORTED, Fate.RESOLVED)


@dataclass(frozen=True, slots=True)
class ConflictFile:
    """One file of a patch in conflict.

    Parameters:
        patch: the file's part of the patch.
        path: where the target has the file, or would have it.
        base, theirs: before and after the patch, where it was written.
        ours: in the target, with what was ported so far.
    """

    patch: FilePatch
    path: bytes
    base: File | None
    theirs: File | None
    ours: File | None


@dataclass(frozen=True, slots=True)
class PortedPatch:
    """One patch.

    Parameters:
        source: as it was.
        fate: what becomes of it.
        port: what the engine says; None where a resolution took its place, or it was not tried.
        data: the new patch file; None where the new series has none.
        commit: of the new series, None likewise.
        old_commit: of the old series.
        resolution: the one that was used.
        stale: resolutions of this patch for other content.
        conflict: its files, where it is in conflict.
        onto: the tree of the target that it met.
        drift: what changed upstream that it depends on.
        diff: what it changes in the target.
    """

    source: SeriesPatch
    fate: Fate
    port: PatchPort | None
    data: bytes | None
    commit: str | None
    old_commit: str
    resolution: Resolution | None = None
    stale: tuple[StaleResolution, ...] = ()
    conflict: tuple[ConflictFile, ...] = ()
    onto: str = ""
    drift: tuple[Finding, ...] = ()

    @property
    def review(self) -> tuple[str, ...]:
        """Why a person should look at it."""
        return self.port.review if self.port is not None else ()

    @property
    def upstream_parts(self) -> tuple[str, ...]:
        """What upstream has of it, part by part."""
        return self._parts(upstream=True)

    @property
    def own_parts(self) -> tuple[str, ...]:
        """What is left of it, part by part."""
        return self._parts(upstream=False)

    def _parts(self, *, upstream: bool) -> tuple[str, ...]:
        from dsv4port.patch.quote import display_path

        if self.port is None:
            return ()
        return tuple(
            f"{display_path(hunk.path)}{f' hunk {hunk.number}' if hunk.number else ''}"
            + (f": {hunk.reason}" if hunk.reason else "")
            for hunk in self.port.hunks
            if (hunk.outcome is Outcome.UPSTREAMED) == upstream
        )

    @property
    def upstream_proof(self) -> tuple[str, ...]:
        """For a dropped patch: a sentence for each part, with the score where there is one."""
        from dsv4port.patch.quote import display_path

        assert self.port is not None
        rows = []
        for hunk in self.port.hunks:
            where = display_path(hunk.new_path or hunk.path)
            number = f" hunk {hunk.number}" if hunk.number else ""
            score = f" (score {hunk.score:.2f})" if hunk.score is not None else ""
            rows.append(f"{where}{number}: {hunk.reason}{score}")
        return tuple(rows)


@dataclass(frozen=True, slots=True)
class PatchsetPort:
    """One patchset on the new pin.

    Parameters:
        member: what was ported.
        patches: every patch of it, in order.
        preconditions: those of its manifest that do not hold on the new pin.
        checks: what its manifest says upstream has, held against the new pin.
        upstreamed: rows that its manifest should gain.
        range_diff: of the old and the new series, as ``git range-diff`` writes it.
    """

    member: Member
    patches: tuple[PortedPatch, ...]
    preconditions: tuple[PreconditionFailure, ...]
    checks: tuple[UpstreamCheck, ...]
    upstreamed: tuple[Upstreamed, ...]
    range_diff: str

    @property
    def name(self) -> str:
        """Name of the patchset."""
        return self.member.patchset.name

    @property
    def conflicts(self) -> tuple[PortedPatch, ...]:
        """What a person must decide."""
        return tuple(one for one in self.patches if not one.fate.done)

    def known_upstream(self, file: str) -> UpstreamCheck | None:
        """The row of the manifest by which upstream has this patch, if there is one."""
        return next((check for check in self.checks if check.speaks_of(file)), None)

    @property
    def series_files(self) -> dict[str, bytes]:
        """The new patch files in order; empty where nothing of the patchset is left."""
        return {
            one.source.file: one.data
            for one in self.patches
            if one.fate.in_series and one.data is not None
        }


@dataclass(frozen=True, slots=True)
class SeriesPort:
    """A whole port.

    ``tree`` and ``commit`` are the new pin with everything that could be ported.
    """

    name: str
    stack: str | None
    old: ImportedPin
    new: ImportedPin
    members: tuple[PatchsetPort, ...]
    tree: str
    commit: str

    @property
    def asked(self) -> tuple[PatchsetPort, ...]:
        """The patchsets that were asked for, without those that only come along."""
        return tuple(one for one in self.members if one.member.asked)

    @property
    def conflicts(self) -> tuple[PortedPatch, ...]:
        """Patches left for a person."""
        return tuple(patch for one in self.members for patch in one.conflicts)

    @property
    def doubts(self) -> bool:
        """Whether anything is to be looked at that is no conflict."""
        return any(
            member.preconditions
            or any(check.verdict.is_warning for check in member.checks)
            or any(
                patch.review or any(one.severity is not Severity.NOTE for one in patch.drift)
                for patch in member.patches
            )
            for member in self.members
        )
