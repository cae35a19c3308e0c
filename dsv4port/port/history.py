"""The history between two pins, where a repository has it: which commit broke a patch, which pull
requests are in it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dsv4port.git.repository import Repository
from dsv4port.manifest.pins import Pin
from dsv4port.manifest.values import PullRequest

_PULL_REQUEST = re.compile(r"\(#(\d+)\)")


@dataclass(frozen=True, slots=True)
class BreakingCommit:
    """The first commit on which a patch is in conflict.

    Parameters:
        commit, subject: which one.
        tried: how many commits were tried.
        candidates: how many touch the files at all.
    """

    commit: str
    subject: str
    tried: int
    candidates: int


def pin_commit(history: Repository, pin: Pin) -> str | None:
    """The commit of a pin in a repository with history; None where it does not have it."""
    if pin.git is None:
        return None
    for name in (pin.git.commit, f"refs/tags/{pin.git.tag}" if pin.git.tag else None):
        if name is None:
            continue
        found = history.git.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}",
            accept=(0, 1, 128),
        )  # fmt: skip
        commit = found.text
        if found.code == 0 and commit.startswith(pin.git.commit_prefix or ""):
            return commit
    return None


def first_parent_commits(
    history: Repository, old: str, new: str, paths: Iterable[bytes] = ()
) -> list[str]:
    """Commits after the fork of ``old`` up to ``new`` on its first-parent line, oldest first.

    Parameters:
        paths: only commits that change one of them; none means all.
    """
    fork = history.git.run("merge-base", old, new, accept=(0, 1))
    since = [f"^{fork.text}"] if fork.code == 0 else []
    listed = history.git.run(
        "--literal-pathspecs", "rev-list", "--first-parent", "--reverse", new, *since, "--",
        *map(os.fsdecode, paths),
    )  # fmt: skip
    return listed.text.splitlines()


def first_breaking(
    history: Repository, commits: Sequence[str], breaks: Callable[[str], bool]
) -> BreakingCommit | None:
    """The first commit that breaks, by bisection.

    Parameters:
        commits: oldest first; the last one is where it is broken.
        breaks: whether the patch is in conflict on a commit's tree.

    Returns:
        None where no commit breaks it: then the conflict comes from the series itself.
    """
    if not commits or not breaks(commits[-1]):
        return None
    low, high, tried = 0, len(commits) - 1, 1
    while low < high:
        middle = (low + high) // 2
        tried += 1
        if breaks(commits[middle]):
            high = middle
        else:
            low = middle + 1
    commit = commits[high]
    subject = history.git.run("log", "-1", "--format=%s", commit).text
    return BreakingCommit(commit, subject, tried, len(commits))


def merged_pull_requests(
    history: Repository, new: str, wanted: Iterable[PullRequest]
) -> dict[PullRequest, str]:
    """Which pull requests (by number) the subjects of a history name, and in which commit."""
    numbers = {str(one): one for one in wanted if isinstance(one, int)}
    if not numbers:
        return {}
    pattern = "|".join(sorted(numbers))
    listed = history.git.run(
        "log", "--first-parent", "--format=%H %s", "-E", f"--grep=\\(#({pattern})\\)", new
    )  # fmt: skip
    found: dict[PullRequest, str] = {}
    for line in listed.text.splitlines():
        commit, _, subject = line.partition(" ")
        for number in _PULL_REQUEST.findall(subject):
            if number in numbers:
                found[numbers[number]] = commit
    return found
