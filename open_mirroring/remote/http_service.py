"""HTTP calls to a remote service: with a time limit, repeated only if that is safe, without secrets in messages.

A call is repeated only if its caller marked the call as safe to repeat. Any other call without a clear answer has an
unknown outcome (O-08). All calls share one retry budget, and wait together when the service asks to wait. Messages show
no header, query or body. Public source: RFC 9110 (status codes, ``Retry-After``); gRFC A6, *client retry design*.

A login is sent only to the service's own hosts over https, to loopback, and to hosts that the person trusts who
installs the product.
"""

from __future__ import annotations

import ipaddress
import os
import random
import re
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import urlencode, urlsplit

from open_mirroring.errors import TerminalError, TransientError

if TYPE_CHECKING:
    import urllib3

LONGEST_WAIT_SECONDS = 120.0
"""A call that is asked to wait longer fails instead; the next run continues."""

TRUSTED_HOSTS = "OPEN_MIRRORING_TRUSTED_HOSTS"
"""The variable with further hosts to which a login may be sent, separated by commas. Only the person who installs the
product can set it. ``http://HOST`` in it allows a service without TLS in a private network."""
CA_FILE = "OPEN_MIRRORING_CA_FILE"
_TRIES = 4
_BACK_OFF_SECONDS = 0.2
_CONNECT_SECONDS = 10.0
_CONNECTIONS = 64
_COPY_BYTES = 1 << 20
_PASSING = {408, 429, 500, 502, 503, 504}


_NOTHING: Mapping[str, str] = MappingProxyType({})


class Request(NamedTuple):
    """One call of a service. As a string it shows no query, header or content.

    *repeatable* means that sending the request again is safe. *path* is encoded and starts with ``/``. *into* is a
    file into which the content of an answer with status 200 or 206 is written.
    """

    method: str
    path: str
    repeatable: bool
    query: Mapping[str, str] = _NOTHING
    headers: Mapping[str, str] = _NOTHING
    body: bytes = b""
    into: BinaryIO | None = None

    def __repr__(self) -> str:
        return f"{self.method} {self.path}"

    def with_headers(self, headers: Mapping[str, str]) -> Request:
        """Return a copy of the request with more headers."""
        return self._replace(headers={**self.headers, **headers})


class Answer(NamedTuple):
    """A service's answer. Names of headers ignore case. *body* is empty when the content was written to a file."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class RetryBudget:
    """How often all calls of a run to one service may retry, and until when calls wait; safe for several threads.

    A retry costs one of *repeats*; a successful call restores a tenth. So a service that always fails is noticed
    quickly.
    """

    def __init__(
        self,
        repeats: int = 30,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._left = self._all = float(repeats)
        self._clock, self._sleep = clock, sleep
        self._not_before = clock()
        self._lock = threading.Lock()

    def succeed(self) -> None:
        """Record a call that was answered, which restores a part of the budget."""
        with self._lock:
            self._left = min(self._all, self._left + 0.1)

    def take(self) -> bool:
        """Whether one more retry is allowed. An allowed retry is counted."""
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def hold(self, seconds: float) -> None:
        """Block new calls for *seconds*. An earlier block that lasts longer stays as it is."""
        with self._lock:
            self._not_before = max(self._not_before, self._clock() + seconds)

    def await_turn(self) -> float:
        """Wait, with jitter, until a call may begin, and return 0.

        If the wait would be longer than the maximum, the method does not wait, and returns the length of the wait in
        seconds.
        """
        wait = self._not_before - self._clock()
        if wait > LONGEST_WAIT_SECONDS:
            return wait
        if wait > 0:
            self._sleep(wait + random.uniform(0, min(1.0, wait / 4)))
        return 0.0

    def back_off(self, attempt: int) -> None:
        """Wait before the retry *attempt*, counted from 1."""
        self._sleep(_BACK_OFF_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))


class HttpService:
    """One service at one address.

    Redirects are not followed, because a redirect could send a token to another host. Proxies are taken from the
    environment. The trusted certificate authorities are the system's, or the ones in the PEM file that
    ``OPEN_MIRRORING_CA_FILE`` names.

    Args:
        timeout_seconds: after this time without a byte of the answer, the outcome of a call counts as unknown.
        budget: the retry budget shared by all calls of this service in a run; by default a new one.
    """

    def __init__(
        self, endpoint: str, name: str, timeout_seconds: float = 60.0, budget: RetryBudget | None = None
    ) -> None:
        import urllib3  # imported late: a mirror of local folders calls no service

        self._endpoint = endpoint.rstrip("/")
        self.name = name
        self.budget = budget or RetryBudget()
        timeout = urllib3.Timeout(connect=min(_CONNECT_SECONDS, timeout_seconds), read=timeout_seconds)
        options: dict[str, Any] = {"timeout": timeout, "retries": False, "maxsize": _CONNECTIONS}
        if os.environ.get(CA_FILE):
            options["ca_certs"] = os.environ[CA_FILE]
        address = urlsplit(endpoint)
        if address.scheme == "https":
            # Shared by all connections: each would read the system's list of authorities, 25 ms of processor time.
            options["ssl_context"] = ssl.create_default_context()
        proxy = urllib.request.getproxies().get(address.scheme)
        if proxy and not urllib.request.proxy_bypass(address.hostname or ""):
            self._pool: urllib3.PoolManager = urllib3.ProxyManager(proxy, **options)
        else:
            self._pool = urllib3.PoolManager(**options)
        self._failures = urllib3.exceptions.HTTPError

    def send(self, request: Request) -> Answer:
        """Send the request and return the answer. A status does not raise an error, except in the cases below.

        Raises ``UNREACHABLE`` if no answer or only a temporary error comes, and ``TARGET_BUSY`` if the service asks to
        wait. A repeatable request is first retried as often as allowed, unless the wait is too long. Raises
        ``SERVICE_REFUSED`` for a redirect.
        """
        for attempt in range(1, _TRIES + 1):
            if too_long := self.budget.await_turn():
                raise self.unknown(request, NoAnswer("it asked earlier", too_long))
            said = self._once(request)
            if isinstance(said, Answer):
                self.budget.succeed()
                if 300 <= said.status < 400 and said.status != 304:
                    raise TerminalError(
                        "SERVICE_REFUSED",
                        f"{self.name} redirects (status {said.status}), which is not followed",
                        where=str(request),
                        next_step="name the service's own address in the connection",
                    )
                return said
            if said.wait is not None:
                self.budget.hold(said.wait)
            if not request.repeatable or attempt == _TRIES or not self.budget.take():
                raise self.unknown(request, said)
            if said.wait is None:
                self.budget.back_off(attempt)
        raise AssertionError("the last try returns or raises")

    def unknown(self, request: Request, said: NoAnswer) -> TransientError:
        """Build the error for a call with an unknown outcome."""
        if said.wait is not None:
            return TransientError(
                "TARGET_BUSY",
                f"{self.name} limits the number of calls: {said.text}, for {said.wait:.0f} s",
                where=str(request),
                next_step="the next run goes on; if the error stays, check the load of the capacity, and other callers",
            )
        return TransientError(
            "UNREACHABLE",
            f"{self.name} gave no usable answer: {said.text}",
            where=str(request),
            next_step="the next run goes on; if the error stays, check the network and the health of the service",
        )

    def _once(self, request: Request) -> Answer | NoAnswer:
        url = f"{self._endpoint}{request.path}" + (f"?{urlencode(request.query)}" if request.query else "")
        usual = {"User-Agent": "open-mirroring", "Accept-Encoding": "identity"}
        if request.method in ("PUT", "PATCH", "POST"):
            usual["Content-Length"] = str(len(request.body))  # also when it is 0 (O-09)
        try:
            response = self._pool.request(
                request.method,
                url,
                headers={**usual, **request.headers},
                body=request.body or None,
                redirect=False,
                preload_content=request.into is None,
            )
            if request.into is None:
                answer = Answer(response.status, response.headers, response.data)
            else:
                answer = _received(response, request.into)
        except (self._failures, ValueError) as error:
            # The error's text holds the address with its query, or a header, so only its kind is shown.
            return NoAnswer(type(error).__name__)
        if answer.status not in _PASSING:
            return answer
        wait = _retry_after(answer.headers) if answer.status in (429, 503) else None
        return NoAnswer(described(answer), 1.0 if answer.status == 429 and wait is None else wait)


class NoAnswer(NamedTuple):
    """What is known of a call without a proper answer; *wait* is how many seconds the service asked to wait."""

    text: str
    wait: float | None = None


def described(answer: Answer) -> str:
    """Return status, error code and request id of an answer, for a support request; never the answer's content."""
    parts = [f"status {answer.status}"]
    for header in ("x-ms-error-code", "x-ms-public-api-error-code", "x-ms-request-id", "requestId"):
        value = answer.headers.get(header, "")
        if value:
            parts.append(value if value.isascii() and value.isprintable() and len(value) <= 100 else "(unprintable)")
    return ", ".join(parts)


def _received(response: urllib3.BaseHTTPResponse, into: BinaryIO) -> Answer:
    try:
        if response.status not in (200, 206):
            return Answer(response.status, response.headers, response.read())
        into.seek(0)
        into.truncate()
        for piece in response.stream(_COPY_BYTES):
            into.write(piece)
        into.flush()
        return Answer(response.status, response.headers)
    except BaseException:
        response.close()
        raise
    finally:
        response.release_conn()


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The ``Retry-After`` header, a number or a date (RFC 9110), in seconds; None if missing or invalid."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


class Endpoint(NamedTuple):
    """A trusted address: scheme, host and port, and the path without a trailing slash."""

    base: str
    host: str
    path: str


def trusted_endpoint(text: str, hosts: re.Pattern[str]) -> Endpoint | None:
    """Parse an address to which a login may be sent; None if the address is invalid or not trusted."""
    try:
        address = urlsplit(text)
        host, port = (address.hostname or "").lower(), address.port
    except ValueError:
        return None
    local = is_loopback(host) and address.scheme in ("http", "https")
    listed = {known.strip().lower() for known in os.environ.get(TRUSTED_HOSTS, "").split(",")} - {""}
    trusted = address.scheme == "https" and (hosts.fullmatch(host) is not None or host in listed)
    trusted = trusted or (address.scheme == "http" and f"http://{host}" in listed)
    if address.username is not None or address.query or address.fragment or not (local or trusted):
        return None
    at = f"[{host}]" if ":" in host else host
    return Endpoint(f"{address.scheme}://{at}" + (f":{port}" if port else ""), host, address.path.rstrip("/"))


def is_loopback(host: str) -> bool:
    """Whether a host name means this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
