"""Fill a pack with two threads that deflate; most of an import's time goes into that."""

from __future__ import annotations

import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

from dsv4port.git.objects import ObjectKind, object_id
from dsv4port.git.pack import PackWriter

_THREADS = 2
_BATCH = 1 << 20
"""Bytes handed to a thread at once: handing over single files costs more than it gains."""

_BATCHES_AHEAD = 6


class _Object(NamedTuple):
    kind: ObjectKind
    identifier: str
    data: bytes


class _Deflated(NamedTuple):
    kind: ObjectKind
    identifier: str
    size: int
    deflated: bytes


class DeflatingSink:
    """An object sink in front of a pack, whose objects come in the order they were added.

    Use as a context manager; the pack has everything once it was left without an error.
    """

    def __init__(self, writer: PackWriter, *, compression: int) -> None:
        self._writer = writer
        self._level = compression
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="deflate")
        self._pending: deque[Future[list[_Deflated]]] = deque()
        self._batch: list[_Object] = []
        self._batch_size = 0
        self._seen: set[str] = set()

    def __enter__(self) -> DeflatingSink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._hand_over()
                while self._pending:
                    self._write_first()
        finally:
            self._threads.shutdown(cancel_futures=True)

    def add(self, kind: ObjectKind, data: bytes) -> str:
        """Take an object, return its id."""
        identifier = object_id(kind, data)
        if identifier not in self._seen:
            self._seen.add(identifier)
            self._batch.append(_Object(kind, identifier, data))
            self._batch_size += len(data)
            if self._batch_size >= _BATCH:
                self._hand_over()
        return identifier

    def read(self, identifier: str) -> bytes | None:
        """The data of an object added before, None when this pack does not hold it."""
        if identifier in self._seen:
            self._hand_over()
            while self._pending:
                self._write_first()
        return self._writer.read(identifier)

    def _hand_over(self) -> None:
        batch, self._batch, self._batch_size = self._batch, [], 0
        self._pending.append(self._threads.submit(self._deflate, batch))
        # The oldest first, so that the same input always gives the same pack.
        while self._pending and (self._pending[0].done() or len(self._pending) > _BATCHES_AHEAD):
            self._write_first()

    def _write_first(self) -> None:
        for item in self._pending.popleft().result():
            self._writer.add_deflated(*item)

    def _deflate(self, batch: list[_Object]) -> list[_Deflated]:
        return [
            _Deflated(kind, identifier, len(data), zlib.compress(data, self._level))
            for kind, identifier, data in batch
        ]
