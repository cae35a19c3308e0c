"""Find the archive of a source distribution, in the places that pip would look in.

``pip download`` itself cannot be used: it builds the package to learn its metadata. The simple
repository API (PEP 503 as HTML, PEP 691 as JSON) gives the file and its hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

from dsv4port.errors import HashMismatchError, NetworkError
from dsv4port.upstream.files import sha256_of
from dsv4port.upstream.http import Http
from dsv4port.upstream.progress import NO_PROGRESS, Progress
from dsv4port.upstream.redact import redact
from dsv4port.upstream.retry import Patience

if TYPE_CHECKING:
    from dsv4port.manifest.pins import SdistSource

_ACCEPT = (
    "application/vnd.pypi.simple.v1+json, "
    "application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01"
)
_PAGE_LIMIT = 64 << 20
_HEX_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ArchiveLocation:
    """Where an archive can be fetched.

    Parameters:
        url: ``http:``, ``https:`` or ``file:``; may hold credentials, so never show it as it is.
        filename: its name there.
        sha256: what the index says of it, None when it says nothing.
        size: bytes, None when the index does not say.
    """

    url: str = field(repr=False)
    filename: str
    sha256: str | None = None
    size: int | None = None

    @property
    def shown(self) -> str:
        """The address for messages."""
        return redact(self.url)

    @property
    def path(self) -> Path | None:
        """The file that a ``file:`` URL names, None for other URLs."""
        return _file_of(self.url)


def find_archive(
    source: SdistSource,
    http: Http,
    *,
    patience: Patience,
    progress: Progress = NO_PROGRESS,
) -> ArchiveLocation:
    """The first place that has the archive with the pinned hash.

    A place that gives no hash is used only when no other says that it has the right file.

    Raises:
        HashMismatchError: every place that has the archive says it has another hash.
        NetworkError: no place has it; the details say what each one answered.
    """
    problems: list[str] = []
    fixes: list[str | None] = []
    unproven: ArchiveLocation | None = None
    wrong: ArchiveLocation | None = None
    for place in _places(source, http):
        try:
            found = [
                _with_hash(location)
                for location in _list(place, http, patience, progress)
                if _is_archive(location.filename, source)
            ]
        except NetworkError as error:
            problems.append(error.what)
            fixes.append(error.fix)
            continue
        for location in found:
            if location.sha256 == source.sha256:
                return location
            if location.sha256 is None:
                unproven = unproven or location
            else:
                wrong = wrong or location
        if not found:
            problems.append(f"{redact(place)}: does not list {source.archive}")
    if unproven is not None:
        return unproven
    if wrong is not None:
        raise HashMismatchError(
            f"{source.archive}: the pin says sha256 {source.sha256}, the index says {wrong.sha256}",
            fix="find out which is right before anything else: one of the two was changed",
            details=(f"index file: {wrong.shown}", *problems),
        )
    usual = "check pip's configuration (`pip config list`), or give the file with `--from FILE`"
    # With one place alone, its own way out is the one.
    alone = fixes[0] if fixes and len(problems) == 1 else None
    raise NetworkError(
        f"{source.archive} was not found"
        + ("" if problems else ": pip's configuration names no place to look in"),
        fix=alone or usual,
        details=problems,
    )


def _places(source: SdistSource, http: Http) -> Iterator[str]:
    """URLs of the pages and folders that may list the archive."""
    for link in http.settings.find_links:
        yield _absolute(link, expand_home=True)
    project = re.sub(r"[-_.]+", "-", source.name).lower()
    for index in http.settings.index_urls:
        yield f"{_absolute(index).rstrip('/')}/{project}/"


def _with_hash(location: ArchiveLocation) -> ArchiveLocation:
    """The same with the hash of the file itself where that is on this machine."""
    path = location.path
    if path is None:
        return location
    try:
        return replace(location, sha256=sha256_of(path))
    except OSError as error:
        raise NetworkError(f"{path}: {error.strerror}") from error


def _absolute(location: str, *, expand_home: bool = False) -> str:
    """A URL for a URL or a path."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|file:", location):
        return location
    path = Path(location).expanduser() if expand_home else Path(location)
    return path.absolute().as_uri()


def _list(
    place: str, http: Http, patience: Patience, progress: Progress
) -> Iterable[ArchiveLocation]:
    path = _file_of(place)
    if path is not None:
        return _list_local(path, place)
    if urlsplit(place).scheme not in ("http", "https"):
        raise NetworkError(
            f"{redact(place)}: only http, https and file can be used",
            fix="correct the index or the find-links of pip's configuration",
        )

    def ask() -> list[ArchiveLocation]:
        answer = http.get(place, {"Accept": _ACCEPT})
        try:
            kind = answer.headers.get("content-type", "")
            # Links are relative to where redirects led to.
            return _parse(answer.body(_PAGE_LIMIT), kind, answer.url)
        finally:
            answer.close()

    return patience.attempt(ask, progress)


def _list_local(path: Path, url: str) -> list[ArchiveLocation]:
    try:
        page = path / "index.html" if path.is_dir() else path
        if path.is_dir() and not page.is_file():
            return [
                ArchiveLocation(file.absolute().as_uri(), file.name)
                for file in sorted(path.iterdir())
                if file.is_file()
            ]
        kind = "application/json" if page.suffix == ".json" else "text/html"
        base = f"{url.rstrip('/')}/" if path.is_dir() else url
        return _parse(page.read_bytes(), kind, base)
    except OSError as error:
        raise NetworkError(f"{redact(url)}: {error.strerror}") from error


def _parse(page: bytes, kind: str, base: str) -> list[ArchiveLocation]:
    mime, _, parameters = kind.partition(";")
    if mime.strip().lower().endswith("json"):
        return list(_parse_json(page, base))
    if mime.strip().lower() in ("text/html", "application/vnd.pypi.simple.v1+html", ""):
        charset = re.search(r"charset=[\"']?([\w-]+)", parameters)
        return list(_parse_html(page, charset.group(1) if charset else "utf-8", base))
    raise NetworkError(
        f"{redact(base)}: the answer is {mime.strip()}, neither HTML nor JSON",
        fix="check that pip's configuration names a package index",
    )


def _parse_json(page: bytes, base: str) -> Iterator[ArchiveLocation]:
    import json

    try:
        document = json.loads(page)
        version = str(document.get("meta", {}).get("api-version", "1.0"))
        if not version.startswith("1."):
            raise NetworkError(f"{redact(base)}: unknown version {version} of the index's API")
        for file in document["files"]:
            size = file.get("size")
            yield ArchiveLocation(
                urldefrag(urljoin(base, file["url"])).url,
                str(file["filename"]),
                _sha256(file.get("hashes", {}).get("sha256")),
                size if isinstance(size, int) and size >= 0 else None,
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NetworkError(f"{redact(base)}: the index's answer makes no sense") from error


def _parse_html(page: bytes, charset: str, base: str) -> Iterator[ArchiveLocation]:
    try:
        text = page.decode(charset, "replace")
    except LookupError:
        text = page.decode("utf-8", "replace")
    links = _Links()
    links.feed(text)
    links.close()
    base = urljoin(base, links.base) if links.base else base
    for link in links.links:
        try:
            url, fragment = urldefrag(urljoin(base, link))
            path = urlsplit(url).path
        except ValueError:
            continue
        hash_match = re.search(r"(?:^|&)sha256=([0-9A-Fa-f]{64})(?:&|$)", fragment)
        yield ArchiveLocation(
            url,
            unquote(path.rsplit("/", 1)[-1]),
            hash_match.group(1).lower() if hash_match else None,
        )


class _Links(HTMLParser):
    """The targets of all links of a page, and the page's base."""

    def __init__(self) -> None:
        super().__init__()
        self.base: str | None = None
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get("href")
        if not target:
            return
        if tag == "a":
            self.links.append(target.strip())
        elif tag == "base" and self.base is None:
            self.base = target.strip()


def _is_archive(filename: str, source: SdistSource) -> bool:
    """Whether a file name is the pinned archive's, however its name is spelled."""
    if filename == source.archive:
        return True
    if source.filename is not None or not filename.endswith(".tar.gz"):
        return False
    name, dash, version = filename.removesuffix(".tar.gz").rpartition("-")
    return bool(dash) and version == source.version and _same_name(name, source.name)


def _same_name(one: str, other: str) -> bool:
    return re.sub(r"[-_.]+", "-", one).lower() == re.sub(r"[-_.]+", "-", other).lower()


def _sha256(value: object) -> str | None:
    text = str(value).lower()
    return text if _HEX_SHA256.fullmatch(text) else None


def _file_of(url: str) -> Path | None:
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    return Path(url2pathname(parts.path))
