"""Certificates, trusted hosts, and the refusal to go from https to http."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dsv4port.errors import NetworkError
from dsv4port.upstream.http import Http
from dsv4port.upstream.pip_settings import PipSettings


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that nobody trusts, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(file), "-out", str(file) + ".crt"),
        ],
        check=True,
        capture_output=True,
    )
    file.write_bytes(file.read_bytes() + Path(f"{file}.crt").read_bytes())
    return file


@pytest.fixture
def secure(new_server: Any, certificate: Path, reply: Any) -> Any:
    server = new_server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    server.serve("/", reply(b"hello"))
    return server


def get(url: str, **settings: Any) -> bytes:
    with Http(PipSettings(timeout=2, **settings)) as http:
        answer = http.get(url, {})
        try:
            return answer.body(1000)
        finally:
            answer.close()


def test_an_unknown_certificate_is_refused(secure: Any) -> None:
    with pytest.raises(NetworkError, match="no secure connection") as caught:
        get(f"https://127.0.0.1:{secure.port}/")
    assert caught.value.fix is not None
    assert "cert" in caught.value.fix


def test_the_configured_certificate_wins_over_the_environment(
    secure: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nonexistent")
    assert get(f"https://127.0.0.1:{secure.port}/", cert=str(certificate)) == b"hello"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("port", [True, False])
def test_a_trusted_host_needs_no_certificate(secure: Any, port: bool) -> None:
    host = f"127.0.0.1:{secure.port}" if port else "127.0.0.1"
    assert get(f"https://127.0.0.1:{secure.port}/", trusted_hosts=(host,)) == b"hello"


def test_trust_in_another_port_does_not_count(secure: Any) -> None:
    with pytest.raises(NetworkError):
        get(f"https://127.0.0.1:{secure.port}/", trusted_hosts=("127.0.0.1:1",))


def test_a_missing_certificate_file_is_named(secure: Any) -> None:
    with pytest.raises(NetworkError, match="/nonexistent"):
        get(f"https://127.0.0.1:{secure.port}/", cert="/nonexistent")


def test_from_https_to_http_is_refused(
    secure: Any, server: Any, certificate: Path, reply: Any
) -> None:
    secure.serve("/", reply(b"", 302, {"Location": f"{server.url}/"}))
    server.serve("/", reply(b"plain"))
    with pytest.raises(NetworkError, match=r"redirects to .* not secure"):
        get(f"https://127.0.0.1:{secure.port}/", cert=str(certificate))
    assert not server.requests
