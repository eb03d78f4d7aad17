"""Keys, limits, credentials, webhooks, alerts, dead letters, definitions and workers of a server, by both twins."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from dalsegno import (
    App,
    Client,
    Conflict,
    CredentialNotFound,
    Forbidden,
    InvalidInput,
    NotDelivered,
    NotFound,
    Unauthenticated,
)
from dalsegno.admin.webhook_signatures import Signature
from dalsegno.client.group import CallGroup
from dalsegno.engine.secrets.keys import new_key
from tests.server.conftest import LiveServer
from tests.waiting import until

LOG = {"nodes": [{"id": "a", "type": "log", "parameters": {"message": "x"}}]}

Ask = Callable[..., Any]


@pytest.fixture
def app(app: App) -> App:
    """A missing task fails at once."""
    app.settings = replace(app.settings, missing_tasks="fail")
    return app


@pytest.fixture(autouse=True)
def secret_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_SECRET_KEY", new_key())
    monkeypatch.delenv("DALSEGNO_SMTP_URL", raising=False)


@pytest.fixture(params=["", "a"], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Makes the call, or its async twin."""
    prefix: str = request.param

    def call(group: Any, name: str, *arguments: Any, **options: Any) -> Any:
        made = getattr(group, prefix + name)(*arguments, **options)
        return asyncio.run(_awaited(made)) if prefix else made

    return call


async def _awaited(work: Any) -> Any:
    return await work


def groups(client: Client) -> Iterator[CallGroup]:
    yield from (each for each in vars(client).values() if isinstance(each, CallGroup))


def test_every_call_has_a_twin_with_the_same_parameters() -> None:
    found = list(groups(Client("http://127.0.0.1:1")))
    assert len(found) == 9
    for group in found:
        public = {name: call for name, call in vars(type(group)).items() if not name.startswith("_")}
        plain = {name for name, call in public.items() if not inspect.iscoroutinefunction(call)}
        assert public.keys() - plain == {f"a{name}" for name in plain}
        for name in plain:
            assert inspect.signature(public[name]) == inspect.signature(public[f"a{name}"])


def test_keys(live: LiveServer, client: Client, ask: Ask) -> None:
    admin = ask(client.keys, "add", "ops", ["admin"])
    assert (admin.key.scopes, admin.key.digest, admin.text[:3]) == (("admin",), "", "ds_")
    with pytest.raises(Unauthenticated):
        ask(client.keys, "list")
    with Client(live.url, key=admin.text) as ops:
        run = ask(ops.keys, "add", "ci", expires="30d")
        assert run.key.expires_at - run.key.created_at == 30 * 86_400
        worker = ask(ops.keys, "add", "node", ["worker"], queues=["images"], quotas={"open_streams": 5})
        assert (worker.key.queues, worker.key.quotas.open_streams) == (("images",), 5)
        changed = ask(ops.keys, "set", "node", queues=["mail"], quotas={"open_streams": None})
        assert (changed.queues, changed.quotas.open_streams) == (("mail",), None)
        with pytest.raises(Conflict):
            ask(ops.keys, "add", "ci")
        with Client(live.url, key=run.text) as narrow, pytest.raises(Forbidden):
            ask(narrow.keys, "list")
        assert ask(ops.keys, "revoke", "ci").revoked_at is not None
        assert [key.name for key in ask(ops.keys, "list")] == ["ops", "node"]
        assert [key.name for key in ask(ops.keys, "list", revoked=True)] == ["ops", "ci", "node"]
        with pytest.raises(NotFound):
            ask(ops.keys, "revoke", "nobody")


def test_limits(client: Client, ask: Ask) -> None:
    made = ask(client.limits, "set", "mail/out", concurrency=5, rate="10/s")
    assert (made.key, made.rule.concurrency, made.rule.rate.starts, made.in_use) == ("mail/out", 5, 10, 0)
    assert ask(client.limits, "get", "mail/out") == made
    ask(client.limits, "set", "pdf", concurrency=1)
    assert [each.key for each in ask(client.limits, "list")] == ["mail/out", "pdf"]
    assert [each.key for each in ask(client.limits, "list", limit=1)] == ["mail/out"]
    with pytest.raises(InvalidInput, match="not a rate"):
        ask(client.limits, "set", "pdf", rate="often")
    ask(client.limits, "remove", "mail/out")
    with pytest.raises(NotFound, match="no limit is set"):
        ask(client.limits, "remove", "mail/out")


def test_credentials_and_approvals_of_definitions(client: Client, ask: Ask) -> None:
    stored = client.deploy({"name": "billing", **LOG})
    saved = ask(
        client.credentials,
        "put",
        "crm",
        "bearer",
        {"token": "t0p-s3cr3t"},
        workflows=["billing"],
        hosts=["a.example.com"],
    )
    assert (saved.is_new, saved.credential.fields, saved.credential.hosts) == (
        True,
        ("token",),
        ("a.example.com",),
    )
    again = ask(
        client.credentials, "put", "crm", workflows=["billing"], hosts=["b.example.com"], description="kept"
    )
    assert (again.is_new, again.credential.description) == (False, "kept")
    assert ask(client.credentials, "get", "crm") == again.credential
    assert ask(client.credentials, "list") == [again.credential]
    assert ask(client.credentials, "rotate").current == 1
    ask(client.credentials, "withdraw", stored.hash)
    [listed] = ask(client.credentials, "definitions").items
    assert (listed.workflow, listed.version, listed.hash, listed.approval) == (
        "billing",
        1,
        stored.hash,
        None,
    )
    assert ask(client.credentials, "approve", stored.hash).workflow == "billing"
    [listed] = ask(client.credentials, "definitions").items
    assert listed.approval.at > 0
    ask(client.credentials, "end_grace")
    assert ask(client.credentials, "definitions").grace_until is None
    with pytest.raises(InvalidInput):
        ask(client.credentials, "put", "crm", "unknown", {"token": "t0p-s3cr3t"}, workflows=["*"])
    ask(client.credentials, "remove", "crm")
    with pytest.raises(CredentialNotFound):
        ask(client.credentials, "get", "crm")


def test_protected_names(client: Client, ask: Ask) -> None:
    made = ask(client.protected_names, "protect", "billing/eu-*")
    assert (made.name, made.credential, made.protected_by) == ("billing/eu-*", None, "open")
    assert ask(client.protected_names, "list") == [made]
    ask(client.protected_names, "unprotect", "billing/eu-*")
    with pytest.raises(NotFound, match="is not protected by an admin"):
        ask(client.protected_names, "unprotect", "billing/eu-*")


def test_webhooks(client: Client, ask: Ask) -> None:
    saved = ask(client.webhooks, "put", "push", "echo", secret="a-secret-of-the-sender", headers=["X-Event"])
    assert (saved.is_new, saved.webhook.path, saved.webhook.headers) == (True, "push", ("x-event",))
    assert "no workflow 'echo'" in saved.warning
    client.deploy_script("return inputs.body", "echo")
    own = Signature("plain", header="x-own-signature")
    saved = ask(client.webhooks, "put", "push", "echo", path="git/push", signature=own, sync_seconds=5)
    assert (saved.is_new, saved.warning, saved.webhook.path) == (False, None, "git/push")
    assert saved.webhook.signature.header == "x-own-signature"
    assert ask(client.webhooks, "get", "push") == saved.webhook
    assert ask(client.webhooks, "list") == [saved.webhook]
    with pytest.raises(InvalidInput, match="sync_seconds"):
        ask(client.webhooks, "put", "push", "echo", sync_seconds=600)
    ask(client.webhooks, "remove", "push")
    with pytest.raises(NotFound):
        ask(client.webhooks, "get", "push")


def test_alerts(client: Client, ask: Ask) -> None:
    saved = ask(client.alerts, "put", "ops", url="http://127.0.0.1:9/hooks/1", workflow="bill", every=5)
    assert (saved.is_new, saved.alert.target, saved.alert.every) == (True, "http://127.0.0.1/…", 5)
    assert saved.secret.startswith("whsec_")
    changed = ask(client.alerts, "rotate", "ops", overlap="1h")
    assert changed.startswith("whsec_")
    assert changed != saved.secret
    mailed = ask(client.alerts, "put", "mail", mail=["ops@example.com"], enabled=False)
    assert (mailed.secret, mailed.alert.enabled, mailed.alert.target) == (None, False, "ops@example.com")
    assert [each.id for each in ask(client.alerts, "list")] == ["mail", "ops"]
    assert ask(client.alerts, "get", "ops").workflow == "bill"
    with pytest.raises(NotDelivered, match="cannot be reached"):
        ask(client.alerts, "test", "ops")
    with pytest.raises(NotDelivered, match="DALSEGNO_SMTP_URL"):
        ask(client.alerts, "test", "mail")
    ask(client.alerts, "remove", "ops")
    with pytest.raises(NotFound):
        ask(client.alerts, "get", "ops")


def test_definitions(client: Client, ask: Ask) -> None:
    first, second = client.deploy_script("return 1", "one"), client.deploy_script("return 2", "one")
    client.deploy({"name": "two", **LOG})
    assert [(each.name, each.version) for each in ask(client.definitions, "list")] == [("one", 2), ("two", 1)]
    assert [each.version for each in ask(client.definitions, "versions", "one")] == [2, 1]
    assert [each.version for each in ask(client.definitions, "versions", "one", limit=1)] == [2]
    ask(client.definitions, "set_alias", "one", "stable", 1)
    assert ask(client.definitions, "aliases", "one") == {"stable": 1}
    assert ask(client.definitions, "get", "one").hash == second.hash
    assert ask(client.definitions, "get", "one", "stable").hash == first.hash
    assert b"return 1" in ask(client.definitions, "get", "one", 1).source
    ask(client.definitions, "remove_alias", "one", "stable")
    for wrong in (("one", "stable"), ("three", None)):
        with pytest.raises(NotFound):
            ask(client.definitions, "get", *wrong)
    with pytest.raises(NotFound):
        ask(client.definitions, "remove_alias", "one", "stable")


def test_workers_approvals_and_unfinished_versions(client: Client, ask: Ask) -> None:
    client.deploy(
        {"name": "pay", "nodes": [{"id": "ask", "type": "approval", "parameters": {"message": "pay?"}}]}
    )
    run = client.start("pay")
    [asked] = until(lambda: ask(client, "approvals", "pay"), "an approval")
    assert (asked.execution, ask(client, "approvals", "other")) == (run.id, [])
    [unfinished] = ask(client, "unfinished_versions")
    assert (unfinished.workflow, unfinished.version, unfinished.executions) == ("pay", 1, 1)
    [worker] = ask(client, "workers")
    assert (worker.state, worker.kind) == ("alive", "local")
    assert "default" in worker.queues


def test_dead_letters(client: Client, ask: Ask) -> None:
    client.deploy({"name": "lost", "nodes": [{"id": "it", "type": "task", "parameters": {"task": "nobody"}}]})
    run = client.start("lost")
    assert run.wait(timeout=60).state == "FAILED"
    [letter] = until(lambda: ask(client.dead_letters, "list"), "a dead letter")
    assert (letter.kind, letter.execution, letter.code) == ("execution", run.id, "TASK_NOT_FOUND")
    retried = ask(client.dead_letters, "retry", letter.id)
    assert retried.id != run.id
    assert retried.wait(timeout=60).state == "FAILED"
    for each in ask(client.dead_letters, "list", limit=5):
        assert ask(client.dead_letters, "drop", each.id).id == each.execution
    assert ask(client.dead_letters, "list") == []
    with pytest.raises(NotFound):
        ask(client.dead_letters, "retry", "execution:nobody")
