"""Parse one patch file: a ``git format-patch`` mail, or a plain diff with free text above it.

What the mail says about author and message is read as ``git am --keep-non-patch`` reads it, with
these differences: only one ``[PATCH ...]`` bracket is taken off the subject, names are not
replaced by addresses, a message may hold ``---`` lines and diffs, and nothing is guessed: no
date, no charset, no second mail.
"""

from __future__ import annotations

from dsv4port.errors import PatchFormatError
from dsv4port.patch.diff import parse_diff_at
from dsv4port.patch.encoded_words import decode_base64, decode_words, to_utf8
from dsv4port.patch.mail_fields import parse_address, parse_date
from dsv4port.patch.mail_header import Header, charset_of, decoded_text, read_header
from dsv4port.patch.mail_split import (
    MailSplit,
    find_split,
    first_diff_line,
    refuse_hidden_diff,
    split_exactly,
)
from dsv4port.patch.message_form import (
    AUTHOR_FIELD,
    LINES_FIELD,
    MESSAGE_FIELD,
    clean_subject,
    decode_author,
    join,
    show,
    tidy,
)
from dsv4port.patch.model import Identity, Patch
from dsv4port.patch.source import Source

_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_IN_BODY = (b"from", b"subject", b"date")


def parse_patch(data: bytes, name: str) -> Patch:
    """Parse one patch file.

    Parameters:
        data: the file.
        name: how errors call it.

    Raises:
        PatchFormatError: it is malformed, ambiguous, or holds several mails.
        UnsafePathError: it would write outside the tree or into ``.git``.
    """
    source = Source(data, name)
    if data.startswith(_BYTE_ORDER_MARKS):
        raise source.error(
            0,
            "the file starts with a byte order mark: an editor or shell changed its encoding",
            fix="get the original file; write patches with 'git format-patch -o DIR', not by '>'",
        )
    if not data:
        raise source.error(0, "the file is empty", fix="get the whole file")
    header = read_header(source)
    if header is None:
        return _plain_diff(source)
    return _Mail(source, header, data).parse()


def _plain_diff(source: Source) -> Patch:
    start = first_diff_line(source, 0)
    refuse_hidden_diff(source, 0, start)
    files, end = parse_diff_at(source, start)
    lines = source.lines
    return Patch(b"".join(lines[:start]), files, b"".join(lines[end:]), None, None)


class _Mail:
    """One mail on its way to a patch."""

    def __init__(self, source: Source, header: Header, data: bytes) -> None:
        self.header = header
        self.charset = charset_of(source, header)
        text = decoded_text(source, header)
        self.raw = None if text is None else data
        self.source = source if text is None else Source(text, source.name, decoded=True)

    def parse(self) -> Patch:
        header, source = self.header, self.source
        stated = header.value(LINES_FIELD)
        if stated is None:
            split = find_split(source, header.end)
        else:
            if not stated.isdigit() or len(stated) > 9:
                raise self._fail(LINES_FIELD, "malformed number")
            split = split_exactly(source, header.end, int(stated))
        body = self._body(split)
        fields = {name: header.value(name) for name in _IN_BODY}
        verbatim = stated is not None
        if not verbatim:
            inner, body = _in_body_fields(body)
            fields.update(inner)
        message = self._message(fields[b"subject"] or b"", body, verbatim=verbatim)
        author = self._author(fields[b"from"], fields[b"date"])
        lines = source.lines
        return Patch(
            preamble=b"".join(lines[: split.diff_start]),
            files=split.files,
            trailer=b"".join(lines[split.trailer_start :]),
            author=author,
            message=message,
            raw=self.raw,
        )

    def _fail(self, name: bytes, what: str) -> PatchFormatError:
        fields = self.header.fields
        index = self.header.index(name) if name.lower() in fields else 0
        return self.source.error(
            index, f"{name.decode()}: {what}", fix="correct that field of the mail header"
        )

    def _body(self, split: MailSplit) -> bytes:
        body = b"".join(self.source.lines[self.header.end : split.message_end])
        try:
            return to_utf8(body, self.charset)
        except ValueError as problem:
            raise self._fail(b"Content-Type", str(problem)) from None

    def _message(self, subject: bytes, body: bytes, *, verbatim: bool) -> bytes:
        try:
            title = clean_subject(decode_words(subject))
        except ValueError as problem:
            raise self._fail(b"Subject", str(problem)) from None
        encoded = self.header.value(MESSAGE_FIELD)
        if encoded is None:
            return join(title, body) if verbatim else tidy(title + b"\n\n" + body)
        try:
            exact = decode_base64(encoded)
        except ValueError as problem:
            raise self._fail(MESSAGE_FIELD, str(problem)) from None
        if show(exact) != (title, body):
            raise self.source.error(
                self.header.index(MESSAGE_FIELD),
                f"{MESSAGE_FIELD.decode()} is not the message that the mail shows",
                fix="remove that field to use the message as it is shown",
            )
        return exact

    def _author(self, sender: bytes | None, date: bytes | None) -> Identity | None:
        if sender is None or date is None:
            if self.header.mbox:
                missing = "From" if sender is None else "Date"
                raise self.source.error(
                    0, f"mail without a {missing} field", fix=f"add the {missing} field"
                )
            return None
        try:
            name, email = parse_address(sender)
        except ValueError as problem:
            raise self._fail(b"From", str(problem)) from None
        try:
            timestamp, zone = parse_date(date)
        except ValueError as problem:
            raise self._fail(b"Date", str(problem)) from None
        shown = Identity(name, email, timestamp, zone)
        encoded = self.header.value(AUTHOR_FIELD)
        if encoded is None:
            return shown
        from dsv4port.patch.mail_render import shows_author

        try:
            exact = decode_author(encoded)
        except ValueError:
            raise self._fail(AUTHOR_FIELD, "malformed value") from None
        if not shows_author(shown, exact):
            raise self.source.error(
                self.header.index(AUTHOR_FIELD),
                f"{AUTHOR_FIELD.decode()} is not the author that the mail shows",
                fix="remove that field to use the author as it is shown",
            )
        return exact


def _in_body_fields(body: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """The From, Subject and Date fields at the start of a body, and the rest of it, as in git."""
    found: dict[bytes, list[bytes]] = {}
    lines = body.split(b"\n")
    at = 0
    folded: list[bytes] | None = None
    while at < len(lines):
        line = lines[at]
        if not line.strip(b"\r"):
            at += 1
            if folded is not None:
                break
            continue
        name, colon, value = line.partition(b":")
        key = name.lower()
        if folded is not None and line[:1] in (b" ", b"\t"):
            folded.append(line.strip())
        elif colon and key in _IN_BODY and key not in found and value[:1] in (b" ", b"\t"):
            folded = found[key] = [value.strip()]
        elif line.startswith(b"[PATCH] ") and b"subject" not in found:
            found[b"subject"] = [line]
            folded = None
        elif line.startswith(b">From ") and line.endswith(b" Mon Sep 17 00:00:00 2001"):
            folded = None
        else:
            break
        at += 1
    return {key: b" ".join(parts) for key, parts in found.items()}, b"\n".join(lines[at:])
