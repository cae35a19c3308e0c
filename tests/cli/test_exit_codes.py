"""The one function that maps exceptions to exit codes."""

from __future__ import annotations

import errno

import click
import pytest

from dsv4port import errors
from dsv4port.cli.exit_codes import explain


def every_error() -> list[type[errors.Dsv4portError]]:
    found = [errors.Dsv4portError]
    for one in found:
        found += one.__subclasses__()
    return [one for one in found if one.__module__ == "dsv4port.errors"]


@pytest.mark.parametrize("kind", every_error())
def test_own_errors_keep_code_and_text(kind: type[errors.Dsv4portError]) -> None:
    failure = explain(kind("what happened", fix="do this", details=["a", "b"]))
    assert failure.exit_code == kind.exit_code
    assert failure.kind == kind.__name__.removesuffix("Error")
    assert (failure.what, failure.fix, failure.details) == ("what happened", "do this", ("a", "b"))


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (click.UsageError("Bad."), 2, "Usage"),
        (click.BadParameter("no"), 2, "Usage"),
        (KeyboardInterrupt(), 130, "Interrupted"),
        (click.Abort(), 130, "Interrupted"),
        (BrokenPipeError(), 141, "BrokenPipe"),
        (OSError(errno.ENOSPC, "x", "/some/file"), 6, "EnvironmentProblem"),
        (PermissionError(errno.EACCES, "x", "/some/file"), 6, "EnvironmentProblem"),
        (OSError(errno.EROFS, "x", "/some/file"), 6, "EnvironmentProblem"),
        (FileExistsError(errno.EEXIST, "x", "/some/file"), 6, "EnvironmentProblem"),
        (NotADirectoryError(errno.ENOTDIR, "x", "/some/file"), 6, "EnvironmentProblem"),
        (FileNotFoundError(errno.ENOENT, "x", "/some/file"), 70, "Internal"),
        (ValueError("oops"), 70, "Internal"),
        (NotImplementedError(), 70, "Internal"),
        (MemoryError(), 70, "Internal"),
    ],
)
def test_other_errors(error: BaseException, code: int, kind: str) -> None:
    failure = explain(error)
    assert (failure.exit_code, failure.kind) == (code, kind)
    if code == 6:
        assert failure.what.startswith("/some/file: ")
        assert failure.fix


def test_a_failed_rename_names_where_it_was_going() -> None:
    error = PermissionError(errno.EACCES, "x", "/from", None, "/to")
    assert explain(error).what == "/to: permission denied"


def test_internal_error_shows_no_traceback_unless_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dsv4port.cli import main

    def broken(arguments: list[str], state: object) -> None:
        raise ValueError("an impossible thing")

    monkeypatch.setattr(main, "_invoke", broken)
    monkeypatch.delenv("DSV4PORT_TRACEBACK", raising=False)
    assert main.run(["status"]) == 70
    shown = capsys.readouterr()
    assert shown.err.startswith("error: internal error: ValueError: an impossible thing\n→ ")
    assert "Traceback" not in shown.err
    monkeypatch.setenv("DSV4PORT_TRACEBACK", "1")
    assert main.run(["status"]) == 70
    assert "Traceback" in capsys.readouterr().err
