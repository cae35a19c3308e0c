"""``dsv4port lock``: write down what a stack comes out as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.lock_differences import difference_rows
from dsv4port.cli.render import Reply, count, full_path, shown_path
from dsv4port.cli.rows import companion_row, notice_companions, patch_rows
from dsv4port.cli.source import SourceChoice, source_name
from dsv4port.errors import ExitCode, ManifestError

if TYPE_CHECKING:
    from dsv4port.manifest.lock import Lock
    from dsv4port.manifest.project import Project

_MOST_LINES = 40


def command(
    context: typer.Context,
    stack: Annotated[str, typer.Argument(metavar="STACK", help="The stack, by name.")],
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; end with 1 when the lock is not up to date."),
    ] = False,
    source: Annotated[
        SourceChoice | None,
        typer.Option(help="Which source of the pin. Default: the lock's, else the sdist."),
    ] = None,
) -> Reply:
    """Apply a stack in memory and write its lock: the hash of every step, to be reviewed."""
    from dsv4port.apply.engine import SeriesConflictError
    from dsv4port.apply.lock_differences import lock_differences
    from dsv4port.apply.locking import make_lock
    from dsv4port.manifest.lock import write_lock
    from dsv4port.manifest.stack import resolve_stack
    from dsv4port.upstream.cache import Cache
    from dsv4port.upstream.pins import ensure_pin

    run = Run.of(context)
    project = run.project
    resolved = resolve_stack(project, stack)
    old = _present(project, stack, strict=check)
    kind = source_name(source or (None if old is None else old.source))
    file = project.lock_file(stack)
    run.fields.update(stack=stack, lock=full_path(file))
    pin = ensure_pin(resolved.pin, Cache.locate(), source=kind, progress=run.progress)
    try:
        new = make_lock(project, resolved, pin)
    except SeriesConflictError as error:
        run.fields["patches"] = patch_rows(error.report.patches)
        raise
    notice_companions(run, resolved.missing_companions)
    differences = [] if old is None else list(difference_rows(lock_differences(old, new)))
    missing = not file.is_file()
    outcome = "unchanged" if old is not None and not differences else _changed(check, missing)
    if outcome in ("created", "updated"):
        write_lock(project, new)
    fields = {
        "outcome": outcome,
        "pin": new.pin,
        "source": new.source.value,
        "base_tree": new.base_tree,
        "tree": new.tree,
        "commit": new.commit,
        "patches": [
            {
                "file": patch.key,
                "sha256": patch.sha256,
                "patch_id": patch.patch_id,
                "tree": patch.tree,
                "commit": patch.commit,
            }
            for patch in new.patches
        ],
        "files": len(new.files),
        "differences": differences,
        "companions": [companion_row(found) for found in resolved.missing_companions],
    }
    lines = [
        f"{shown_path(file)}: {_WORDS[outcome]}",
        f"{stack} on {new.pin} ({new.source.value}): "
        f"{count(len(new.patches), 'patch', 'patches')}, {count(len(new.files), 'file')} touched",
        *(
            "  {subject}: {what}: {expected} in the lock, {found} now".format(**row)
            for row in differences[:_MOST_LINES]
        ),
    ]
    if len(differences) > _MOST_LINES:
        lines.append(f"  … and {len(differences) - _MOST_LINES} more")
    lines.append(f"tree {new.tree}")
    answer = ExitCode.NO if check and outcome != "unchanged" else ExitCode.OK
    return Reply(fields, lines, int(answer))


_WORDS = {
    "created": "written; review it and commit it",
    "updated": "written anew; review the differences and commit it",
    "unchanged": "up to date",
    "missing": "there is no lock",
    "differs": "not up to date",
}


def _changed(check: bool, missing: bool) -> str:
    if check:
        return "missing" if missing else "differs"
    return "created" if missing else "updated"


def _present(project: Project, stack: str, *, strict: bool) -> Lock | None:
    """The lock there is; one that cannot be read counts as none unless `strict`."""
    from dsv4port.manifest.lock import load_lock

    if not project.lock_file(stack).is_file():
        return None
    try:
        return load_lock(project, stack)
    except ManifestError:
        if strict:
            raise
        return None
