"""``dsv4port ladder``: decode graphs, arena and serve command of a deployment, or its check."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, columns
from dsv4port.errors import BadInputError, ExitCode, UsageError

if TYPE_CHECKING:
    from dsv4port.evidence.ladder import Check, Ladder, Plan


def command(
    context: typer.Context,
    stack: Annotated[
        str | None,
        typer.Argument(metavar="[STACK]", help="Default: the stack the checkout holds."),
    ] = None,
    mtp: Annotated[int, typer.Option(metavar="N", min=0, help="Draft tokens; 0: no MTP.")] = 4,
    max_reqs: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most requests decoded together.")
    ] = 64,
    reqs: Annotated[
        str | None,
        typer.Option(metavar="N,N,…", help="The request batches. Default: powers of two."),
    ] = None,
    max_batched_tokens: Annotated[
        int, typer.Option(metavar="N", min=1, help="Tokens of the largest step.")
    ] = 8195,
    platform: Annotated[
        str | None, typer.Option(metavar="NAME", help="cuda or musa. Default: the stack's target.")
    ] = None,
    capability: Annotated[
        str | None,
        typer.Option(metavar="N.N", help="Of the CUDA device, as 9.0: limits custom all-reduce."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="BYTES", min=1, help="What custom all-reduce accepts, if known."),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="The model of the serve command.")
    ] = "deepseek-ai/DeepSeek-V4-Flash-Base",
    check: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|-|COMMAND", help="Instead: hold this serve command against the stack."
        ),
    ] = None,
    planned: Annotated[
        str | None,
        typer.Option(metavar="N,N,…", help="With --check: the request batches of another plan."),
    ] = None,
) -> Reply:
    """Compute capture sizes, slots and bytes with the patched tree's own modules.

    Ends with 1 when there is no plan, or when the checked command would fall back.
    """
    from dsv4port.evidence.ladder import check_command, default_requests, make_ladder
    from dsv4port.evidence.serve_command import parse_serve_command
    from dsv4port.evidence.tree_modules import load_tree_modules
    from dsv4port.upstream.cache import Cache

    run = Run.of(context)
    if planned is not None and check is None:
        raise UsageError("--planned needs --check", fix="leave it out, or give the command")
    name = stack or _held(run)
    # Before the series is applied: a wrong list or file is told at once.
    batches = _numbers("--reqs", reqs) or default_requests(max_reqs)
    others = _numbers("--planned", planned)
    command = None if check is None else parse_serve_command(_text(check))
    modules = load_tree_modules(
        run.project, name, Cache.locate(), platform=platform, progress=run.progress
    )
    fields: dict[str, Any] = {"stack": name, "platform": modules.platform, "tree": modules.tree}
    if command is not None:
        found = check_command(modules, command, capability=capability, limit=limit, planned=others)
        fields.update(check=_check_fields(found))
        answer = ExitCode.OK if found.holds else ExitCode.NO
        return Reply(fields, list(_check_lines(found)), int(answer))
    ladder = make_ladder(
        modules, drafts=mtp, requests=batches, max_batched_tokens=max_batched_tokens,
        capability=capability, limit=limit, model=model,
    )  # fmt: skip
    fields.update(ladder=_ladder_fields(ladder))
    lines = list(_ladder_lines(ladder, mtp))
    refused = mtp and ladder.plan.refusal is not None
    return Reply(fields, lines, int(ExitCode.NO if refused else ExitCode.OK))


def _held(run: Run) -> str:
    from dsv4port.apply.receipt import readable_receipt
    from dsv4port.git.checkout import open_checkout

    if run.checkout.exists():
        receipt = readable_receipt(open_checkout(run.checkout).state)
        if receipt is not None and receipt.stack is not None:
            return receipt.stack
    names = ", ".join(run.project.stack_names())
    raise UsageError("no stack was named, and the checkout holds none", fix=f"name one of {names}")


def _numbers(option: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"{option} must be numbers above 0 with commas, is {text!r}", fix="1,2,4")
    return tuple(map(int, words))


def _text(source: str) -> str:
    """A command as given, from a file, or from standard input."""
    if source == "-":
        return sys.stdin.read()
    if "vllm" in source and " " in source:
        return source
    try:
        return Path(source).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{source}: is not UTF-8 text", fix="save it as UTF-8") from error
    except OSError as error:
        raise BadInputError(
            f"{source}: {(error.strerror or 'cannot be read').lower()}",
            fix="name a file, `-` for standard input, or give the command in quotes",
        ) from error


def _plan_fields(plan: Plan) -> dict[str, Any]:
    return {
        "descriptors": [list(one) for one in plan.descriptors],
        "ops_per_graph": plan.ops_per_graph,
        "slots": plan.slots,
        "eager_bytes": plan.eager_bytes,
        "data_bytes": plan.data_bytes,
        "need_bytes": plan.need_bytes,
        "arena_bytes": plan.arena_bytes,
        "bound_bytes": plan.bound_bytes,
        "limit": plan.limit,
        "refusal": plan.refusal,
    }


def _ladder_fields(ladder: Ladder) -> dict[str, Any]:
    return {
        "requests": list(ladder.requests),
        "capture_sizes": list(ladder.capture_sizes),
        "plan": _plan_fields(ladder.plan),
        "compilation_config": ladder.compilation,
        "speculative_config": ladder.speculative,
        "command": ladder.command,
    }


def _check_fields(check: Check) -> dict[str, Any]:
    return {
        "mode": check.mode,
        "plan": None if check.plan is None else _plan_fields(check.plan),
        "features": [
            {"feature": name, "holds": not reasons, "reasons": list(reasons)}
            for name, reasons in check.features
        ],
        "fallbacks": list(check.fallbacks),
        "remarks": list(check.notes),
    }


def _plan_lines(plan: Plan) -> Iterator[str]:
    if plan.refusal is not None:
        yield plan.refusal
        return
    graphs = ", ".join(f"({tokens},{requests})" for tokens, requests in plan.descriptors)
    limit = "any size" if plan.limit is None else f"less than {plan.limit:,} bytes"
    yield from columns(
        [
            ("graph descriptors", graphs),
            ("custom all-reduce takes", limit),
            ("slots", f"{plan.slots} ({plan.ops_per_graph} per graph)"),
            ("eager partition", f"{plan.eager_bytes:,} bytes"),
            ("data slots", f"{plan.data_bytes:,} bytes"),
            ("arena", f"{plan.arena_bytes:,} bytes of at most {plan.bound_bytes:,}"),
        ]
    )


def _ladder_lines(ladder: Ladder, drafts: int) -> Iterator[str]:
    yield f"request batches  {', '.join(map(str, ladder.requests))}"
    yield f"capture sizes    {', '.join(map(str, ladder.capture_sizes))}"
    if drafts:
        yield from _plan_lines(ladder.plan)
        left = set(ladder.requests) - {requests for _, requests in ladder.plan.descriptors}
        if left and ladder.plan.refusal is None:
            yield f"not in the plan: batches of {', '.join(map(str, sorted(left)))}"
    yield f"--compilation-config '{ladder.compilation}'"
    if ladder.speculative is not None:
        yield f"--speculative-config '{ladder.speculative}'"
    yield ladder.command


def _check_lines(check: Check) -> Iterator[str]:
    yield f"captured all-reduces: {check.mode}"
    if check.plan is not None:
        yield from _plan_lines(check.plan)
    yield from check.fallbacks
    rows = []
    for name, reasons in check.features:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        rows.append(
            (name, "on" if not reasons else "off", f"{reasons[0]}{more}" if reasons else "")
        )
    yield from columns(rows, indent=2)
    yield from check.notes
