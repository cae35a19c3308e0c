"""C-quoting as git does it, safe display, and which paths may be written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4port.patch.paths import MAX_PATH_BYTES, unsafe_reason
from dsv4port.patch.quote import display_path, display_text, quote, unquote, unquote_prefix

_name = st.binary(min_size=1, max_size=40).filter(lambda name: b"\0" not in name)


@settings(deadline=None, max_examples=60)
@given(
    names=st.lists(
        _name.filter(lambda name: b"/" not in name and unsafe_reason(name) is None),
        min_size=1,
        max_size=12,
        unique=True,
    ),
    non_ascii=st.booleans(),
)
def test_quotes_as_git_does(git: Any, names: list[bytes], non_ascii: bool) -> None:
    blob = git("hash-object", "-w", "--stdin", stdin=b"").strip()
    listing = b"".join(b"100644 blob %s\t%s\0" % (blob, name) for name in names)
    tree = git("mktree", "-z", stdin=listing).strip()
    option = f"core.quotePath={str(non_ascii).lower()}"
    shown = git("-c", option, "ls-tree", "--name-only", tree).splitlines()
    assert sorted(shown) == sorted(quote(name, non_ascii=non_ascii) for name in names)


@given(_name, st.booleans())
def test_unquote_takes_quotes_back(name: bytes, non_ascii: bool) -> None:
    if not name.startswith(b'"'):
        assert unquote(quote(name, non_ascii=non_ascii)) == name
    forced = quote(b"\n" + name)
    assert unquote_prefix(forced + b" rest") == (b"\n" + name, len(forced))


@pytest.mark.parametrize(
    "text", [b'"', b'"a', b'"a"b', b'"\\x"', b'"\\4000"', b'"\\40', b'"\\', b'"\\999"', b'"\\ 77"']
)
def test_malformed_quotes_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"quote|escape"):
        unquote(text)


@given(st.binary(max_size=60))
def test_what_is_displayed_is_printable(data: bytes) -> None:
    shown = display_path(data)
    assert shown.isprintable()
    # Two different paths never look the same.
    assert unquote(shown.encode("utf-8")) == data
    assert all(c.isprintable() or c in "\n\t" for c in display_text(data))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (b"vllm/a b.py", "vllm/a b.py"),
        ("größe.py".encode(), "größe.py"),
        (b"caf\xe9", '"caf\\351"'),
        (b"\x1b[31mred", '"\\033[31mred"'),
        ("a\u202eb".encode(), '"a\\342\\200\\256b"'),
        (b'a"b\\', '"a\\"b\\\\"'),
    ],
)
def test_display_path(path: bytes, shown: str) -> None:
    assert display_path(path) == shown


def test_display_text_neutralizes_terminal_control() -> None:
    assert display_text(b"a\x1b]0;x\x07\r\n\tb\xff") == "a\\x1b]0;x\\x07\\r\n\tb\\xff"
    assert display_text("x\u202ey é".encode()) == "x\\u202ey é"


@pytest.mark.parametrize(
    "path",
    [
        b"vllm/__init__.py",
        b".github/workflows/x.yml",
        b"a/.gitignore",
        b"git~one",
        b"a/...",
        b"a/.g",
        b"dir with space/x",
        b"systemd/foo\\x2dbar.service",
        "größe/ﬁ.py".encode(),
        b"latin\xe9",
        b"dir/a:b",
        b"esc\x1b",
        b"git/config",
    ],
)
def test_safe_paths(path: bytes) -> None:
    assert unsafe_reason(path) is None


@pytest.mark.parametrize(
    "path",
    [
        *(b"", b"/", b"/a", b"a/", b"a//b", b".", b"..", b"a/..", b"../a", b"a/./b", b"a\0b"),
        *(
            b".git",
            b"a/.Git/x",
            b".git /x",
            b".git./x",
            b".git:x",
            b"GIT~1",
            b"git~12",
            b"a/git~1.",
        ),
        *(b"\\a", b"a\\..\\b", b"a\\.git", b"c:/x", b"C:\\x", b"x" * (MAX_PATH_BYTES + 1)),
        *("\u200c.git".encode(), ".g\ufeffit/x".encode(), "a/.GI\u206fT".encode()),
    ],
)
def test_unsafe_paths(path: bytes) -> None:
    assert unsafe_reason(path)
