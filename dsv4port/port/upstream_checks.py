"""What a manifest knows of its change upstream, held against the pin that it is ported to.

A fingerprint is text in a file of the tree. A pull request is looked for in the subjects of a
history, where one is at hand; a tree alone cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from dsv4port.manifest.patchset import Fingerprint, Patchset, Upstreamed
from dsv4port.manifest.pins import Pins
from dsv4port.manifest.values import PullRequest


class UpstreamVerdict(Enum):
    """What the tree says of one row of ``upstreamed``."""

    PRESENT = "present"
    """The fingerprint is there, and its companion, if it has one."""
    UNSAFE = "unsafe"
    """The fingerprint is there without its companion: upstream has the change, but not safely."""
    EXPECTED = "expected"
    """The row says that upstream has it at this pin, and the fingerprint is not there."""
    ABSENT = "absent"
    """The fingerprint is not there, and nobody says that it should be."""
    MERGED = "merged"
    """There is no fingerprint; a pull request of the row is in the history up to the pin."""
    STATED = "stated"
    """Nothing but the row itself says that upstream has it at this pin."""

    @property
    def is_warning(self) -> bool:
        """Whether a person must look."""
        return self in (UpstreamVerdict.UNSAFE, UpstreamVerdict.EXPECTED)


@dataclass(frozen=True, slots=True)
class UpstreamCheck:
    """One row, what the pin says of it, and commits of its pull requests by number."""

    row: Upstreamed
    verdict: UpstreamVerdict
    commits: Mapping[PullRequest, str]

    def speaks_of(self, file: str) -> bool:
        """Whether it says that upstream has this patch file at the pin."""
        has = (UpstreamVerdict.PRESENT, UpstreamVerdict.MERGED, UpstreamVerdict.STATED)
        return self.verdict in has and (not self.row.patches or file in self.row.patches)

    @property
    def sentence(self) -> str:
        """What it means."""
        row = self.row
        mark = _spelled(row.fingerprint) if row.fingerprint else ""
        if self.verdict is UpstreamVerdict.UNSAFE:
            assert row.companion is not None
            return (
                f"upstream has the change ({mark}) WITHOUT what must be beside it "
                f"({_spelled(row.companion)}): this pin is not safe without a patch for it"
            )
        if self.verdict is UpstreamVerdict.EXPECTED:
            return (
                f"the manifest says that upstream has it since {row.pin}, but {mark} is not there"
            )
        if self.verdict is UpstreamVerdict.PRESENT:
            return f"upstream has it: {mark} is there"
        if self.verdict is UpstreamVerdict.MERGED:
            found = ", ".join(f"{pr} as {commit[:12]}" for pr, commit in self.commits.items())
            return f"upstream has merged {found}"
        if self.verdict is UpstreamVerdict.STATED:
            what = _what(row)
            proof = "the proof is recorded there" if row.proof else "nothing here proves it"
            return f"the manifest says that upstream has {what} since {row.pin}; {proof}"
        if not mark:
            return f"the manifest says that upstream has {_what(row)} from {row.pin} on, not here"
        return f"upstream does not have it: {mark} is not there"


def _what(row: Upstreamed) -> str:
    return ", ".join(row.patches) if row.patches else "it"


def _spelled(mark: Fingerprint) -> str:
    return f"{mark.contains!r} in {mark.path}"


def check_upstreamed(
    patchset: Patchset,
    pin: str,
    pins: Pins,
    read: Callable[[bytes], bytes | None],
    merged: Mapping[PullRequest, str],
) -> tuple[UpstreamCheck, ...]:
    """Every row of a manifest's ``upstreamed`` against a pin.

    Parameters:
        read: content of a path of the pin's tree, None where there is no file.
        merged: pull requests that the pin's history has, with their commits.
    """

    def there(mark: Fingerprint) -> bool:
        content = read(mark.path.encode())
        return content is not None and mark.contains.encode() in content

    checks = []
    for row in patchset.upstreamed:
        stated = pins.position(row.pin) <= pins.position(pin)
        commits = {pr: merged[pr] for pr in row.prs if pr in merged}
        if row.fingerprint is None:
            if commits:
                verdict = UpstreamVerdict.MERGED
            elif stated:
                verdict = UpstreamVerdict.STATED
            else:
                verdict = UpstreamVerdict.ABSENT
        elif not there(row.fingerprint):
            verdict = UpstreamVerdict.EXPECTED if stated else UpstreamVerdict.ABSENT
        elif row.companion is not None and not there(row.companion):
            verdict = UpstreamVerdict.UNSAFE
        else:
            verdict = UpstreamVerdict.PRESENT
        checks.append(UpstreamCheck(row, verdict, commits))
    return tuple(checks)
