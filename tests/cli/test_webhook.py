"""``dalsegno webhook``: added with a secret that is shown once, listed, tried out, removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dalsegno.app import App
from tests.cli.conftest import Invoke
from tests.server.conftest import LiveServer

GRAPH = "name: greet\nnodes:\n  - {id: say, type: log, parameters: {message: hello}}\n"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DALSEGNO_SECRET_KEY", raising=False)
    monkeypatch.delenv("DALSEGNO_SECRET_KEY_FILE", raising=False)


def test_a_made_secret_is_printed_alone_and_never_again(invoke: Invoke, folder: Path) -> None:
    made = invoke("webhook", "add", "push", "--workflow", "greet", "--path", "gh/push")
    secret = made.stdout.strip()
    assert (made.exit_code, len(secret)) == (0, 64)
    assert "/v1/hooks/gh/push starts greet" in made.stderr
    listed = invoke("webhook", "ls").stdout
    assert "/v1/hooks/gh/push" in listed
    assert secret not in listed + invoke("webhook", "ls", "--json").stdout
    stored = b"".join(path.read_bytes() for path in folder.glob("dalsegno.db*"))
    assert secret.encode() not in stored
    assert invoke("webhook", "rm", "push").stdout == "removed webhook 'push'\n"
    assert json.loads(invoke("webhook", "ls", "--json").stdout) == {"webhooks": []}
    assert invoke("webhook", "rm", "push").exit_code == 2


def test_a_signed_delivery_reaches_the_server(invoke: Invoke, folder: Path) -> None:
    (folder / "greet.yaml").write_text(GRAPH)
    invoke("deploy", "greet.yaml")
    invoke("webhook", "add", "push", "--workflow", "greet", "--style", "stripe")
    with LiveServer(App(f"sqlite:///{folder / 'dalsegno.db'}")) as live:
        sent = invoke("webhook", "test", "push", "--to", live.url, "--json")
        assert (sent.exit_code, json.loads(sent.stdout)["status"]) == (0, 202), sent.output
        invoke("webhook", "rm", "push")
        invoke("webhook", "add", "other", "--workflow", "nothing")
        refused = invoke("webhook", "test", "other", "--to", live.url)
        assert refused.exit_code == 1
        assert refused.stdout.startswith("404 ")


def test_mistakes_are_told(invoke: Invoke) -> None:
    for arguments, said in (
        (("--style", "morse"), "signature.style"),
        (("--style", "standard"), "comes from the sender"),
        (("--env", "NOT_THERE"), "NOT_THERE"),
        (("--path", "a b"), "path"),
    ):
        refused = invoke("webhook", "add", "push", "--workflow", "greet", *arguments)
        assert refused.exit_code == 2, refused.output
        assert said in refused.stderr
    invoke("webhook", "add", "push", "--workflow", "greet")
    assert "does not answer" in invoke("webhook", "test", "push", "--to", "http://127.0.0.1:1").stderr


def test_a_webhook_for_a_workflow_that_is_not_there_is_warned_of(invoke: Invoke) -> None:
    added = invoke("webhook", "add", "early", "--workflow", "nobody-deployed-this")
    assert added.exit_code == 0, added.output
    assert "warning: there is no workflow 'nobody-deployed-this'" in added.stderr


def test_its_secret_cannot_be_removed_under_it(invoke: Invoke) -> None:
    invoke("webhook", "add", "push", "--workflow", "greet")
    refused = invoke("credentials", "rm", "webhook.push")
    assert refused.exit_code != 0
    assert "signs deliveries of the webhook 'push'" in refused.output
    assert "webhook.push" in invoke("credentials", "ls").stdout
    invoke("webhook", "rm", "push")
    assert "webhook.push" not in invoke("credentials", "ls").stdout
