"""``dalsegno alerts``: added without showing a secret URL, listed, tried out, removed."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Invoke


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DALSEGNO_SECRET_KEY", "DALSEGNO_SECRET_KEY_FILE", "DALSEGNO_SMTP_URL"):
        monkeypatch.delenv(name, raising=False)


def test_an_alert_is_added_listed_and_removed(invoke: Invoke) -> None:
    added = invoke("alerts", "add", "chat", "--stdin", stdin="https://chat.example.com/T0/secret-part\n")
    told, secret = added.stdout.splitlines()
    assert told == "added alert 'chat': https://chat.example.com/…"
    assert secret.startswith("secret, which signs its messages and is shown this once: whsec_")
    rotated = json.loads(invoke("alerts", "rotate", "chat", "--overlap", "1h", "--json").stdout)
    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] not in secret
    assert invoke("alerts", "rotate", "chat", "--overlap", "soon").exit_code == 2
    invoke("alerts", "add", "ops", "--mail", "ops@example.com", "--workflow", "checkout", "--every", "300")
    listed = invoke("alerts", "ls").stdout
    assert "ops@example.com" in listed
    shown = json.loads(invoke("alerts", "ls", "--json").stdout)["alerts"]
    assert [(each["id"], each["workflow"], each["every"]) for each in shown] == [
        ("chat", None, 60.0),
        ("ops", "checkout", 300.0),
    ]
    assert [each["signed"] for each in shown] == [True, False]
    assert "secret-part" not in listed + str(shown)
    assert "whsec_" not in listed + str(shown)
    assert invoke("alerts", "rm", "chat").stdout == "removed alert 'chat'\n"
    assert invoke("alerts", "rm", "chat").exit_code == 2


def test_mistakes_are_told(invoke: Invoke) -> None:
    for arguments, said in (
        ((), "no receiver"),
        (("--env", "NOT_THERE"), "NOT_THERE"),
        (("--mail", "nobody"), "is not an address"),
    ):
        refused = invoke("alerts", "add", "ops", *arguments)
        assert refused.exit_code == 2, refused.output
        assert said in refused.stderr
    invoke("alerts", "add", "ops", "--mail", "ops@example.com")
    untold = invoke("alerts", "test", "ops")
    assert untold.exit_code != 0
    assert "DALSEGNO_SMTP_URL is not set" in " ".join(untold.stderr.split())
