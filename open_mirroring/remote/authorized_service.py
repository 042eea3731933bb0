"""An HTTP service that is called with a token of Entra ID."""

from __future__ import annotations

from open_mirroring.errors import TerminalError
from open_mirroring.remote.entra import EntraLogin, TokenSource
from open_mirroring.remote.http_service import Answer, HttpService, Request, Said, described


class AuthorizedService:
    """An :class:`~open_mirroring.remote.http_service.HttpService` with a token in every call.

    A token that the service refuses is renewed once. If the new one is refused too, the error is terminal.
    """

    def __init__(self, service: HttpService, login: EntraLogin, audience: str) -> None:
        self._service, self._login = service, login
        self._tokens = TokenSource(login, audience)

    def send(self, request: Request) -> Answer:
        """The service's answer; errors are those of :meth:`HttpService.send`.

        Raises:
            TerminalError: also ``ACCESS_DENIED`` without permission or a token.
            TransientError: also ``UNREACHABLE`` when the token was refused for a call that must not be retried: its
                outcome is unknown.
        """
        token = self._tokens.token()
        for last in (False, True):
            signed = request.with_headers({"Authorization": f"Bearer {token}"})
            answer = self._service.send(signed)
            if answer.status == 401 and not last:
                token = self._tokens.renewed(token)
                if not request.repeatable:
                    raise self._service.unknown(request, Said(described(answer)))
            elif answer.status in (401, 403):
                raise self._denied(request, answer)
            else:
                return answer
        raise AssertionError("the second call returns or raises")

    def _denied(self, request: Request, answer: Answer) -> TerminalError:
        return TerminalError(
            "ACCESS_DENIED",
            f"{self._service.name} refuses this login: {described(answer)}",
            where=f"connection {self._login.connection}: {request}",
            way_out="give the identity Contributor in the workspace, or read and write on the item; the tenant must "
            "let service principals use Fabric APIs, and OneLake be reached from outside Fabric",
        )
