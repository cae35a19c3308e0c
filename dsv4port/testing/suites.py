"""What a run consists of: which files, on which tree, and what is asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.errors import BadInputError
from dsv4port.manifest.lock import load_lock
from dsv4port.manifest.stack import load_stack, resolve_stack
from dsv4port.manifest.values import shown, suggestion
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.manifest.patchset import Patchset
    from dsv4port.manifest.project import Project


class SuiteKind(str, Enum):
    """What is asked of the tests of a suite."""

    PATCHSET = "patchset"
    """A patchset's own tests, on the patched tree: all must pass."""
    UPSTREAM = "upstream"
    """vLLM's tests that the manifest names, on the patched tree: all must pass."""
    RED = "red-on-pin"
    """The tests marked `fix`, on the bare pin: each must fail."""


@dataclass(frozen=True, slots=True)
class Target:
    """A stack to test, and which of its patchsets; ``aliases`` have the same tree and patchsets."""

    stack: str
    pin: str
    tree: str
    patchsets: tuple[Patchset, ...]
    aliases: tuple[str, ...] = ()


def targets(project: Project, names: Sequence[str], pin: str | None) -> tuple[Target, ...]:
    """What `names` ask for: stacks, and patchsets on every stack that has them.

    No names mean every stack. Stacks that come out as the same tree from the same patchsets are
    tested once.

    Parameters:
        pin: only stacks on this pin.

    Raises:
        BadInputError: a name is neither a stack nor a patchset of one, or nothing is left.
    """
    stacks = project.stack_names()
    wanted: dict[str, set[str] | None] = {}
    for name in names or stacks:
        for stack, only in _asked(project, name, stacks):
            both = wanted.get(stack, only)
            wanted[stack] = None if only is None or both is None else only | both
    found: dict[tuple[str, tuple[str, ...]], Target] = {}
    for stack in sorted(wanted):
        if pin is not None and load_stack(project, stack).pin != pin:
            continue
        target = _target(project, stack, wanted[stack])
        key = (target.tree, tuple(one.name for one in target.patchsets))
        first = found.setdefault(key, target)
        if first is not target:
            found[key] = Target(
                first.stack, first.pin, first.tree, first.patchsets, (*first.aliases, stack)
            )
    if not found:
        raise BadInputError(
            "there is no stack to test" + (f" on {pin}" if pin else ""),
            fix="see `dsv4port list stacks` for what there is",
        )
    return tuple(found.values())


def _asked(project: Project, name: str, stacks: Iterable[str]) -> list[tuple[str, set[str] | None]]:
    """Stacks that a name stands for, and the patchsets of them; None for all."""
    if name in stacks:
        return [(name, None)]
    patchsets = project.patchset_names()
    if name not in patchsets:
        raise BadInputError(
            f"{shown(name)} is neither a stack nor a patchset"
            f"{suggestion(name, [*stacks, *patchsets])}",
            fix="see `dsv4port list` for what there is",
        )
    users = [stack for stack in stacks if name in load_stack(project, stack).patchsets]
    if not users:
        raise BadInputError(
            f"no stack has the patchset {name}, so there is no tree to test it on",
            fix="add it to a stack in manifests/stacks, and lock that",
        )
    return [(stack, {name}) for stack in users]


def _target(project: Project, stack: str, only: set[str] | None) -> Target:
    resolved = resolve_stack(project, stack)
    members = tuple(
        one.patchset for one in resolved.members if only is None or one.patchset.name in only
    )
    return Target(stack, resolved.pin.name, load_lock(project, stack).tree, members)


def test_files(project: Project, patchset: Patchset) -> tuple[Path, ...]:
    """Every test file of a patchset: those of its manifest, and any other ``test_*.py`` there."""
    folder = project.patchset_folder(patchset.name)
    named = [folder / one.path for one in patchset.tests]
    return tuple(sorted({*named, *(folder / "tests").glob("**/test_*.py")}))


test_files.__test__ = False  # type: ignore[attr-defined]


def unnamed_files(project: Project, patchset: Patchset) -> tuple[str, ...]:
    """Test files that the manifest says nothing about."""
    folder = project.patchset_folder(patchset.name)
    named = {folder / one.path for one in patchset.tests}
    return tuple(
        path.relative_to(folder).as_posix()
        for path in test_files(project, patchset)
        if path not in named
    )


def declared_red(project: Project, patchset: Patchset) -> tuple[str, ...]:
    """Files whose manifest row says ``fix: true``, relative to the project."""
    folder = project.patchset_folder(patchset.name)
    return tuple(project.label(folder / one.path) for one in patchset.tests if one.fix)
