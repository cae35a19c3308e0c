"""Mails of other tools, read as ``git am --keep-non-patch`` reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4port.patch.mailbox import parse_patch

CASES = Path(__file__).parent / "cases"
# Where git is known to lose something: the name, or the message below its first separator.
_GIT_LOSES = {
    "mail-short-author-name",
    "mail-message-with-separator",
    "mail-message-quotes-diff",
    "mail-message-ends-with-diff",
    "mail-message-lines-field",
    "mail-without-date",
}
_DIFF = b"---\n f | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\n" + (
    b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n-- \n2.39.5\n\n"
)


def _mailinfo(git: Any, mail: bytes) -> tuple[bytes, bytes, bytes]:
    """Name, e-mail and message that git finds."""
    out = git("mailinfo", "-b", "-u", "message", "diff", stdin=mail)
    fields: dict[bytes, list[bytes]] = {}
    for line in out.split(b"\n"):
        key, _, value = line.partition(b": ")
        fields.setdefault(key, []).append(value)
    message = b"\n".join(fields.get(b"Subject", [])) + b"\n\n"
    message += (git.root / "message").read_bytes()
    return fields[b"Author"][0], fields[b"Email"][0], git("stripspace", stdin=message)


def _mine(mail: bytes) -> tuple[bytes, bytes, bytes]:
    patch = parse_patch(mail, "x")
    assert patch.author is not None
    assert patch.message is not None
    return patch.author.name, patch.author.email, patch.message


_READ_ALIKE = sorted(
    path.name
    for path in CASES.iterdir()
    if path.name.startswith("mail-") and path.name not in _GIT_LOSES
)


@pytest.mark.parametrize("case", _READ_ALIKE)
def test_cases_are_read_as_git_reads_them(git: Any, case: str) -> None:
    mail = (CASES / case / "in.patch").read_bytes()
    assert _mine(mail) == _mailinfo(git, mail)


_tag = st.sampled_from(["", "[PATCH]", "[PATCH 1/2]", "[RFC PATCH v2]"])
_words = st.lists(
    st.sampled_from(
        [
            "[Bugfix][DSV4]",
            "[x]",
            "word",
            "a: b",
            "\t",
            " ",
            "  ",
            "\n ",
            "\n\t",
            "=?UTF-8?q?=C3=A9_x?=",
            "=?iso-8859-1?Q?=E9?=",
            "é",
            "=?utf-8?B?w6k=?=",
            "=?UTF-8?q?a?= =?UTF-8?q?b?=",
            "]",
            "[",
            "?=",
        ]
    ),
    min_size=1,
    max_size=6,
).map(" ".join)
_subject = st.builds(lambda tag, words: f"{tag} {words}".strip() or "x", _tag, _words)
_body = st.lists(
    st.sampled_from(
        [
            "text",
            "",
            "",
            "  indented",
            "trailing  ",
            "From: In Body <in@body.example>",
            "--",
            "-----",
            "Subject: [PATCH] [tag] inner",
            "Date: Wed, 15 Nov 2023 00:00:00 +0000",
            " folded",
            "é",
            "Cc: x",
            "[PATCH] inner",
            "cr\r",
            "tab\t",
            "From: =?UTF-8?q?J=C3=B6rg?= <j@x.example>",
            ">From 1111111111111111111111111111111111111111 Mon Sep 17 00:00:00 2001",
        ]
    ),
    max_size=8,
).map("\n".join)
_from = st.sampled_from(
    [
        "Ann Onym <a@b.example>",
        '"Onym, Ann" <a@b.example>',
        "a@b.example (Ann Onym)",
        "a@b.example",
        "=?UTF-8?q?J=C3=B6rg=20=C3=96?= <a@b.example>",
        "<a@b.example>",
        "Ann  Onym\n <a@b.example>",
        '"=?UTF-8?q?J=C3=B6rg?= X" <a@b.example>',
        "Ann (x) Onym <a@b.example>",
        "Jörg <a@b.example>",
    ]
)


@settings(deadline=None, max_examples=200)
@given(sender=_from, subject=_subject, body=_body)
def test_headers_and_bodies_are_read_as_git_reads_them(
    git: Any, sender: str, subject: str, body: str
) -> None:
    # git takes off every leading bracket that holds PATCH; here it is one. A folded date is none.
    if body.count("[PATCH]") > 1 or "+0000\n " in body:
        return
    mail = (
        f"From 1111111111111111111111111111111111111111 Mon Sep 17 00:00:00 2001\nFrom: {sender}\n"
        f"Date: Tue, 14 Nov 2023 22:13:20 +0100\nSubject: {subject}\n\n{body}\n"
    ).encode() + _DIFF
    assert _mine(mail) == _mailinfo(git, mail)
