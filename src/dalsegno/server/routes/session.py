"""``/v1/session``: signing in to the pages of this server with a key, and who one is."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response, status

from dalsegno.errors import Unauthenticated
from dalsegno.server.access import KEY_WANTED, caller_of
from dalsegno.server.office import TheOffice
from dalsegno.server.route import Route
from dalsegno.server.schemas.access import SessionInfo, SignIn
from dalsegno.server.sessions import COOKIE
from dalsegno.server.visit import Visit

router = APIRouter(prefix="/session", tags=["access"], route_class=Route)


@router.post("", operation_id="sign_in", status_code=status.HTTP_201_CREATED)
async def sign_in(office: TheOffice, request: SignIn, http: Request, response: Response) -> SessionInfo:
    """Sets a cookie that scripts cannot read and that other sites cannot use. It stands for the key."""
    visit = Visit(http.scope)
    key = await office.doorman.check_key(request.key, visit.address)
    token, session = await office.doorman.sessions.open(key)
    http.state.caller = caller = key.caller("session")
    response.set_cookie(
        COOKIE,
        token,
        max_age=round(office.settings.session_seconds),
        path="/",
        secure=visit.is_https,
        httponly=True,
        samesite="strict",
    )
    return SessionInfo.of(caller, session.expires_at)


@router.get("", operation_id="get_session")
async def who(office: TheOffice, http: Request) -> SessionInfo:
    """Who one is here, what one may do, and what is used of the key's quotas."""
    caller, visit = caller_of(http), Visit(http.scope)
    if caller.via == "nobody":
        raise Unauthenticated(KEY_WANTED)
    session = await office.doorman.sessions.find(visit.session) if visit.session is not None else None
    ends = session.expires_at if session is not None and caller.via == "session" else None
    use = (
        await office.usage.usage_of(office.client.stack.archive, caller.key)
        if caller.key is not None
        else None
    )
    return SessionInfo.of(caller, ends, use)


@router.delete("", operation_id="sign_out", status_code=status.HTTP_204_NO_CONTENT)
async def sign_out(office: TheOffice, http: Request, response: Response) -> None:
    """Ends the session at once and removes the cookie."""
    visit = Visit(http.scope)
    if visit.session is not None:
        await office.doorman.sessions.close(visit.session)
    response.delete_cookie(COOKIE, path="/", secure=visit.is_https, httponly=True, samesite="strict")
