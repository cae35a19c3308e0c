"""A file patch onto a tree entry: existence, modes, binary content, recorded ids."""

from __future__ import annotations

import dataclasses
import zlib

import pytest

from dsv4port.apply.file_patch import Entry, FileOutcome, apply_file_patch
from dsv4port.git.objects import blob_id
from dsv4port.patch.binary import delta_half, literal_half
from dsv4port.patch.diff import parse_diff
from dsv4port.patch.model import BinaryPatch, ChangeKind, FilePatch

FILE, EXECUTABLE, LINK, SUBMODULE = 0o100644, 0o100755, 0o120000, 0o160000
OLD, NEW = b"a\nb\nc\n", b"a\nB\nc\n"
IDS = f"{blob_id(OLD)}..{blob_id(NEW)}"
HUNK = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"


def parsed(text: str) -> FilePatch:
    files, _ = parse_diff(text.encode(), "patch")
    return files[0]


def modify(index: str = f"index {IDS} 100644\n", extra: str = "", hunk: str = HUNK) -> FilePatch:
    names = "--- a/f\n+++ b/f\n" if hunk else ""
    return parsed(f"diff --git a/f b/f\n{extra}{index}{names}{hunk}")


def apply(
    patch: FilePatch,
    target: Entry | None,
    base: bytes | None = None,
    *,
    exact: bool = True,
    occupant: Entry | None = None,
) -> FileOutcome:
    return apply_file_patch(patch, target, base=base, preimage_is_target=exact, occupant=occupant)


def refusal(outcome: FileOutcome) -> str:
    assert not outcome.applied
    assert outcome.entry is None
    assert outcome.blob_id is None
    assert outcome.refusal is not None
    return outcome.refusal


def test_modify() -> None:
    outcome = apply(modify(), Entry(FILE, OLD))

    assert outcome.applied
    assert outcome.entry == Entry(FILE, NEW)
    assert outcome.blob_id == blob_id(NEW)
    assert len(outcome.hunks) == 1


def test_modify_keeps_the_mode_that_the_patch_does_not_state() -> None:
    patch = parsed(f"--- a/f\n+++ b/f\n{HUNK}")

    assert apply(patch, Entry(EXECUTABLE, OLD)).entry == Entry(EXECUTABLE, NEW)


def test_the_first_refused_hunk_is_named() -> None:
    outcome = apply(modify(), Entry(FILE, b"x\n"), exact=False)

    assert "the hunk cannot be placed: " in refusal(outcome)
    assert len(outcome.hunks) == 1


@pytest.mark.parametrize("change", ["modify", "delete", "rename"])
def test_a_missing_file(change: str) -> None:
    patch = {
        "modify": modify(),
        "delete": parsed(
            f"diff --git a/f b/f\ndeleted file mode 100644\nindex {blob_id(OLD)}..{'0' * 40}\n"
            "--- a/f\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-a\n-b\n-c\n"
        ),
        "rename": parsed("diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n"),
    }[change]

    assert refusal(apply(patch, None)) == "the file does not exist"


class TestModes:
    def test_a_change_of_mode_alone(self) -> None:
        patch = modify("", "old mode 100644\nnew mode 100755\n", "")

        assert apply(patch, Entry(FILE, OLD)).entry == Entry(EXECUTABLE, OLD)

    def test_with_content(self) -> None:
        patch = modify(f"index {IDS}\n", "old mode 100644\nnew mode 100755\n")

        assert apply(patch, Entry(FILE, OLD)).entry == Entry(EXECUTABLE, NEW)

    def test_the_old_mode_must_be_there(self) -> None:
        patch = modify("", "old mode 100644\nnew mode 100755\n", "")

        assert "mode 100755" in refusal(apply(patch, Entry(EXECUTABLE, OLD)))

    def test_the_mode_of_the_index_line_must_be_there(self) -> None:
        assert "is an executable file" in refusal(apply(modify(), Entry(EXECUTABLE, OLD)))

    def test_a_link_is_no_file(self) -> None:
        assert "is a symbolic link" in refusal(apply(modify(), Entry(LINK, OLD)))

    def test_a_submodule_is_no_file(self) -> None:
        assert "is a submodule" in refusal(apply(modify(), Entry(SUBMODULE, b"")))

    def test_a_submodule_is_not_changed(self) -> None:
        patch = dataclasses.replace(modify(), old_mode=SUBMODULE, new_mode=SUBMODULE)

        assert "submodule" in refusal(apply(patch, Entry(SUBMODULE, b"")))

    def test_a_link_gets_another_target(self) -> None:
        patch = modify(
            "index 0000001..0000002 120000\n".replace("0000001", blob_id(b"x")).replace(
                "0000002", blob_id(b"y")
            ),
            hunk="@@ -1 +1 @@\n-x\n\\ No newline at end of file\n"
            "+y\n\\ No newline at end of file\n",
        )

        assert apply(patch, Entry(LINK, b"x")).entry == Entry(LINK, b"y")

    def test_an_entry_has_a_mode_of_git(self) -> None:
        with pytest.raises(ValueError, match="no mode of a tree entry"):
            Entry(0o644, b"")


class TestAdd:
    def patch(self, content: bytes = b"a\n", mode: str = "100644") -> FilePatch:
        return parsed(
            f"diff --git a/f b/f\nnew file mode {mode}\nindex {'0' * 40}..{blob_id(content)}\n"
            "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n"
        )

    def test_a_new_file(self) -> None:
        outcome = apply(self.patch(mode="100755"), None, exact=False)

        assert outcome.entry == Entry(EXECUTABLE, b"a\n")
        assert len(outcome.hunks) == 1

    def test_an_empty_file(self) -> None:
        patch = parsed(
            f"diff --git a/f b/f\nnew file mode 100644\nindex {'0' * 40}..{blob_id(b'')}\n"
        )

        assert apply(patch, None, exact=False).entry == Entry(FILE, b"")

    def test_the_file_is_there_with_other_content(self) -> None:
        assert "already there with other content" in refusal(
            apply(self.patch(), Entry(FILE, b"b\n"), exact=False)
        )

    def test_the_same_file_is_there(self) -> None:
        assert "already there with identical content" in refusal(
            apply(self.patch(), Entry(FILE, b"a\n"), exact=False)
        )

    def test_the_same_content_with_another_mode_is_not_the_same_file(self) -> None:
        assert "other content or mode" in refusal(
            apply(self.patch(), Entry(EXECUTABLE, b"a\n"), exact=False)
        )

    def test_edited_by_hand(self) -> None:
        assert "edited by hand" in refusal(apply(self.patch(b"other\n"), None, exact=False))

    def test_a_link(self) -> None:
        patch = parsed(
            f"diff --git a/f b/f\nnew file mode 120000\nindex {'0' * 40}..{blob_id(b'x')}\n"
            "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
        )

        assert apply(patch, None, exact=False).entry == Entry(LINK, b"x")


class TestDelete:
    PATCH = parsed(
        f"diff --git a/f b/f\ndeleted file mode 100644\nindex {blob_id(OLD)}..{'0' * 40}\n"
        "--- a/f\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-a\n-b\n-c\n"
    )

    def test_the_whole_content_matches(self) -> None:
        outcome = apply(self.PATCH, Entry(FILE, OLD))

        assert outcome.applied
        assert outcome.entry is None
        assert outcome.blob_id is None

    @pytest.mark.parametrize("content", [OLD + b"d\n", b"z\n" + OLD, NEW, b""])
    def test_other_content_stays(self, content: bytes) -> None:
        outcome = apply(self.PATCH, Entry(FILE, content), OLD, exact=False)

        assert "not what the patch removes" in refusal(outcome)

    def test_without_the_removed_lines_only_an_empty_file_goes(self) -> None:
        patch = parsed(
            f"diff --git a/f b/f\ndeleted file mode 100644\nindex {blob_id(b'')}..{'0' * 40}\n"
        )

        assert apply(patch, Entry(FILE, b"")).applied
        assert not apply(patch, Entry(FILE, b"x")).applied


class TestRename:
    PATCH = parsed(
        "diff --git a/f b/g\nsimilarity index 60%\nrename from f\nrename to g\n"
        f"index {IDS} 100644\n--- a/f\n+++ b/g\n{HUNK}"
    )

    def test_with_content(self) -> None:
        outcome = apply(self.PATCH, Entry(FILE, OLD))

        assert outcome.entry == Entry(FILE, NEW)
        assert outcome.file.change is ChangeKind.RENAME

    def test_without_content(self) -> None:
        patch = parsed("diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n")

        assert apply(patch, Entry(EXECUTABLE, OLD)).entry == Entry(EXECUTABLE, OLD)

    def test_the_new_path_is_taken(self) -> None:
        occupied = apply(self.PATCH, Entry(FILE, OLD), occupant=Entry(FILE, b"x"))

        assert "the new path is taken" in refusal(occupied)

    def test_a_copy(self) -> None:
        patch = parsed("diff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n")

        assert apply(patch, Entry(FILE, OLD)).entry == Entry(FILE, OLD)


class TestRecordedIds:
    def test_a_hunk_edited_by_hand(self) -> None:
        patch = modify(hunk=HUNK.replace("+B", "+C"))

        reason = refusal(apply(patch, Entry(FILE, OLD)))

        assert reason.startswith(
            f"the recorded postimage is {blob_id(NEW)[:12]} but the hunks give"
        )
        assert "delete its `index` line" in reason

    def test_abbreviated_ids_are_compared_as_far_as_they_go(self) -> None:
        ids = f"index {blob_id(OLD)[:7]}..{blob_id(NEW)[:7]} 100644\n"

        assert apply(modify(ids), Entry(FILE, OLD)).applied
        assert not apply(modify(ids, hunk=HUNK.replace("+B", "+C")), Entry(FILE, OLD)).applied

    def test_without_an_index_line_the_hunks_count(self) -> None:
        patch = modify("", hunk=HUNK.replace("+B", "+C"))

        assert apply(patch, Entry(FILE, OLD)).entry == Entry(FILE, b"a\nC\nc\n")

    def test_on_another_preimage_another_postimage_is_right(self) -> None:
        outcome = apply(modify(), Entry(FILE, OLD + b"d\n"), OLD, exact=False)

        assert outcome.entry == Entry(FILE, NEW + b"d\n")
        assert outcome.blob_id == blob_id(NEW + b"d\n")


class TestBinary:
    OLD, NEW = b"\0old" * 40, b"\0old" * 39 + b"\0new"

    def patch(self, *, delta: bool = False, full: bool = True, **changes: object) -> FilePatch:
        forward = delta_half(self.OLD, self.NEW) if delta else literal_half(self.NEW)
        length = 40 if full else 10
        fields = {
            "header": (),
            "change": ChangeKind.MODIFY,
            "old_path": b"f",
            "new_path": b"f",
            "old_mode": FILE,
            "new_mode": FILE,
            "old_id": blob_id(self.OLD)[:length],
            "new_id": blob_id(self.NEW)[:length],
            "similarity": None,
            "hunks": (),
            "binary": BinaryPatch((), forward, None),
            "line_number": 1,
        }
        return FilePatch(**{**fields, **changes})  # type: ignore[arg-type]

    @pytest.mark.parametrize("delta", [False, True])
    def test_content(self, delta: bool) -> None:
        assert apply(self.patch(delta=delta), Entry(FILE, self.OLD)).entry == Entry(FILE, self.NEW)

    @pytest.mark.parametrize("delta", [False, True])
    def test_other_content_is_never_replaced(self, delta: bool) -> None:
        reason = refusal(apply(self.patch(delta=delta), Entry(FILE, b"x" * 160), exact=False))

        assert "binary changes are never merged" in reason

    def test_the_callers_word_is_not_enough(self) -> None:
        assert not apply(self.patch(), Entry(FILE, b"x"), exact=True).applied

    def test_short_ids_are_no_proof(self) -> None:
        assert "--full-index" in refusal(apply(self.patch(full=False), Entry(FILE, self.OLD)))

    def test_the_postimage_is_checked(self) -> None:
        patch = self.patch(new_id=blob_id(b"other"))

        assert "binary data gives" in refusal(apply(patch, Entry(FILE, self.OLD)))

    def test_a_new_file(self) -> None:
        patch = self.patch(
            change=ChangeKind.ADD, old_path=None, old_mode=None, old_id=None, new_mode=FILE
        )

        assert apply(patch, None, exact=False).entry == Entry(FILE, self.NEW)

    def test_a_deletion(self) -> None:
        empty = BinaryPatch((), literal_half(b""), None)
        patch = self.patch(
            change=ChangeKind.DELETE, new_path=None, new_mode=None, new_id=None, binary=empty
        )

        assert apply(patch, Entry(FILE, self.OLD)).applied
        assert not apply(patch, Entry(FILE, self.NEW)).applied

    def test_damaged_data_is_a_refusal(self) -> None:
        half = dataclasses.replace(delta_half(self.OLD, self.NEW), data=zlib.compress(b"x"))
        patch = self.patch(binary=BinaryPatch((), half, None))

        assert "binary delta" in refusal(apply(patch, Entry(FILE, self.OLD)))
