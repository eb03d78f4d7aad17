"""One vocabulary: an execution has an ``id`` and a ``state`` wherever the server tells of it; what refers to one says
``execution``. Earlier names are there beside them, and marked in the document."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from dalsegno.admin.alerts import Failed, Message, body_of
from tests.server import test_alerts, test_submissions, test_webhooks
from tests.server.document import openapi_document
from tests.server.test_alerts import by_hand, services  # noqa: F401 - fixtures

OUTSIDE = ("memory", "sqlite")
"""Stores: none of this is theirs to decide."""
EARLIER = {
    ("HookReply", "execution"),
    ("Problem", "errors"),
    ("Submission", "execution_id"),
    ("SubmissionResults", "execution_id"),
    ("SubmissionStatus", "execution_id"),
}

pytestmark = pytest.mark.parametrize("store_url", OUTSIDE, indirect=True)


def schemas() -> dict[str, Any]:
    found: dict[str, Any] = openapi_document()["components"]["schemas"]
    return found


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_SECRET_KEY", "a passphrase of the tests")


async def test_submissions_have_an_id_and_a_state(http: httpx.AsyncClient) -> None:
    execution = await test_submissions.submit(http, input={"n": 1})
    base = f"/v1/workflows/{execution}"
    for told in (
        await http.get(f"{base}/status"),
        await http.get(f"{base}/results"),
        await http.post(f"{base}/trigger"),
        await http.get(f"/v1/executions/{execution}"),
    ):
        assert told.json()["id"] == execution
        assert told.json().get("execution_id", execution) == execution
        assert told.json()["state"] in ("PENDING", "RUNNING", "COMPLETED")
        assert "status" not in told.json()


async def test_senders_of_webhooks_get_an_id_and_a_state(http: httpx.AsyncClient) -> None:
    await test_webhooks.set_up(http)
    for repeated in (False, True):
        told = (await test_webhooks.deliver(http, b'{"n": 1}')).json()
        assert told["id"] == told["execution"]
        assert told["repeated"] is repeated
        assert (await http.get(f"/v1/executions/{told['id']}")).json()["id"] == told["id"]
        assert told["state"] in ("RUNNING", "COMPLETED")


@pytest.mark.usefixtures("by_hand")
async def test_alerts_tell_of_executions_by_id_and_state(
    http: httpx.AsyncClient,
    services: Any,  # noqa: F811 - a fixture
) -> None:
    async with test_alerts.receiver() as other:
        await http.put("/v1/alerts/ops", json={"url": other.url, "every": 0})
        execution = await test_alerts.fail_once(http)
        await test_alerts.Alerting(services).round()
    [failure] = other.got[0]["failures"]
    assert (failure["id"], failure["state"], failure["execution"]) == (execution, "FAILED", execution)


def test_an_alert_that_an_older_server_kept_is_told_alike(store_url: str) -> None:
    kept = Failed("e1", "w", 1, "2030-01-31T09:00:00+00:00", "NODE_FAILED", "no luck", "f", "http://x/e1")
    assert b'"id":"e1","state":"FAILED","execution":"e1"' in body_of(Message("m", "ops", 1, (kept,)))


def test_earlier_names_are_marked_in_the_document(store_url: str) -> None:
    found = {
        (name, field)
        for name, schema in schemas().items()
        for field, each in schema.get("properties", {}).items()
        if each.get("deprecated")
    }
    assert found == EARLIER


def test_no_schema_has_another_name_for_an_execution(store_url: str) -> None:
    names = {
        (name, field)
        for name, schema in schemas().items()
        for field in schema.get("properties", {})
        if field in ("execution_id", "executionId", "execution_state", "execution_status", "run_id")
    }
    assert names <= EARLIER
