"""Archives: the same tree as git's, and nothing unsafe or damaged."""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv4port.errors import BadInputError, UnsafePathError
from dsv4port.git.objects import Entry, blob_id, parse_tree
from dsv4port.git.pack import PackWriter
from dsv4port.upstream.directory import import_directory
from dsv4port.upstream.sdist import ArchiveLimits, import_archive
from dsv4port.upstream.tree import TreeBuilder, write_commit


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def add(self, kind: Any, data: bytes) -> str:
        from dsv4port.git.objects import object_id

        identifier = object_id(kind, data)
        self.objects[identifier] = data
        return identifier

    def files(self, tree: str, prefix: bytes = b"") -> dict[bytes, Entry]:
        found: dict[bytes, Entry] = {}
        for name, entry in parse_tree(self.objects[tree]).items():
            if entry.mode == 0o40000:
                found.update(self.files(entry.id, prefix + name + b"/"))
            else:
                found[prefix + name] = entry
        return found


def files_of(folder: Path, data: bytes, **options: Any) -> dict[bytes, Entry]:
    sink = Sink()
    archive = folder / "toy-1.0.tar.gz"
    archive.write_bytes(data)
    return sink.files(import_archive(archive, sink, **options))


@pytest.fixture
def refused(tmp_path: Path) -> Any:
    """Calls for an archive that must be refused; gives the error."""

    def check(data: bytes, kind: type[Exception] = BadInputError, **options: Any) -> Any:
        with pytest.raises(kind) as caught:
            files_of(tmp_path, data, **options)
        assert str(caught.value).startswith("toy-1.0.tar.gz: ")
        return caught.value

    return check


def test_the_tree_is_gits_own(sample: Any, tmp_path: Path) -> None:
    archive = tmp_path / sample.filename
    archive.write_bytes(sample.data)
    assert import_archive(archive, Sink()) == sample.tree


def test_the_pack_is_whole_and_the_commit_fixed(sample: Any, tmp_path: Path) -> None:
    archive = tmp_path / sample.filename
    archive.write_bytes(sample.data)
    repository = tmp_path / "r.git"
    subprocess.run(["git", "init", "-q", "--bare", str(repository)], check=True)
    with PackWriter(repository / "objects") as writer:
        tree = import_archive(archive, writer)
        commit = write_commit(writer, tree, name="toy", version="1.0", sha256="ab" * 32)
        writer.finish()
    shown = subprocess.run(
        ["git", "-C", str(repository), "cat-file", "commit", commit],
        check=True,
        capture_output=True,
    ).stdout.decode()
    who = "dsv4port <dsv4port@dsv4port.invalid> 0 +0000"
    assert shown == (
        f"tree {tree}\nauthor {who}\ncommitter {who}\n\ntoy 1.0 (sdist)\n\nsha256: {'ab' * 32}\n"
    )
    subprocess.run(["git", "-C", str(repository), "fsck", "--strict", commit], check=True)


@pytest.mark.parametrize(
    "tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
)
def test_long_and_foreign_names(
    tmp_path: Path, tar_member: Any, tar_archive: Any, tar_format: int
) -> None:
    names = ["a" * 100, "deep/" * 25 + "f", "späth"]
    members = [tar_member(f"toy-1.0/{name}", b"x") for name in names]
    if tar_format != tarfile.USTAR_FORMAT:
        members.append(tar_member("toy-1.0/" + "b" * 200, b"x"))
        members.append(tar_member("toy-1.0/\udcff", b"x"))
        names += ["b" * 200, "\udcff"]
    found = files_of(tmp_path, tar_archive(*members, tar_format=tar_format))
    assert set(found) == {name.encode("utf-8", "surrogateescape") for name in names}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (0o644, 0o100644), (0o664, 0o100644), (0o600, 0o100644), (0o755, 0o100755),
        (0o775, 0o100755), (0o100, 0o100755), (0o011, 0o100644), (0o4755, 0o100755),
    ],
)  # fmt: skip
def test_modes_are_the_owners(
    tmp_path: Path, tar_member: Any, tar_archive: Any, mode: int, expected: int
) -> None:
    found = files_of(tmp_path, tar_archive(tar_member("toy-1.0/a", b"", mode=mode)))
    assert found[b"a"].mode == expected


def test_a_hard_link_is_the_file_it_names(
    tmp_path: Path, tar_member: Any, tar_archive: Any
) -> None:
    data = tar_archive(
        tar_member("toy-1.0/a", b"one", mode=0o755),
        tar_member("toy-1.0/sub/b", kind=tarfile.LNKTYPE, target="toy-1.0/a"),
    )
    assert files_of(tmp_path, data)[b"sub/b"] == Entry(0o100755, blob_id(b"one"))


@pytest.mark.parametrize("target", ["toy-1.0/later", "toy-1.0/link", "/etc/passwd", "../a", "a"])
def test_a_hard_link_to_anything_else_is_refused(
    refused: Any, tar_member: Any, tar_archive: Any, target: str
) -> None:
    data = tar_archive(
        tar_member("toy-1.0/x", b"one"),
        tar_member("toy-1.0/link", kind=tarfile.SYMTYPE, target="x"),
        tar_member("toy-1.0/b", kind=tarfile.LNKTYPE, target=target),
        tar_member("toy-1.0/later", b"two"),
    )
    assert "hard link" in str(refused(data, UnsafePathError))


def test_a_leading_dot_folder_is_no_top_folder(
    tmp_path: Path, tar_member: Any, tar_archive: Any
) -> None:
    data = tar_archive(tar_member("./toy-1.0/a", b"x"))
    assert set(files_of(tmp_path, data)) == {b"a"}


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd", "../x", "toy-1.0/../../x", "toy-1.0/..", "toy-1.0/a/../b",
        "toy-1.0/./a", "toy-1.0//a", "toy-1.0/.git/config", "toy-1.0/sub/.GIT/config",
        "toy-1.0/.git", "toy-1.0/git~1/config", "toy-1.0/.git /config", "toy-1.0/.git./config",
        "toy-1.0/.g\u200cit/config", "toy-1.0/.git::$INDEX_ALLOCATION/config",
        "toy-1.0/a\\..\\..\\b", "toy-1.0/.git\\config", "toy-1.0/C:/x", "C:/x",
        "toy-1.0/" + "n" * 256,
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE])
def test_unsafe_paths(
    refused: Any, tar_member: Any, tar_archive: Any, name: str, kind: bytes
) -> None:
    data = tar_archive(
        tar_member("toy-1.0/ok", b"x"),
        tar_member(name, b"", kind=kind, target="ok" if kind == tarfile.SYMTYPE else ""),
    )
    refused(data, UnsafePathError)


def test_nothing_is_written_through_a_link(refused: Any, tar_member: Any, tar_archive: Any) -> None:
    link = tar_member("toy-1.0/out", kind=tarfile.SYMTYPE, target="/tmp")
    for later in (
        tar_member("toy-1.0/out/evil", b"x"),
        tar_member("toy-1.0/out/", kind=tarfile.DIRTYPE),
        tar_member("toy-1.0/out/in", kind=tarfile.SYMTYPE, target="a"),
    ):
        error = refused(tar_archive(link, later), UnsafePathError)
        assert "through the symbolic link `out`" in str(error)
    # The other way round the folder is in the way.
    refused(tar_archive(tar_member("toy-1.0/out/evil", b"x"), link))


@pytest.mark.parametrize("target", ["", "a/b/../c", "/abs/olute"])
def test_links_are_kept_as_they_are(
    tmp_path: Path, refused: Any, tar_member: Any, tar_archive: Any, target: str
) -> None:
    data = tar_archive(tar_member("toy-1.0/l", kind=tarfile.SYMTYPE, target=target))
    if not target:
        refused(data, UnsafePathError)
        return
    assert files_of(tmp_path, data)[b"l"] == Entry(0o120000, blob_id(target.encode()))


def test_a_link_called_gitmodules(refused: Any, tar_member: Any, tar_archive: Any) -> None:
    refused(
        tar_archive(tar_member("toy-1.0/.gitmodules", kind=tarfile.SYMTYPE, target="x")),
        UnsafePathError,
    )


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"Z"])
def test_devices_and_unknown_members(
    refused: Any, tar_member: Any, tar_archive: Any, kind: bytes
) -> None:
    if kind == b"Z":
        # tarfile takes unknown kinds for files, so this one has to come in as a sparse file.
        info, data = tar_member("toy-1.0/s", b"x")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        refused(tar_archive((info, data)))
        return
    refused(tar_archive(tar_member("toy-1.0/d", kind=kind)), UnsafePathError)


def test_shapes_that_are_no_sdist(refused: Any, tar_member: Any, tar_archive: Any) -> None:
    one, two = tar_member("toy-1.0/a", b"x"), tar_member("other/a", b"x")
    assert "two top folders" in str(refused(tar_archive(one, two)))
    assert "comes twice" in str(refused(tar_archive(one, one)))
    assert "at the top" in str(refused(tar_archive(tar_member("a", b"x"))))
    assert "no file" in str(refused(tar_archive()))
    folder = tar_member("toy-1.0/", kind=tarfile.DIRTYPE)
    assert "no file" in str(refused(tar_archive(folder)))
    file_then_folder = tar_archive(one, tar_member("toy-1.0/a/b", b"x"))
    assert "is a file" in str(refused(file_then_folder))


def test_limits(refused: Any, tar_member: Any, tar_archive: Any, tmp_path: Path) -> None:
    data = tar_archive(*(tar_member(f"toy-1.0/{n}", b"x" * 1000) for n in range(10)))
    assert len(files_of(tmp_path, data, limits=ArchiveLimits(members=10))) == 10
    assert "members" in str(refused(data, limits=ArchiveLimits(members=9)))
    assert "inflates" in str(refused(data, limits=ArchiveLimits(total=5000)))
    assert "limit is 999" in str(refused(data, limits=ArchiveLimits(file=999)))


def test_a_bomb_is_not_inflated(refused: Any, tar_member: Any) -> None:
    info, _ = tar_member("toy-1.0/zeros")
    info.size = 200 << 20
    bomb = gzip.compress(info.tobuf() + bytes(300 << 20), 9)
    assert "times its size" in str(refused(bomb))


def test_a_header_that_claims_a_huge_name(refused: Any, tar_member: Any, tar_archive: Any) -> None:
    info, _ = tar_member("././@LongLink", kind=b"L")
    info.size = 7 << 30
    raw = info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    refused(gzip.compress(raw))


def test_damage_is_told_from_the_end(refused: Any, sample: Any) -> None:
    raw = gzip.decompress(sample.data)
    for cut in (len(raw) - 10240, 512 * 3 + 100, 700, 100):
        refused(gzip.compress(raw[:cut]))
    broken = bytearray(raw)
    second = 512  # the header of the first file, after the one of the top folder
    broken[second + 10] ^= 1
    assert "damaged tar" in str(refused(gzip.compress(bytes(broken))))
    refused(gzip.compress(raw + b"trailing"))
    refused(sample.data[: len(sample.data) // 2])
    refused(sample.data + b"trailing")
    refused(b"no gzip at all")
    refused(b"")


def test_several_gzip_members_and_padding_are_one_archive(sample: Any, tmp_path: Path) -> None:
    raw = gzip.decompress(sample.data)
    data = gzip.compress(raw[:700]) + gzip.compress(raw[700:] + bytes(20480)) + bytes(512)
    archive = tmp_path / "toy-1.0.tar.gz"
    archive.write_bytes(data)
    assert import_archive(archive, Sink()) == sample.tree


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(position=st.integers(0, 1 << 30), bit=st.integers(0, 7))
def test_a_flipped_bit_never_gives_another_tree_silently(
    sample: Any, tmp_path: Path, position: int, bit: int
) -> None:
    """gzip has a checksum, so whatever is flipped is an error or does not change the content."""
    data = bytearray(sample.data)
    data[position % len(data)] ^= 1 << bit
    archive = tmp_path / "toy-1.0.tar.gz"
    archive.write_bytes(data)
    with contextlib.suppress(BadInputError):
        assert import_archive(archive, Sink()) == sample.tree


NAMES = st.text("ab.-_ é", min_size=1, max_size=4).filter(
    lambda name: name.strip(". ") and not name.startswith(".")
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    files=st.dictionaries(
        st.lists(NAMES, min_size=1, max_size=3).map("/".join),
        st.tuples(st.binary(max_size=20), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_folder_archive_and_git_agree(
    files: dict[str, tuple[bytes, bool]],
    tmp_path_factory: pytest.TempPathFactory,
    tar_member: Any,
    tar_archive: Any,
) -> None:
    wanted = {
        path: value
        for path, value in files.items()
        if not any(other != path and path.startswith(f"{other}/") for other in files)
    }
    root = tmp_path_factory.mktemp("agree")
    folder = root / "toy-1.0"
    for path, (data, executable) in wanted.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(0o755 if executable else 0o644)
    archive = root / "toy-1.0.tar.gz"
    archive.write_bytes(
        tar_archive(
            *(
                tar_member(f"toy-1.0/{path}", data, mode=0o755 if executable else 0o644)
                for path, (data, executable) in wanted.items()
            )
        )
    )
    tree = import_archive(archive, Sink())
    assert import_directory(folder, Sink()) == tree
    for arguments in (["init", "-q"], ["add", "-A", "-f"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    written = subprocess.run(["git", "write-tree"], cwd=folder, check=True, capture_output=True)
    assert written.stdout.decode().strip() == tree


def test_a_folder_with_more_than_files(tmp_path: Path, sample: Any) -> None:
    folder = tmp_path / "toy-1.0"
    archive = tmp_path / "toy-1.0.tar.gz"
    archive.write_bytes(sample.data)
    subprocess.run(["tar", "xzf", str(archive), "--no-same-owner"], cwd=tmp_path, check=True)
    assert import_directory(folder, Sink()) == sample.tree
    (folder / "link2").symlink_to(tmp_path)
    assert import_directory(folder, Sink()) != sample.tree
    (folder / "link2").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(UnsafePathError, match="pipe"):
        import_directory(folder, Sink())
    (folder / "pipe").unlink()
    (folder / "toy" / ".git").mkdir()
    with pytest.raises(UnsafePathError, match=r"\.git"):
        import_directory(folder, Sink())


def test_a_hard_link_in_a_builder_needs_its_file() -> None:
    builder = TreeBuilder(Sink(), where="here")
    with pytest.raises(UnsafePathError):
        builder.add_again(b"a/b", b"x/y/z")
