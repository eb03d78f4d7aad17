"""``dalsegno keys``: made once, shown once, listed without secrets, revoked."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
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
    made = json.loads(
        invoke("keys", "add", "ci", "--scope", "worker", "--scope", "run", "--queue", "*", "--json").stdout
    )
    assert made["scopes"] == ["run", "worker"]
    assert made["key"].startswith(f"ds_{made['id']}_")
    (listed,) = json.loads(invoke("keys", "ls", "--json").stdout)["keys"]
    assert listed == {name: value for name, value in made.items() if name != "key"}


def test_a_key_without_a_scope_may_run(invoke: Invoke) -> None:
    assert json.loads(invoke("keys", "add", "ci", "--json").stdout)["scopes"] == ["run"]


def test_a_key_for_a_worker_names_its_queues(invoke: Invoke) -> None:
    refused = invoke("keys", "add", "node", "--scope", "worker")
    assert refused.exit_code == 2
    assert "--queue" in refused.stderr
    made = invoke("keys", "add", "node", "--scope", "worker", "--queue", "images", "--queue", "mail")
    assert made.exit_code == 0
    assert "with worker for images, mail" in made.stderr
    assert "images, mail" in invoke("keys", "ls").stdout
    assert invoke("keys", "set", "node", "--queue", "*").exit_code == 0
    (listed,) = json.loads(invoke("keys", "ls", "--json").stdout)["keys"]
    assert listed["queues"] == ["*"]


def test_quotas_of_a_key_are_set_changed_and_taken_back(invoke: Invoke) -> None:
    made = invoke("keys", "add", "ci", "--starts-per-minute", "600", "--open-streams", "0", "--json")
    assert json.loads(made.stdout)["quotas"] == {"starts_per_minute": 600, "open_streams": 0}
    changed = invoke(
        "keys", "set", "ci", "--starts-per-minute", "default", "--stored-executions", "1000", "--json"
    )
    assert json.loads(changed.stdout)["quotas"] == {"open_streams": 0, "stored_executions": 1000}
    listed = invoke("keys", "ls").stdout
    assert "open streams no limit" in " ".join(listed.split())
    for arguments, said in (
        (("keys", "set", "ci"), "nothing is to be changed"),
        (("keys", "set", "ci", "--bytes-per-minute", "many"), "that is not a number"),
        (("keys", "set", "ci", "--bytes-per-minute", "9" * 20), "a quota is a number from 0"),
        (("keys", "set", "nobody", "--open-streams", "1"), "there is no key 'nobody'"),
        (("server", "--quota", "starts=1"), "there is no quota 'starts'"),
        (("server", "--quota", "open-streams"), "that is not a number"),
        (("server", "--check", "threads=4"), "Bounds: processes, seconds, memory, queue."),
        (("server", "--check", "seconds=soon"), "that is not a number"),
        (("server", "--check", "memory=1000"), "The least is memory=134217728."),
    ):
        found = invoke(*arguments)
        assert found.exit_code == 2
        assert said in found.stderr


def test_the_doctor_warns_of_worker_keys_for_all_queues(invoke: Invoke, folder: Path) -> None:
    invoke("keys", "add", "old", "--scope", "worker", "--queue", "*")
    assert "all queues" not in invoke("doctor").stdout
    with closing(sqlite3.connect(folder / "dalsegno.db")) as store:
        (data,) = store.execute("SELECT data FROM record WHERE kind = 'key'").fetchone()
        stored = {name: value for name, value in json.loads(data).items() if name != "queues"}
        store.execute("UPDATE record SET data = ? WHERE kind = 'key'", (json.dumps(stored).encode(),))
        store.commit()
    told = " ".join(invoke("doctor").stdout.split())
    assert "'old' may take tasks of all queues" in told
    assert "keys set" in told
    assert "all queues" in invoke("keys", "ls").stdout


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
