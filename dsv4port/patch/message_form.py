"""Commit messages as a mail shows them, and back.

``git am`` joins a subject, tidies white space and drops one tag after the other. Here the same
tidying is done except for the tags: one ``[PATCH ...]`` bracket is taken off, every other tag
stays. A message that would not survive is shown tidied and carried exactly in a header.
"""

from __future__ import annotations

from binascii import b2a_base64

from dsv4port.patch.encoded_words import decode_base64
from dsv4port.patch.model import Identity

LINES_FIELD = b"X-Dsv4port-Message-Lines"
"""Number of body lines that are the message, verbatim; the next line is the separator."""
MESSAGE_FIELD = b"X-Dsv4port-Message"
"""The exact message in base64, where subject and body can only show it tidied."""
AUTHOR_FIELD = b"X-Dsv4port-Author"
"""The exact author in base64, where From and Date can only show it approximately."""

# What git takes for white space: vertical tab and form feed are text.
_BLANKS = b" \t\r\n"
_TO_SPACE = bytes(0x20 if code in _BLANKS else code for code in range(256))


def collapse(text: bytes) -> bytes:
    """One line of words with single spaces."""
    return b" ".join(filter(None, text.translate(_TO_SPACE).split(b" ")))


def clean_subject(subject: bytes) -> bytes:
    """A decoded Subject without its ``[PATCH n/m]`` bracket, all other tags kept."""
    text = collapse(subject)
    # In a reply the bracket stands behind "Re:"; without a bracket "Re:" belongs to the message.
    rest = text[3:].lstrip(b" ") if text[:3].lower() == b"re:" else text
    tag, close, title = rest[1:].partition(b"]")
    if rest.startswith(b"[") and close and any(w.startswith(b"PATCH") for w in tag.split(b" ")):
        return title.lstrip(b" ")
    return text


def tidy(text: bytes) -> bytes:
    """``git stripspace``: no trailing blanks, no double, leading or trailing empty lines."""
    out: list[bytes] = []
    empty = False
    for line in text.split(b"\n"):
        kept = line.rstrip(_BLANKS)
        if not kept:
            empty = bool(out)
            continue
        if empty:
            out.append(b"")
            empty = False
        out.append(kept)
    return b"\n".join(out) + b"\n" if out else b""


def join(subject: bytes, body: bytes) -> bytes:
    """The message of a subject and a body that is taken verbatim."""
    return subject + b"\n\n" + body if body else subject + b"\n"


def show(message: bytes) -> tuple[bytes, bytes]:
    """Subject and body that show ``message`` in a mail; the body is empty or ends its line."""
    lines = message.split(b"\n")
    start = 0
    while start < len(lines) and not lines[start].strip(_BLANKS):
        start += 1
    end = start
    while end < len(lines) and lines[end].strip(_BLANKS):
        end += 1
    body = b"\n".join(lines[end + 1 :])
    if body and not body.endswith(b"\n"):
        body += b"\n"
    return collapse(b" ".join(lines[start:end])), body


def encode_exact(value: bytes) -> bytes:
    """A header value that holds any bytes: folded base64."""
    text = b2a_base64(value, newline=False)
    return b"\n ".join(text[at : at + 72] for at in range(0, len(text), 72))


def encode_author(author: Identity) -> bytes:
    """The value of :data:`AUTHOR_FIELD`."""
    return encode_exact(
        b"%s\n%s\n%d\n%s" % (author.name, author.email, author.timestamp, author.zone)
    )


def decode_author(value: bytes) -> Identity:
    """The author in a value of :data:`AUTHOR_FIELD`.

    Raises:
        ValueError: it is malformed.
    """
    name, email, timestamp, zone = decode_base64(value).split(b"\n")
    if len(timestamp) > 20:
        raise ValueError("time out of range")
    return Identity(name, email, int(timestamp), zone)
