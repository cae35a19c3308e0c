"""Facts on disk: one SQLite file in the cache folder, shared by all pins.

Facts are kept by blob id, so the next pin only adds the files that are new in it. The file may be
deleted at any time. One that is damaged or of another format is made anew.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dsv4port.drift.extract import Extracted, word_key
from dsv4port.drift.facts import Call, Facts, decode_calls, decode_facts
from dsv4port.errors import EnvironmentProblemError

FORMAT = 1
"""Version of what is stored: raise it whenever extraction or encoding changes."""

_SCHEMA = """
create table blobs (n integer primary key, id text not null unique, facts blob not null,
                    calls blob not null);
create table words (word integer not null, n integer not null, roles integer not null,
                    primary key (word, n)) without rowid;
create table trees (id text primary key, listing blob not null) without rowid;
"""


class FactStore:
    """The stored facts. Use as a context manager."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._facts: dict[str, Facts] = {}
        self._calls: dict[str, tuple[Call, ...]] = {}
        self._words: dict[tuple[str, int], frozenset[str]] = {}

    def __enter__(self) -> FactStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def known(self) -> set[str]:
        """Ids of all blobs that have facts."""
        return {row[0] for row in self._connection.execute("select id from blobs")}

    def add(self, batch: Iterable[Extracted]) -> None:
        """Keep facts; the caller commits."""
        run = self._connection.execute
        for one in batch:
            number = run(
                "insert or ignore into blobs (id, facts, calls) values (?, ?, ?)",
                (one.blob, one.facts, one.calls),
            ).lastrowid
            self._connection.executemany(
                "insert or ignore into words values (?, ?, ?)",
                [(word, number, roles) for word, roles in one.words],
            )

    def commit(self) -> None:
        """Make what was added last."""
        self._connection.commit()

    def listing(self, tree: str) -> dict[str, str] | None:
        """Blob ids by path of a tree, None when it is not stored."""
        row = self._connection.execute("select listing from trees where id = ?", (tree,)).fetchone()
        if row is None:
            return None
        text = zlib.decompress(row[0]).decode("utf-8", "surrogateescape")
        return {line[41:]: line[:40] for line in text.split("\n") if line}

    def add_listing(self, tree: str, files: Mapping[str, str]) -> None:
        """Keep the paths of a tree; paths with line feeds are left out: no source has one."""
        text = "\n".join(f"{blob} {path}" for path, blob in files.items() if "\n" not in path)
        self._connection.execute(
            "insert or replace into trees values (?, ?)",
            (tree, zlib.compress(text.encode("utf-8", "surrogateescape"), 1)),
        )

    def is_complete(self, tree: str, folders: Iterable[str]) -> bool:
        """Whether all facts of a tree were found to be there, with those of these folders."""
        key = (_completion(tree, folders),)
        return (
            self._connection.execute("select 1 from trees where id = ?", key).fetchone() is not None
        )

    def mark_complete(self, tree: str, folders: Iterable[str]) -> None:
        """Remember that all facts of a tree are there; the caller commits."""
        self._connection.execute(
            "insert or replace into trees values (?, ?)", (_completion(tree, folders), b"")
        )

    def facts(self, blob: str) -> Facts | None:
        """Facts of a blob, None when there are none."""
        found = self._facts.get(blob)
        if found is None:
            row = self._connection.execute(
                "select facts from blobs where id = ?", (blob,)
            ).fetchone()
            if row is None:
                return None
            found = self._facts[blob] = decode_facts(json.loads(zlib.decompress(row[0])))
        return found

    def calls(self, blob: str) -> tuple[Call, ...]:
        """Calls in a blob."""
        found = self._calls.get(blob)
        if found is None:
            row = self._connection.execute(
                "select calls from blobs where id = ?", (blob,)
            ).fetchone()
            found = () if row is None else decode_calls(json.loads(zlib.decompress(row[0])))
            self._calls[blob] = found
        return found

    def blobs_with(self, word: str, roles: int) -> frozenset[str]:
        """Blobs that may use the word in one of the roles."""
        found = self._words.get((word, roles))
        if found is None:
            rows = self._connection.execute(
                "select id from words join blobs using (n) where word = ? and roles & ?",
                (word_key(word), roles),
            )
            found = self._words[word, roles] = frozenset(row[0] for row in rows)
        return found


def open_store(file: Path) -> FactStore:
    """Open the file, making it where it is missing, damaged or of another format.

    Raises:
        EnvironmentProblemError: it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(sqlite3.DatabaseError):
            connection = _connect(file)
            version = connection.execute("pragma user_version").fetchone()[0]
            if version == FORMAT:
                return FactStore(connection)
            connection.close()
        for path in _files(file):
            path.unlink(missing_ok=True)
        connection = _connect(file)
        connection.executescript(f"begin; {_SCHEMA} pragma user_version = {FORMAT}; commit;")
    except (OSError, sqlite3.OperationalError) as error:
        raise EnvironmentProblemError(
            f"cannot keep the symbol index in {file}: {error}",
            fix="set DSV4PORT_CACHE to a folder that you may write to, on a local disk",
        ) from error
    return FactStore(connection)


def memory_store() -> FactStore:
    """A store that ends with the process."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(_SCHEMA)
    return FactStore(connection)


def _completion(tree: str, folders: Iterable[str]) -> str:
    return " ".join((tree, "complete", *sorted(folders)))


def _connect(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=60)
    connection.execute("pragma cache_size = -16000")
    return connection


def _files(file: Path) -> Iterator[Path]:
    for ending in ("", "-journal", "-wal", "-shm"):
        yield file.with_name(file.name + ending)
