"""New mails read back as the commit they were made of, and ``git am`` makes that commit."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsv4port.errors import PatchFormatError
from dsv4port.patch.mailbox import parse_patch
from dsv4port.patch.model import Identity
from dsv4port.patch.write import diff_to_bytes, format_mailbox, patch_to_bytes

DIFF = (
    b"diff --git a/f b/f\n"
    b"index 587be6b4c3f93f93c489c0111bba5596147a26cb.."
    b"975fbec8256d3e8a3797e7a3611380f27c49f4ac 100644\n"
    b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n"
)
# A diff whose hunks hold what looks like a separator and a new section.
TRICKY = (
    b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +0,0 @@\n-x\n---\n"
    b"diff --git a/g b/g\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-x\n+y\n"
)
AUTHOR = Identity(b"A U Thor", b"author@example.com", 1700000000, b"+0200")

_fragment = st.sampled_from(
    [
        b"x",
        b"word",
        b" ",
        b"  ",
        b"\n",
        b"\n\n",
        b"\n---\n",
        b"---\n\n",
        b"diff --git a/f b/f\n",
        b"[PATCH] ",
        b"[PATCH 1/2] ",
        b"[Bugfix][DSV4] ",
        b"Re: ",
        b":",
        b"\xe9",
        "é→🐍".encode(),
        b"\t",
        b"\r\n",
        b"From: a <b@c>\n",
        b"Subject: z\n",
        b"From 1 Mon Sep 17 00:00:00 2001\n",
        b"=?UTF-8?q?x?=",
        b"# c\n",
        b"-- \n",
        b"_",
        b"\x1b[0m",
        b"\x0b",
        b"\n 1 file changed\n",
        DIFF,
        b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n",
        b">From x\n",
        b"Date: now\n",
        b"-- >8 --\n",
        b" 1 file changed, 1 insertion(+), 1 deletion(-)\n\n",
        b"verylongword" * 9,
        b"Signed-off-by: A\n",
    ]
)
_message = st.lists(_fragment, max_size=12).map(b"".join)
_name = st.one_of(
    st.binary(max_size=30),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")),
    st.lists(
        st.sampled_from(
            [b"Ann", b" ", b"O'Neil", b"Jr.", b",", b'"', b"\\", b"(", b")", b"J\xc3\xb6rg"]
        ),
        max_size=6,
    ).map(b"".join),
).map(lambda name: name.translate(None, b"\n\0<>"))
_author = st.builds(
    Identity,
    _name,
    st.one_of(st.just(b"a@b.example"), _name),
    st.integers(0, 1 << 40),
    st.one_of(
        st.sampled_from([b"+0000", b"-0000", b"+0530", b"-1145", b"+9999", b"+051800", b""]),
        st.integers(-1400, 1400).map(lambda zone: b"%+05d" % zone),
    ),
)


@settings(deadline=None, max_examples=300)
@given(author=_author, message=_message, diff=st.sampled_from([DIFF, TRICKY]))
@example(AUTHOR, b"", DIFF)
@example(AUTHOR, b"[PATCH] [Bugfix] x\n", DIFF)
@example(AUTHOR, b"subject\non two lines\n\nbody", DIFF)
@example(AUTHOR, b"quote\n\n" + DIFF + b"---\n\n" + DIFF, TRICKY)
def test_reads_back_as_written(author: Identity, message: bytes, diff: bytes) -> None:
    mail = format_mailbox(author=author, message=message, diff=diff)
    patch = parse_patch(mail, "x")
    assert (patch.author, patch.message, diff_to_bytes(patch.files)) == (author, message, diff)
    assert patch_to_bytes(patch) == mail
    assert patch.trailer == b""
    # Written again from what was read, it is the same file: refresh must not churn.
    assert format_mailbox(author=patch.author, message=patch.message, diff=diff) == mail


_tidy_line = st.text("abc d[]:.é→-_=?'\"", min_size=1, max_size=90).map(
    lambda text: " ".join(text.split()) or "x"
)
_tidy_message = st.builds(
    lambda subject, body: "\n\n".join(["s" + subject, *body]) + "\n",
    _tidy_line,
    st.lists(_tidy_line.map(lambda line: "b" + line), max_size=3),
).map(str.encode)
_plain_author = st.builds(
    Identity,
    st.sampled_from(
        ["Ann Onym", "Jörg Ö. Müßig", "O'Neil, Jim", 'Al "Bob" C', "李 小龙先生", "A" * 59, "x=?y"]
    ).map(str.encode),
    st.sampled_from([b"a@example.com", b"very.long.address." * 4 + b"@example.com"]),
    st.integers(10**8, 1 << 31),
    st.sampled_from([b"+0000", b"+0530", b"-0800", b"+1400"]),
)


@settings(deadline=None, max_examples=60)
@given(author=_plain_author, message=_tidy_message)
def test_git_am_makes_the_same_commit(git: Any, author: Identity, message: bytes) -> None:
    git.commits({b"f": (0o100644, b"x\n")})
    git("am", "--quit", check=False)
    git("checkout", "-q", "-f", "-B", "work", "t0")
    mail = format_mailbox(author=author, message=message, diff=DIFF)
    git("am", "-q", "--keep-cr", "--keep-non-patch", stdin=mail)
    commit = git("cat-file", "commit", "HEAD")
    head, _, body = commit.partition(b"\n\n")
    assert b"\nauthor " + author.encode() + b"\n" in head
    assert body == message
    assert b"X-Dsv4port" not in mail


@settings(deadline=None, max_examples=60)
@given(author=_plain_author, message=_tidy_message)
def test_the_form_is_that_of_format_patch(git: Any, author: Identity, message: bytes) -> None:
    git.commits({b"f": (0o100644, b"x\n")}, {b"f": (0o100644, b"y\n")})
    tree, parent = git("rev-parse", "t1^{tree}", "t0").decode().split()
    commit = b"tree %s\nparent %s\nauthor %s\ncommitter C <c@e> 1 +0000\n\n%s" % (
        tree.encode(),
        parent.encode(),
        author.encode(),
        message,
    )
    commit_id = git("hash-object", "-t", "commit", "-w", "--stdin", stdin=commit).strip()
    theirs = git(
        *("format-patch", "--stdout", "--zero-commit", "--no-signature", "--full-index", "-1"),
        commit_id,
    )
    patch = parse_patch(theirs, "x")
    assert (patch.author, patch.message) == (author, message)
    mine = format_mailbox(author=author, message=message, diff=diff_to_bytes(patch.files))
    stat = re.search(rb"---\n f \| .*? deletion\(-\)\n\n", theirs, re.DOTALL)
    assert stat is not None
    assert mine == theirs.replace(stat.group(), b"---\n\n")


def test_bracket_tags_stay_in_the_subject() -> None:
    message = b"[Bugfix][DSV4] Fix the indexer\n\nWhy.\n"
    mail = format_mailbox(author=AUTHOR, message=message, diff=DIFF)
    assert b"\nSubject: [PATCH] [Bugfix][DSV4] Fix the indexer\n" in mail
    assert parse_patch(mail, "x").message == message


@pytest.mark.parametrize("diff", [b"", b"text\n" + DIFF, DIFF + b"-- \n2.39\n", DIFF[:-3]])
def test_only_a_whole_diff_is_accepted(diff: bytes) -> None:
    with pytest.raises(PatchFormatError):
        format_mailbox(author=AUTHOR, message=b"x\n", diff=diff)


def test_an_author_that_no_commit_can_hold_is_refused() -> None:
    with pytest.raises(PatchFormatError):
        format_mailbox(author=Identity(b"a\nb", b"c", 0, b"+0000"), message=b"x\n", diff=DIFF)


@pytest.mark.parametrize("field", [b"Subject", b"From", b"Date", b"body"])
def test_a_hand_edited_mail_does_not_hide_behind_exact_fields(field: bytes) -> None:
    author = Identity(b"two  blanks ", b" a@b", 1700000000, b"+051800")
    mail = format_mailbox(author=author, message=b"subject\ngoes on\n\nbody  \n", diff=DIFF)
    edited = {
        b"Subject": mail.replace(b"Subject: [PATCH] subject", b"Subject: [PATCH] other"),
        b"From": mail.replace(b"From: =?UTF-8?q?two", b"From: =?UTF-8?q?tow"),
        b"Date": mail.replace(b"2023", b"2022"),
        b"body": mail.replace(b"body  \n", b"edited\n"),
    }[field]
    assert edited != mail
    with pytest.raises(PatchFormatError, match=r"is not the .* that the mail shows"):
        parse_patch(edited, "x")
