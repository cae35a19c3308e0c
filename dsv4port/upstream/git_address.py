"""Which git repositories a pin may come from, and how a mirror stands in for one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from dsv4port.errors import BadInputError
from dsv4port.upstream.redact import redact

MIRROR_VARIABLE = "DSV4PORT_GIT_MIRROR"
"""Environment variable with a mirror: a URL, or replacements ``old=new`` separated by spaces."""

SCHEMES = ("https", "http", "ssh", "git", "file")
"""Transports that only move objects. Others, like ``ext``, run commands."""

_HELPER = re.compile(r"[A-Za-z0-9+.-]+::")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SCP_LIKE = re.compile(r"(?:[^\s/:@-][^\s/:@]*@)?(?:[^\s/:@\[-][^\s/:@]*|\[[0-9A-Fa-f:.]+\]):.+")


def mirrored(url: str, mirror: str | None, environment: Mapping[str, str] | None = None) -> str:
    """The address to fetch from instead of `url`.

    Parameters:
        mirror: a URL or path that replaces `url`, or ``old=new``, where `new` replaces `old` at
            the start of `url` and other URLs stay as they are. Several of the latter may be
            given, separated by spaces; the first that fits counts. None means
            ``DSV4PORT_GIT_MIRROR``.
    """
    environment = os.environ if environment is None else environment
    text = (mirror if mirror is not None else environment.get(MIRROR_VARIABLE, "")).strip()
    if not text:
        return url
    if "=" not in text:
        return text
    for rule in text.split():
        old, _, new = rule.partition("=")
        if old and url.startswith(old):
            return new + url[len(old) :]
    return url


def check_address(url: str) -> str:
    """The address as git is to get it: a URL, ``host:path``, or an absolute path.

    Raises:
        BadInputError: it could be taken for an option, would run a command, or names nothing.
    """
    shown = redact(url)
    fix = f"use an address of the kinds {', '.join(SCHEMES)}, or a path"
    if not url or url.startswith("-") or re.search(r"[\x00-\x1f\x7f]", url):
        raise BadInputError(f"`{shown}` is no address of a git repository", fix=fix)
    if _HELPER.match(url):
        raise BadInputError(f"`{shown}` would start a remote helper of git", fix=fix)
    scheme = _SCHEME.match(url)
    if scheme is not None:
        if scheme.group(1) not in SCHEMES:
            raise BadInputError(f"`{shown}`: {scheme.group(1)} addresses are not used", fix=fix)
        host = urlsplit(url).netloc.rpartition("@")[2]
        if host.startswith("-") or urlsplit(url).netloc.startswith("-"):
            raise BadInputError(f"`{shown}` has a host that looks like an option", fix=fix)
        return url
    path = Path(url)
    if path.exists():
        return str(path.absolute())
    if _SCP_LIKE.fullmatch(url):
        return url
    raise BadInputError(f"there is no git repository at `{shown}`", fix=fix)
