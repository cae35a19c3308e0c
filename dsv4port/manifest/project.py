"""Where a project keeps its files."""

from __future__ import annotations

from pathlib import Path

from dsv4port.errors import UsageError
from dsv4port.manifest.values import Name, name_problem
from dsv4port.quick_dataclass import dataclass

_MARKER = Path("manifests", "pins.yaml")


@dataclass(frozen=True, slots=True)
class Project:
    """A folder that holds ``manifests/pins.yaml``, and the places of everything in it."""

    root: Path

    @property
    def pins_file(self) -> Path:
        """``manifests/pins.yaml``."""
        return self.root / _MARKER

    @property
    def stacks_folder(self) -> Path:
        """Folder of the stack manifests."""
        return self.root / "manifests" / "stacks"

    @property
    def locks_folder(self) -> Path:
        """Folder of the locks."""
        return self.root / "manifests" / "locks"

    @property
    def patchsets_folder(self) -> Path:
        """Folder with one folder per patchset."""
        return self.root / "patchsets"

    @property
    def default_checkout(self) -> Path:
        """The checkout that commands work on unless told otherwise."""
        return self.root / "vendor" / "vllm"

    @property
    def state_folder(self) -> Path:
        """Machine-local state of this project; ignored by git."""
        return self.root / ".dsv4port"

    def stack_file(self, name: str) -> Path:
        """Manifest of a stack. Raises BadInputError when ``name`` is not a valid name."""
        return self.stacks_folder / f"{Name(name)}.yaml"

    def lock_file(self, stack: str) -> Path:
        """Lock of a stack. Raises BadInputError when ``stack`` is not a valid name."""
        return self.locks_folder / f"{Name(stack)}.lock.yaml"

    def patchset_folder(self, name: str) -> Path:
        """Folder of a patchset. Raises BadInputError when ``name`` is not a valid name."""
        return self.patchsets_folder / Name(name)

    def patchset_file(self, name: str) -> Path:
        """Manifest of a patchset. Raises BadInputError when ``name`` is not a valid name."""
        return self.patchset_folder(name) / "patchset.yaml"

    def stack_names(self) -> tuple[Name, ...]:
        """Names of all stacks, sorted. Files whose name is no valid name are not stacks."""
        if not self.stacks_folder.is_dir():
            return ()
        stems = sorted(path.name[:-5] for path in self.stacks_folder.glob("*.yaml"))
        return tuple(Name(stem) for stem in stems if name_problem(stem) is None)

    def patchset_names(self) -> tuple[Name, ...]:
        """Names of all patchsets, sorted: the folders that hold a ``patchset.yaml``."""
        if not self.patchsets_folder.is_dir():
            return ()
        folders = sorted(path.parent.name for path in self.patchsets_folder.glob("*/patchset.yaml"))
        return tuple(Name(folder) for folder in folders if name_problem(folder) is None)

    def label(self, path: Path) -> str:
        """``path`` as messages show it: relative to the project where it lies inside."""
        # Asked for every patch of a series; `relative_to` is slow.
        inside = f"{self.root}/"
        if str(path).startswith(inside):
            return str(path).removeprefix(inside)
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return str(path)


def find_project(start: Path) -> Project:
    """The project that ``start`` lies in: the nearest folder upwards with manifests/pins.yaml.

    Raises:
        UsageError: there is none.
    """
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / _MARKER).is_file():
            return Project(folder)
    raise UsageError(
        f"no project at or above {start}: no folder there has a {_MARKER.as_posix()}",
        fix="run it inside a project, name one with --project DIR, or make one: put a "
        f"{_MARKER.as_posix()} with `format: 1` and `pins:` into its root",
    )
