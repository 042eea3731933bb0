"""HTTP/1.1 on a socket, one thread per connection."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import sys
import threading
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from urllib.parse import parse_qsl, unquote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fabric_emulator.web.messages import Answer, ConnectionDropped, Request, Response


class HttpServer(ThreadingTCPServer):
    """Passes every request to *answer*.

    Args:
        port: 0 selects a free one.
        answer: returns the answer, or raises :class:`ConnectionDropped`.
        tls: if given, https.
    """

    allow_reuse_address = True
    # A thread that outlives the server would still run while the interpreter unloads its modules.
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.tls = tls
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._ended = False
        super().__init__((host, port), _Handler)

    def opened(self, connection: socket.socket) -> None:
        """Register a connection, to close it with the server."""
        with self._lock:
            self._connections.add(connection)
            if self._ended:
                _hang_up(connection)

    def closed(self, connection: socket.socket) -> None:
        """Unregister a connection."""
        with self._lock:
            self._connections.discard(connection)

    def server_close(self) -> None:
        """Stop listening, disconnect every client, and wait until the last answer is sent.

        Connections that clients keep open do not delay the end.
        """
        with self._lock:
            self._ended = True
            for connection in self._connections:
                _hang_up(connection)
        super().server_close()

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return f"{'https' if self.tls else 'http'}://{self.server_address[0]!s}:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may disconnect at any time; anything else is an error of the emulator and printed."""
        if not isinstance(sys.exception(), (ConnectionError, ssl.SSLError, TimeoutError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the client was quicker
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def setup(self) -> None:
        if self.server.tls is not None:  # here and not at accept: a slow handshake must not block others
            self.request = self.server.tls.wrap_socket(self.request, server_side=True, do_handshake_on_connect=False)
        self.server.opened(self.request)
        super().setup()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self.server.closed(self.request)
            self.request.close()

    def handle_expect_100(self) -> bool:
        done = super().handle_expect_100()
        self.wfile.flush()
        return done

    def log_message(self, format: str, *args: object) -> None:
        """Does nothing: calls are counted, not printed."""

    def _handle(self) -> None:
        request = self._read()
        try:
            response = self.server.answer(request)
        except ConnectionDropped:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        except Exception:  # an error of the emulator: printed here, and reported to the client
            traceback.print_exc()
            response = Response(500, {"x-ms-error-code": "InternalError"})
        self._write(request, response)

    do_GET = do_HEAD = do_PUT = do_PATCH = do_POST = do_DELETE = _handle

    def _read(self) -> Request:
        target = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = self._chunks()
        else:
            body = self._exactly(int(headers.get("content-length", 0)))
        return Request(
            # Java's own client has no PATCH: the ABFS driver sends it this way.
            headers.get("x-http-method-override", self.command).upper(),
            unquote(target.path),
            dict(parse_qsl(target.query, keep_blank_values=True)),
            headers,
            body,
            f"{'https' if self.server.tls else 'http'}://{headers.get('host', '')}",
        )

    def _exactly(self, size: int) -> bytes:
        content = self.rfile.read(size)
        if len(content) < size:  # an incomplete request counts as not received
            raise ConnectionResetError("the client hung up in the middle of its request")
        return content

    def _chunks(self) -> bytes:
        content = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            content += self._exactly(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return bytes(content)

    def _write(self, request: Request, response: Response) -> None:
        self.send_response_only(response.status)
        length = len(response.body) if response.length is None else response.length
        headers = {
            "Date": formatdate(usegmt=True),
            "Server": "fabric-emulator",
            "x-ms-request-id": request.identity,
            "x-ms-version": request.headers.get("x-ms-version", "2020-06-12"),
            "Content-Length": str(length),
            **response.headers,
        }
        if client := request.headers.get("x-ms-client-request-id"):
            headers["x-ms-client-request-id"] = client
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and response.status != 304:
            self.wfile.write(response.body)
        self.wfile.flush()


_DAYS = 30


def server_context(folder: Path, names: Sequence[str] = ()) -> tuple[ssl.SSLContext, Path]:
    """A new key and self-signed certificate for ``localhost``, ``127.0.0.1`` and more *names*.

    Without one the Azure SDK sends no token.

    Returns:
        The server's context, and the certificate in PEM, for clients to trust. The key is next to it, readable by
        the owner only.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fabric-emulator")])
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in ("localhost", *names)]
    alternatives.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate_file, key_file)
    return context, certificate_file
