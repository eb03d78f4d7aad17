"""Messages of other programs that a broker keeps as dead letters: listed, shown, sent again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import redis

from dalsegno.adapters.rabbitmq import parse_address
from dalsegno.adapters.rabbitmq.amqp.frames import Properties
from dalsegno.adapters.rabbitmq.sender import OutgoingLetter, Sender
from dalsegno.adapters.rabbitmq.topology import DEAD, Topology
from tests.cli.conftest import Invoke
from tests.servers.sqlite import empty_sqlite

HEADERS = {
    "x-dalsegno-reason": "the definition has no node 'b'",
    "x-dalsegno-code": "UNKNOWN_NODE",
    "x-dalsegno-at": "2026-11-19T10:00:00.000+00:00",
    "mine": "kept",
}


async def put(url: str, *letters: OutgoingLetter) -> None:
    sender = Sender(parse_address(url), Topology())
    assert await asyncio.shield(sender.link.start()) is None
    assert await sender.send_all(letters) == len(letters)
    await sender.close()
    await sender.link.close()


def dead(message_id: str, body: bytes) -> OutgoingLetter:
    return OutgoingLetter(DEAD, Properties(message_id=message_id, headers=HEADERS), body, exchange="")


def test_messages_are_listed_shown_and_sent_again(
    invoke: Invoke, tmp_path: Path, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALSEGNO_STORE", empty_sqlite(tmp_path / "store.db"))
    assert json.loads(invoke("dead", "ls", "--json").stdout) == {"dead": []}
    monkeypatch.setenv("DALSEGNO_BROKER", rabbitmq_url)
    asyncio.run(put(rabbitmq_url, dead("m1", b'{"execution_id": "e1"}'), dead("m2", b"\xff")))

    listed = json.loads(invoke("dead", "ls", "--json").stdout)["messages"]
    assert [(each["id"], each["code"], each["server"]) for each in listed] == [
        ("m2", "UNKNOWN_NODE", "RabbitMQ"),
        ("m1", "UNKNOWN_NODE", "RabbitMQ"),
    ]
    listing = invoke("dead", "ls").stdout
    assert "the definition has no node 'b'" in listing
    assert "dead requeue m1" in listing
    shown = invoke("dead", "show", "m1").stdout
    assert '{"execution_id": "e1"}' in shown
    assert "mine: kept" in shown
    assert json.loads(invoke("dead", "show", "m2", "--json").stdout)["body_base64"] == "/w=="

    assert "sent to workflow.execution again" in invoke("dead", "requeue", "m1").stdout

    gone = invoke("dead", "show", "m1")
    assert gone.exit_code == 2
    assert "no broker keeps a message with the id 'm1'" in gone.stderr
    assert [each["id"] for each in json.loads(invoke("dead", "ls", "--json").stdout)["messages"]] == ["m2"]


def test_broker_that_is_away_is_told(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_STORE", empty_sqlite(tmp_path / "store.db"))
    monkeypatch.setenv("DALSEGNO_BROKER", "amqp://me:sekret@127.0.0.1:1")
    listing = invoke("dead", "ls")
    assert "no dead letters" in listing.stdout
    assert "cannot be reached" in listing.stdout
    assert "sekret" not in listing.stdout + listing.stderr


def test_planted_timer_that_was_refused_is_planted_again(
    invoke: Invoke, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALSEGNO_STORE", empty_sqlite(tmp_path / "store.db"))
    monkeypatch.setenv("DALSEGNO_REDIS", redis_url)
    with redis.from_url(redis_url) as client:
        letter = {
            "source": "scheduler:payloads",
            "body": b"\xff",
            "reason": "It is no JSON.",
            "code": "NOT_JSON",
        }
        client.xadd("wf:stream:dead", {**letter, "at": 1_700_000_000_000, "timer": "timer-1"})
        [listed] = json.loads(invoke("dead", "ls", "--json").stdout)["messages"]
        assert (listed["server"], listed["reason"]) == ("Redis", "It is no JSON.")
        shown = json.loads(invoke("dead", "show", listed["id"], "--json").stdout)
        assert shown["body_base64"] == "/w=="

        assert invoke("dead", "requeue", listed["id"]).exit_code == 0

        assert client.hget("scheduler:payloads", "timer-1") == b"\xff"
        assert client.zrange("scheduler:timers", 0, -1, withscores=True) == [(b"timer-1", 1_700_000_000_000)]
    assert json.loads(invoke("dead", "ls", "--json").stdout)["messages"] == []
