"""The file names that the header lines of a section hold."""

from __future__ import annotations

from dsv4port.patch.diff_advice import FROM_GIT, cut_off
from dsv4port.patch.paths import MAX_PATH_BYTES
from dsv4port.patch.quote import display_path, unquote, unquote_prefix
from dsv4port.patch.source import Source


def file_name(source: Source, index: int, prefix: bytes) -> tuple[bytes | None, bytes]:
    """The path of a ``---`` or ``+++`` line (None for /dev/null) and the time after it."""
    line = source.lines[index]
    if line.endswith(b"\r\n"):
        raise source.converted(index)
    if not line.endswith(b"\n"):
        raise cut_off(source, index)
    text = line[4:-1]
    stamp = b""
    if text.startswith(b'"'):
        try:
            text, end = unquote_prefix(text)
        except ValueError as problem:
            raise source.error(index, f"badly quoted name: {problem}", fix=FROM_GIT) from None
        stamp = line[4 + end : -1]
        if stamp and not stamp.startswith(b"\t"):
            raise source.error(index, "text after the quoted name", fix=FROM_GIT)
    elif b"\t" in text:
        text, _, stamp = text.partition(b"\t")
    if text == b"/dev/null":
        return None, stamp
    if not text.startswith(prefix):
        source.check_path(index, text)
        raise source.error(
            index,
            f"name {display_path(text)} does not start with {prefix.decode()!r}",
            fix="make the patch with the prefixes a/ and b/"
            " (git diff --src-prefix=a/ --dst-prefix=b/)",
        )
    return text[2:], stamp


def git_line_names(rest: bytes) -> list[tuple[bytes, bytes]]:
    """Every way to read the two names of a ``diff --git`` line; unquoted spaces make several."""
    try:
        if rest.startswith(b'"'):
            old, end = unquote_prefix(rest)
            if rest[end : end + 1] != b" ":
                return []
            return [(old, unquote(rest[end + 1 :]))]
        if rest.endswith(b'"'):
            old, _, new = rest.partition(b' "')
            return [(old, unquote(b'"' + new))]
    except ValueError:
        return []
    if len(rest) > 2 * MAX_PATH_BYTES + len(b"a/ b/"):
        return []
    names = []
    at = rest.find(b" b/")
    while at >= 0:
        names.append((rest[:at], rest[at + 1 :]))
        at = rest.find(b" b/", at + 1)
    if not names and rest.count(b" ") == 1:
        old, _, new = rest.partition(b" ")
        names.append((old, new))
    return names
