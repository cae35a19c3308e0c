"""Addresses of git repositories, and mirrors."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4port.errors import BadInputError
from dsv4port.upstream.git_address import MIRROR_VARIABLE, check_address, mirrored
from dsv4port.upstream.redact import redact

URL = "https://forge.invalid/group/project.git"


@pytest.mark.parametrize(
    "url",
    [
        URL, "http://h.invalid/x", "ssh://git@h.invalid:22/x", "git://h.invalid/x",
        "file:///x", "git@h.invalid:group/project.git", "h.invalid:x",
    ],
)  # fmt: skip
def test_addresses_that_move_objects(url: str) -> None:
    assert check_address(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "", "-u", "--upload-pack=touch x", "ext::sh -c touch% x", "EXT::x", "fd::3",
        "https::https://h.invalid/x", "ssh://-oProxyCommand=x/y", "ssh://-u@h.invalid/x",
        "-oProxyCommand=x:y", "ftp://h.invalid/x", "transport-helper://x", "a\nb:c",
        "/no/such/folder", "no-such-folder",
    ],
)  # fmt: skip
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(BadInputError):
        check_address(url)


def test_a_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ext::x").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    assert check_address("here") == str(tmp_path / "here")
    with pytest.raises(BadInputError):
        check_address("ext::x")


@pytest.mark.parametrize(
    ("mirror", "expected"),
    [
        (None, URL),
        ("", URL),
        ("https://mirror.invalid/p.git", "https://mirror.invalid/p.git"),
        ("/srv/p.git", "/srv/p.git"),
        ("https://forge.invalid/=ssh://m.invalid/", "ssh://m.invalid/group/project.git"),
        ("https://other.invalid/=ssh://m.invalid/", URL),
        ("https://o.invalid/=/o/ https://forge.invalid/group/=/m/ https=/n", "/m/project.git"),
    ],
)
def test_mirrors(mirror: str | None, expected: str) -> None:
    assert mirrored(URL, mirror, {}) == expected
    assert mirrored(URL, None, {MIRROR_VARIABLE: mirror or ""}) == expected


def test_an_argument_wins_over_the_environment() -> None:
    assert mirrored(URL, "/a", {MIRROR_VARIABLE: "/b"}) == "/a"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://u:p@h.invalid/x", "https://***@h.invalid/x"),
        ("https://token@h.invalid:8/x", "https://***@h.invalid:8/x"),
        ("https://u:p@ss@h.invalid/x", "https://***@h.invalid/x"),
        ("https://h.invalid/x?sig=1#y", "https://h.invalid/x?***#y"),
        ("https://h.invalid/a@b", "https://h.invalid/a@b"),
        ("'http://u:p@h/x': not found, 'http://u:p@h/y'", "'http://***@h/x': not found, 'http://***@h/y'"),
        ("/plain/path", "/plain/path"),
    ],
)  # fmt: skip
def test_nothing_secret_is_shown(text: str, shown: str) -> None:
    assert redact(text) == shown
