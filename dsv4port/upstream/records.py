"""The small file that says what an import of a pin came out as."""

from __future__ import annotations

from pathlib import Path

from dsv4port.quick_dataclass import dataclass, field_names

RECORD_FORMAT = 1

_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Record:
    """One import.

    Parameters:
        pin: the pin's name.
        source: ``sdist`` or ``git``.
        commit: id of the imported commit.
        tree: id of its tree.
        pack: name of the pack that holds everything.
        shallow: the commit has parents that are not in the store.
        sha256: of the archive; None for git.
        tag: the tag that was asked for; None for an sdist.
        tag_object: id of the annotated tag that named the commit, where there was one.
    """

    pin: str
    source: str
    commit: str
    tree: str
    pack: str
    shallow: bool = False
    sha256: str | None = None
    tag: str | None = None
    tag_object: str | None = None

    def __post_init__(self) -> None:
        # Commit and pack name become parts of command lines and paths.
        for name in (self.commit, self.tree, self.pack):
            if len(name) != 40 or not set(name) <= _HEX:
                raise ValueError(f"{name!r} is not an id")

    @property
    def reference(self) -> str:
        """Full name of the reference to the commit."""
        return f"refs/pins/{self.pin}/{self.source}"

    def encode(self) -> bytes:
        """The content of the file."""
        import json

        values = {name: getattr(self, name) for name in field_names(Record)}
        return (json.dumps({"format": RECORD_FORMAT, **values}, indent=1) + "\n").encode()


def read_record(file: Path) -> Record | None:
    """The record in `file`; None when there is none that this version understands.

    Whatever is wrong with it, the import can be made again, so nothing here is an error.
    """
    import json

    try:
        values = json.loads(file.read_bytes())
        if not isinstance(values, dict) or values.pop("format", None) != RECORD_FORMAT:
            return None
        types = Record.__annotations__
        if not all(_fits(types[name], value) for name, value in values.items()):
            return None
        return Record(**values)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def is_foreign(file: Path) -> bool:
    """Whether another version of this program wrote the record: what it names is not known."""
    import json

    try:
        values = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    number = values.get("format") if isinstance(values, dict) else None
    return isinstance(number, int) and number != RECORD_FORMAT


def _fits(kind: str, value: object) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    return isinstance(value, str) or (value is None and kind == "str | None")
