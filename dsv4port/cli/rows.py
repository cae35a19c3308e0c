"""Parts of output that several commands share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4port.cli.render import full_path, shown_path

if TYPE_CHECKING:
    from dsv4port.apply.engine import PatchReport
    from dsv4port.apply.file_patch import FileOutcome
    from dsv4port.apply.publish import Recovered
    from dsv4port.apply.scopes import Scope
    from dsv4port.cli.context import Run
    from dsv4port.manifest.stack import MissingCompanion
    from dsv4port.upstream.pins import ImportedPin


def pin_row(pin: ImportedPin) -> dict[str, Any]:
    """A pin in the cache, as JSON."""
    return {
        "pin": pin.name,
        "source": pin.source,
        "commit": pin.commit,
        "tree": pin.tree,
        "recorded": pin.recorded,
        "fetched": pin.fetched,
        "store": full_path(pin.store),
    }


def patch_rows(patches: Iterable[PatchReport]) -> list[dict[str, Any]]:
    """What became of each patch of a series, as JSON."""
    return [
        {
            "file": patch.key,
            "outcome": patch.outcome.value,
            "tree": patch.tree,
            "commit": patch.commit,
            "hunks": [row for found in patch.files for row in _hunk_rows(found)],
        }
        for patch in patches
    ]


def _hunk_rows(outcome: FileOutcome) -> Iterator[dict[str, Any]]:
    from dsv4port.patch.quote import display_path

    path = display_path(outcome.file.path)
    for hunk in outcome.hunks:
        yield {
            "file": path,
            "outcome": hunk.outcome.value,
            "old_scope": _scope_name(hunk.old_scope),
            "new_scope": _scope_name(hunk.new_scope),
            "reason": hunk.reason,
            "old_line": hunk.old_line,
            "new_line": hunk.new_line,
        }
    if outcome.refusal is not None and all(hunk.outcome.applied for hunk in outcome.hunks):
        # Nothing is wrong with a hunk: the file itself, its mode or its place was refused.
        yield {
            "file": path,
            "outcome": "refused",
            "old_scope": None,
            "new_scope": None,
            "reason": outcome.refusal,
            "old_line": None,
            "new_line": None,
        }


def _scope_name(scope: Scope | None) -> str | None:
    return None if scope is None else scope.name


def moved_lines(patches: Iterable[PatchReport]) -> Iterator[str]:
    """For people: every hunk that is not at its stated line, and why that is right."""
    from dsv4port.patch.quote import display_path

    for patch in patches:
        for found in patch.files:
            for hunk in found.hunks:
                if hunk.offset:
                    yield (
                        f"  {patch.key}: {display_path(found.file.path)}: line {hunk.old_line} "
                        f"is line {hunk.new_line} now: {hunk.reason}"
                    )


def restore_command(checkout: Path, saved: str | None) -> str | None:
    """The command that brings back what a forced publish saved."""
    if saved is None:
        return None
    return f"git -C {shlex.quote(shown_path(checkout))} checkout {saved} -- ."


def notice_saved(run: Run, checkout: Path, saved: str | None) -> None:
    """Say where the user's changes went, and how to get them back."""
    if saved is not None:
        run.notice(
            f"what the checkout held is saved as {saved}; to get it back: "
            f"{restore_command(checkout, saved)}"
        )


def recovered_row(checkout: Path, recovered: Recovered | None) -> Mapping[str, Any] | None:
    """An interrupted publish that was finished first, as JSON."""
    if recovered is None:
        return None
    return {
        "stack": recovered.receipt.stack,
        "pin": recovered.receipt.pin,
        "commit": recovered.receipt.commit,
        "saved": recovered.saved,
        "restore": restore_command(checkout, recovered.saved),
    }


def recovery_notice(run: Run, checkout: Path) -> Callable[[Recovered], None]:
    """For the library: say that an interrupted publish was finished, whatever comes of the rest."""

    def tell(recovered: Recovered) -> None:
        run.fields["recovered"] = recovered_row(checkout, recovered)
        run.notice(recovered.sentence)
        notice_saved(run, checkout, recovered.saved)

    return tell


def companion_row(missing: MissingCompanion) -> dict[str, str]:
    """A patchset that the stack should have and has not, as JSON."""
    return {
        "patchset": missing.patchset,
        "companion": missing.companion.patchset,
        "reason": missing.companion.reason,
        "breaks": missing.companion.breaks,
    }


def notice_companions(run: Run, companions: Iterable[MissingCompanion]) -> None:
    """Say which patchsets the stack should have and has not."""
    for missing in companions:
        run.notice(
            f"{missing.patchset} should have {missing.companion.patchset} beside it "
            f"({missing.companion.reason}); without it: {missing.companion.breaks}"
        )
