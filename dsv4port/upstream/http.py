"""HTTP as pip's configuration wants it: certificates, proxy, credentials, trusted hosts.

Errors come out as one of two: worth another try, or not.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from dsv4port.errors import NetworkError
from dsv4port.upstream.pip_settings import PipSettings
from dsv4port.upstream.redact import redact

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session

_PASSING_STATUS = frozenset((408, 425, 429, 500, 502, 503, 504, 520, 522, 524, 527))
_OFFLINE_FIX = "check the network and pip's configuration, or give the file with `--from FILE`"


class PassingProblemError(NetworkError):
    """A request failed in a way that may be gone with the next try.

    Parameters:
        wait: seconds that the server asks to wait, None when it does not say.
    """

    def __init__(self, what: str, *, wait: float | None = None, fix: str | None = None) -> None:
        super().__init__(what, fix=fix or _OFFLINE_FIX)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and headers of a response whose body is still to be read.

    Header names are lower case. `url` is where redirects led to, without credentials.
    """

    status: int
    headers: Mapping[str, str]
    url: str
    response: Response

    def block(self, amount: int) -> bytes:
        """The next bytes of the body as they came, at most `amount`; empty at the end.

        Raises:
            PassingProblemError: the connection broke or stalled.
        """
        try:
            # Not inflated: an archive served with `Content-Encoding: gzip` is the archive itself.
            data: bytes = self.response.raw.read(amount, decode_content=False)
        except Exception as error:
            _raise_problem(error, self.url)
        return data

    def body(self, limit: int) -> bytes:
        """The whole body, content encodings undone.

        Raises:
            PassingProblemError: the connection broke or stalled.
            NetworkError: it has more than `limit` bytes.
        """
        data = bytearray()
        try:
            for part in self.response.iter_content(1 << 16):
                data += part
                if len(data) > limit:
                    raise NetworkError(
                        f"{redact(self.url)}: the answer has more than {limit} bytes",
                        fix="check the index that pip's configuration names",
                    )
        except NetworkError:
            raise
        except Exception as error:
            _raise_problem(error, self.url)
        return bytes(data)

    def close(self) -> None:
        """Give the connection back; cuts it where the body was not read to its end."""
        self.response.close()


class Http:
    """One session; use as a context manager.

    Parameters:
        settings: pip's; the credentials in the URLs there serve every URL of the same server.
    """

    def __init__(self, settings: PipSettings) -> None:
        self._settings = settings
        self._session: Session | None = None
        self._credentials: dict[tuple[str, str], tuple[str, str]] = {}
        for url in (*settings.index_urls, *settings.find_links):
            self._bare(url)

    def __enter__(self) -> Http:
        return self

    def __exit__(self, *unused: object) -> None:
        if self._session is not None:
            self._session.close()

    def get(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Ask for `url`, following redirects; the caller closes the answer.

        Raises:
            PassingProblemError: no answer, or one that says to come again.
            NetworkError: an answer that says no, or an insecure address.
        """
        bare = self._bare(url)
        if not self.is_secure(bare):
            raise NetworkError(
                f"{redact(bare)} is not secure",
                fix="use https, or name the host in `trusted-host` of pip's configuration",
            )
        session = self._session = self._session or _open_session(self)
        settings = self._settings
        try:
            response = session.get(
                bare,
                headers=dict(headers),
                stream=True,
                timeout=settings.timeout or None,
                # Given each time: a value of the session would yield to REQUESTS_CA_BUNDLE.
                verify=settings.cert or True,
                cert=settings.client_cert,
                auth=self._authenticate,
            )
        except NetworkError:
            raise
        except Exception as error:
            _raise_problem(error, bare, settings.proxy or _proxy_of_environment(bare))
        answer = Answer(
            response.status_code,
            {name.lower(): value for name, value in response.headers.items()},
            response.url,
            response,
        )
        if answer.status in (200, 206, 416):
            return answer
        answer.close()
        raise _refusal(answer)

    def is_secure(self, url: str) -> bool:
        """Whether nobody between can read or change what comes from `url`, or that is allowed."""
        parts = urlsplit(url)
        return parts.scheme == "https" or _is_local(parts.hostname or "") or self.is_trusted(url)

    def is_trusted(self, url: str) -> bool:
        """Whether ``trusted-host`` names the host of `url`."""
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        names = {host, f"{host}:{_port(url)}", f"[{host}]", f"[{host}]:{_port(url)}"}
        return any(name.lower() in names for name in self._settings.trusted_hosts)

    @property
    def settings(self) -> PipSettings:
        """What the session was made with."""
        return self._settings

    def _bare(self, url: str) -> str:
        """The URL without its credentials, which are kept for its server."""
        parts = urlsplit(url)
        information, at, server = parts.netloc.rpartition("@")
        if not at:
            return url
        user, _, password = information.partition(":")
        self._credentials.setdefault(
            (parts.scheme, server.lower()), (unquote(user), unquote(password))
        )
        return urlunsplit(parts._replace(netloc=server))

    def _authenticate(self, request: PreparedRequest) -> PreparedRequest:
        from requests.auth import HTTPBasicAuth
        from requests.utils import get_netrc_auth

        parts = urlsplit(request.url or "")
        found = self._credentials.get((parts.scheme, parts.netloc.lower()))
        found = found or get_netrc_auth(request.url or "")
        return HTTPBasicAuth(*found)(request) if found else request


def _open_session(http: Http) -> Session:
    import warnings

    import requests
    import urllib3
    from requests.adapters import HTTPAdapter

    class Unverified(HTTPAdapter):
        def send(self, request: Any, *arguments: Any, **named: Any) -> Response:
            named["verify"] = False
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
                return super().send(request, *arguments, **named)

    class Careful(requests.Session):
        def get_redirect_target(self, resp: Response) -> str | None:
            target = super().get_redirect_target(resp)
            if target is not None:
                _check_redirect(http, resp.url, target)
            return target

    session = Careful()
    session.headers["User-Agent"] = "dsv4port"
    session.max_redirects = 10
    if http.settings.proxy:
        session.proxies = {"http": http.settings.proxy, "https": http.settings.proxy}
        # What pip's configuration says wins over the environment, which requests prefers. netrc
        # is asked for in `Http`, and certificates are always given.
        session.trust_env = False
    for host in http.settings.trusted_hosts:
        # A prefix without a slash would match other hosts, too.
        session.mount(f"https://{host}/", Unverified())
        if ":" not in host.rpartition("]")[2]:
            session.mount(f"https://{host}:", Unverified())
    return session


def _check_redirect(http: Http, source: str, target: str) -> None:
    absolute = urljoin(source, target)
    schemes = urlsplit(source).scheme, urlsplit(absolute).scheme
    if schemes[1] not in ("http", "https"):
        problem = "which is no web address"
    elif schemes == ("https", "http") or not http.is_secure(absolute):
        problem = "which is not secure"
    else:
        return
    raise NetworkError(
        f"{redact(source)} redirects to {redact(absolute)}, {problem}",
        fix="use another index, or give the file with `--from FILE`",
    )


def _refusal(answer: Answer) -> NetworkError:
    what = f"{redact(answer.url)}: the server answers {answer.status}"
    if answer.response.reason:
        what += f" {answer.response.reason}"
    if answer.status in _PASSING_STATUS:
        wait = answer.headers.get("retry-after", "")
        return PassingProblemError(what, wait=float(wait) if wait.isdecimal() else None)
    if answer.status in (401, 403, 407):
        fix = "give credentials in the index URL of pip's configuration or in ~/.netrc"
    else:
        fix = "check the index that pip's configuration names, or use `--from FILE`"
    return NetworkError(what, fix=fix)


def _proxy_of_environment(url: str) -> str | None:
    from requests.utils import get_environ_proxies, select_proxy

    return select_proxy(url, get_environ_proxies(url))


def _named(proxy: str | None) -> str:
    return f" {redact(proxy)}" if proxy else ""


def _raise_problem(error: Exception, url: str, proxy: str | None = None) -> NoReturn:
    """Raise what an exception of requests or urllib3 means; anything else goes on as it is."""
    import requests
    import urllib3

    if not isinstance(error, (requests.RequestException, urllib3.exceptions.HTTPError, OSError)):
        raise error
    where = redact(url)
    if isinstance(error, requests.exceptions.SSLError):
        raise NetworkError(
            f"{where}: no secure connection: {_innermost(error)}",
            fix="set `cert` in pip's configuration to your certificates (PIP_CERT)",
        ) from None
    if isinstance(error, requests.exceptions.ProxyError):
        raise PassingProblemError(
            f"{where}: no connection through the proxy{_named(proxy)}: {_innermost(error)}",
            fix="check `proxy` in pip's configuration (PIP_PROXY), or HTTP_PROXY and HTTPS_PROXY",
        ) from None
    if isinstance(error, requests.exceptions.TooManyRedirects):
        raise NetworkError(f"{where}: redirects without an end", fix=_OFFLINE_FIX) from None
    if isinstance(error, (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema)):
        raise NetworkError(f"{where} is no usable address", fix=_OFFLINE_FIX) from None
    if type(error) is OSError:
        # For example a certificate file that does not exist.
        raise NetworkError(f"{where}: {redact(str(error))}", fix=_OFFLINE_FIX) from None
    raise PassingProblemError(f"{where}: {_innermost(error)}") from None


def _innermost(error: BaseException) -> str:
    """What lies at the bottom of the layers of exceptions that a broken connection comes in."""
    from http.client import IncompleteRead

    import requests
    import urllib3

    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        timeouts = (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
        # A refused connection is a kind of timeout in urllib3, too.
        if isinstance(current, timeouts) and not isinstance(
            current, urllib3.exceptions.NewConnectionError
        ):
            return "no data within the time limit"
        inner = getattr(current, "reason", None)
        if not isinstance(inner, BaseException):
            inner = next((a for a in current.args if isinstance(a, BaseException)), None)
        current = inner or current.__cause__ or current.__context__
    deepest = seen[-1]
    if isinstance(deepest, IncompleteRead):
        return "the connection ended before the end of the file"
    text = deepest.strerror if isinstance(deepest, OSError) and deepest.strerror else str(deepest)
    return redact(text.partition("\n")[0][:200] or type(deepest).__name__)


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
