"""``dalsegno webhook``: added with a secret that is shown once, listed, tried out, removed."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from dalsegno import Client
from dalsegno.app import App
from tests.cli.conftest import Invoke
from tests.server.conftest import LiveServer

HOOKED = """name: hooked
nodes:
  - {id: at, type: schedule, parameters: {cron: 0 2 * * *}}
  - {id: in, type: webhook, parameters: {path: in}}
  - {id: say, type: log, parameters: {message: hello}}
edges:
  - {src: at, dst: say}
  - {src: in, dst: say}
"""
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


def test_a_secret_of_the_standard_style_is_made_too(invoke: Invoke, folder: Path) -> None:
    (folder / "greet.yaml").write_text(GRAPH)
    invoke("deploy", "greet.yaml")
    made = invoke("webhook", "add", "push", "--workflow", "greet", "--style", "standard")
    assert (made.exit_code, made.stdout[:6]) == (0, "whsec_"), made.output
    assert len(base64.b64decode(made.stdout.strip().removeprefix("whsec_"), validate=True)) == 32
    with LiveServer(App(f"sqlite:///{folder / 'dalsegno.db'}")) as live:
        sent = invoke("webhook", "test", "push", "--to", live.url, "--json")
        assert (sent.exit_code, json.loads(sent.stdout)["status"]) == (0, 202), sent.output


def test_deploy_says_which_webhook_it_made_and_its_secret_once(invoke: Invoke, folder: Path) -> None:
    (folder / "hooked.yaml").write_text(HOOKED)
    told = invoke("deploy", "hooked.yaml")
    assert told.exit_code == 0, told.output
    assert "webhook 'hooked.in' added  POST /v1/hooks/in" in told.stdout
    assert "schedule 'hooked/at' added  0 2 * * * (UTC)" in told.stdout
    [secret] = re.findall("shown this once: ([0-9a-f]{64})", told.stdout)
    again = invoke("deploy", "hooked.yaml")
    assert "webhook 'hooked.in' unchanged" in again.stdout
    assert "secret" not in again.stdout
    assert [each["name"] for each in json.loads(invoke("schedule", "ls", "--json").stdout)["schedules"]] == [
        "hooked/at"
    ]
    with LiveServer(App(f"sqlite:///{folder / 'dalsegno.db'}")) as live:
        sent = invoke("webhook", "test", "hooked.in", "--to", live.url, "--json")
        assert (sent.exit_code, json.loads(sent.stdout)["status"]) == (0, 202), sent.output
    (folder / "hooked.yaml").write_text(GRAPH.replace("greet", "hooked"))
    gone = json.loads(invoke("deploy", "hooked.yaml", "--json").stdout)["definitions"][0]["triggers"]
    assert [(each["name"], each["status"]) for each in gone] == [
        ("hooked/at", "removed"),
        ("hooked.in", "removed"),
    ]
    assert secret not in invoke("webhook", "ls").stdout
    assert json.loads(invoke("webhook", "ls", "--json").stdout) == {"webhooks": []}


def test_run_and_dry_runs_make_no_schedules_and_webhooks(invoke: Invoke, folder: Path) -> None:
    (folder / "hooked.yaml").write_text(HOOKED)
    assert invoke("run", "hooked.yaml", "--quiet").exit_code == 0
    assert invoke("deploy", "hooked.yaml", "--dry-run").exit_code == 0
    assert json.loads(invoke("webhook", "ls", "--json").stdout) == {"webhooks": []}
    assert json.loads(invoke("schedule", "ls", "--json").stdout)["schedules"] == []


def test_deploying_to_a_server_says_what_it_made(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALSEGNO_SECRET_KEY", "a passphrase of the tests")
    (folder / "hooked.yaml").write_text(HOOKED)
    with LiveServer(App(f"sqlite:///{folder / 'there.db'}")) as live:
        told = invoke("deploy", "hooked.yaml", "--server", live.url)
        assert "webhook 'hooked.in' added" in told.stdout, told.output
        assert "shown this once" in told.stdout
        with Client(live.url) as client:
            [schedule, webhook] = client.deploy(HOOKED).triggers
            assert (schedule.status, webhook.status, webhook.secret) == ("unchanged", "unchanged", None)


def test_mistakes_are_told(invoke: Invoke) -> None:
    for arguments, said in (
        (("--style", "morse"), "signature.style"),
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
