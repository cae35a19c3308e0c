"""Which failures say nothing about the code: told by types and codes, not by words."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from dsv4port.testing.outcomes import environment_problem


class GatedRepoError(Exception):
    """As huggingface_hub has it."""


def http_error(status: int) -> Exception:
    error = requests.HTTPError(f"{status} Client Error")
    error.response = SimpleNamespace(status_code=status)  # type: ignore[assignment]
    return error


def raised_from(outer: Exception, inner: Exception) -> Exception:
    try:
        try:
            raise inner
        except Exception as error:
            raise outer from error
    except Exception as error:
        return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (GatedRepoError("no"), "GatedRepoError"),
        (http_error(403), "HTTP 403"),
        (http_error(401), "HTTP 401"),
        (requests.ConnectionError("refused"), "no connection"),
        (socket.gaierror("name"), "no connection"),
        (OSError(errno.ENOSPC, "full"), "no space"),
        (OSError("You are trying to access a gated repo.\nMake sure"), "download refused"),
        (OSError("We couldn't connect to 'https://huggingface.co' to load"), "download refused"),
        (raised_from(ValueError("cannot load"), GatedRepoError("no")), "GatedRepoError"),
        (raised_from(RuntimeError("outer"), http_error(403)), "HTTP 403"),
    ],
)
def test_what_is_of_the_environment(error: Exception, words: str) -> None:
    assert words in (environment_problem(error) or "")


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("403 Client Error: gated repo"),
        ValueError("You are trying to access a gated repo"),
        http_error(404),
        http_error(500),
        FileNotFoundError(errno.ENOENT, "no such file"),
        ConnectionError("two ranks: connection reset"),
        OSError("the arena is full"),
        RuntimeError("No space left on device"),
        TimeoutError("a rank did not answer"),
    ],
)
def test_what_may_be_of_the_code(error: Exception) -> None:
    assert environment_problem(error) is None


@given(st.text())
def test_no_words_make_a_failed_assertion_one_of_the_environment(text: str) -> None:
    assert environment_problem(AssertionError(text)) is None


def test_a_context_that_was_cut_off_does_not_count() -> None:
    try:
        try:
            raise GatedRepoError("no")
        except GatedRepoError:
            raise AssertionError("something else") from None
    except AssertionError as error:
        assert environment_problem(error) is None


def test_errors_in_a_circle_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert environment_problem(first) is None
