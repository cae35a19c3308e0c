"""``dsv4port resolve``: decide a patch in conflict by hand, and go on with the port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.port import read_policy
from dsv4port.cli.render import Reply, count, full_path, shown_path
from dsv4port.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from dsv4port.port.port_onto import PinPort
    from dsv4port.port.resolve import Open


def command(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME] PATCH", help="A patchset or stack, and the patch to decide."
        ),
    ] = None,
    onto: Annotated[
        str | None, typer.Option("--onto", metavar="PIN", help="The pin it is in conflict on.")
    ] = None,
    old_pin: Annotated[
        str | None, typer.Option("--from", metavar="PIN", help="The pin to port from.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="RUNG=DECISION", help="As for port. Repeatable."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also a patch that is not in conflict, or decided.")
    ] = False,
    go_on: Annotated[
        bool, typer.Option("--continue", help="Take what the work tree holds, and port again.")
    ] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="Leave the patch out on this pin; say why.")
    ] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Close without a decision.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Say what is open.")] = False,
    why: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The reason, kept with the decision.")
    ] = None,
    author: Annotated[
        str | None,
        typer.Option(metavar="NAME <MAIL>", help="Who decides. Default: git's user."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put aside a series that was changed by hand.")
    ] = False,
) -> Reply:
    """Open a patch in conflict in a work tree, and port again with what becomes of it there."""
    run = Run.of(context)
    if sum((go_on, skip, abort, status)) > 1:
        raise UsageError(
            "--continue, --skip, --abort and --status do not go together", fix="give one of them"
        )
    from dsv4port.port.resolve import Resolver
    from dsv4port.upstream.cache import Cache

    resolver = Resolver(run.project, Cache.locate(), run.progress)
    if (go_on or skip or abort or status) and (words or onto is not None):
        raise UsageError("no patch goes with that option", fix="leave the patch out")
    if status:
        return _opened(resolver.status(), "nothing")
    if abort:
        saved = resolver.abort()
        lines = ["closed without a decision"]
        if saved is not None:
            lines.append(f"what was edited is in {shown_path(saved)}")
        fields = {"state": "aborted", "saved": None if saved is None else full_path(saved)}
        return Reply(fields, lines)
    if skip:
        if why is None:
            raise UsageError("a patch is left out for a reason", fix="add --why TEXT")
        return _decided(run, resolver.skip(author, why, overwrite=replace))
    if go_on:
        return _decided(run, resolver.proceed(author, why=why, overwrite=replace))
    if not words or len(words) > 2 or onto is None:
        raise UsageError("a patch and --onto PIN are needed", fix="see `dsv4port resolve --help`")
    name, patch = words if len(words) == 2 else (_owner(run, words[0]), words[0])
    found = resolver.open(
        name, patch, onto, old_pin=old_pin, policy=read_policy(policy or []), again=again
    )
    return _opened(found, "opened")


def _owner(run: Run, patch: str) -> str:
    """The patchset of a patch that is named alone."""
    if "/" in patch:
        return patch.partition("/")[0]
    project = run.project
    found = [
        name
        for name in project.patchset_names()
        if any(project.patchset_folder(name).glob(f"*/{patch}"))
    ]
    if len(found) != 1:
        raise UsageError(
            f"{'several patchsets have' if found else 'no patchset has'} a patch {patch}",
            fix="name the patchset before it",
        )
    return found[0]


def _opened(found: Open | None, state: str) -> Reply:
    if found is None:
        return Reply({"state": "nothing", "open": None}, ["nothing is being resolved"])
    one = found.state
    word = "goes on" if found.continued else "open"
    lines = [
        f"{one.key}, {one.old_pin} → {one.new_pin}: {word} in {shown_path(found.worktree)}",
        *(f"  {text}" for text in found.unresolved),
        "edit there (git mergetool works), then `dsv4port resolve --continue`",
    ]
    fields: dict[str, Any] = {
        "state": "open" if state == "nothing" or found.continued else state,
        "open": {
            "name": one.name,
            "patchset": one.patchset,
            "file": one.file,
            "from": one.old_pin,
            "onto": one.new_pin,
            "worktree": full_path(found.worktree),
            "unresolved": list(found.unresolved),
        },
    }
    return Reply(fields, lines)


def _decided(run: Run, done: PinPort) -> Reply:
    from dsv4port.cli.port_series import pin_fields, pin_lines, way_out

    run.fields.update({"state": "decided", "pins": [pin_fields(run.project, done)]})
    lines = list(pin_lines(run.project, done))
    left = len(done.report.conflicts)
    if left:
        raise ConflictError(
            f"decided; {count(left, 'patch', 'patches')} left to resolve",
            fix=way_out([done]),
            details=lines,
        )
    return Reply(lines=lines)
