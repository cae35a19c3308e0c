"""Patch files as distributions keep them."""

from __future__ import annotations

import pytest

from dsv4port.errors import Dsv4portError, PatchFormatError
from dsv4port.patch.model import ChangeKind
from dsv4port.port.reading import read_patch

HUNK = b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n"


@pytest.mark.parametrize(
    "names",
    [
        b"--- pkg-1.0.orig/x/f.c\n+++ pkg-1.0/x/f.c\n",
        b"--- a/x/f.c.orig\n+++ b/x/f.c\n",
        b"--- pkg.orig/x/f.c\t2020-01-01 00:00:00.000000000 +0000\n+++ pkg/x/f.c\t2020-01-02\n",
        b"--- ./x/f.c\n+++ ./x/f.c\n",
    ],
)
def test_the_first_folder_does_not_matter(names: bytes) -> None:
    (file,) = read_patch(b"Description: text\n" + names + HUNK, "p").files
    assert (file.change, file.path) == (ChangeKind.MODIFY, b"x/f.c")


def test_text_between_sections_and_a_wrong_diffstat() -> None:
    section = b"Index: f\n====\n--- o/f%d\n+++ n/f%d\n"
    data = b"From: x\n---\n f1 | 2 +-\n 9 files changed\n\n"
    data += section % (1, 1) + HUNK + b"\nmore text\n\n" + section % (2, 2) + HUNK
    assert [file.path for file in read_patch(data, "p").files] == [b"f1", b"f2"]


def test_new_and_deleted_files() -> None:
    data = (
        b"--- /dev/null\n+++ pkg/new\n@@ -0,0 +1 @@\n+x\n"
        b"--- pkg/old\t2020-01-01 00:00:00 +0000\n+++ pkg/old\t1970-01-01 00:00:00 +0000\n"
        b"@@ -1 +0,0 @@\n-x\n"
    )
    files = read_patch(data, "p").files
    assert [(file.change, file.path) for file in files] == [
        (ChangeKind.ADD, b"new"), (ChangeKind.DELETE, b"old"),
    ]  # fmt: skip


def test_a_strict_mail_keeps_its_message() -> None:
    mail = (
        b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
        b"From: A <a@b>\nDate: Tue, 14 Nov 2023 22:13:20 +0000\nSubject: [X] title\n\nbody\n---\n"
        b"diff --git a/f b/f\nindex 1234567..2345678 100644\n--- a/f\n+++ b/f\n"
        + HUNK
        + b"-- \n2\n\n"
    )
    assert read_patch(mail, "p").message == b"[X] title\n\nbody\n"


@pytest.mark.parametrize(
    "data",
    [
        b"only text\n",
        b"",
        b"--- p/f\n+++ q/f\n@@ -1,9 +1,9 @@\n a\n-b\n+c\n",
        b"--- p/f\n+++ q/f\n" + HUNK + b"--- p/f\n+++ q/f\n" + HUNK,
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(PatchFormatError):
        read_patch(data, "p")


def test_unsafe_paths_are_refused_by_the_loose_reader_too() -> None:
    with pytest.raises(Dsv4portError, match="path"):
        read_patch(b"--- p/../../f\n+++ q/../../f\n" + HUNK, "p")
