"""What the lines of a series use of upstream, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from dsv4port.drift.facts import Call, Parameter
from dsv4port.drift.findings import Concern
from dsv4port.drift.index import Found


class UseKind(Enum):
    """How something is used."""

    FILE = "file"
    """The patch changes a file. ``subject`` is its path."""
    NEW_FILE = "new file"
    """The patch adds a file. ``subject`` is its path."""
    EDIT = "edit"
    """The patch changes lines inside of a definition."""
    DEFINE = "define"
    """The patch defines a name in a file of upstream's."""
    IMPORT_MODULE = "import module"
    """A module is imported. ``subject`` is its full name."""
    IMPORT = "import"
    """A name is imported from a module: ``subject`` is ``module:name``."""
    NAME = "name"
    """A name that the file itself binds, by an import or definition of upstream's."""
    LOCAL = "local"
    """A parameter or local name of upstream's function around the line."""
    CALL = "call"
    """A function, method or class is called."""
    READ = "read"
    """A function, class, variable, field or attribute is read."""
    UNTYPED_READ = "untyped read"
    """An attribute of something whose class is not known. ``subject`` is the text."""
    SUBCLASS = "subclass"
    """A class is subclassed."""
    OVERRIDE = "override"
    """A method is overridden; ``parameters`` are the override's."""
    REDEFINE = "redefine"
    """The patch changes the parameters of upstream's function; ``parameters`` are its own."""
    REPLACE = "replace"
    """A module's or class's name is assigned at run time."""
    OPERATOR = "operator"
    """A registered operator is called. ``subject`` is ``torch.ops.<namespace>.<name>``."""
    INCLUDE = "include"
    """A header is included. ``subject`` is the path as written."""
    NATIVE_CALL = "native call"
    """A C++ or CUDA function is called."""
    WORD = "word"
    """A word of an added line, for the curated file."""


@dataclass(frozen=True, slots=True)
class Use:
    """One use.

    Parameters:
        where: the line of the patch.
        target: the definition in the old tree, where there is one.
        subject: what is used, as written, where the kind says so.
        call: how it is called.
        bound: reached through an instance (or a class method): unless it is static, the call does
            not pass the first parameter.
        parameters: of the patch's own version.
        owner: the class of upstream's through which a member is read, or which is subclassed.
        implements: names that the subclass defines.
        called: what is read is called at once.
    """

    kind: UseKind
    where: Concern
    target: Found | None = None
    subject: str = ""
    call: Call | None = None
    bound: bool = False
    parameters: Sequence[Parameter] = ()
    owner: Found | None = None
    implements: frozenset[str] = field(default=frozenset())
    called: bool = False

    @property
    def name(self) -> str:
        """What is used, for people."""
        return self.subject or (self.target.name if self.target is not None else "")
