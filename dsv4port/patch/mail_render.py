"""The header and message of a mailbox, written as ``git format-patch`` writes them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dsv4port.patch.encoded_words import WordPlace, encode_words, needs_words
from dsv4port.patch.mail_fields import format_address, format_date, parse_address, parse_date
from dsv4port.patch.message_form import (
    AUTHOR_FIELD,
    LINES_FIELD,
    MESSAGE_FIELD,
    encode_author,
    encode_exact,
    show,
)
from dsv4port.patch.model import Identity

_MBOX_LINE = b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
_SUBJECT = b"Subject: [PATCH] "
_MIME = (
    b"MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n"
)
_FOLD_AT = 78


@dataclass(frozen=True, slots=True)
class Extras:
    """What a mail needs beyond the plain form so that everything in it can be read back.

    ``inner_from`` repeats the author at the start of the body, so that a message which begins
    like a mail header is not taken for one. ``lines``, ``message`` and ``author`` add the fields
    of :mod:`~dsv4port.patch.message_form`.
    """

    inner_from: bool = False
    lines: bool = False
    message: bool = False
    author: bool = False


def render(author: Identity, message: bytes, extras: Extras) -> bytes:
    """The mail from its ``From `` line up to and including the separator ``---``."""
    shown = presentable(author) if extras.author else author
    subject, body = show(message)
    sender = format_address(shown.name, shown.email)
    if extras.inner_from:
        body = b"%s\n\n%s" % (sender, body)
    out = [
        _MBOX_LINE,
        sender,
        b"\nDate: ",
        format_date(shown.timestamp, shown.zone),
        b"\n",
        _subject(subject),
        b"\n",
    ]
    if not (message + sender).isascii() or b"\x1b" in message:
        out.append(_MIME)
    if extras.author:
        out += (AUTHOR_FIELD, b": ", encode_author(author), b"\n")
    if extras.message:
        out += (MESSAGE_FIELD, b": ", encode_exact(message), b"\n")
    if extras.lines:
        out.append(b"%s: %d\n" % (LINES_FIELD, body.count(b"\n")))
    out += (b"\n", body, b"---\n")
    return b"".join(out)


def _subject(subject: bytes) -> bytes:
    if needs_words(subject):
        return _SUBJECT + encode_words(subject, len(_SUBJECT), WordPlace.TEXT)
    out = bytearray(_SUBJECT)
    column = len(_SUBJECT)
    for number, word in enumerate(subject.split(b" ")):
        gap = 0 if number == 0 else 1
        if column + gap + len(word) > _FOLD_AT:
            out += b"\n "
            column = 1
        elif gap:
            out += b" "
            column += 1
        out += word
        column += len(word)
    return bytes(out)


def presentable(author: Identity) -> Identity:
    """The author with whatever From and Date cannot hold left out."""
    email = author.email.translate(None, b"<>\n\r\0").strip(b" \t")
    timestamp, zone = author.timestamp, author.zone
    try:
        format_date(timestamp, zone)
    except ValueError:
        timestamp, zone = max(0, min(timestamp, 253402300799)), b"+0000"
    return Identity(author.name or email or b"unknown", email, timestamp, zone)


def shows_author(shown: Identity, exact: Identity) -> bool:
    """Whether ``shown`` is what is read when From and Date present ``exact``."""
    author = presentable(exact)
    sender = format_address(author.name, author.email).removeprefix(b"From:")
    name, email = parse_address(sender.replace(b"\n", b"").strip())
    timestamp, zone = parse_date(format_date(author.timestamp, author.zone))
    return shown == replace(exact, name=name, email=email, timestamp=timestamp, zone=zone)
