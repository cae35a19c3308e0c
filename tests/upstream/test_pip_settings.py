"""pip's configuration, read as pip reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsv4port.errors import BadInputError
from dsv4port.upstream.pip_settings import DEFAULT_INDEX, PipSettings, read_pip_settings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a home folder, whose system has no pip.conf."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    return tmp_path / "home"


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def read(home: Path, **environment: str) -> PipSettings:
    return read_pip_settings(
        {"HOME": str(home), "XDG_CONFIG_DIRS": str(home / "xdg"), **environment}
    )


def test_nothing_configured() -> None:
    assert read_pip_settings({"PIP_CONFIG_FILE": os.devnull}) == PipSettings()
    assert PipSettings().index_urls == (DEFAULT_INDEX,)


def test_every_level_wins_over_the_one_below(home: Path, tmp_path: Path) -> None:
    url = "[global]\nindex-url = https://{}.invalid/simple\n"
    levels = [
        ("system", home / "xdg/pip/pip.conf"),
        ("legacy", home / ".pip/pip.conf"),
        ("user", home / ".config/pip/pip.conf"),
        ("site", tmp_path / "venv/pip.conf"),
    ]
    for name, file in levels:
        write(file, url.format(name))
        assert read(home).index_urls == (f"https://{name}.invalid/simple",)
    named = str(write(tmp_path / "named.conf", url.format("named")))
    assert read(home, PIP_CONFIG_FILE=named).index_urls == ("https://named.invalid/simple",)
    environment = {"PIP_CONFIG_FILE": named, "PIP_INDEX_URL": "https://env.invalid/simple"}
    assert read(home, **environment).index_urls == ("https://env.invalid/simple",)


def test_a_named_file_replaces_the_users(home: Path, tmp_path: Path) -> None:
    write(home / ".config/pip/pip.conf", "[global]\nno-index = true\n")
    named = str(write(tmp_path / "named.conf", "[global]\ntimeout = 3\n"))
    assert read(home).index_urls == ()
    settings = read(home, PIP_CONFIG_FILE=named)
    assert settings.index_urls == (DEFAULT_INDEX,)
    assert settings.timeout == 3
    missing = str(tmp_path / "missing.conf")
    assert read(home, PIP_CONFIG_FILE=missing).index_urls == ()


def test_the_null_device_switches_all_files_off(home: Path) -> None:
    write(home / ".config/pip/pip.conf", "[global]\nno-index = true\n")
    assert read(home, PIP_CONFIG_FILE=os.devnull).index_urls == (DEFAULT_INDEX,)


def test_the_download_section_wins_over_every_global_one(home: Path) -> None:
    write(home / "xdg/pip/pip.conf", "[download]\nretries = 9\n")
    write(home / ".config/pip/pip.conf", "[global]\nretries = 1\n[install]\nretries = 2\n")
    assert read(home).retries == 9


def test_lists_replace_and_empty_values_count_as_not_set(home: Path) -> None:
    write(
        home / ".config/pip/pip.conf",
        "[global]\nfind_links =\n  /one\n  /two\nextra-index-url = https://a.invalid\n"
        "trusted-host = a b:1\ncert = /c.pem\nclient-cert = /d.pem\nproxy = http://p.invalid\n",
    )
    settings = read(home, PIP_FIND_LINKS="", PIP_EXTRA_INDEX_URL="https://b.invalid")
    # pip: an empty variable is ignored, a full one replaces the list.
    assert settings.find_links == ("/one", "/two")
    assert settings.index_urls == (DEFAULT_INDEX, "https://b.invalid")
    assert settings.trusted_hosts == ("a", "b:1")
    assert (settings.cert, settings.client_cert) == ("/c.pem", "/d.pem")
    assert settings.proxy == "http://p.invalid"


@pytest.mark.parametrize("name", ["PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"])
def test_both_names_of_the_timeout(home: Path, name: str) -> None:
    assert read(home, **{name: "7"}).timeout == 7


@pytest.mark.parametrize(
    ("key", "value"), [("NO_INDEX", "maybe"), ("TIMEOUT", "soon"), ("RETRIES", "-1")]
)
def test_senseless_values_are_refused(home: Path, key: str, value: str) -> None:
    with pytest.raises(BadInputError, match=key.lower().replace("_", "-")):
        read(home, **{f"PIP_{key}": value})


def test_a_malformed_file_is_named_without_its_content(home: Path) -> None:
    write(home / ".config/pip/pip.conf", "[global]\nsecret\n")
    with pytest.raises(BadInputError, match=r"pip\.conf") as caught:
        read(home)
    assert "secret" not in f"{caught.value} {caught.value.fix} {caught.value.details}"


def test_the_same_as_pip_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the installed pip for its merged settings, where there is one."""
    home = tmp_path / "home"
    write(home / ".pip/pip.conf", "[global]\ntimeout = 1\nretries = 1\nproxy = http://a.invalid\n")
    write(home / ".config/pip/pip.conf", "[global]\nretries = 2\n[download]\ntimeout = 4\n")
    environment = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "XDG_CONFIG_DIRS": str(home / "xdg"),
        "PIP_EXTRA_INDEX_URL": "https://b.invalid https://c.invalid",
    }
    program = (
        "import json\n"
        "from pip._internal.commands.download import DownloadCommand\n"
        "o, _ = DownloadCommand('download', '').parse_args([])\n"
        "print(json.dumps([[o.index_url, *o.extra_index_urls], o.timeout, o.retries, o.proxy,"
        " o.find_links, o.trusted_hosts]))\n"
    )
    asked = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=False
    )
    if asked.returncode != 0:
        pytest.skip("this pip cannot be asked")
    ours = read_pip_settings(environment)
    assert json.loads(asked.stdout) == [
        list(ours.index_urls),
        ours.timeout,
        ours.retries,
        ours.proxy or "",
        list(ours.find_links),
        list(ours.trusted_hosts),
    ]
