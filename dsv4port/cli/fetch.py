"""``dsv4port fetch``: bring pins into the cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, columns, count, full_path, size
from dsv4port.cli.rows import pin_row
from dsv4port.cli.source import SourceChoice, source_name
from dsv4port.errors import UsageError
from dsv4port.upstream.cache import Cache, Pruned

if TYPE_CHECKING:
    from dsv4port.manifest.pins import Pin, Pins
    from dsv4port.upstream.pins import ImportedPin


def command(
    context: typer.Context,
    pins: Annotated[
        list[str] | None, typer.Argument(metavar="[PIN]...", help="Pins, by name.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every pin of the project.")] = False,
    from_path: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="PATH", exists=True,
            help="Take the pin from this archive, folder or git repository.",
        ),
    ] = None,
    source: Annotated[
        SourceChoice | None,
        typer.Option(help="Which source. Default: the sdist where the pin has one."),
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Fetch git sources from here: a URL, or OLD=NEW to replace how theirs starts. "
            "Default: DSV4PORT_GIT_MIRROR.",
        ),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Read what is in the cache, and fetch again what is damaged."),
    ] = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Then remove leftovers from the cache: what no project that shares it can use.",
        ),
    ] = False,
    unused: Annotated[
        int | None,
        typer.Option(
            "--unused", metavar="DAYS", min=0,
            help="With --prune: also pins that are not this project's and that nobody used for "
            "so many days.",
        ),
    ] = None,
) -> Reply:  # fmt: skip
    """Bring pins into the cache: downloaded, checked by hash, imported as one commit each."""
    from dsv4port.manifest.pins import load_pins

    run = Run.of(context)
    known = load_pins(run.project)
    wanted = _wanted(known, pins or [], everything=everything, prune=prune)
    if from_path is not None and len(wanted) != 1:
        raise UsageError("--from needs exactly one PIN", fix="name the pin that the path holds")
    if unused is not None and not prune:
        raise UsageError("--unused needs --prune", fix="give both, or leave --unused out")
    cache = Cache.locate()
    done: list[ImportedPin] = []
    rows: list[dict[str, Any]] = []
    run.fields["pins"] = rows
    for pin in wanted:
        done.append(_fetch(run, pin, cache, source, from_path, mirror, deep))
        rows.append(pin_row(done[-1]))
    pruned = cache.prune(known.values(), unused_days=unused) if prune else None
    fields = {
        "cache": full_path(cache.folder),
        "pruned": None if pruned is None else _pruned_row(pruned),
    }
    return Reply(fields, [*columns(map(_line, done)), *(_pruned_lines(pruned) if pruned else ())])


def _wanted(known: Pins, names: list[str], *, everything: bool, prune: bool) -> list[Pin]:
    if everything and names:
        raise UsageError("give PINs or --all, not both", fix="leave one of them out")
    if everything:
        return list(known.values())
    if not names and not prune:
        raise UsageError("no PIN was given", fix=f"name one of {', '.join(known)}, or use --all")
    return [known.pin(name) for name in dict.fromkeys(names)]


def _fetch(
    run: Run,
    pin: Pin,
    cache: Cache,
    source: SourceChoice | None,
    from_path: Path | None,
    mirror: str | None,
    deep: bool,
) -> ImportedPin:
    from dsv4port.upstream.pins import ensure_pin

    return ensure_pin(
        pin,
        cache,
        source=source_name(source),
        from_path=None if from_path is None else from_path.absolute(),
        mirror=mirror,
        deep=deep,
        progress=run.progress,
    )


def _line(pin: ImportedPin) -> tuple[str, ...]:
    return (
        pin.name,
        pin.source,
        "fetched" if pin.fetched else "in the cache",
        f"commit {pin.commit[:12]}",
        f"tree {pin.tree[:12]} {'as recorded' if pin.recorded else '(no tree is recorded)'}",
    )


def _pruned_row(pruned: Pruned) -> dict[str, Any]:
    return {
        "removed": pruned.removed,
        "freed": pruned.freed,
        "busy": pruned.busy,
        "unused": pruned.unused,
    }


def _pruned_lines(pruned: Pruned) -> list[str]:
    lines = [f"pruned {count(len(pruned.removed), 'entry', 'entries')}, {size(pruned.freed)} freed"]
    lines += [f"  {name}" for name in pruned.removed]
    lines += [f"  {name} is in use and stays" for name in pruned.busy]
    if pruned.unused:
        lines.append("not of this project's pins; `--prune --unused DAYS` removes what is unused:")
        lines += [f"  {name}" for name in pruned.unused]
    return lines
