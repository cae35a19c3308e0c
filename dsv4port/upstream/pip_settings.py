"""Where the user told pip to find packages, and how to get there.

Read the way pip reads it: files of the system, the user, the environment and
``PIP_CONFIG_FILE``, in this order of precedence, each with a ``[global]`` and a ``[download]``
section of which the latter wins over every ``[global]``; above all of them ``PIP_*`` variables.
A later value replaces an earlier one, lists are not joined.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dsv4port.errors import BadInputError

DEFAULT_INDEX = "https://pypi.org/simple"
"""What pip asks when nothing is configured."""

_SECTIONS = ("global", "download", ":env:")
_ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url"}
_FIX = "correct pip's configuration: `pip config list` and the variables PIP_* say what there is"
_TRUE = ("y", "yes", "t", "true", "on", "1")
_FALSE = ("n", "no", "f", "false", "off", "0")


@dataclass(frozen=True, slots=True)
class PipSettings:
    """The part of pip's configuration that says how to find and fetch a file.

    Parameters:
        index_urls: indexes to ask, best first; empty with ``no-index``.
        find_links: pages and folders that list archives.
        trusted_hosts: ``host`` or ``host:port`` that need no valid certificate, and no TLS.
        cert: file with certificates to trust instead of the usual ones.
        client_cert: file with a certificate and key that identify the user.
        proxy: proxy for everything; None means the environment's.
        timeout: seconds without an answer or data until a connection counts as broken.
        retries: how often to try again.
    """

    index_urls: tuple[str, ...] = (DEFAULT_INDEX,)
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout: float = 15.0
    retries: int = 5


def read_pip_settings(environment: Mapping[str, str] | None = None) -> PipSettings:
    """The settings that pip would have for this user and environment.

    Raises:
        BadInputError: a configuration file or value makes no sense; pip refuses it, too.
    """
    environment = os.environ if environment is None else environment
    values = _merged(environment)
    no_index = _flag(values, "no-index")
    indexes = [values.get("index-url", DEFAULT_INDEX), *values.get("extra-index-url", "").split()]
    return PipSettings(
        index_urls=() if no_index else tuple(url for url in indexes if url),
        find_links=tuple(values.get("find-links", "").split()),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        cert=values.get("cert"),
        client_cert=values.get("client-cert"),
        proxy=values.get("proxy"),
        timeout=_number(values, "timeout", 15.0),
        retries=int(_number(values, "retries", 5)),
    )


def _merged(environment: Mapping[str, str]) -> dict[str, str]:
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for file in _files(environment):
        _read_file(file, sections)
    for key, value in environment.items():
        if key.startswith("PIP_"):
            sections[":env:"][_normalized(key[4:])] = value
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        # As in pip, an empty value counts as not set.
        merged.update({key: value for key, value in sections[section].items() if value})
    return merged


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Configuration files, the least important first."""
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = environment.get("HOME")
    user = Path(home) if home else Path("~").expanduser()
    for folder in environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep):
        yield Path(folder or "/etc/xdg") / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    if not (named and Path(named).exists()):
        yield user / ".pip" / "pip.conf"
        yield _user_folder(environment, user) / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if named:
        yield Path(named)


def _user_folder(environment: Mapping[str, str], home: Path) -> Path:
    if sys.platform == "darwin":
        folder = home / "Library" / "Application Support" / "pip"
        return folder if folder.is_dir() else home / ".config" / "pip"
    configured = environment.get("XDG_CONFIG_HOME", "").strip()
    return (Path(configured) if configured else home / ".config") / "pip"


def _read_file(file: Path, sections: dict[str, dict[str, str]]) -> None:
    import configparser

    parser = configparser.RawConfigParser()
    try:
        # Like pip, which reads what it can and leaves out what is not there.
        text = file.read_text("utf-8")
        parser.read_string(text, source=str(file))
    except OSError:
        return
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{file}: not UTF-8 text",
            fix="correct pip's configuration file, or set PIP_CONFIG_FILE",
        ) from error
    except configparser.Error as error:
        # The parser repeats the line, which may hold a password.
        raise BadInputError(
            f"{file}: {type(error).__name__} at line {getattr(error, 'lineno', '?')}",
            fix="correct pip's configuration file, or set PIP_CONFIG_FILE",
        ) from None
    for section in parser.sections():
        if section in ("global", "download"):
            sections[section].update(
                {_normalized(key): value for key, value in parser.items(section)}
            )


def _normalized(key: str) -> str:
    key = key.lower().replace("_", "-").removeprefix("--")
    return _ALIASES.get(key, key)


def _flag(values: Mapping[str, str], key: str) -> bool:
    text = values.get(key, "0").strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise BadInputError(f"pip's setting `{key}` is neither true nor false: {text!r}", fix=_FIX)
    return text in _TRUE


def _number(values: Mapping[str, str], key: str, default: float) -> float:
    text = values.get(key)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise BadInputError(f"pip's setting `{key}` is no number: {text!r}", fix=_FIX)
    return number
