"""Keys, limits, credentials, webhooks, alerts and dead letters of a server, by the commands that know a store's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno import App
from dalsegno.engine.secrets.keys import new_key
from tests.cli.conftest import Invoke
from tests.server.conftest import LiveServer

SECRET = "a-secret-of-the-sender"


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """On the store that is the default one here: what is set there can be looked at here."""
    monkeypatch.setenv("DALSEGNO_SECRET_KEY", new_key())
    with LiveServer(App(f"sqlite:///{folder / 'dalsegno.db'}")) as live:
        yield live.url


@pytest.fixture
def both(server: str, invoke: Invoke) -> Any:
    """What a command with --json says of the server; it must say the same of the store."""

    def ask(*arguments: str) -> Any:
        there, here = invoke(*arguments, "--json", "--server", server), invoke(*arguments, "--json")
        assert there.exit_code == 0, there.output
        assert _at_rest(there.stdout) == _at_rest(here.stdout)
        return json.loads(there.stdout)

    return ask


def _at_rest(text: str) -> Any:
    """Without what asking itself changes: when a key was used."""
    told = json.loads(text)
    for key in told.get("keys", ()):
        del key["used_at"]
    return told


def said(invoke: Invoke, server: str, *arguments: str) -> str:
    result = invoke(*arguments, "--server", server)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_keys(server: str, invoke: Invoke, both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = json.loads(said(invoke, server, "keys", "add", "ops", "--scope", "admin", "--json"))
    assert (made["scopes"], made["key"][:3]) == (["admin"], "ds_")
    closed = invoke("keys", "ls", "--server", server)
    assert closed.exit_code != 0
    assert "key" in closed.stderr
    monkeypatch.setenv("DALSEGNO_KEY", made["key"])
    said(invoke, server, "keys", "add", "ci", "--expires", "30d")
    assert [key["name"] for key in both("keys", "ls")["keys"]] == ["ops", "ci"]
    worker = (
        "keys",
        "add",
        "node",
        "--scope",
        "worker",
        "--queue",
        "images",
        "--open-streams",
        "5",
        "--json",
    )
    assert json.loads(said(invoke, server, *worker))["quotas"] == {"open_streams": 5}
    said(invoke, server, "keys", "set", "node", "--queue", "mail", "--open-streams", "default")
    limited = both("keys", "ls")["keys"][-1]
    assert (limited["queues"], limited["quotas"]) == (["mail"], {})
    assert said(invoke, server, "keys", "revoke", "ci") == "ci: revoked\n"
    assert "revoked" in said(invoke, server, "keys", "ls", "--all")
    again = invoke("keys", "revoke", "ci", "--server", server)
    assert (again.exit_code, "dalsegno keys ls" in again.stderr) == (2, True)


def test_limits(server: str, invoke: Invoke, both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_SERVER", server)
    set_there = invoke("limits", "set", "mail/out", "--concurrency", "5", "--rate", "10/s")
    assert set_there.stdout == "mail/out: 5 at once, 10/s; 0 in use, 0 waiting\n"
    monkeypatch.delenv("DALSEGNO_SERVER")
    (found,) = both("limits", "ls")["limits"]
    assert (found["key"], found["concurrency"], found["rate"]) == ("mail/out", 5, "10/s")
    assert said(invoke, server, "limits", "rm", "mail/out") == "mail/out: as definitions say\n"
    gone = invoke("limits", "rm", "mail/out", "--server", server)
    assert (gone.exit_code, "no limit is set" in gone.stderr) == (2, True)
    refused = invoke("limits", "set", "mail", "--rate", "often", "--server", server)
    assert (refused.exit_code, "'often' is not a rate" in refused.stderr) == (2, True)


def test_protected_names(server: str, invoke: Invoke, both: Any) -> None:
    assert said(invoke, server, "protect") == "no protected names; `dalsegno protect NAME` protects one\n"
    assert said(invoke, server, "protect", "billing/eu-*") == "protected 'billing/eu-*'\n"
    assert invoke("protect", "pay", "--json").exit_code == 0
    found = both("protect")["protected"]
    assert [(each["name"], each["credential"]) for each in found] == [("billing/eu-*", None), ("pay", None)]
    assert found[1]["protected_by"] == "the store"
    assert "billing/eu-*" in said(invoke, server, "protect")
    for name in ("billing/eu-*", "pay"):
        said(invoke, server, "unprotect", name)
        again = [invoke("unprotect", name), invoke("unprotect", name, "--server", server)]
        assert [(each.exit_code, "is not protected by an admin" in each.stderr) for each in again] == [
            (2, True)
        ] * 2
    assert "1 to 200" in invoke("protect", "x" * 201).stderr


def test_credentials(
    server: str, invoke: Invoke, both: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t0p-s3cr3t")
    add = ("credentials", "add", "crm", "--host", "api.example.com", "-w", "*", "--env", "token=TOKEN")
    assert said(invoke, server, *add) == "added credential 'crm'\n"
    assert said(invoke, server, *add[:-2], "--keep") == "changed credential 'crm'\n"
    (found,) = both("credentials", "ls")["credentials"]
    assert (found["name"], found["fields"], found["hosts"]) == ("crm", ["token"], ["api.example.com"])
    assert json.loads(said(invoke, server, "credentials", "rotate", "--json"))["current"] == 1
    document = folder / "billing.yaml"
    document.write_text("name: billing\nnodes: [{id: a, type: log, parameters: {message: x}}]\n")
    said(invoke, server, "deploy", str(document))
    [deployed] = json.loads(said(invoke, server, "versions", "billing", "--json"))["versions"]
    said(invoke, server, "credentials", "withdraw", "billing")
    limited = (*add[:5], "--keep", "--workflow", "billing", "--definition", deployed["hash"])
    assert said(invoke, server, *limited).splitlines()[1:] == ["approved billing@1"]
    assert [each["approved"] for each in both("credentials", "ls")["definitions"]] == [True]
    assert both("protect")["protected"] == [
        {"name": "billing", "credential": "crm", "protected_by": None, "protected_at": None}
    ]
    assert said(invoke, server, "credentials", "rm", "crm") == "removed credential 'crm'\n"
    assert invoke("credentials", "rm", "crm", "--server", server).exit_code == 2


def test_webhooks(server: str, invoke: Invoke, both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("echo.flow").write_text("return inputs.body\n")
    said(invoke, server, "deploy", "echo.flow")
    monkeypatch.setenv("HOOK", SECRET)
    add = ("webhook", "add", "push", "-w", "echo", "--env", "HOOK", "--header", "X-Event")
    assert said(invoke, server, *add).startswith("added webhook 'push': /v1/hooks/push starts echo")
    (found,) = both("webhook", "ls")["webhooks"]
    assert (found["id"], found["headers"]) == ("push", ["x-event"])
    unsigned = invoke("webhook", "test", "push", "--server", server)
    assert (unsigned.exit_code, "returns no secrets" in unsigned.stderr) == (2, True)
    taken = json.loads(said(invoke, server, "webhook", "test", "push", "--env", "HOOK", "--json"))
    assert taken["status"] == 202
    assert invoke("webhook", "test", "push", "--to", server).exit_code == 0  # the store has its secret
    assert said(invoke, server, "webhook", "rm", "push") == "removed webhook 'push'\n"
    assert both("webhook", "ls") == {"webhooks": []}


def test_alerts(server: str, invoke: Invoke, both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT", "http://127.0.0.1:9/hooks/1")
    add = ("alerts", "add", "ops", "-w", "bill", "--env", "CHAT", "--every", "5")
    added, secret = said(invoke, server, *add).splitlines()
    assert added == "added alert 'ops': http://127.0.0.1/…"
    assert secret.partition(": ")[2].startswith("whsec_")
    (found,) = both("alerts", "ls")["alerts"]
    assert (found["id"], found["workflow"], found["every"]) == ("ops", "bill", 5)
    untaken = invoke("alerts", "test", "ops", "--server", server)
    assert untaken.exit_code == 2
    assert "the receiver cannot be reached" in untaken.stderr
    assert said(invoke, server, "alerts", "rm", "ops") == "removed alert 'ops'\n"


def test_dead_letters(server: str, invoke: Invoke, both: Any) -> None:
    assert both("dead", "ls") == {"dead": []}
    gone = invoke("dead", "retry", "failed:nobody", "--server", server)
    assert gone.exit_code == 2
