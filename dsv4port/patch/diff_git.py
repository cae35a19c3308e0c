"""Git sections: ``diff --git``, an extended header, then hunks, a binary patch or nothing."""

from __future__ import annotations

from dsv4port.errors import PatchFormatError
from dsv4port.patch.diff_advice import FROM_GIT
from dsv4port.patch.diff_binary import BinaryParser
from dsv4port.patch.diff_checks import check_whole_file
from dsv4port.patch.diff_hunks import HunkParser
from dsv4port.patch.diff_names import file_name, git_line_names
from dsv4port.patch.model import BinaryPatch, ChangeKind, FilePatch, Hunk
from dsv4port.patch.quote import display_path, unquote
from dsv4port.patch.source import Source

EXTENDED_HEADERS = (
    b"index ",
    b"new file mode ",
    b"deleted file mode ",
    b"old mode ",
    b"new mode ",
    b"similarity index ",
    b"dissimilarity index ",
    b"rename from ",
    b"rename to ",
    b"copy from ",
    b"copy to ",
)
"""The lines of a git section's header, the most frequent first."""

_FILE_TYPE = 0o170000
_MODES = {b"%o" % mode: mode for mode in (0o100644, 0o100755, 0o120000, 0o160000)}
_EMPTY_BLOB_IDS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
_HEX = b"0123456789abcdef"
_DIGITS = b"0123456789"
_KIND_OF = (
    (b"new file mode ", ChangeKind.ADD),
    (b"deleted file mode ", ChangeKind.DELETE),
    (b"rename from ", ChangeKind.RENAME),
    (b"copy from ", ChangeKind.COPY),
)


class GitSection:
    """One ``diff --git`` section: its extended header, then hunks, a binary patch or nothing."""

    def __init__(
        self, source: Source, hunks: HunkParser, binaries: BinaryParser, start: int
    ) -> None:
        self.source = source
        self.lines = source.lines
        self.end = len(source.lines)
        self.hunks = hunks
        self.binaries = binaries
        self.start = start
        self.fields: dict[bytes, tuple[int, bytes]] = {}

    def parse(self) -> tuple[FilePatch, int]:
        """The file patch, and the index of the line after it."""
        lines = self.lines
        first = lines[self.start]
        if first.endswith(b"\r\n"):
            raise self.source.converted(self.start)
        if not first.endswith(b"\n"):
            raise self._cut_off(self.start)
        at = self._read_fields(self.start + 1)
        change = self._change()
        old_path, new_path = self._paths(change)
        old_mode, new_mode = self._modes(change)
        old_id, new_id = self._ids(change)
        similarity = self._similarity(change)

        hunks: tuple[Hunk, ...] = ()
        binary: BinaryPatch | None = None
        line = lines[at] if at < self.end else b""
        if line.startswith(b"--- ") and at + 1 < self.end:
            self._check_names(at, old_path, new_path, change)
            at += 2
            header_end = at
            if at >= self.end or not lines[at].startswith(b"@@"):
                raise self.source.error(
                    min(at, self.end - 1), "no hunk after the file names", fix=FROM_GIT
                )
            hunks, at = self.hunks.parse(at)
        elif line == b"GIT binary patch\n":
            header_end = at
            self._check_full_ids(at)
            binary, at = self.binaries.parse(at)
        elif line.startswith((b"Binary files ", b"GIT binary patch")):
            if line.endswith(b"\r\n"):
                raise self.source.converted(at)
            raise self.source.error(
                at,
                "the content of a binary file is missing",
                fix="make the patch with 'git diff --binary --full-index'",
            )
        else:
            header_end = at
            if line.startswith(b"@@"):
                raise self.source.error(at, "hunk without file names above it", fix=FROM_GIT)
        file = FilePatch(
            header=tuple(lines[self.start : header_end]),
            change=change,
            old_path=None if change is ChangeKind.ADD else old_path,
            new_path=None if change is ChangeKind.DELETE else new_path,
            old_mode=old_mode,
            new_mode=new_mode,
            old_id=old_id,
            new_id=new_id,
            similarity=similarity,
            hunks=hunks,
            binary=binary,
            line_number=self.start + 1,
        )
        check_whole_file(self.source, file, self.start)
        self._check_complete(file)
        for path in {old_path, new_path}:
            self.source.check_path(self.start, path)
        return file, at

    def _read_fields(self, at: int) -> int:
        while at < self.end:
            line = self.lines[at]
            for key in EXTENDED_HEADERS:
                if line.startswith(key):
                    break
            else:
                return at
            if line.endswith(b"\r\n") and not key.endswith((b"from ", b"to ")):
                raise self.source.converted(at)
            if not line.endswith(b"\n"):
                raise self._cut_off(at)
            if key in self.fields:
                raise self.source.error(at, f"second {key.decode().strip()!r} line", fix=FROM_GIT)
            self.fields[key] = (at, line[len(key) : -1])
            at += 1
        return at

    def _cut_off(self, at: int) -> PatchFormatError:
        return self.source.error(
            at, "the header of the file section is cut off", fix="get the whole file"
        )

    def _fail(self, key: bytes, what: str) -> PatchFormatError:
        return self.source.error(self.fields[key][0], what, fix=FROM_GIT)

    def _change(self) -> ChangeKind:
        fields = self.fields
        if not fields:
            return ChangeKind.MODIFY
        for word in (b"rename", b"copy"):
            # Git takes the new name from the one line, and the old from elsewhere.
            if word + b" to " in fields and word + b" from " not in fields:
                raise self._fail(
                    word + b" to ", f"{word.decode()} without a '{word.decode()} from' line"
                )
        kinds = [kind for key, kind in _KIND_OF if key in fields]
        if not kinds:
            return ChangeKind.MODIFY
        if len(kinds) > 1:
            raise self.source.error(
                self.start,
                f"contradicting header: {' and '.join(kind.value for kind in kinds)} at once",
                fix=FROM_GIT,
            )
        return kinds[0]

    def _paths(self, change: ChangeKind) -> tuple[bytes, bytes]:
        rest = self.lines[self.start][11:].removesuffix(b"\n")
        if change in (ChangeKind.RENAME, ChangeKind.COPY):
            word = change.value.encode("ascii")
            old, new = self._field_path(word + b" from "), self._field_path(word + b" to ")
            if old == new:
                raise self._fail(word + b" to ", f"{change.value} of a path onto itself")
            if (b"a/" + old, b"b/" + new) not in git_line_names(rest):
                raise self.source.error(
                    self.start,
                    f"the 'diff --git' line does not name the {change.value}'s paths",
                    fix=FROM_GIT,
                )
            return old, new
        # The common case: the same unquoted name twice.
        middle = len(rest) // 2
        if (
            rest[:2] == b"a/"
            and rest[middle : middle + 3] == b" b/"
            and rest[2:middle] == rest[middle + 3 :]
            and b'"' not in rest
        ):
            return rest[2:middle], rest[2:middle]
        names = git_line_names(rest)
        for old, new in names:
            if old[:2] == b"a/" and new[:2] == b"b/" and old[2:] == new[2:]:
                return old[2:], new[2:]
        for old, new in names:
            for path in (old, new):
                self.source.check_path(self.start, path)
        raise self.source.error(
            self.start,
            "the 'diff --git' line does not hold one name with the prefixes a/ and b/",
            fix="make the patch with git and its default prefixes"
            " (git diff --src-prefix=a/ --dst-prefix=b/)",
        )

    def _field_path(self, key: bytes) -> bytes:
        if key not in self.fields:
            raise self.source.error(self.start, f"no {key.decode().strip()!r} line", fix=FROM_GIT)
        text = self.fields[key][1]
        try:
            return unquote(text)
        except ValueError as problem:
            raise self._fail(key, f"badly quoted name: {problem}") from None

    def _check_names(self, at: int, old_path: bytes, new_path: bytes, change: ChangeKind) -> None:
        """The ``---`` and ``+++`` lines must say what the header said."""
        lines = self.lines
        if not lines[at + 1].startswith(b"+++ "):
            raise self.source.error(at + 1, "no '+++' line after the '---' line", fix=FROM_GIT)
        old, _ = file_name(self.source, at, b"a/")
        new, _ = file_name(self.source, at + 1, b"b/")
        if old != (None if change is ChangeKind.ADD else old_path):
            raise self.source.error(at, self._contradiction(old, change), fix=FROM_GIT)
        if new != (None if change is ChangeKind.DELETE else new_path):
            raise self.source.error(at + 1, self._contradiction(new, change), fix=FROM_GIT)

    @staticmethod
    def _contradiction(name: bytes | None, change: ChangeKind) -> str:
        shown = "/dev/null" if name is None else display_path(name)
        return f"name {shown} contradicts the header above it (kind: {change.value})"

    def _mode(self, key: bytes) -> int | None:
        if key not in self.fields:
            return None
        text = self.fields[key][1]
        if text not in _MODES:
            raise self._fail(key, f"unsupported mode {display_path(text)}")
        return _MODES[text]

    def _modes(self, change: ChangeKind) -> tuple[int | None, int | None]:
        if not self.fields:
            return None, None
        old, new = self._mode(b"old mode "), self._mode(b"new mode ")
        if (old is None) != (new is None):
            key = b"old mode " if new is None else b"new mode "
            raise self._fail(key, "old and new mode must both be there")
        if old is not None and new is not None:
            if change in (ChangeKind.ADD, ChangeKind.DELETE):
                raise self._fail(b"old mode ", "mode change of a new or deleted file")
            if old == new or old & _FILE_TYPE != new & _FILE_TYPE:
                raise self._fail(b"new mode ", "mode lines do not state a change of permissions")
        of_index = self._index()[2]
        if of_index is not None and old is not None:
            raise self._fail(b"index ", "mode on the index line beside a mode change")
        if change is ChangeKind.ADD:
            new = self._mode(b"new file mode ")
        elif change is ChangeKind.DELETE:
            old = self._mode(b"deleted file mode ")
        elif old is None:
            return of_index, of_index
        if of_index is not None and of_index not in (old, new):
            raise self._fail(b"index ", "mode on the index line contradicts the header")
        return old, new

    def _index(self) -> tuple[bytes, bytes, int | None]:
        """The two ids as they are written, and the mode if there is one."""
        if b"index " not in self.fields:
            return b"", b"", None
        ids, space, mode = self.fields[b"index "][1].partition(b" ")
        old, dots, new = ids.partition(b"..")
        for text in (old, new):
            if not dots or not 4 <= len(text) <= 64 or text.strip(_HEX):
                raise self._fail(b"index ", "malformed index line")
        if space and mode not in _MODES:
            raise self._fail(b"index ", f"unsupported mode {display_path(mode)}")
        return old, new, _MODES[mode] if space else None

    def _ids(self, change: ChangeKind) -> tuple[str | None, str | None]:
        old, new, _ = self._index()
        old_id = old.decode("ascii") if old.strip(b"0") else None
        new_id = new.decode("ascii") if new.strip(b"0") else None
        if change is ChangeKind.ADD and old_id is not None:
            raise self._fail(b"index ", "a new file has an old id")
        if change is ChangeKind.DELETE and new_id is not None:
            raise self._fail(b"index ", "a deleted file has a new id")
        return old_id, new_id

    def _check_full_ids(self, at: int) -> None:
        old, new, _ = self._index()
        if len(old) not in (40, 64) or len(new) not in (40, 64):
            raise self.source.error(
                at,
                "binary patch without full ids on its index line",
                fix="make the patch with 'git diff --binary --full-index'",
            )

    def _similarity(self, change: ChangeKind) -> int | None:
        values = {}
        for key in (b"similarity index ", b"dissimilarity index "):
            if key in self.fields:
                text = self.fields[key][1]
                digits = text.removesuffix(b"%")
                if digits == text or not digits or len(digits) > 3 or digits.strip(_DIGITS):
                    raise self._fail(key, "malformed similarity")
                values[key] = int(digits)
                if values[key] > 100:
                    raise self._fail(key, "similarity of more than 100 %")
        similarity = values.get(b"similarity index ")
        if similarity is not None and change not in (ChangeKind.RENAME, ChangeKind.COPY):
            raise self._fail(b"similarity index ", "similarity without a rename or copy")
        return similarity

    def _check_complete(self, file: FilePatch) -> None:
        """A section without content must be one that needs none; else it was cut."""
        if file.hunks or file.binary is not None:
            if file.old_id is not None and file.old_id == file.new_id:
                raise self._fail(b"index ", "content changes but the ids are the same")
            return
        present = [id for id in (file.old_id, file.new_id) if id is not None]
        if file.change in (ChangeKind.ADD, ChangeKind.DELETE):
            whole = all(any(empty.startswith(id) for empty in _EMPTY_BLOB_IDS) for id in present)
        else:
            whole = not present and (
                file.change is not ChangeKind.MODIFY or file.old_mode != file.new_mode
            )
        if not whole:
            raise self.source.error(
                self.start,
                f"the section of {display_path(file.path)} has no content",
                fix="get the whole patch, or make it with 'git diff --binary --full-index'",
            )
