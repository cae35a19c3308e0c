"""Finding the archive where pip would look for it."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsv4port.errors import HashMismatchError, NetworkError
from dsv4port.manifest.pins import SdistSource
from dsv4port.upstream.http import Http
from dsv4port.upstream.index import ArchiveLocation, find_archive
from dsv4port.upstream.pip_settings import PipSettings
from dsv4port.upstream.retry import Patience

DATA = b"the archive"
SHA256 = hashlib.sha256(DATA).hexdigest()
OTHER = "0" * 64
SOURCE = SdistSource(name="Toy.Box", version="1.0", sha256=SHA256, filename="toy_box-1.0.tar.gz")
UNNAMED = replace(SOURCE, filename=None)


def find(
    *indexes: str, source: SdistSource = SOURCE, links: tuple[str, ...] = (), **settings: Any
) -> ArchiveLocation:
    configured = PipSettings(index_urls=indexes, find_links=links, timeout=2, **settings)
    with Http(configured) as http:
        return find_archive(source, http, patience=Patience(retries=2))


def page(*links: str) -> bytes:
    return "".join(f'<a href="{link}">x</a>\n' for link in links).encode()


HTML = {"Content-Type": "text/html"}
JSON = {"Content-Type": "application/vnd.pypi.simple.v1+json"}


def test_html_with_a_relative_link(server: Any, reply: Any) -> None:
    body = page(
        "../../files/toy_box-0.9.tar.gz",
        f"../../files/toy_box-1.0.tar.gz#sha256={SHA256}",
        "../../files/toy_box-1.0-py3-none-any.whl",
    )
    server.serve("/simple/toy-box/", reply(body, headers=HTML))
    found = find(f"{server.url}/simple")
    assert found.url == f"{server.url}/files/toy_box-1.0.tar.gz"
    assert found.sha256 == SHA256


def test_the_name_is_normalized_and_json_asked_for(server: Any, reply: Any) -> None:
    file = {
        "filename": "toy_box-1.0.tar.gz",
        "url": "/f/toy_box-1.0.tar.gz",
        "hashes": {"sha256": SHA256},
        "size": 11,
    }
    body = json.dumps({"meta": {"api-version": "1.1"}, "files": [file]}).encode()
    server.serve("/simple/toy-box/", reply(body, headers=JSON))
    found = find(f"{server.url}/simple/")
    assert (found.url, found.size) == (f"{server.url}/f/toy_box-1.0.tar.gz", 11)
    path, headers = server.requests[0]
    assert path == "/simple/toy-box/"
    assert "application/vnd.pypi.simple.v1+json" in headers["accept"]
    assert "text/html" in headers["accept"]


@pytest.mark.parametrize("filename", ["toy_box-1.0", "Toy.Box-1.0", "toy-box-1.0", "TOY__BOX-1.0"])
def test_every_spelling_of_the_name(server: Any, reply: Any, filename: str) -> None:
    server.serve("/simple/toy-box/", reply(page(f"{filename}.tar.gz"), headers=HTML))
    assert find(f"{server.url}/simple", source=UNNAMED).filename == f"{filename}.tar.gz"


@pytest.mark.parametrize("filename", ["toy_box-1.0.1", "toy_box-extra-1.0", "toy_box-1.0rc1"])
def test_other_versions_and_packages_are_not_it(server: Any, reply: Any, filename: str) -> None:
    server.serve("/simple/toy-box/", reply(page(f"{filename}.tar.gz"), headers=HTML))
    with pytest.raises(NetworkError, match="was not found"):
        find(f"{server.url}/simple", source=UNNAMED)


def test_base_of_the_page_and_escapes(server: Any, reply: Any) -> None:
    body = b'<base href="/else/where/"><a rel="x" HREF="toy%5Fbox-1.0.tar.gz?a=1&amp;b=2">x</a>'
    server.serve("/simple/toy-box/", reply(body, headers=HTML))
    found = find(f"{server.url}/simple")
    assert found.url == f"{server.url}/else/where/toy%5Fbox-1.0.tar.gz?a=1&b=2"


def test_links_are_relative_to_where_redirects_lead(server: Any, reply: Any) -> None:
    server.serve("/simple/toy-box/", reply(b"", 302, {"Location": "/mirror/toy-box/"}))
    server.serve("/mirror/toy-box/", reply(page("toy_box-1.0.tar.gz"), headers=HTML))
    assert find(f"{server.url}/simple").url == f"{server.url}/mirror/toy-box/toy_box-1.0.tar.gz"


def test_a_redirect_to_an_insecure_address_is_refused(server: Any, reply: Any) -> None:
    server.serve("/simple/toy-box/", reply(b"", 302, {"Location": "http://far.invalid/"}))
    with pytest.raises(NetworkError) as caught:
        find(f"{server.url}/simple")
    assert "not secure" in caught.value.details[0]


def test_an_insecure_index_is_not_even_asked() -> None:
    with pytest.raises(NetworkError) as caught:
        find("http://far.invalid/simple")
    assert caught.value.details == ("http://far.invalid/simple/toy-box/ is not secure",)


def test_another_hash_names_both(server: Any, reply: Any) -> None:
    body = page(f"toy_box-1.0.tar.gz#sha256={OTHER}")
    server.serve("/simple/toy-box/", reply(body, headers=HTML))
    with pytest.raises(HashMismatchError) as caught:
        find(f"{server.url}/simple")
    assert SHA256 in caught.value.what
    assert OTHER in caught.value.what


def test_the_place_with_the_right_hash_is_used(server: Any, reply: Any) -> None:
    server.serve("/a/toy-box/", reply(page(f"toy_box-1.0.tar.gz#sha256={OTHER}"), headers=HTML))
    server.serve("/b/toy-box/", reply(page("toy_box-1.0.tar.gz"), headers=HTML))
    server.serve("/c/toy-box/", reply(page(f"toy_box-1.0.tar.gz#sha256={SHA256}"), headers=HTML))
    indexes = [f"{server.url}/{name}" for name in "abc"]
    assert find(*indexes).url.startswith(f"{server.url}/c/")
    assert find(*indexes[:2]).url.startswith(f"{server.url}/b/")


def test_every_place_says_why_not(server: Any, reply: Any, tmp_path: Path) -> None:
    server.serve("/b/toy-box/", reply(page("other-1.0.tar.gz"), headers=HTML))
    server.serve("/c/toy-box/", reply(b"{", headers=JSON))
    server.serve("/d/toy-box/", reply(b"x", headers={"Content-Type": "image/png"}))
    indexes = [f"{server.url}/{name}" for name in "abcd"]
    with pytest.raises(NetworkError, match="was not found") as caught:
        find(*indexes, links=(str(tmp_path / "none"),))
    details = caught.value.details
    assert "No such file" in details[0]
    assert "404" in details[1]
    assert "does not list toy_box-1.0.tar.gz" in details[2]
    assert "makes no sense" in details[3]
    assert "image/png" in details[4]
    assert caught.value.fix is not None
    assert "--from" in caught.value.fix


def test_a_server_in_trouble_is_asked_again(server: Any, reply: Any) -> None:
    good = reply(page("toy_box-1.0.tar.gz"), headers=HTML)
    server.serve("/simple/toy-box/", reply(b"", 503), reply(b"", 502), good)
    find(f"{server.url}/simple")
    assert server.count("/simple/toy-box/") == 3


def test_no_place_at_all() -> None:
    with pytest.raises(NetworkError, match="names no place"):
        find()


def test_folders_and_pages_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "simple" / "toy-box"
    folder.mkdir(parents=True)
    archive = folder / "toy_box-1.0.tar.gz"
    archive.write_bytes(DATA)
    assert find(str(tmp_path / "simple")).path == archive
    assert find((tmp_path / "simple").as_uri()).path == archive
    assert find(links=(str(folder),)).path == archive
    assert find(links=(folder.as_uri(),)).path == archive
    (folder / "index.html").write_bytes(page("files/toy_box-1.0.tar.gz"))
    with pytest.raises(NetworkError):
        find(str(tmp_path / "simple"))
    (folder / "files").mkdir()
    archive.rename(folder / "files" / archive.name)
    assert find(str(tmp_path / "simple")).path == folder / "files" / archive.name
    assert find(links=(str(folder / "index.html"),)).path == folder / "files" / archive.name


def test_a_local_file_with_another_content_is_passed_over(tmp_path: Path) -> None:
    for name, data in (("a", b"something else"), ("b", DATA)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "toy_box-1.0.tar.gz").write_bytes(data)
    links = (str(tmp_path / "a"), str(tmp_path / "b"))
    assert find(links=links).path == tmp_path / "b" / "toy_box-1.0.tar.gz"
    with pytest.raises(HashMismatchError):
        find(links=links[:1])


def test_credentials_are_sent_to_their_server_and_never_shown(
    server: Any, new_server: Any, reply: Any
) -> None:
    other = new_server()
    server.serve("/simple/toy-box/", reply(b"", 302, {"Location": f"{other.url}/x/"}))
    other.serve("/x/", reply(b"", 403))
    index = f"http://user:s%40cret@127.0.0.1:{server.port}/simple"
    with pytest.raises(NetworkError) as caught:
        find(index)
    basic = base64.b64encode(b"user:s@cret").decode()
    assert server.requests[0][1]["authorization"] == f"Basic {basic}"
    assert "authorization" not in other.requests[0][1]
    shown = f"{caught.value} {caught.value.fix} {caught.value.details}"
    assert "cret" not in shown


def test_netrc_is_used(server: Any, reply: Any, tmp_path: Path) -> None:
    netrc = tmp_path / "home" / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password hidden\n")
    netrc.chmod(0o600)
    server.serve("/simple/toy-box/", reply(page("toy_box-1.0.tar.gz"), headers=HTML))
    find(f"{server.url}/simple")
    basic = base64.b64encode(b"me:hidden").decode()
    assert server.requests[0][1]["authorization"] == f"Basic {basic}"


def test_the_configured_proxy_is_asked(server: Any, reply: Any) -> None:
    body = page("toy_box-1.0.tar.gz")
    server.serve("http://far.invalid/simple/toy-box/", reply(body, headers=HTML))
    found = find("http://far.invalid/simple", proxy=server.url, trusted_hosts=("far.invalid",))
    assert found.url == "http://far.invalid/simple/toy-box/toy_box-1.0.tar.gz"


def test_the_proxy_of_the_environment_is_asked(
    server: Any, reply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    body = page("toy_box-1.0.tar.gz")
    server.serve("http://far.invalid/simple/toy-box/", reply(body, headers=HTML))
    find("http://far.invalid/simple", trusted_hosts=("far.invalid",))
    assert server.requests


def test_nobody_listens(new_server: Any) -> None:
    gone = new_server()
    gone.close()
    with pytest.raises(NetworkError) as caught:
        find(f"{gone.url}/simple")
    assert "refused" in caught.value.details[0]
    assert "`--from FILE`" in (caught.value.fix or "")


@pytest.mark.parametrize("configured", [True, False])
def test_nobody_listens_where_the_proxy_should_be(
    configured: bool, new_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = new_server()
    gone.close()
    proxy = gone.url.replace("://", "://me:hidden@")
    if not configured:
        monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(NetworkError) as caught:
        find(
            "http://far.invalid/simple",
            proxy=proxy if configured else None,
            trusted_hosts=("far.invalid",),
        )
    [problem] = caught.value.details
    assert "no connection through the proxy" in problem and gone.url.split("/")[2] in problem
    assert "hidden" not in problem
    assert "PIP_PROXY" in (caught.value.fix or "")


def test_the_way_out_of_the_only_place_is_the_way_out() -> None:
    with pytest.raises(NetworkError) as caught:
        find("http://far.invalid/simple")
    assert "trusted-host" in (caught.value.fix or "")
