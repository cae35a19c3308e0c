"""Addresses as they may be shown: without passwords, tokens and signatures."""

from __future__ import annotations

import re

_USER_INFORMATION = re.compile(r"(?<=://)[^/?#\s@]*(?:@[^/?#\s@]*)*@")
_QUERY = re.compile(r"(://[^\s?#'\"]*)\?[^\s#'\"]*")


def redact(text: str) -> str:
    """`text` with the user information and the query of every URL in it replaced by ``***``.

    >>> redact("fetch https://me:secret@host/a?token=x failed")
    'fetch https://***@host/a?*** failed'
    """
    return _QUERY.sub(r"\1?***", _USER_INFORMATION.sub("***@", text))
