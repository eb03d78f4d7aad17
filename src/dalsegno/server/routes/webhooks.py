"""``/v1/webhooks``: set up, look at without secrets, remove."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response, status

from dalsegno.engine.webhooks import Webhook, missing_workflow
from dalsegno.server.access import needs
from dalsegno.server.deliveries import book_of
from dalsegno.server.office import Office, TheOffice
from dalsegno.server.pages import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.route import Route
from dalsegno.server.schemas.webhooks import WebhookInfo, WebhookSetting

router = APIRouter(prefix="/webhooks", tags=["webhooks"], route_class=Route)

Id = Annotated[str, Path(max_length=100, description="The webhook's id.", examples=["github-push"])]


@router.get("", operation_id="list_webhooks", dependencies=[needs("read")])
async def webhooks(office: TheOffice, limit: Limit = 100, cursor: Cursor = None) -> Page[WebhookInfo]:
    """All webhooks by id, without their secrets."""
    found = await book_of(office).page(from_cursor(cursor) or "", limit + 1)
    items = [await _shown(office, each) for each in found[:limit]]
    return Page(items=items, next=to_cursor(items[-1].id) if len(found) > limit else None)


@router.get("/{id}", operation_id="get_webhook", dependencies=[needs("read")])
async def webhook(office: TheOffice, id: Id) -> WebhookInfo:
    """One webhook, without its secret: nothing gives that out."""
    return await _shown(office, await book_of(office).get(id))


@router.put(
    "/{id}",
    operation_id="put_webhook",
    dependencies=[needs("admin")],
    responses={201: {"model": WebhookInfo}},
)
async def put(office: TheOffice, id: Id, setting: WebhookSetting, response: Response) -> WebhookInfo:
    """Creates a webhook (201) or changes it (200). It takes deliveries at once; a `warning` says why it does not."""
    now = office.client.stack.clock.now()
    made, is_new = await book_of(office).put(setting.named(id, now), setting.secret)
    if is_new:
        response.status_code = status.HTTP_201_CREATED
    return await _shown(office, made)


@router.delete(
    "/{id}",
    operation_id="delete_webhook",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs("admin")],
)
async def remove(office: TheOffice, id: Id) -> None:
    """Removes it and its secret. Deliveries are answered with 404 from now on."""
    await book_of(office).remove(id)


async def _shown(office: Office, webhook: Webhook) -> WebhookInfo:
    problem = await book_of(office).problem(webhook)
    return WebhookInfo.of(webhook, problem or await missing_workflow(office.client.stack.archive, webhook))
