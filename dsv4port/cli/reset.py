"""``dsv4port reset``: return the checkout to a bare pin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, full_path, shown_path
from dsv4port.cli.rows import notice_saved, recovered_row, recovery_notice, restore_command
from dsv4port.cli.source import SourceChoice, source_name
from dsv4port.errors import UsageError

if TYPE_CHECKING:
    from dsv4port.apply.receipt import Receipt
    from dsv4port.manifest.pins import Pin, Pins
    from dsv4port.upstream.pins import Source


def command(
    context: typer.Context,
    pin: Annotated[
        str | None,
        typer.Argument(metavar="[PIN]", help="Default: the pin the checkout stands on."),
    ] = None,
    source: Annotated[
        SourceChoice | None,
        typer.Option(help="Which source. Default: the one the checkout stands on, else the sdist."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Save what was changed in the checkout, then overwrite it."),
    ] = False,
) -> Reply:
    """Return the checkout to a pin without patches; make it where there is none."""
    from dsv4port.apply.stack_apply import reset_checkout
    from dsv4port.manifest.pins import load_pins
    from dsv4port.upstream.cache import Cache
    from dsv4port.upstream.pins import ensure_pin

    run = Run.of(context)
    project, checkout = run.project, run.checkout
    wanted, kind = _choose(load_pins(project), pin, checkout)
    if source is not None:
        kind = source_name(source)
    imported = ensure_pin(wanted, Cache.locate(), source=kind, progress=run.progress)
    report = reset_checkout(
        project, checkout, imported, force=force, on_recovery=recovery_notice(run, checkout)
    )
    notice_saved(run, checkout, report.saved)
    receipt = report.receipt
    fields = {
        "checkout": full_path(checkout),
        "pin": receipt.pin,
        "source": receipt.source,
        "commit": receipt.commit,
        "tree": receipt.tree,
        "changed": report.changed,
        "saved": report.saved,
        "restore": restore_command(checkout, report.saved),
        "recovered": recovered_row(checkout, report.recovered),
    }
    verb = "is at" if report.changed else "was at"
    line = (
        f"{shown_path(checkout)} {verb} {receipt.pin} ({receipt.source}), commit "
        f"{receipt.commit[:12]}, tree {receipt.tree[:12]}"
    )
    return Reply(fields, [line])


def _choose(pins: Pins, name: str | None, checkout: Path) -> tuple[Pin, Source | None]:
    """The pin to reset to, and the source of it that the checkout has already."""
    receipt = _receipt(checkout, needed=name is None)
    if name is None:
        if receipt is None:
            raise UsageError(
                f"no PIN was given, and nothing was published to {shown_path(checkout)} yet",
                fix=f"name one of {', '.join(pins)}",
            )
        name = receipt.pin
    pin = pins.pin(name)
    same = receipt is not None and receipt.pin == pin.name
    if not same or receipt is None:
        return pin, None
    return pin, "git" if receipt.source == "git" else "sdist"


def _receipt(checkout: Path, *, needed: bool) -> Receipt | None:
    from dsv4port.apply.receipt import read_receipt
    from dsv4port.errors import BadInputError, NotOurCheckoutError
    from dsv4port.git.checkout import open_checkout

    try:
        return read_receipt(open_checkout(checkout).state)
    except NotOurCheckoutError:
        # A missing one will be made; anything else is refused when it comes to writing.
        return None
    except BadInputError:
        if needed:
            raise
        return None
