"""Sends a request of the ``http`` node and follows its redirects, under the egress policy at every hop."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote_plus

import aiohttp
from yarl import URL

from dalsegno.errors import CredentialRefused
from dalsegno.nodes.egress import EgressDenied
from dalsegno.nodes.http_client import HttpClients
from dalsegno.nodes.http_errors import blocked, exchange_failure, too_many_redirects
from dalsegno.nodes.http_parameters import HttpParameters
from dalsegno.nodes.http_request import Request
from dalsegno.nodes.http_response import Response, read_response

MAX_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)


class Exchange:
    """Requests of one run of a node. ``url`` is the address last asked, for messages."""

    def __init__(
        self, clients: HttpClients, parameters: HttpParameters, redact: Callable[[str], str] = str
    ) -> None:
        self._clients = clients
        self._parameters = parameters
        self._redact = redact
        self.url = URL()

    async def fetch(self, request: Request, limit: int) -> Response:
        """The final response; raises NodeError for everything but a response."""
        for _ in range(MAX_REDIRECTS + 1):
            found = await self._hop(request, limit)
            if isinstance(found, Response):
                return found
            request = found
        raise too_many_redirects(self.url, MAX_REDIRECTS)

    async def _hop(self, request: Request, limit: int) -> Response | Request:
        """One request: the response, or the request that a redirect asks for."""
        self.url = request.url
        if request.credential is None:
            self._refuse_reflected_secret(request.url)
        try:
            self._clients.check_host(request.url.host or "")
            async with self._send(request) as reply:
                location = reply.headers.get("Location")
                if self._parameters.follow_redirects and reply.status in _REDIRECTS and location:
                    return request.redirected(location, reply.status)
                return await read_response(reply, limit)
        except EgressDenied as denied:
            raise blocked(request.url, denied) from denied
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise  # the deadline of the whole run, judged by whoever set it
            raise exchange_failure(error, request.url) from error

    def _refuse_reflected_secret(self, url: URL) -> None:
        """A server may write what it was given into an address elsewhere. A run without credentials knows no secret."""
        for text in (str(url), unquote_plus(str(url))):
            if self._redact(text) != text:
                raise CredentialRefused(
                    f"a redirect or next page would carry a credential to {url.host}; nothing was sent there"
                )

    def _send(self, request: Request) -> aiohttp.client._RequestContextManager:
        return self._clients.session().request(
            request.method,
            request.url,
            headers=request.headers,
            data=request.body,
            allow_redirects=False,
            ssl=not self._parameters.ignore_ssl,
        )
