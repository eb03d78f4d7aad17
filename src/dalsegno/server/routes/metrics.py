"""``/metrics``: for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from dalsegno.server.access import needs
from dalsegno.server.metrics import exposition
from dalsegno.server.office import TheOffice

router = APIRouter(tags=["operation"])


class MetricsText(Response):
    media_type = CONTENT_TYPE_LATEST


@router.get("/metrics", operation_id="get_metrics", dependencies=[needs("read")], response_class=MetricsText)
async def metrics(office: TheOffice) -> MetricsText:
    """Counts of this process, and the state of the store, as Prometheus text."""
    return MetricsText(await exposition(office))
