"""``dalsegno keys``: made once, shown once, listed without secrets, revoked."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.conftest import Invoke


def test_a_key_is_printed_alone_and_never_again(invoke: Invoke, folder: Path) -> None:
    made = invoke("keys", "add", "ops team", "--scope", "admin", "--expires", "30d")
    assert made.exit_code == 0
    key = made.stdout.strip()
    assert re.fullmatch(r"ds_[0-9a-f]{12}_[0-9a-f]{64}", key)
    assert "valid until" in made.stderr
    listed = invoke("keys", "ls")
    assert "ops team" in listed.stdout
    assert "29 d 23 h" in listed.stdout
    assert key.rpartition("_")[2] not in listed.stdout
    stored = b"".join(path.read_bytes() for path in folder.glob("dalsegno.db*"))
    assert b"ops team" in stored
    assert key.rpartition("_")[2].encode() not in stored


def test_keys_as_json(invoke: Invoke) -> None:
    made = json.loads(invoke("keys", "add", "ci", "--scope", "worker", "--scope", "run", "--json").stdout)
    assert made["scopes"] == ["run", "worker"]
    assert made["key"].startswith(f"ds_{made['id']}_")
    (listed,) = json.loads(invoke("keys", "ls", "--json").stdout)["keys"]
    assert listed == {name: value for name, value in made.items() if name != "key"}


def test_a_key_without_a_scope_may_run(invoke: Invoke) -> None:
    assert json.loads(invoke("keys", "add", "ci", "--json").stdout)["scopes"] == ["run"]


def test_a_revoked_key_is_listed_only_when_asked(invoke: Invoke) -> None:
    invoke("keys", "add", "ci")
    assert invoke("keys", "revoke", "ci").stdout == "ci: revoked\n"
    assert invoke("keys", "ls").stdout == "no keys\n"
    assert "revoked" in invoke("keys", "ls", "--all").stdout
    again = invoke("keys", "revoke", "ci")
    assert again.exit_code == 2
    assert "there is no key 'ci'" in again.stderr
    assert "dalsegno keys ls" in again.stderr


def test_mistakes_are_told(invoke: Invoke) -> None:
    for arguments, said in (
        (("keys", "add", "ci", "--scope", "rnu"), "there is no scope 'rnu'"),
        (("keys", "add", "ci", "--expires", "soon"), "is not a duration"),
        (("keys", "add", "c\x1bi"), "a key cannot be named"),
        (("keys", "ls"), "there is no store"),
    ):
        found = invoke(
            *arguments, "--store", "sqlite:///mistakes.db" if "add" in arguments else "sqlite:///none.db"
        )
        assert found.exit_code == 2
        assert said in found.stderr
    invoke("keys", "add", "twice")
    assert "there is a key named 'twice' already" in invoke("keys", "add", "twice").stderr
