"""What cannot be taken in is refused with a reason that names the place, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.app import App
from dalsegno.core.wire.execution_message import MAX_BYTES
from dalsegno.engine.secrets.credentials import NewCredential
from dalsegno.engine.secrets.keys import new_key
from dalsegno.engine.settings import EngineLimits, EngineSettings
from dalsegno.errors import BadConfiguration, CredentialRefused
from dalsegno.ports.archive import ExecutionFilter
from tests.wire.documents import LINEAR, MERGE, SPLIT, edit, graph
from tests.wire.master import Master, message

FRAME = {"split_node_id": "s", "branch_id": "0", "item_index": 0, "total_items": 2}


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    found = await Master.open()
    yield found
    await found.close()


async def nothing_happened(master: Master) -> bool:
    return not master.publisher.messages and not await master.engine.client.executions(ExecutionFilter())


def without(field: str) -> dict[str, Any]:
    return {key: value for key, value in message("e1", "a", LINEAR).items() if key != field}


DEEP = b'{"workflow_id":' + b"[" * 300 + b"]" * 300 + b"}"

BAD: dict[str, tuple[dict[str, Any] | bytes, str, str]] = {
    "no JSON": (b"nonsense", "NOT_JSON", "not JSON"),
    "not UTF-8": (b'{"a": "\xff"}', "NOT_JSON", "not JSON"),
    "empty": (b"", "NOT_JSON", "not JSON"),
    "no object": (b"[]", "INVALID_MESSAGE", "/: "),
    "too large": (b" " * (MAX_BYTES + 1), "TOO_LARGE", "10,485,761 bytes"),
    "too deep": (DEEP, "TOO_DEEP", "200 levels"),
    "no workflow_id": (without("workflow_id"), "INVALID_MESSAGE", "workflow_id"),
    "no definition": (without("workflow_definition"), "INVALID_MESSAGE", "workflow_definition"),
    "id with a space": (message("e 1", "a", LINEAR), "INVALID_MESSAGE", "/execution_id: "),
    "long id": (message("e" * 129, "a", LINEAR), "INVALID_MESSAGE", "/execution_id: "),
    "number as node": (message("e1", 5, LINEAR), "INVALID_MESSAGE", "/current_node: "),  # type: ignore[arg-type]
    "context is a list": (
        message("e1", "a", LINEAR, accumulated_context=[]),
        "INVALID_MESSAGE",
        "/accumulated",
    ),
    "definition is a text": (message("e1", "a", "x"), "INVALID_MESSAGE", "/workflow_definition"),  # type: ignore[arg-type]
    "unknown node": (message("e1", "nobody", LINEAR), "UNKNOWN_NODE", "/current_node: "),
    "foreign sender": (message("e1", "b", LINEAR, from_node="start"), "NOT_A_PARENT", "/from_node: "),
    "foreign edge": (message("e1", "b", LINEAR, from_node="a", edge_id="no"), "NOT_A_PARENT", "/edge_id: "),
    "no sender": (message("e1", "m", MERGE), "NO_SENDER", "'x', 'y'"),
    "no lineage": (message("e1", "w", SPLIT, from_node="s"), "WRONG_LINEAGE", "/lineage_stack: "),
    "lineage at the root": (
        message("e1", "z", SPLIT, lineage_stack=[FRAME]),
        "WRONG_LINEAGE",
        "/lineage_stack",
    ),
    "another split": (
        message("e1", "w", SPLIT, from_node="s", lineage_stack=[FRAME | {"split_node_id": "q"}]),
        "WRONG_LINEAGE",
        "/lineage_stack/0/split_node_id",
    ),
    "index outside": (
        message("e1", "w", SPLIT, from_node="s", lineage_stack=[FRAME | {"item_index": 2}]),
        "WRONG_LINEAGE",
        "/lineage_stack/0/item_index",
    ),
    "negative index": (
        message("e1", "w", SPLIT, from_node="s", lineage_stack=[FRAME | {"item_index": -1}]),
        "INVALID_MESSAGE",
        "/lineage_stack/0/item_index",
    ),
    "invalid definition": (
        message("e1", "a", graph([edit("a"), {"id": "b", "type": "nope"}], "a->b", "b->q")),
        "INVALID_DEFINITION",
        "/workflow_definition/nodes/1/type",
    ),
    "cycle": (
        message("e1", "a", graph([edit("a"), edit("b")], "a->b", "b->a")),
        "INVALID_DEFINITION",
        "a → b → a",
    ),
    "unknown workflow": (message("e1", "a", {"name": "nobody"}), "UNKNOWN_DEFINITION", "nobody"),
    "unknown hash": (message("e1", "a", {"$ref": "f" * 64}), "UNKNOWN_DEFINITION", "f" * 20),
    "input does not fit": (
        message("e1", "a", LINEAR | {"input_schema": {"required": ["user"]}}),
        "INVALID_INPUT",
        "/accumulated_context/$trigger",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_is_refused_and_changes_nothing(master: Master, name: str) -> None:
    sent, code, place = BAD[name]
    taken = await master.send(sent)
    assert (taken.outcome, taken.code) == ("refused", code), taken
    assert place in taken.reason
    assert await nothing_happened(master)


async def test_another_definition_than_the_running_one_is_refused(master: Master) -> None:
    await master.send(message("e1", "m", MERGE, from_node="x"))
    changed = json.loads(json.dumps(MERGE))
    changed["nodes"][3]["parameters"]["assignments"][0]["value"] = 2
    taken = await master.send(message("e1", "m", changed, from_node="y"))
    assert (taken.outcome, taken.code) == ("refused", "DEFINITION_DIFFERS")


async def test_order_of_keys_and_display_fields_are_no_difference(master: Master) -> None:
    await master.send(message("e1", "m", MERGE, from_node="x"))
    same = {"edges": MERGE["edges"], "execution_id": "e1", "workflow_id": "w", "nodes": []}
    same["nodes"] = [dict(reversed((node | {"position": [1, 2]}).items())) for node in MERGE["nodes"]]
    assert (await master.send(message("e1", "m", same, from_node="y"))).outcome == "applied"
    await master.completion("e1")


async def test_another_total_than_the_open_split_has_is_refused(master: Master) -> None:
    lineage = [FRAME]
    await master.send(message("e1", "w", SPLIT, from_node="s", lineage_stack=lineage))
    other = [FRAME | {"item_index": 1, "total_items": 3}]
    taken = await master.send(message("e1", "w", SPLIT, from_node="s", lineage_stack=other))
    assert (taken.outcome, taken.code) == ("refused", "WRONG_LINEAGE")
    assert "/lineage_stack/0/total_items" in taken.reason


async def test_a_message_for_a_token_of_ours_is_left_to_the_ledger(master: Master) -> None:
    taken = await master.send(message("e1", "a", LINEAR, token_id="t"))
    assert taken.outcome == "duplicate"
    assert await nothing_happened(master)


async def test_adopted_definitions_are_apart_from_deployed_ones(master: Master) -> None:
    client = master.engine.client
    deployed, _ = await client.deploy(LINEAR | {"name": "checkout"})
    changed = graph([edit("a"), edit("b")], "a->b") | {"name": "checkout"}
    await master.send(message("e1", "a", changed))
    await master.completion("e1")

    archive = client.stack.archive
    assert [each.name for each in await archive.definitions()] == ["checkout"]
    assert await archive.definition("checkout") == deployed
    view = await client.outline("e1")
    assert view.workflow == "@checkout"
    found = await archive.definition_by_hash(view.definition)
    assert found is not None
    assert json.loads(found.source)["nodes"] == changed["nodes"]


async def test_deployed_definitions_are_run_by_name(master: Master) -> None:
    await master.engine.client.deploy(LINEAR | {"name": "checkout"})
    await master.send(message("e1", "start", {"name": "checkout", "version": 1}))
    assert (await master.completion("e1"))["workflow_id"] == "wf-1"
    view = await master.engine.client.outline("e1")
    assert (view.workflow, view.version) == ("checkout", 1)


async def test_known_takes_only_deployed_definitions() -> None:
    master = await Master.open(settings=EngineSettings(adopt="known", heavy_processes=0))
    await master.engine.client.deploy(LINEAR | {"name": "checkout"})
    assert (await master.send(message("e1", "start", LINEAR | {"name": "checkout"}))).outcome == "applied"
    assert (await master.send(message("e2", "start", {"name": "checkout"}))).outcome == "applied"
    refused = await master.send(message("e3", "a", LINEAR | {"name": "other"}))
    assert (refused.outcome, refused.code) == ("refused", "NOT_DEPLOYED")
    await master.close()


async def test_a_store_takes_only_so_many_definitions_of_messages() -> None:
    settings = EngineSettings(limits=EngineLimits(adopted_definitions=2), heavy_processes=0)
    master = await Master.open(settings=settings)
    for name in ("e1", "e2", "e3"):
        taken = await master.send(message(name, "a", LINEAR | {"name": name}))
    assert (taken.outcome, taken.code) == ("refused", "TOO_MANY_DEFINITIONS")
    assert "adopted_definitions" in taken.reason
    await master.engine.client.deploy(LINEAR | {"name": "e3"})
    for known in (LINEAR | {"name": "e1"}, {"name": "e3"}):
        assert (await master.send(message(f"again-{known['name']}", "start", known))).outcome == "applied"
    await master.close()


async def test_off_takes_nothing() -> None:
    master = await Master.open(settings=EngineSettings(adopt="off", heavy_processes=0))
    refused = await master.send(message("e1", "start", LINEAR))
    assert (refused.outcome, refused.code) == ("refused", "ADOPTION_OFF")
    await master.close()


async def test_the_setting_is_one_of_the_environment_or_the_settings_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dalsegno.toml").write_text('adopt = "known"\n')
    for variable, adopt in ((None, "known"), ("off", "off")):
        if variable is not None:
            monkeypatch.setenv("DALSEGNO_ADOPT", variable)
        app = App("memory:")
        async with app.running():
            assert app.engine.intake.adopt == adopt
    monkeypatch.setenv("DALSEGNO_ADOPT", "maybe")
    with pytest.raises(BadConfiguration, match="any, known or off"):
        async with App("memory:").running():
            pass


async def test_adopted_definitions_use_only_adoptable_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(new_key())
    (tmp_path / "key").chmod(0o600)
    monkeypatch.setenv("DALSEGNO_SECRET_KEY_FILE", str(tmp_path / "key"))
    master = await Master.open(f"sqlite:///{tmp_path / 'store.db'}")
    vault = master.engine.vault
    for name, adoptable in (("closed", False), ("open", True)):
        fields = {"token": "a-secret-token"}
        await vault.put(NewCredential(name, "bearer", fields, ["*"], ["*"], adoptable=adoptable))
    await master.send(message("e1", "start", LINEAR))
    view = await master.engine.client.outline("e1")

    with pytest.raises(CredentialRefused):
        await vault.resolve("closed", view.workflow, view.definition)
    found = await vault.resolve("open", view.workflow, view.definition)
    assert found["token"] == "a-secret-token"
    assert (await vault.info("open")).adoptable
    await master.close()
