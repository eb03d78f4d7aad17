"""``/v1/alerts``, ``/v1/audit``, ``/v1/credentials``, ``/v1/keys`` and ``/v1/session``: administration.

- Alerts report failed executions to receivers.
- The audit log lists who changed what.
- Credentials are set, listed without values, removed and sealed again.
- API keys are created, listed, changed and revoked.
- A session signs in to the pages of this server with a key, and shows who the caller is.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response, status

from dalsegno.admin.alerts import STATE, Alert
from dalsegno.admin.keys import read_quotas
from dalsegno.engine.options import read_duration
from dalsegno.errors import InvalidInput, NotDelivered, Unauthenticated
from dalsegno.server.alerts import Alerting, State
from dalsegno.server.auth.audit import LOG, Entry
from dalsegno.server.auth.authentication import KEY_WANTED, caller_of, caller_with, needs
from dalsegno.server.executions.filters import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.http.request import COOKIE, GuardedRequest
from dalsegno.server.http.routing import Route
from dalsegno.server.schemas.admin import (
    AlertInfo,
    AlertSaved,
    AlertSetting,
    AuditEntry,
    CredentialInfo,
    CredentialSetting,
    KeyChange,
    KeyInfo,
    KeyRequest,
    NewKey,
    RotatedSecret,
    RotateRequest,
    RotationReply,
    SessionInfo,
    SignIn,
    Tested,
)
from dalsegno.server.services import ServerServices, Services
from dalsegno.server.webhooks import webhooks_of

alerts_router = APIRouter(prefix="/alerts", tags=["alerts"], route_class=Route)

Id = Annotated[str, Path(max_length=100, description="The alert's id.", examples=["ops"])]


@alerts_router.get("", operation_id="list_alerts", dependencies=[needs("read")])
async def alerts(services: Services, limit: Limit = 100, cursor: Cursor = None) -> Page[AlertInfo]:
    """Lists all alerts by id."""
    found = await Alerting(services).alert_records.page(from_cursor(cursor) or "", limit + 1)
    items = [await _info(services, alert) for alert in found[:limit]]
    return Page(items=items, next=to_cursor(items[-1].id) if len(found) > limit else None)


@alerts_router.get("/{id}", operation_id="get_alert", dependencies=[needs("read")])
async def alert(services: Services, id: Id) -> AlertInfo:
    """Returns one alert and the outcome of its last message."""
    return await _info(services, await Alerting(services).alert_records.get(id))


@alerts_router.put(
    "/{id}", operation_id="put_alert", dependencies=[needs("admin")], responses={201: {"model": AlertSaved}}
)
async def put_alert(services: Services, id: Id, setting: AlertSetting, response: Response) -> AlertSaved:
    """Creates an alert (201) or changes it (200). It reports failures from now on; if it cannot, a `warning` says
    why. A new receiver gets a `secret` that signs its messages; it is shown only once."""
    now = services.client.stack.clock.now()
    saved = await Alerting(services).alert_records.put(setting.named(id, now), setting.url)
    if saved.is_new:
        response.status_code = status.HTTP_201_CREATED
    info = await _info(services, saved.alert)
    return AlertSaved(**info.model_dump(), secret=saved.secret)


@alerts_router.post("/{id}/secret", operation_id="rotate_alert_secret", dependencies=[needs("admin")])
async def rotate_alert_secret(services: Services, id: Id, request: RotateRequest) -> RotatedSecret:
    """Creates a new secret for the signatures of the alert's messages. For a while the messages are signed with the
    previous one, too."""
    overlap = read_duration(request.overlap, "/body/overlap")
    now = services.client.stack.clock.now()
    return RotatedSecret(secret=await Alerting(services).alert_records.rotate(id, overlap, now))


@alerts_router.delete(
    "/{id}",
    operation_id="delete_alert",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs("admin")],
)
async def remove_alert(services: Services, id: Id) -> None:
    """Removes an alert. Failures that are waiting are not reported either."""
    await Alerting(services).alert_records.remove(id)


@alerts_router.post("/{id}/test", operation_id="test_alert", dependencies=[needs("admin")])
async def test(services: Services, id: Id) -> Tested:
    """Sends a test message now and returns whether the receiver accepted it."""
    alerting = Alerting(services)
    try:
        await alerting.test(await alerting.alert_records.get(id))
    except NotDelivered as error:
        return Tested(delivered=False, error=str(error))
    return Tested(delivered=True)


async def _info(services: ServerServices, alert: Alert) -> AlertInfo:
    record = await services.client.stack.records.get(STATE, alert.id)
    state = msgspec.json.decode(record.data, type=State) if record is not None else None
    return AlertInfo.of(alert, state, await _missing_workflow(services, alert))


async def _missing_workflow(services: ServerServices, alert: Alert) -> str | None:
    archive = services.client.stack.archive
    if alert.workflow is None or await archive.definition(alert.workflow) is not None:
        return None
    return f"no workflow '{alert.workflow}' is deployed in this store: there is nothing to alert about until one is"


audit_router = APIRouter(prefix="/audit", tags=["access"], route_class=Route)


@audit_router.get("", operation_id="list_audit_entries", dependencies=[needs("admin")])
async def audit(services: Services, limit: Limit = 100, cursor: Cursor = None) -> Page[AuditEntry]:
    """Lists every call that may have changed something, newest first: who, what, when, from where, and the reply."""
    await services.audit.flush()
    found = await services.client.stack.records.entries(LOG, _before(cursor), limit + 1)
    items = [AuditEntry.of(each.number, msgspec.json.decode(each.data, type=Entry)) for each in found[:limit]]
    return Page(items=items, next=to_cursor(str(items[-1].number)) if len(found) > limit else None)


def _before(cursor: str | None) -> int | None:
    place = from_cursor(cursor)
    if place is None:
        return None
    if not (place.isascii() and place.isdecimal() and len(place) < 19):
        raise InvalidInput("'cursor' was not given out by this server; omit it to start from the beginning")
    return int(place)


credentials_router = APIRouter(prefix="/credentials", tags=["credentials"], route_class=Route)

Name = Annotated[str, Path(max_length=100, description="The credential's name.", examples=["crm-key"])]


@credentials_router.get("", operation_id="list_credentials", dependencies=[needs("read")])
async def credentials(services: Services, limit: Limit = 100, cursor: Cursor = None) -> Page[CredentialInfo]:
    """Lists all credentials by name, without their values."""
    found = await services.engine.vault.page(from_cursor(cursor) or "", limit + 1)
    items = [CredentialInfo.of(each) for each in found[:limit]]
    return Page(items=items, next=to_cursor(items[-1].name) if len(found) > limit else None)


@credentials_router.post("/rotate", operation_id="rotate_credentials", dependencies=[needs("admin")])
async def rotate_key(services: Services) -> RotationReply:
    """Seals every credential again with the server's first key. The call may be repeated at any time."""
    return RotationReply.of(await services.engine.vault.rotate())


@credentials_router.get("/{name}", operation_id="get_credential", dependencies=[needs("read")])
async def credential(services: Services, name: Name) -> CredentialInfo:
    """Returns one credential, without its values: no call returns those."""
    return CredentialInfo.of(await services.engine.vault.info(name))


@credentials_router.put(
    "/{name}",
    operation_id="put_credential",
    dependencies=[needs("admin")],
    responses={201: {"model": CredentialInfo}},
)
async def put_credential(
    services: Services, name: Name, setting: CredentialSetting, response: Response
) -> CredentialInfo:
    """Creates a credential (201) or changes it (200). Workers use the new values from their next run on."""
    info, is_new = await services.engine.vault.put(setting.named(name))
    if is_new:
        response.status_code = status.HTTP_201_CREATED
    return CredentialInfo.of(info)


@credentials_router.delete(
    "/{name}", operation_id="delete_credential", status_code=204, dependencies=[needs("admin")]
)
async def remove_credential(services: Services, name: Name) -> None:
    """Removes a credential. Runs that need it fail from now on. A credential that a webhook uses to check its
    deliveries cannot be removed (409)."""
    await webhooks_of(services).remove_credential(name)


keys_router = APIRouter(prefix="/keys", tags=["access"], route_class=Route)

KeyId = Annotated[str, Path(max_length=100, description="The id of a key, or its name.")]


@keys_router.post(
    "", operation_id="create_key", status_code=status.HTTP_201_CREATED, dependencies=[needs("admin")]
)
async def add(services: Services, request: KeyRequest, http: Request) -> NewKey:
    """Creates a key and shows it only once. The first key closes an open server. A key for remote workers (scope
    `worker`) names the queues whose tasks it may claim, or `*`."""
    by = caller_of(http).name
    quotas = read_quotas(request.quotas.named() if request.quotas is not None else {})
    key, text = await services.authenticator.key_records.add(
        request.name, request.scopes, request.expires, by, request.queues, quotas
    )
    services.authenticator.look_again()
    return NewKey(**KeyInfo.of(key).model_dump(), key=text)


@keys_router.get("", operation_id="list_keys", dependencies=[needs("admin")])
async def keys(
    services: Services,
    revoked: Annotated[bool, Query(description="Also those that were revoked.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[KeyInfo]:
    """Lists all keys by id, without their secrets, which cannot be shown again. Each key has its quotas and their
    use; the use of rates and streams is that of the server that answers."""
    after = from_cursor(cursor) or ""
    found = sorted(await services.authenticator.key_records.all(), key=lambda key: key.id)
    found = [key for key in found if key.id > after and (revoked or key.revoked_at is None)]
    archive, usage = services.client.stack.archive, services.usage
    items = [KeyInfo.of(key, await usage.usage_of(archive, key.id)) for key in found[:limit]]
    return Page(items=items, next=to_cursor(items[-1].id) if len(found) > limit else None)


@keys_router.patch("/{key}", operation_id="update_key", dependencies=[needs("admin")])
async def change(services: Services, key: KeyId, request: KeyChange) -> KeyInfo:
    """Changes queues and quotas of a key: on this server at once, on other servers of this store within seconds."""
    found = await services.authenticator.key_records.find(key)
    quotas = request.quotas.named() if request.quotas is not None else {}
    changed = await services.authenticator.key_records.set(found.id, queues=request.queues, quotas=quotas)
    services.authenticator.look_again()
    return KeyInfo.of(changed)


@keys_router.delete("/{key}", operation_id="revoke_key", dependencies=[needs("admin")])
async def revoke(services: Services, key: KeyId) -> KeyInfo:
    """Revokes a key: it is refused on this server at once, on other servers of this store within seconds."""
    found = await services.authenticator.key_records.find(key)
    revoked = await services.authenticator.key_records.revoke(found.id)
    services.authenticator.look_again()
    return KeyInfo.of(revoked)


session_router = APIRouter(prefix="/session", tags=["access"], route_class=Route)


@session_router.post("", operation_id="sign_in", status_code=status.HTTP_201_CREATED)
async def sign_in(services: Services, request: SignIn, http: Request, response: Response) -> SessionInfo:
    """Signs in with a key. Sets a cookie that scripts cannot read, that other sites cannot use, and that represents
    the key."""
    visit = GuardedRequest(http.scope)
    key = await services.authenticator.check_key(request.key, visit.address)
    token, session = await services.authenticator.sessions.open(key)
    http.state.caller = caller = caller_with(key, "session")
    response.set_cookie(
        COOKIE,
        token,
        max_age=round(services.settings.session_seconds),
        path="/",
        secure=visit.is_https,
        httponly=True,
        samesite="strict",
    )
    return SessionInfo.of(caller, session.expires_at)


@session_router.get("", operation_id="get_session")
async def who(services: Services, http: Request) -> SessionInfo:
    """Returns who the caller is, what it may do, and the use of its key's quotas."""
    caller, visit = caller_of(http), GuardedRequest(http.scope)
    if caller.via == "nobody":
        raise Unauthenticated(KEY_WANTED)
    session = await services.authenticator.sessions.find(visit.session) if visit.session is not None else None
    ends = session.expires_at if session is not None and caller.via == "session" else None
    use = (
        await services.usage.usage_of(services.client.stack.archive, caller.key)
        if caller.key is not None
        else None
    )
    return SessionInfo.of(caller, ends, use)


@session_router.delete("", operation_id="sign_out", status_code=status.HTTP_204_NO_CONTENT)
async def sign_out(services: Services, http: Request, response: Response) -> None:
    """Ends the session at once and removes the cookie."""
    visit = GuardedRequest(http.scope)
    if visit.session is not None:
        await services.authenticator.sessions.close(visit.session)
    response.delete_cookie(COOKIE, path="/", secure=visit.is_https, httponly=True, samesite="strict")
