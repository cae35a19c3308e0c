"""Targets: what is built for which device. Data files beside this module, held to these values.

A target says which tools must be there, what the environment of the build is, which requirement
files of the tree are installed first, the install command, and what is checked afterwards.
"""

from __future__ import annotations

import re
from pathlib import Path

from dsv4port.errors import BadInputError
from dsv4port.manifest.document import Node, load_document
from dsv4port.manifest.values import (
    FieldError,
    Name,
    check_filled,
    check_name,
    check_relative_path,
    check_unique,
    name_problem,
    shown,
    suggestion,
)
from dsv4port.quick_dataclass import dataclass

TARGET_FORMAT = 1

PLACEHOLDERS = ("cuda_home", "musa_home", "jobs", "source", "deps")
"""What may stand in braces in the values of a target's environment."""

_FOLDER = Path(__file__).parent / "targets"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION = re.compile(r"\d+(\.\d+)*")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_ARCHITECTURE = re.compile(r"[1-9][0-9]{1,2}")


@dataclass(frozen=True, slots=True)
class ProgramProbe:
    """A program that must be found, in at least this version.

    ``packaged`` programs may come with the packages of the environment, so they are looked for
    there too, and only after the packages were installed.
    """

    program: str
    why: str
    install: str
    minimum: str | None = None
    packaged: bool = False

    def __post_init__(self) -> None:
        _check_probe(self.program, "program", self.why, self.install, self.minimum)


@dataclass(frozen=True, slots=True)
class ModuleProbe:
    """A Python package that must import in the environment; ``having`` is an attribute path in it
    that must not be empty."""

    module: str
    why: str
    install: str
    minimum: str | None = None
    having: str | None = None

    def __post_init__(self) -> None:
        _check_probe(self.module, "module", self.why, self.install, self.minimum)
        for field, text in (("module", self.module), ("having", self.having)):
            if text is not None and not all(part.isidentifier() for part in text.split(".")):
                raise FieldError(field, f"is {shown(text)}, must be names joined by dots")


@dataclass(frozen=True, slots=True)
class FolderProbe:
    """A folder that an environment variable names (``default`` where it is not set)."""

    variable: str
    default: str
    contains: str
    why: str
    install: str

    def __post_init__(self) -> None:
        _check_probe(self.variable, "variable", self.why, self.install, None)
        check_relative_path("contains", self.contains)


Probe = ProgramProbe | ModuleProbe | FolderProbe


@dataclass(frozen=True, slots=True)
class Target:
    """One way to build a tree.

    Parameters:
        device: what vLLM's ``VLLM_TARGET_DEVICE`` is set to.
        architectures: compute capabilities that kernels are compiled for; none without CUDA.
        environment: variables of the build, in order; see PLACEHOLDERS.
        requirements: requirement files of the tree, installed into the environment first.
        package_index: an additional package index for them.
        command: arguments of the installer, after ``install``.
        extensions: whether native extensions must have come out.
        never_run: what of this target was never tried in this project.
    """

    name: Name
    title: str
    device: str
    command: tuple[str, ...]
    extensions: bool
    architectures: tuple[str, ...] = ()
    probes: tuple[Probe, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    requirements: tuple[str, ...] = ()
    package_index: str | None = None
    package: str = "vllm"
    never_run: str | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_filled("title", self.title)
        check_filled("device", self.device)
        if not self.command:
            raise FieldError("command", "must not be empty")
        for architecture in self.architectures:
            if _ARCHITECTURE.fullmatch(architecture) is None:
                raise FieldError(
                    "architectures",
                    f"holds {shown(architecture)}; write a compute capability without the dot",
                )
        check_unique("architectures", self.architectures)
        for path in self.requirements:
            check_relative_path("requirements", path)
        for key, value in self.environment:
            if _VARIABLE.fullmatch(key) is None:
                raise FieldError("environment", f"names {shown(key)}, which is no variable")
            for found in _PLACEHOLDER.findall(value):
                if found not in PLACEHOLDERS:
                    raise FieldError(
                        "environment",
                        f"has {{{found}}} in {key}, known are {', '.join(PLACEHOLDERS)}"
                        + suggestion(found, PLACEHOLDERS),
                    )


def target_names() -> tuple[Name, ...]:
    """All targets, sorted."""
    return tuple(
        Name(path.stem)
        for path in sorted(_FOLDER.glob("*.yaml"))
        if name_problem(path.stem) is None
    )


def load_target(name: str, folder: Path = _FOLDER) -> Target:
    """Read a target.

    Raises:
        BadInputError: there is no such target.
        ManifestError: its file is malformed.
    """
    file = folder / f"{Name(name)}.yaml"
    if not file.is_file():
        known = sorted(path.stem for path in folder.glob("*.yaml"))
        raise BadInputError(
            f"there is no target {shown(name)}{suggestion(name, known)}",
            fix=f"name one of {', '.join(known)}",
        )
    root = load_document(file, file.name if folder != _FOLDER else f"targets/{file.name}")
    return _read_target(root, Name(file.stem))


def _read_target(root: Node, expected: Name) -> Target:
    root.require_format(TARGET_FORMAT, update="see docs/build.md for the present format")
    stated = root.name("name")
    if stated != expected:
        raise root.child("name").failed(f"is {stated}, but the file is {expected}.yaml")
    variables = root.optional_mapping("environment")
    with root.located():
        target = Target(
            name=stated,
            title=root.text("title"),
            device=root.text("device"),
            command=root.texts("command"),
            extensions=root.boolean("extensions"),
            architectures=root.optional_texts("architectures"),
            probes=tuple(_read_probe(node) for node in root.optional_sequence("probes")),
            environment=()
            if variables is None
            else tuple((key, node.as_text()) for key, node in variables.entries()),
            requirements=root.optional_texts("requirements"),
            package_index=root.optional_text("package_index"),
            package=root.optional_text("package") or "vllm",
            never_run=root.optional_text("never_run"),
        )
    root.finish()
    return target


_PROBE_KEYS = ("program", "module", "variable")


def _read_probe(node: Node) -> Probe:
    node.as_mapping()
    asked = [key for key in _PROBE_KEYS if node.optional(key) is not None]
    if len(asked) != 1:
        choices = ", ".join(f"`{key}`" for key in _PROBE_KEYS)
        raise node.failed(f"must have exactly one of {choices}, has {len(asked)}")
    why, install = node.text("why"), node.text("install")
    with node.located():
        probe: Probe
        if asked == ["program"]:
            probe = ProgramProbe(
                node.text("program"), why, install,
                minimum=node.optional_text("minimum"), packaged=node.optional_boolean("packaged"),
            )  # fmt: skip
        elif asked == ["module"]:
            probe = ModuleProbe(
                node.text("module"), why, install,
                minimum=node.optional_text("minimum"), having=node.optional_text("having"),
            )  # fmt: skip
        else:
            probe = FolderProbe(
                node.text("variable"), node.text("default"), node.text("contains"), why, install
            )
    node.finish()
    return probe


def _check_probe(subject: str, field: str, why: str, install: str, minimum: str | None) -> None:
    check_filled(field, subject)
    check_filled("why", why)
    check_filled("install", install)
    if minimum is not None and _VERSION.fullmatch(minimum) is None:
        raise FieldError("minimum", f"is {shown(minimum)}, must be numbers joined by dots")
