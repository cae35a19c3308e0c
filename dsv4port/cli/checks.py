"""What ``dsv4port doctor`` looks at, one check after another."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port import __version__
from dsv4port.cli.render import count, full_path, shown_path, size
from dsv4port.errors import Dsv4portError
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.cli.context import Run
    from dsv4port.manifest.pins import Pin
    from dsv4port.manifest.project import Project
    from dsv4port.upstream.cache import Cache

_OLDEST_PYTHON = (3, 10)
_PACKAGES = (
    "typer", "click", "rich", "pyyaml", "requests", "tree-sitter", "tree-sitter-python",
    "tree-sitter-c", "tree-sitter-cpp", "tree-sitter-cuda", "tree-sitter-rust",
)  # fmt: skip
_SPACE = 1 << 30
"""Bytes that one more pin and a checkout of it should find free."""


class State(Enum):
    """The verdict on one check."""

    OK = "ok"
    """As it should be."""
    WARN = "warn"
    """Something does not work, or may not, that not every command needs."""
    FAIL = "fail"
    """Commands will fail."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was looked at, the verdict, what was found, and what to do."""

    name: str
    state: State
    found: str
    fix: str | None = None


def run_checks(run: Run, *, network: bool) -> Iterator[Check]:
    """Look at everything, one check after another; none stops the others."""
    yield Check("dsv4port", State.OK, __version__)
    yield _python()
    yield _git()
    yield from _packages()
    yield from _cache()
    project, found = _project(run)
    yield found
    if project is not None:
        yield _space("space at the checkout", _checkout(run, project))
    if network:
        yield _index(project)


def _python() -> Check:
    have = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return Check("python", State.OK, have)
    need = ".".join(map(str, _OLDEST_PYTHON))
    return Check("python", State.FAIL, have, f"use Python {need} or newer")


def _git() -> Check:
    from dsv4port.git.process import require_version, version

    try:
        require_version()
        return Check("git", State.OK, ".".join(map(str, version())))
    except Dsv4portError as error:
        return Check("git", State.FAIL, error.what, error.fix)


def _packages() -> Iterator[Check]:
    from importlib.metadata import PackageNotFoundError, version

    for name in _PACKAGES:
        try:
            yield Check(name, State.OK, version(name))
        except PackageNotFoundError:
            yield Check(name, State.FAIL, "not installed", "install dsv4port again with pip")


def _cache() -> Iterator[Check]:
    from dsv4port.upstream.cache import CACHE_VARIABLE, Cache

    try:
        cache = Cache.locate()
    except Dsv4portError as error:
        yield Check("cache", State.FAIL, error.what, error.fix)
        return
    place = _nearest(cache.folder)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        found = f"{full_path(cache.folder)}: {full_path(place)} cannot be written to"
        fix = f"make it writable, or set {CACHE_VARIABLE} to another folder"
        yield Check("cache", State.FAIL, found, fix)
        return
    yield Check("cache", State.OK, f"{full_path(cache.folder)}, {_contents(cache)}")
    yield _space("space at the cache", cache.folder)


def _contents(cache: Cache) -> str:
    if not cache.folder.is_dir():
        return "not made yet"
    total = 0
    for folder, _, files in os.walk(cache.folder):
        for name in files:
            try:
                total += (Path(folder) / name).lstat().st_size
            except OSError:
                continue
    return size(total)


def _space(name: str, path: Path) -> Check:
    try:
        free = shutil.disk_usage(_nearest(path)).free
    except OSError as error:
        return Check(name, State.WARN, f"unknown: {error.strerror}")
    if free >= _SPACE:
        return Check(name, State.OK, f"{size(free)} free")
    return Check(name, State.WARN, f"{size(free)} free", f"have {size(_SPACE)} free for a new pin")


def _nearest(path: Path) -> Path:
    """The folder itself, or the nearest above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _project(run: Run) -> tuple[Project | None, Check]:
    from dsv4port.manifest.pins import load_pins

    try:
        project = run.project
    except Dsv4portError as error:
        # Without a project the machine can still be fine; with --project it was asked about.
        state = State.WARN if run.project_folder is None else State.FAIL
        return None, Check("project", state, error.what, error.fix)
    try:
        pins = load_pins(project)
    except Dsv4portError as error:
        return None, Check("project", State.FAIL, error.what, error.fix)
    stacks = count(len(project.stack_names()), "stack")
    found = f"{full_path(project.root)}, {count(len(pins), 'pin')}, {stacks}"
    return project, Check("project", State.OK, found)


def _checkout(run: Run, project: Project) -> Path:
    return run.checkout_folder.absolute() if run.checkout_folder else project.default_checkout


def _index(project: Project | None) -> Check:
    from dsv4port.upstream.http import Http
    from dsv4port.upstream.index import find_archive
    from dsv4port.upstream.pip_settings import read_pip_settings
    from dsv4port.upstream.retry import Patience

    pin = None if project is None else _newest_sdist(project)
    if pin is None or pin.sdist is None:
        return Check("index", State.WARN, "no pin with an sdist to ask for", "run it in a project")
    try:
        with Http(read_pip_settings()) as http:
            found = find_archive(pin.sdist, http, patience=Patience(0))
    except Dsv4portError as error:
        what = "; ".join((error.what, *error.details))
        return Check("index", State.FAIL, what, error.fix)
    return Check("index", State.OK, f"{pin.name} at {_address(found.shown)}")


def _address(shown: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(shown)
    return parts.hostname or shown_path(Path(parts.path).parent)


def _newest_sdist(project: Project) -> Pin | None:
    from dsv4port.manifest.pins import load_pins

    found = [pin for pin in load_pins(project).values() if pin.sdist is not None]
    return found[-1] if found else None
