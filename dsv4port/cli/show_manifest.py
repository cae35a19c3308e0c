"""Pins, patchsets and stacks, as ``dsv4port show`` presents them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Any

from dsv4port.cli.render import Reply, columns, count, full_path, paragraph
from dsv4port.cli.rows import companion_row

if TYPE_CHECKING:
    from dsv4port.manifest.lock import Lock
    from dsv4port.manifest.patchset import Patchset
    from dsv4port.manifest.pins import Pin
    from dsv4port.manifest.project import Project
    from dsv4port.manifest.series import Series
    from dsv4port.manifest.stack import ResolvedStack

_MARGIN = 4
_PROBE_WORDS = {
    "exists": "is there",
    "absent": "is not there",
    "contains": "contains the text below",
    "lacks": "does not contain the text below",
}


def show_pin(project: Project, name: str) -> Reply:
    """A pin with its sources, and whether the cache has them."""
    from dsv4port.manifest.pins import load_pins
    from dsv4port.upstream.cache import Cache

    pin = load_pins(project).pin(name)
    cache = Cache.locate()
    imports = {kind: cache.find(pin.name, kind) for kind in ("sdist", "git")}
    sources = {
        kind: {
            **_plain(asdict(source)),
            "cached": None if (record := imports[kind]) is None else record.commit,
        }
        for kind, source in (("sdist", pin.sdist), ("git", pin.git))
        if source is not None
    }
    return Reply(
        {"kind": "pin", "pin": {"name": pin.name, **sources}}, list(_pin_lines(pin, sources))
    )


def _pin_lines(pin: Pin, sources: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield f"pin {pin.name}"
    for kind, values in sources.items():
        yield f"  {kind}"
        rows = [(key, str(value)) for key, value in values.items() if value and key != "cached"]
        if not values.get("tree"):
            rows.append(("tree", "not recorded"))
        cached = values["cached"]
        rows.append(("cache", f"commit {cached}" if cached else "not in the cache"))
        yield from columns(rows, indent=_MARGIN)


def show_patchset(project: Project, name: str) -> Reply:
    """All of a patchset's manifest, and the patches of every series."""
    from dsv4port.manifest.patchset import load_patchset
    from dsv4port.manifest.pins import load_pins
    from dsv4port.manifest.series import load_series

    patchset = load_patchset(project, name, load_pins(project))
    series = [load_series(project, patchset, pin) for pin in patchset.series]
    row = _plain(asdict(_unlocked(patchset)))
    row["series"] = {found.pin: list(found.entries) for found in series}
    row["folder"] = full_path(project.patchset_folder(name))
    return Reply({"kind": "patchset", "patchset": row}, list(_patchset_lines(patchset, series)))


def _unlocked(patchset: Patchset) -> Patchset:
    # asdict copies mappings by calling their type, which a read-only view does not allow.
    from dataclasses import replace

    found = replace(patchset)
    object.__setattr__(found, "series", dict(patchset.series))
    object.__setattr__(found, "refused", dict(patchset.refused))
    return found


def _patchset_lines(patchset: Patchset, series: Iterable[Series]) -> Iterator[str]:
    yield f"patchset {patchset.name}: {patchset.title}"
    yield ""
    yield from paragraph(patchset.why, indent=2)
    yield from _origin_lines(patchset)
    yield from _heading("series")
    for found in series:
        yield f"  {found.pin}: {count(len(found.entries), 'patch', 'patches')}"
        yield from (f"    {entry}" for entry in found.entries)
    relations = (
        ("requires", patchset.requires, "without it"),
        ("conflicts with", patchset.conflicts, "together"),
        ("should have beside it", patchset.companions, "without it"),
    )
    for title, rows, otherwise in relations:
        yield from _items(
            title,
            (f"{row.patchset}: {row.reason}; {otherwise}: {row.breaks}" for row in rows),
        )
    yield from _items("refused", (f"on {pin}: {why}" for pin, why in patchset.refused.items()))
    yield from _probe_lines(patchset)
    yield from _items(
        "upstream has it",
        (f"since {row.pin} {_pull_requests(row.prs)}".rstrip() for row in patchset.upstreamed),
    )
    yield from _items(
        "hazards",
        (f"when {row.condition}: {row.effect} ({row.evidence})" for row in patchset.hazards),
    )
    yield from _guard_lines(patchset)
    yield from _items(
        "tests",
        (
            f"{test.path}: {test.covers}"
            + (f" [{', '.join(test.markers)}]" if test.markers else "")
            + (" (fails without the patchset)" if test.fix else "")
            for test in patchset.tests
        ),
    )
    yield from _items("upstream's tests", patchset.upstream_tests)
    yield from _items(
        "kernels",
        (
            f"{kernel.name} for {', '.join(kernel.architectures)}: {', '.join(kernel.sources)}"
            for kernel in patchset.kernels
        ),
    )
    yield from _items("never run", (f"{row.what}: {row.why}" for row in patchset.not_run))
    yield from _items("excluded", (f"{row.item}: {row.reason}" for row in patchset.excluded))


def _probe_lines(patchset: Patchset) -> Iterator[str]:
    for number, probe in enumerate(patchset.preconditions):
        if number == 0:
            yield from _heading("preconditions")
        where = f" (on {', '.join(probe.pins)})" if probe.pins else ""
        yield from paragraph(
            f"{probe.path} {_PROBE_WORDS[probe.kind.value]}{where}: {probe.why}",
            indent=_MARGIN, first="  - ",
        )  # fmt: skip
        if probe.needle is not None:
            # Not wrapped: white space counts in it.
            yield f"      {'regex ' if probe.regex else ''}{probe.needle!r}"


def _origin_lines(patchset: Patchset) -> Iterator[str]:
    origin = patchset.origin
    parts = [
        f"written {origin.written.value}" if origin.written.value == "here" else "adapted",
        f"author {origin.author}" if origin.author else "",
        f"asked for by {origin.seed}" if origin.seed else "",
        _pull_requests(origin.prs),
        origin.note or "",
    ]
    yield from _items("origin", ["; ".join(part for part in parts if part)])


def _guard_lines(patchset: Patchset) -> Iterator[str]:
    guard = patchset.guard
    if guard is None:
        return
    yield from _items("guard", [f"{guard.name} in {guard.module}: {guard.summary}"])
    for field, must in guard.fields:
        yield from paragraph(f"{field}: {must}", indent=8, first="      ")


def show_stack(project: Project, name: str) -> Reply:
    """A stack with its patches in order, and what its lock says."""
    from dsv4port.manifest.lock import load_lock
    from dsv4port.manifest.stack import resolve_stack

    resolved = resolve_stack(project, name)
    lock = load_lock(project, name) if project.lock_file(name).is_file() else None
    stack = resolved.stack
    row = {
        "name": stack.name,
        "title": stack.title,
        "pin": stack.pin,
        "target": stack.target,
        "patchsets": list(stack.patchsets),
        "patches": [patch.key for patch in resolved.patches],
        "companions": [companion_row(missing) for missing in resolved.missing_companions],
        "lock": None
        if lock is None
        else {
            "source": lock.source.value,
            "base_tree": lock.base_tree,
            "tree": lock.tree,
            "commit": lock.commit,
            "files": len(lock.files),
            "tool": lock.tool,
        },
    }
    return Reply({"kind": "stack", "stack": row}, list(_stack_lines(resolved, lock)))


def _stack_lines(resolved: ResolvedStack, lock: Lock | None) -> Iterator[str]:
    stack = resolved.stack
    yield f"stack {stack.name}: {stack.title}"
    rows = [("pin", str(stack.pin)), ("target", str(stack.target))]
    if lock is None:
        rows.append(("lock", "none"))
    else:
        rows.append(("lock", f"tree {lock.tree}, {count(len(lock.files), 'file')} touched"))
    yield from columns(rows, indent=2)
    for member in resolved.members:
        entries = member.series.entries
        patches = count(len(entries), "patch", "patches")
        yield f"  {member.patchset.name}: {member.patchset.title} ({patches})"
        yield from (f"    {entry}" for entry in entries)
    yield from _items(
        "not in the stack",
        (
            f"{missing.companion.patchset}, which {missing.patchset} should have beside it: "
            f"{missing.companion.reason}; without it: {missing.companion.breaks}"
            for missing in resolved.missing_companions
        ),
    )


def _heading(title: str) -> Iterator[str]:
    yield ""
    yield f"{title}:"


def _items(title: str, texts: Iterable[str]) -> Iterator[str]:
    """A heading and its points, or nothing where there is no point."""
    for number, text in enumerate(texts):
        if number == 0:
            yield from _heading(title)
        yield from paragraph(text, indent=_MARGIN, first="  - ")


def _pull_requests(references: Iterable[int | str]) -> str:
    shown = [f"#{one}" if isinstance(one, int) else one for one in references]
    return f"PR {', '.join(shown)}" if shown else ""


def _plain(value: Any) -> Any:
    """Values as JSON has them."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
