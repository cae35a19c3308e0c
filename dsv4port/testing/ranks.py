"""Two processes of one group, for tests of what ranks must agree on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_POLL = 0.05
_GRACE = 10.0
"""Seconds that one rank gets to end by itself after the other failed."""


class RankResult(NamedTuple):
    """How one rank ended; ``code`` is negative where it had to be ended or died by a signal."""

    rank: int
    code: int
    output: str
    errors: str


def run_two_ranks(
    script: Path, arguments: Sequence[str], folder: Path, timeout: float
) -> tuple[RankResult, RankResult]:
    """Run `script` twice, side by side, and wait for both.

    A rank that waits for one that has failed is ended after a moment, so that a test of
    disagreement does not hang.

    Parameters:
        folder: where the rendezvous file may lie.
        timeout: seconds for both.
    """
    rendezvous = Path(tempfile.mkdtemp(dir=folder)) / "rendezvous"
    shared = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "DSV4PORT_RENDEZVOUS": rendezvous.as_uri(),
    }
    with tempfile.TemporaryDirectory(dir=folder) as name:
        files = [(Path(name, f"{rank}.out"), Path(name, f"{rank}.err")) for rank in (0, 1)]
        ranks = []
        for rank, (output, errors) in enumerate(files):
            with output.open("wb") as out, errors.open("wb") as err:
                ranks.append(
                    subprocess.Popen(
                        [sys.executable, str(script), *arguments],
                        env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                        stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    )
                )  # fmt: skip
        _wait(ranks, time.monotonic() + timeout)
        texts = [
            (out.read_text("utf-8", "replace"), err.read_text("utf-8", "replace"))
            for out, err in files
        ]
    first, second = (
        RankResult(rank, process.returncode, *texts[rank]) for rank, process in enumerate(ranks)
    )
    return first, second


def _wait(ranks: Sequence[subprocess.Popen[bytes]], deadline: float) -> None:
    shortened = False
    try:
        while any(process.poll() is None for process in ranks):
            if time.monotonic() > deadline:
                break
            if not shortened and any(process.poll() not in (None, 0) for process in ranks):
                deadline, shortened = min(deadline, time.monotonic() + _GRACE), True
            time.sleep(_POLL)
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
