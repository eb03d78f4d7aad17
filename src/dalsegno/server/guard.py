"""The guard: what a request must be like before any route sees it. Pure ASGI, in this order:

1. ``Host`` is one of this server's names: a name that an attacker points at this machine is not (DNS rebinding).
2. A call that may change something does not come from a page of another origin, unless that origin is listed.
3. Its body is of a type that no page can send to another origin without asking first.
4. The caller has a key or a session, except on the few paths that are for everybody.
5. The key has not used more bytes than its quota allows.
6. The key has the scope that the route needs, before anything of the body is read.
7. The body arrives whole, in time, and is not too large.

Every refusal is a problem document, and nothing of the request has been looked at beyond what is named here.
"""

from __future__ import annotations

import time
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
from dalsegno.server import paths, reaching
from dalsegno.server.access import NOBODY, Caller, check_scope
from dalsegno.server.bodies import Departed, read_body, replayed
from dalsegno.server.cors import allowance, preflight
from dalsegno.server.deliveries import book_of
from dalsegno.server.headers import dressed
from dalsegno.server.office import Office
from dalsegno.server.problems import problem_of
from dalsegno.server.route import Route
from dalsegno.server.settings import LOOPBACK_NAMES
from dalsegno.server.sources import JSON, SCRIPT, YAML
from dalsegno.server.table import Table
from dalsegno.server.visit import Visit

DEFINITION_TYPES = frozenset((JSON, *YAML, *SCRIPT))
FORM = "application/x-www-form-urlencoded"
PROBES = frozenset(("/v1/health/live", "/v1/health/ready"))
"""Answered without a word of the store's: whoever asks must not wait for it, and restarts what does not answer."""
BY_MEMORY = frozenset(("/v1/health", "/metrics"))
"""They tell that the store is silent, so nobody may wait for the store before them."""
ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not listened on


class Guard:
    def __init__(self, app: ASGIApp, office: Office, table: Table) -> None:
        self.app = app
        self.office = office
        self.settings = office.settings
        self.table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send(
                {"type": "websocket.close", "code": 1008}
            )  # there are none here; nobody slips in by one
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit = Visit(scope)
        visit.keep_own_cookie()
        send = dressed(send, visit, allowance(visit, self.settings.origins))
        try:
            await self._glance(visit)
            self.check_host(visit)
            reply: Response | None = preflight(visit, self.settings.origins)
            if reply is None:
                caller = scope.setdefault("state", {})["caller"] = await self._admit(visit)
                if visit.path != paths.SESSION:  # there a key sees what it uses
                    self.office.usage.check_bytes(caller)
                receive = await self._with_body(visit, receive, caller)
        except Departed:
            return
        except QuotaExceeded as error:
            await self._refusal(visit, error)(scope, receive, send)  # not audited: a flood would fill the log
            return
        except DalSegnoError as error:
            reply = self._refusal(visit, error)
        if reply is not None:
            caller = scope.get("state", {}).get("caller", NOBODY)
            # What somebody known may not do is worth noting; strangers must not be able to fill the log.
            answer = self.office.audit.around(visit, reply) if caller.via != "nobody" else reply
            await answer(scope, receive, send)
            return
        send = self._while_welcome(scope["state"]["caller"], send)
        await self.office.audit.around(visit, self.app)(scope, receive, send)

    def _while_welcome(self, caller: Caller, send: Send) -> Send:
        """Streams outlive the moment in which their key was checked: with their key they end, too. Replies count for
        its bytes."""
        usage = self.office.usage

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.body":
                usage.count_bytes(caller, len(message.get("body", b"")))
            goes_on = message["type"] == "http.response.body" and message.get("more_body", False)
            if goes_on and not await self.office.doorman.is_welcome(caller):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise OSError("the key of this stream is not valid any more")
            await send(message)

        return watched

    async def _glance(self, visit: Visit) -> None:
        doorman = self.office.doorman
        if visit.path in PROBES:
            await doorman.glance(patience=0.0)  # the keys are read, and nobody waits for that
        else:
            await doorman.glance()

    async def _admit(self, visit: Visit) -> Caller:
        self.check_origin(visit)
        self.check_type(visit)
        if paths.is_rationed(visit.method, visit.path):
            self._spend_public_call(visit)
        if paths.is_public(visit.method, visit.path):
            return NOBODY  # answered even while the store is out of reach, and whatever key is shown
        caller = await self._identify(visit)
        if caller.via == "session" and not visit.is_safe and not visit.is_from_own_page:
            raise ForeignOrigin("a session may change things only from a page of this server")
        return caller

    def _spend_public_call(self, visit: Visit) -> None:
        wait = self.office.public_rate.spend(visit.address or "", time.monotonic())
        if wait > 0:
            raise TooManyRequests(
                f"more than {self.settings.public_rate} calls a minute from {visit.address or 'one address'}",
                wait,
            )

    async def _identify(self, visit: Visit) -> Caller:
        doorman, is_by_memory = self.office.doorman, visit.path in BY_MEMORY
        admitting = (doorman.admit_by_memory if is_by_memory else doorman.admit)(visit)
        if visit.session is None:
            return await admitting
        patience = reaching.PATIENCE if is_by_memory else doorman.patience
        return await self.office.errands.within(patience, admitting)  # the store alone knows sessions

    async def _with_body(self, visit: Visit, receive: Receive, caller: Caller) -> Receive:
        if visit.is_safe or not visit.has_body:
            return receive
        self._check_scopes(visit)
        most = await self._most(visit)
        counted = self._counted(visit, receive, caller, most)
        return replayed(await read_body(visit, counted, self.settings, most), receive)

    def _counted(self, visit: Visit, receive: Receive, caller: Caller, most: int) -> Receive:
        """Counts a body for the key's bytes: before it comes where its length is known, else as it comes."""
        usage, length = self.office.usage, visit.headers.get("content-length", "")
        if not usage.limits_bytes(caller):
            return receive
        if length.isdecimal() and "transfer-encoding" not in visit.headers:
            size = int(length[:20])
            usage.count_bytes(caller, size if size <= most else 0)  # one that is too large is not read
            return receive

        async def counted() -> Message:
            usage.check_bytes(caller)
            message = await receive()
            usage.count_bytes(caller, len(message.get("body", b"")))
            return message

        return counted

    def _check_scopes(self, visit: Visit) -> None:
        """Who may not call a route is told that, and nothing about what was sent."""
        route = self.table.find(visit.scope)
        for scope in route.scopes if isinstance(route, Route) else ():
            check_scope(visit.scope["state"]["caller"], scope)

    async def _most(self, visit: Visit) -> int:
        """Of a delivery no more is read than its webhook takes; where there is none, hardly anything."""
        most = paths.largest_body(visit.method, visit.path, self.settings.body_bytes)
        if not paths.is_hook(visit.path):
            return most
        finding = book_of(self.office).at(visit.path.removeprefix(paths.HOOKS))
        webhook = await self.office.errands.within(self.office.doorman.patience, finding)
        if webhook is None:
            self._spend_public_call(visit)
        return min(most, webhook.body_bytes if webhook is not None else paths.SMALL_BODY)

    def _refusal(self, visit: Visit, error: DalSegnoError) -> Response:
        reply = problem_of(error)
        if visit.has_body:
            reply.headers["Connection"] = "close"  # what is left of the body is nobody's to read
        return reply

    # -- the rules --------------------------------------------------------------------------------------------

    def check_host(self, visit: Visit) -> None:
        if paths.is_hook(visit.path) and not self.office.doorman.is_open:
            return  # tunnels and proxies bring webhooks under names of their own
        if visit.host is None or not self._is_ours(visit.host[0]):
            said = visit.headers.get("host", "")[:100]
            raise WrongHost(
                f"'Host: {said}' is not a name of this server; list it with the server's names if it is"
            )

    def _is_ours(self, name: str) -> bool:
        own = self.settings.host.strip("[]").lower()
        if name in LOOPBACK_NAMES or (name == own and own not in ANY_ADDRESS):
            return True
        if name in {each.lower() for each in self.settings.names}:
            return True
        # Beyond that a key protects: without one, a page could reach us by any name.
        return not self.office.doorman.is_open and ("*" in self.settings.names or _is_address(name))

    def check_origin(self, visit: Visit) -> None:
        if visit.is_safe or (paths.is_hook(visit.path) and not self.office.doorman.is_open):
            return
        if visit.is_from_own_page or visit.origin in self.settings.origins:
            return
        if visit.origin is not None or visit.fetch_site in ("cross-site", "same-site"):
            raise ForeignOrigin(
                f"a page of {(visit.origin or 'another origin')[:100]!r} may not do this; "
                "list it with the server's origins if it is yours"
            )

    def check_type(self, visit: Visit) -> None:
        if visit.is_safe or not visit.has_body:
            return
        encoding = visit.headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise UnsupportedMedia(
                f"a body with 'Content-Encoding: {encoding[:100]}' is not taken; send it as it is, without an encoding"
            )
        if paths.is_hook(visit.path):
            return
        taken, named = _types_at(visit.path)
        if visit.media not in taken:
            said = f"of type {visit.media[:100]!r}" if visit.media else "without a type"
            wanted = " or ".join(f"'Content-Type: {each}'" for each in named)
            raise UnsupportedMedia(f"a body {said} is not taken here; send it with {wanted}")


def _types_at(path: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """What a body may be there, and which of that is named to somebody who sends something else."""
    if paths.takes_definitions(path):
        return DEFINITION_TYPES, (JSON, YAML[0], SCRIPT[0])
    if paths.takes_forms(path):
        return frozenset((JSON, FORM)), (JSON, FORM)
    return frozenset((JSON,)), (JSON,)


def _is_address(name: str) -> bool:
    """A page's name can be pointed at us; an address in ``Host`` is where the page itself came from."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
