"""The lines of one patch file, and the errors that speak of them."""

from __future__ import annotations

from io import BytesIO

from dsv4port.errors import PatchFormatError, UnsafePathError
from dsv4port.patch.paths import unsafe_reason
from dsv4port.patch.quote import display_path, display_text

MAX_PATCH_BYTES = 256 << 20
"""Largest patch file accepted."""

_SHOWN = 80


class Source:
    """A patch file split at line feeds only (never at carriage returns).

    Attributes:
        name: how errors call the file.
        lines: every line with its own end.
        firsts: the first byte of every line.
    """

    __slots__ = ("decoded", "firsts", "lines", "name")

    def __init__(self, data: bytes, name: str, *, decoded: bool = False) -> None:
        """Split ``data``; ``decoded`` says that it is not the file but its decoded text.

        Raises:
            PatchFormatError: it is larger than :data:`MAX_PATCH_BYTES`.
        """
        self.name = name
        self.decoded = decoded
        self.lines = BytesIO(data).readlines()
        self.firsts = bytes([line[0] for line in self.lines])
        if len(data) > MAX_PATCH_BYTES:
            raise self.error(
                0, f"larger than {MAX_PATCH_BYTES} bytes", fix="split the patch into smaller ones"
            )

    def error(self, index: int, what: str, *, fix: str | None = None) -> PatchFormatError:
        """The error to raise for the line at ``index`` (0-based)."""
        hint = " (line of the decoded mail)" if self.decoded else ""
        return PatchFormatError(f"{self.name}:{index + 1}: {what}{hint}", fix=fix)

    def converted(self, index: int) -> PatchFormatError:
        """The error for a patch file whose own lines end in CRLF."""
        return self.error(
            index,
            "the patch file was converted to CRLF line ends",
            fix="get the file again without conversion: mark '*.patch -text' in .gitattributes,"
            " or set core.autocrlf=false before the checkout",
        )

    def check_path(self, index: int, path: bytes) -> None:
        """Refuse a path that must not be written.

        Raises:
            UnsafePathError: with the reason.
        """
        reason = unsafe_reason(path)
        if reason is not None:
            raise UnsafePathError(
                f"{self.name}:{index + 1}: path {display_path(path)} {reason}",
                fix="do not use this patch; its paths must lie inside the source tree",
            )

    def shown(self, index: int) -> str:
        """The line at ``index``, shortened and safe to print."""
        text = display_text(self.lines[index].rstrip(b"\n")[: 4 * _SHOWN])
        return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
