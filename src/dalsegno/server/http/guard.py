"""The guard: checks on every request before any route handles it, as pure ASGI middleware.

The checks run in this order:

1. ``Host`` is one of this server's names: a foreign name that an attacker points at this machine is refused (DNS
   rebinding).
2. A call that may change something does not come from a page of another origin, unless that origin is listed.
3. Its body is of a type that no page can send to another origin without a preflight request.
4. The caller has a key or a session, except on the few public paths.
5. The key has not used more bytes than its quota allows.
6. The key has the scope that the route needs; the body is not read before.
7. The body arrives completely, in time, and is not too large.

Every refusal is a problem document. Nothing else of the request is examined here.
CORS: only the origins that the settings list receive CORS headers. Cookies are not allowed for them: such a page
sends a key with each call.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from ipaddress import ip_address

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.errors import (
    DalSegnoError,
    ForeignOrigin,
    QuotaExceeded,
    TooManyRequests,
    UnsupportedMedia,
    WrongHost,
)
from dalsegno.server.auth.authentication import NOBODY, Caller, check_scope
from dalsegno.server.executions.sources import JSON, SCRIPT, YAML
from dalsegno.server.http.problems import problem_of
from dalsegno.server.http.request import (
    HOOKS,
    SESSION,
    SMALL_BODY,
    ClientDisconnected,
    GuardedRequest,
    has_rate_limit,
    is_hook,
    is_public,
    largest_body,
    read_body,
    replayed,
    takes_definitions,
    takes_forms,
)
from dalsegno.server.http.responses import with_default_headers
from dalsegno.server.http.routing import Route, Table
from dalsegno.server.operations import store_probe
from dalsegno.server.services import ServerServices
from dalsegno.server.settings import LOOPBACK_NAMES
from dalsegno.server.webhooks import webhooks_of

METHODS = "GET, POST, PUT, PATCH, DELETE"
HEADERS = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Traceparent"
EXPOSED = b"Location, Retry-After"
MAX_AGE = "600"

Pairs = tuple[tuple[bytes, bytes], ...]


def preflight(visit: GuardedRequest, origins: Collection[str]) -> Response | None:
    """Return the reply to a CORS preflight request; None for any other request."""
    if visit.method != "OPTIONS" or "access-control-request-method" not in visit.headers:
        return None
    if visit.origin not in origins:
        raise ForeignOrigin(f"pages of {(visit.origin or '')[:100]!r} may not call this server")
    headers = {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": HEADERS,
        "Access-Control-Max-Age": MAX_AGE,
    }
    return Response(status_code=204, headers=headers)


def allowance(visit: GuardedRequest, origins: Collection[str]) -> Pairs:
    """Return the CORS headers of every reply, including refusals, so that a listed page can read them."""
    if not origins:
        return ()
    if visit.origin is None or visit.origin not in origins:
        return ((b"vary", b"Origin"),)
    return (
        (b"vary", b"Origin"),
        (b"access-control-allow-origin", visit.origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED),
    )


DEFINITION_TYPES = frozenset((JSON, *YAML, *SCRIPT))
FORM = "application/x-www-form-urlencoded"
PROBES = frozenset(("/v1/health/live", "/v1/health/ready"))
"""Answered without access to the store: a supervisor must not wait for the store, and restarts a server that does
not answer."""
CACHED_KEYS_PATHS = frozenset(("/v1/health", "/metrics"))
"""Answered with cached keys: these routes report that the store does not respond, so they must not wait for it."""
ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not listened on


class Guard:
    def __init__(self, app: ASGIApp, services: ServerServices, table: Table) -> None:
        self.app = app
        self.services = services
        self.settings = services.settings
        self.table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send(
                {"type": "websocket.close", "code": 1008}
            )  # there are no WebSocket routes; none may bypass the checks
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit = GuardedRequest(scope)
        visit.keep_own_cookie()
        send = with_default_headers(send, visit, allowance(visit, self.settings.origins))
        try:
            await self._refresh_keys(visit)
            self.check_host(visit)
            reply: Response | None = preflight(visit, self.settings.origins)
            if reply is None:
                caller = scope.setdefault("state", {})["caller"] = await self._admit(visit)
                if visit.path != SESSION:  # there a key over its quota can see its usage
                    self.services.usage.check_bytes(caller)
                receive = await self._with_body(visit, receive, caller)
        except ClientDisconnected:
            return
        except QuotaExceeded as error:
            await self._refusal(visit, error)(scope, receive, send)  # not audited: a flood would fill the log
            return
        except DalSegnoError as error:
            reply = self._refusal(visit, error)
        if reply is not None:
            caller = scope.get("state", {}).get("caller", NOBODY)
            # Refusals of authenticated callers are audited. Anonymous callers must not be able to fill the log.
            answer = self.services.audit.around(visit, reply) if caller.via != "nobody" else reply
            await answer(scope, receive, send)
            return
        send = self._while_valid(scope["state"]["caller"], send)
        await self.services.audit.around(visit, self.app)(scope, receive, send)

    def _while_valid(self, caller: Caller, send: Send) -> Send:
        """Wrap ``send`` so that a stream ends when its key becomes invalid: streams outlive the check of their key.
        The bytes of replies count for the key's quota."""
        usage = self.services.usage

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.body":
                usage.count_bytes(caller, len(message.get("body", b"")))
            has_more = message["type"] == "http.response.body" and message.get("more_body", False)
            if has_more and not await self.services.authenticator.is_still_valid(caller):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise OSError("the key of this stream is no longer valid")
            await send(message)

        return watched

    async def _refresh_keys(self, visit: GuardedRequest) -> None:
        authenticator = self.services.authenticator
        if visit.path in PROBES:
            await authenticator.refresh(patience=0.0)  # starts reading the keys without waiting for them
        else:
            await authenticator.refresh()

    async def _admit(self, visit: GuardedRequest) -> Caller:
        self.check_origin(visit)
        self.check_type(visit)
        if has_rate_limit(visit.method, visit.path):
            self._spend_public_call(visit)
        if is_public(visit.method, visit.path):
            return NOBODY  # answered with any key or none, even while the store is unreachable
        caller = await self._identify(visit)
        if caller.via == "session" and not visit.is_safe and not visit.is_from_own_page:
            raise ForeignOrigin("a session may change things only from a page of this server")
        return caller

    def _spend_public_call(self, visit: GuardedRequest) -> None:
        wait = self.services.public_rate.spend(visit.address or "", time.monotonic())
        if wait > 0:
            raise TooManyRequests(
                f"more than {self.settings.public_rate} calls a minute from {visit.address or 'one address'}",
                wait,
            )

    async def _identify(self, visit: GuardedRequest) -> Caller:
        authenticator, uses_cache = self.services.authenticator, visit.path in CACHED_KEYS_PATHS
        admitting = (authenticator.admit_from_cache if uses_cache else authenticator.admit)(visit)
        if visit.session is None:
            return await admitting
        patience = store_probe.PATIENCE if uses_cache else authenticator.patience
        return await self.services.background_tasks.within(
            patience, admitting
        )  # only the store knows sessions

    async def _with_body(self, visit: GuardedRequest, receive: Receive, caller: Caller) -> Receive:
        if visit.is_safe or not visit.has_body:
            return receive
        self._check_scopes(visit)
        most = await self._most(visit)
        counted = self._counted(visit, receive, caller, most)
        return replayed(await read_body(visit, counted, self.settings, most), receive)

    def _counted(self, visit: GuardedRequest, receive: Receive, caller: Caller, most: int) -> Receive:
        """Count a body for the key's quota: before it arrives if its length is known, otherwise as it arrives."""
        usage, length = self.services.usage, visit.headers.get("content-length", "")
        if not usage.limits_bytes(caller):
            return receive
        if length.isdecimal() and "transfer-encoding" not in visit.headers:
            size = int(length[:20])
            usage.count_bytes(caller, size if size <= most else 0)  # a body that is too large is not read
            return receive

        async def counted() -> Message:
            usage.check_bytes(caller)
            message = await receive()
            usage.count_bytes(caller, len(message.get("body", b"")))
            return message

        return counted

    def _check_scopes(self, visit: GuardedRequest) -> None:
        """Check the scope before the body, so that a caller without it learns nothing about the validity of the
        body."""
        route = self.table.find(visit.scope)
        for scope in route.scopes if isinstance(route, Route) else ():
            check_scope(visit.scope["state"]["caller"], scope)

    async def _most(self, visit: GuardedRequest) -> int:
        """Return the size limit of the body. That of a delivery is its webhook's limit; without a webhook it is
        minimal."""
        most = largest_body(visit.method, visit.path, self.settings.body_bytes)
        if not is_hook(visit.path):
            return most
        finding = webhooks_of(self.services).at(visit.path.removeprefix(HOOKS))
        webhook = await self.services.background_tasks.within(self.services.authenticator.patience, finding)
        if webhook is None:
            self._spend_public_call(visit)
        return min(most, webhook.body_bytes if webhook is not None else SMALL_BODY)

    def _refusal(self, visit: GuardedRequest, error: DalSegnoError) -> Response:
        reply = problem_of(error)
        if visit.has_body:
            reply.headers["Connection"] = "close"  # the rest of the body is not read
        return reply

    # -- the checks -------------------------------------------------------------------------------------------

    def check_host(self, visit: GuardedRequest) -> None:
        if is_hook(visit.path) and not self.services.authenticator.is_open:
            return  # tunnels and proxies deliver webhooks under other names
        if visit.host is None or not self._is_ours(visit.host.name):
            host = visit.headers.get("host", "")[:100]
            raise WrongHost(
                f"'Host: {host}' is not a name of this server; list it with the server's names if it is"
            )

    def _is_ours(self, name: str) -> bool:
        own = self.settings.host.strip("[]").lower()
        if name in LOOPBACK_NAMES or (name == own and own not in ANY_ADDRESS):
            return True
        if name in {each.lower() for each in self.settings.names}:
            return True
        # Other names are allowed only if a key is required: without one, a page could reach this server by any name.
        return not self.services.authenticator.is_open and ("*" in self.settings.names or _is_address(name))

    def check_origin(self, visit: GuardedRequest) -> None:
        if visit.is_safe or (is_hook(visit.path) and not self.services.authenticator.is_open):
            return
        if visit.is_from_own_page or visit.origin in self.settings.origins:
            return
        if visit.origin is not None or visit.fetch_site in ("cross-site", "same-site"):
            raise ForeignOrigin(
                f"a page of {(visit.origin or 'another origin')[:100]!r} may not do this; "
                "list it with the server's origins if it is yours"
            )

    def check_type(self, visit: GuardedRequest) -> None:
        if visit.is_safe or not visit.has_body:
            return
        encoding = visit.headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise UnsupportedMedia(
                f"a body with 'Content-Encoding: {encoding[:100]}' is not accepted; send it without an encoding"
            )
        if is_hook(visit.path):
            return
        taken, named = _types_at(visit.path)
        if visit.media not in taken:
            said = f"of type {visit.media[:100]!r}" if visit.media else "without a type"
            wanted = " or ".join(f"'Content-Type: {each}'" for each in named)
            raise UnsupportedMedia(f"a body {said} is not accepted here; send it with {wanted}")


def _types_at(path: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the media types that a path accepts, and those of them that a refusal lists."""
    if takes_definitions(path):
        return DEFINITION_TYPES, (JSON, YAML[0], SCRIPT[0])
    if takes_forms(path):
        return frozenset((JSON, FORM)), (JSON, FORM)
    return frozenset((JSON,)), (JSON,)


def _is_address(name: str) -> bool:
    """Whether a host is an IP address. DNS can point a page's name at this server; an address in ``Host`` is the
    page's own origin."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
