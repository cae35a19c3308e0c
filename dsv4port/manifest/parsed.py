"""What manifests came out as when they were read last, so that unchanged ones are not parsed again.

Importing the YAML parser takes a fifth of a verify. A file here is used only for the very bytes it
was made from, by the version of this package that made it, and only if it is whole; otherwise the
manifest is parsed, and nobody notices but the clock. The folder is the project's own state, ignored
by git; where there is none, nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from dsv4port import __version__

_READER = f"{__version__}/1"
"""Who reads: raise the number whenever the gate takes something else, or takes it differently."""


class ParsedFiles:
    """Contents of parsed files in `folder`.

    Parameters:
        folder: is made when it is missing and the folder around it is there.
        word: the class of unquoted scalars, which is told apart from plain text.
    """

    def __init__(self, folder: Path, word: type[str]) -> None:
        self._folder = folder
        self._word = word

    def find(self, label: str, data: bytes) -> object | None:
        """The content that `data` was parsed to, None where that is not known."""
        try:
            digest, _, text = self._file(label).read_bytes().partition(b"\n")
            if digest != _digest(text):
                return None
            reader, source, content = json.loads(text)
            if reader != _READER or source != _digest(data).decode():
                return None
            return self._decoded(content)
        except (OSError, ValueError, TypeError, IndexError, RecursionError):
            return None

    def keep(self, label: str, data: bytes, content: object) -> None:
        """Remember what `data` was parsed to."""
        if not self._folder.parent.is_dir():
            return
        text = json.dumps([_READER, _digest(data).decode(), self._encoded(content)]).encode()
        file = self._file(label)
        temporary = file.with_name(f"{file.name}.{os.urandom(4).hex()}")
        # Whoever may not write here only misses some speed.
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            try:
                temporary.write_bytes(_digest(text) + b"\n" + text)
                temporary.replace(file)
            finally:
                temporary.unlink(missing_ok=True)

    def _file(self, label: str) -> Path:
        return self._folder / f"{label.replace('/', '~')}.json"

    def _encoded(self, value: object) -> object:
        if isinstance(value, dict):
            return {key: self._encoded(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._encoded(item) for item in value]
        return f"w{value}" if isinstance(value, self._word) else f"t{value}"

    def _decoded(self, value: object) -> object:
        if isinstance(value, dict):
            return {key: self._decoded(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._decoded(item) for item in value]
        if not isinstance(value, str) or value[0] not in "wt":
            raise ValueError("neither a word nor text")
        return self._word(value[1:]) if value[0] == "w" else value[1:]


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
