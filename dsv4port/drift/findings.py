"""What drift is reported as."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from dsv4port.drift.index import Place


class Severity(Enum):
    """How much a finding matters to the series."""

    NOTE = "note"
    """Worth knowing; what the patch does still works as far as can be seen."""
    WARNING = "warning"
    """The patch may do something else than it did, or nothing; somebody has to look."""
    ERROR = "error"
    """It fails as it stands: an import, a call or an attribute that is no longer there."""

    @property
    def rank(self) -> int:
        """0 for the mildest."""
        return list(Severity).index(self)


class Kind(Enum):
    """What kind of change a finding is about."""

    MODULE_GONE = "module-gone"
    """A module that is imported is not there, and nothing like it either."""
    MODULE_MOVED = "module-moved"
    """A module that is imported lies elsewhere."""
    FILE_GONE = "file-gone"
    """A file that the patch changes is not there, and nothing like it either."""
    FILE_MOVED = "file-moved"
    """A file that the patch changes lies elsewhere."""
    FILE_REPLACED = "file-replaced"
    """The path is there, with other content: what the patch is about lies elsewhere."""
    FILE_TAKEN = "file-taken"
    """The patch adds a file where one is now."""
    SYMBOL_REMOVED = "symbol-removed"
    """A definition is gone."""
    SYMBOL_MOVED = "symbol-moved"
    """A definition lies in another module or class."""
    SYMBOL_RENAMED = "symbol-renamed"
    """A definition very likely has another name."""
    REEXPORT_GONE = "re-export-gone"
    """A name can no longer be imported from here; its definition is where it was."""
    NAME_TAKEN = "name-taken"
    """The patch defines a name that upstream now defines there too."""
    NAME_UNBOUND = "name-unbound"
    """The file no longer imports or defines a name that the patch's lines use."""
    KIND_CHANGED = "kind-changed"
    """A function became a class, a property a method, and so on."""
    PARAMETER_REMOVED = "parameter-removed"
    """A parameter is gone."""
    PARAMETER_RENAMED = "parameter-renamed"
    """A parameter has another name."""
    PARAMETER_REQUIRED = "parameter-required"
    """There is a new parameter that must be given."""
    PARAMETER_ADDED = "parameter-added"
    """There is a new parameter that may be left out."""
    PARAMETER_SHIFTED = "parameter-shifted"
    """What is passed by position reaches another parameter."""
    DEFAULT_CHANGED = "default-changed"
    """A parameter that is left out has another default."""
    VALUE_CHANGED = "value-changed"
    """A constant has another value."""
    ANNOTATION_CHANGED = "annotation-changed"
    """A parameter has another type."""
    FIELD_REMOVED = "field-removed"
    """A field of a data class is gone."""
    FIELD_RENAMED = "field-renamed"
    """A field of a data class very likely has another name."""
    FIELD_REQUIRED = "field-required"
    """A data class has a new field that must be given."""
    ATTRIBUTE_GONE = "attribute-gone"
    """An attribute that is read is no longer there."""
    BASE_CHANGED = "base-changed"
    """A class has other bases."""
    ABSTRACT_ADDED = "abstract-added"
    """A base class has a new abstract method that is not implemented."""
    OVERRIDE_ORPHANED = "override-orphaned"
    """The method that is overridden is gone: nobody calls the override."""
    OVERRIDE_SIGNATURE = "override-signature"
    """The method that is overridden takes other parameters."""
    CALLER_CHANGED = "caller-changed"
    """Upstream calls it in a way that the patch's version does not take."""
    PATCH_WITHOUT_EFFECT = "patch-without-effect"
    """The name that is replaced at run time is no longer the one that upstream uses."""
    OPERATOR_REMOVED = "operator-removed"
    """A registered operator is gone."""
    OPERATOR_CHANGED = "operator-changed"
    """A registered operator has another schema."""
    FUNCTION_CHANGED = "function-changed"
    """A C++ or CUDA function takes other parameters."""
    INCLUDE_GONE = "include-gone"
    """A file that is included is not there."""
    MEANING = "meaning"
    """Same name and signature, other meaning: an entry of the curated file."""
    UNREADABLE = "unreadable"
    """A file does not parse, so nothing can be said about it."""


@dataclass(frozen=True, slots=True)
class Concern:
    """The line of a patch that a finding is about.

    ``line`` is in the patched file, ``patch_line`` in the patch file (0 where there is none).
    """

    patch: str
    path: str
    line: int
    patch_line: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One change that matters.

    ``subject`` is the qualified name or path that changed. ``concerns`` are the lines of the
    series it matters to, none for a plain comparison of two pins.
    """

    kind: Kind
    severity: Severity
    subject: str
    message: str
    old: Place | None = None
    new: Place | None = None
    replacement: str | None = None
    evidence: tuple[str, ...] = ()
    concerns: tuple[Concern, ...] = field(default=())

    @property
    def sort_key(self) -> tuple[int, str, str, str]:
        """Most severe first, then by name."""
        return -self.severity.rank, self.subject, self.kind.value, self.message
