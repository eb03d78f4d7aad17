"""Seals of snapshots: what was changed or moved in the store is not run, and nothing is lost by that."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from dalsegno import App, signal
from dalsegno.engine.operations.dead_letters import DeadLetters
from dalsegno.engine.secrets import KeySource
from dalsegno.engine.secrets.keys import KEY_VARIABLE, new_key
from dalsegno.engine.secrets.snapshot_seals import KeyMissing, SnapshotSeals, content, is_sealed
from dalsegno.engine.worker import tokens
from dalsegno.errors import BadConfiguration, SnapshotRefused
from dalsegno.handle import Handle
from dalsegno.lang.python import PythonProgram, compile_workflow
from dalsegno.model.definition import Definition
from dalsegno.ports.stack import Stack
from tests.waiting import until

DAY = 86400.0
CALLED: list[str] = []


def harmless(word: str) -> str:
    return f"harmless {word}"


def never_mentioned(word: str) -> str:
    CALLED.append(word)
    return word


async def greet(name: str) -> str:
    call = harmless
    long = name * 50_000
    word = await signal("word")
    return call(f"{word} {long[:1]}")


def greeting_app(url: str) -> App:
    app = App(url)
    app.workflow(greet)
    return app


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
    else:
        yield request.getfixturevalue("postgres_url")


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    made = new_key()
    monkeypatch.setenv(KEY_VARIABLE, made)
    monkeypatch.setattr(tokens, "CANNOT_RUN_PAUSE", 0.05)
    monkeypatch.setattr(tokens, "LONGEST_PAUSE", 0.1)
    return made


class InStore:
    """Changes by an account that can write to the store."""

    def __init__(self, url: str) -> None:
        self._url = url

    def snapshots(self) -> dict[int, bytes]:
        rows = self._do("SELECT execution, snapshot FROM {machine} ORDER BY execution")
        return {number: bytes(data) for number, data in rows}

    def write(self, number: int, snapshot: bytes) -> None:
        self._do("UPDATE {machine} SET snapshot = $1 WHERE execution = $2", snapshot, number)

    def change_blobs(self, old: bytes, new: bytes) -> int:
        """How many were changed."""
        changed = 0
        for name, data in self._do("SELECT id, data FROM {blob}"):
            if old in data:
                changed += 1
                self._do("UPDATE {blob} SET data = $1 WHERE id = $2", data.replace(old, new), name)
        return changed

    def _do(self, statement: str, *values: Any) -> list[Any]:
        if self._url.startswith("sqlite"):
            with sqlite3.connect(self._url.removeprefix("sqlite:///")) as connection:
                text = statement.format(machine="machine", blob="blob").replace("$1", "?").replace("$2", "?")
                return connection.execute(text, values).fetchall()

        async def run() -> list[Any]:
            connection = await asyncpg.connect(self._url)
            try:
                text = statement.format(machine="dalsegno.machine", blob="dalsegno.blob")
                return [tuple(row) for row in await connection.fetch(text, *values)]
            finally:
                await connection.close()

        return asyncio.run(run())


def suspend(url: str, *names: str) -> list[str]:
    """Executions that wait for a word, in a process that has ended."""
    app = greeting_app(url)
    with app.running():
        handles = [app.start("greet", name) for name in names]
        for handle in handles:
            until(lambda handle=handle: handle.picture(), "it waits")
    return [handle.id for handle in handles]


def refused(app: App, handle: Handle) -> str:
    """The reason why it does not go on, as an operator sees it."""

    def look() -> str | None:
        letters = app.host.call(DeadLetters(app.engine).all())
        return next((letter.reason for letter in letters if letter.execution == handle.id), None)

    reason = until(look, "a dead letter")
    assert handle.status().state == "RUNNING"
    until(
        lambda: any(wait.kind == "trouble" and reason in wait.sentence for wait in handle.why()),
        "why gives the reason, but while the token is being tried",
    )
    return reason


def test_a_sealed_snapshot_goes_on_in_another_process(url: str, key: str) -> None:
    [execution] = suspend(url, "ab")
    [stored] = InStore(url).snapshots().values()
    assert is_sealed(stored)
    app = greeting_app(url)
    with app.running():
        handle = app.handle(execution)
        assert handle.picture() is not None
        handle.signal("word", "hello")
        assert handle.result(30) == "harmless hello a"


@pytest.mark.parametrize("named", ["builtins.eval", f"{__name__}.never_mentioned"])
def test_an_edited_snapshot_is_refused_and_stays(url: str, key: str, named: str) -> None:
    CALLED.clear()
    [execution] = suspend(url, "ab")
    store = InStore(url)
    [(number, stored)] = store.snapshots().items()
    edited = stored.replace(f"{__name__}.harmless".encode(), named.encode())
    assert edited != stored
    store.write(number, edited)
    app = greeting_app(url)
    with app.running():
        handle = app.handle(execution)
        handle.signal("word", "hello")
        assert "does not fit" in refused(app, handle)
        assert store.snapshots()[number] == edited
        store.write(number, stored)
        assert handle.result(30) == "harmless hello a"
    assert CALLED == []


@pytest.mark.parametrize("named", ["builtins.eval", "os.system"])
def test_without_a_key_an_edited_name_fails_the_execution_and_calls_nothing(
    url: str, named: str, tmp_path: Path
) -> None:
    [execution] = suspend(url, "ab")
    store = InStore(url)
    [(number, stored)] = store.snapshots().items()
    assert not is_sealed(stored)
    body = stored[9:].replace(f"{__name__}.harmless".encode(), named.encode())
    assert json.loads(body)
    store.write(number, body)
    canary = tmp_path / "canary"
    app = greeting_app(url)
    with app.running():
        handle = app.handle(execution)
        handle.signal("word", f"__import__('pathlib').Path({str(canary)!r}).touch() #")
        ended = handle.wait(30)
    assert ended.state == "FAILED"
    assert json.loads(ended.error or b"{}")["code"] == "SNAPSHOT_DAMAGED"
    assert not canary.exists()


def test_a_snapshot_of_another_execution_is_refused(url: str, key: str) -> None:
    first, second = suspend(url, "ab", "cd")
    store = InStore(url)
    (a, snapshot_of_a), (b, snapshot_of_b) = store.snapshots().items()
    store.write(a, snapshot_of_b)
    store.write(b, snapshot_of_a)
    app = greeting_app(url)
    with app.running():
        for execution in (first, second):
            app.handle(execution).signal("word", "hello")
            assert "belongs to another execution" in refused(app, app.handle(execution))


def test_a_worker_without_the_key_leaves_a_sealed_snapshot_alone(
    url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [execution] = suspend(url, "ab")
    monkeypatch.delenv(KEY_VARIABLE)
    app = greeting_app(url)
    with app.running():
        handle = app.handle(execution)
        handle.signal("word", "hello")
        assert "this process has no secret key" in refused(app, handle)
    monkeypatch.setenv(KEY_VARIABLE, f"{new_key()},{key}")  # rotated: the old key still opens
    again = greeting_app(url)
    with again.running():
        assert again.handle(execution).result(30) == "harmless hello a"


def test_an_unsealed_snapshot_is_refused_after_the_date_until_an_operator_seals_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dalsegno.cli.views.credentials import seal_all, survey

    [execution] = suspend(url, "ab")
    monkeypatch.setattr(tokens, "CANNOT_RUN_PAUSE", 0.05)
    monkeypatch.setattr(tokens, "LONGEST_PAUSE", 0.1)
    monkeypatch.setenv(KEY_VARIABLE, new_key())
    app = greeting_app(url)
    with app.running():
        seals, handle = app.engine.seals, app.handle(execution)
        assert app.host.call(survey(app.client, seals)).unsealed == [execution]
        app.host.call(seals.accept_until(app.client.stack.clock.now() - 1))
        handle.signal("word", "hello")
        assert "has no seal" in refused(app, handle)
        assert app.host.call(seal_all(app.client, seals)) == (1, 1)
        assert handle.result(30) == "harmless hello a"


def test_what_an_old_key_sealed_is_sealed_anew_before_the_key_is_removed(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dalsegno.cli.views.credentials import seal_all

    url = f"sqlite:///{tmp_path / 'store.db'}"
    [execution] = suspend(url, "ab")
    new = new_key()
    monkeypatch.setenv(KEY_VARIABLE, f"{new},{key}")
    app = greeting_app(url)
    with app.running(worker=False):
        assert app.host.call(seal_all(app.client, app.engine.seals)) == (1, 1)
    monkeypatch.setenv(KEY_VARIABLE, new)
    again = greeting_app(url)
    with again.running():
        handle = again.handle(execution)
        handle.signal("word", "hello")
        assert handle.result(30) == "harmless hello a"


# -- the seals themselves, at any time ----------------------------------------------------------------------------


class Moment:
    def __init__(self, now: float = 1_000_000.0) -> None:
        self.at = now

    def now(self) -> float:
        return self.at


def seals_with(stack: Stack, clock: Moment, *keys: str) -> SnapshotSeals:
    source = KeySource("nowhere:", {KEY_VARIABLE: ",".join(keys)} if keys else {})
    return SnapshotSeals(source, stack.records, clock, 90 * DAY)


async def ready(stack: Stack, clock: Moment, *keys: str) -> SnapshotSeals:
    seals = seals_with(stack, clock, *keys)
    await seals.prepare()
    return seals


async def test_a_seal_is_bound_to_execution_definition_and_content(stack: Stack) -> None:
    seals = await ready(stack, Moment(), new_key())
    sealed = seals.sealed(b"state", "run-a", "hash")
    assert content(sealed) == b"state"
    assert await seals.opened(sealed, "run-a", "hash") == b"state"
    for data, execution, definition in (
        (sealed, "run-b", "hash"),
        (sealed, "run-a", "other"),
        (sealed + b"!", "run-a", "hash"),
        (sealed[:-1], "run-a", "hash"),
    ):
        with pytest.raises(SnapshotRefused):
            await seals.opened(data, execution, definition)


async def test_a_wrong_seal_is_refused_at_every_place(stack: Stack) -> None:
    seals = await ready(stack, Moment(), new_key())
    sealed = seals.sealed(b"state", "run-a", "hash")
    for place in range(3, len(sealed)):
        broken = bytearray(sealed)
        broken[place] ^= 1
        with pytest.raises(SnapshotRefused):
            await seals.opened(bytes(broken), "run-a", "hash")


async def test_older_keys_still_open_and_the_first_one_seals(stack: Stack) -> None:
    old, new = new_key(), new_key()
    before = (await ready(stack, Moment(), old)).sealed(b"state", "run-a", "hash")
    both = await ready(stack, Moment(), new, old)
    assert await both.opened(before, "run-a", "hash") == b"state"
    after = both.sealed(b"state", "run-a", "hash")
    assert await (await ready(stack, Moment(), new)).opened(after, "run-a", "hash") == b"state"
    with pytest.raises(KeyMissing):
        await (await ready(stack, Moment(), new)).opened(before, "run-a", "hash")


async def test_unsealed_snapshots_are_accepted_until_the_date(stack: Stack) -> None:
    clock, key = Moment(), new_key()
    seals = await ready(stack, clock, key)
    clock.at += 90 * DAY - 1
    assert await seals.opened(b"#00000000{}", "run-a", "hash") == b"#00000000{}"
    clock.at += 2
    with pytest.raises(SnapshotRefused, match="has no seal"):
        await seals.opened(b"#00000000{}", "run-a", "hash")
    await seals.accept_until(clock.at + DAY)
    assert await seals.opened(b"#00000000{}", "run-a", "hash")
    await seals.accept_until(clock.at)
    await seals.prepare()
    with pytest.raises(SnapshotRefused):
        await seals.opened(b"#00000000{}", "run-a", "hash")
    await seals.seal_manually(b"#00000000{}", "run-a", "hash")
    assert await seals.opened(b"#00000000{}", "run-a", "hash")
    with pytest.raises(SnapshotRefused):
        await seals.opened(b"#00000000{ }", "run-a", "hash")


async def test_the_date_cannot_be_moved_in_the_store(stack: Stack) -> None:
    clock, key = Moment(), new_key()
    await ready(stack, clock, key)
    [record] = await stack.records.page("snapshot-sealing")
    moved = {**json.loads(record.data), "accept_until": clock.at + 9000 * DAY}
    await stack.records.put("snapshot-sealing", record.id, json.dumps(moved).encode())
    seals = await ready(stack, clock, key)
    with pytest.raises(SnapshotRefused):
        await seals.opened(b"#00000000{}", "run-a", "hash")


async def test_a_process_can_refuse_everything_unsealed(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALSEGNO_UNSEALED_SNAPSHOTS", "refuse")
    seals = await ready(stack, Moment(), new_key())
    with pytest.raises(SnapshotRefused):
        await seals.opened(b"#00000000{}", "run-a", "hash")


@pytest.mark.parametrize(
    ("setting", "refused_after"), [("1970-01-14", 3), ("1970-01-14T00:00:00+00:00", 3), ("1980-01-01", 90)]
)
async def test_a_process_can_have_a_date_that_the_store_cannot_move(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, setting: str, refused_after: int
) -> None:
    monkeypatch.setenv("DALSEGNO_UNSEALED_SNAPSHOTS", setting)
    clock = Moment(10 * DAY)
    seals = await ready(stack, clock, new_key())
    await seals.accept_until(clock.at + 90 * DAY)
    clock.at += (refused_after - 1) * DAY
    await seals.prepare()
    assert await seals.opened(b"#00000000{}", "run-a", "hash")
    clock.at += DAY + 1
    with pytest.raises(SnapshotRefused):
        await seals.opened(b"#00000000{}", "run-a", "hash")


async def test_a_wrong_date_is_said_at_once(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_UNSEALED_SNAPSHOTS", "soon")
    with pytest.raises(BadConfiguration, match="2027-03-31"):
        await ready(stack, Moment(), new_key())


async def test_a_deleted_record_does_not_begin_the_time_anew(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    clock, key = Moment(), new_key()
    knowing = await ready(stack, clock, key)
    keyless = await ready(stack, clock)
    await knowing.seal_program("hash", compile_workflow(greet).stored)
    clock.at += 91 * DAY
    await stack.records.remove("snapshot-sealing", "store")
    await keyless.prepare()
    assert keyless.must_seal()
    other = await ready(stack, clock, key)  # a process that starts now, and has never read the record
    assert "is missing, although there are seals" in caplog.text
    with pytest.raises(SnapshotRefused):
        await other.opened(b"#00000000{}", "run-a", "hash")

    await stack.records.remove("snapshot-sealing", "store")
    await stack.records.remove("program-seal", "hash")
    await knowing.prepare()
    assert "is written back" in caplog.text
    with pytest.raises(SnapshotRefused):
        await (await ready(stack, clock, key)).opened(b"#00000000{}", "run-a", "hash")


async def test_without_a_key_nothing_is_sealed_until_snapshots_must_be(stack: Stack) -> None:
    clock = Moment()
    keyless = await ready(stack, clock)
    assert keyless.sealed(b"state", "run-a", "hash") == b"state"
    assert await keyless.opened(b"state", "run-a", "hash") == b"state"
    await ready(stack, clock, new_key())
    clock.at += 31
    await keyless.prepare()
    assert not keyless.must_seal()
    clock.at += 91 * DAY
    await keyless.prepare()
    assert keyless.must_seal()
    with pytest.raises(KeyMissing):
        await keyless.opened(b"state", "run-a", "hash")


async def test_stored_code_that_was_changed_is_refused(stack: Stack) -> None:
    clock = Moment()
    seals = await ready(stack, clock, new_key())
    program = compile_workflow(greet)
    await seals.seal_program(program.hash, program.stored)

    def definition(source: bytes) -> Definition:
        return Definition("greet", 1, program.hash, "python", source)

    await seals.check_program(definition(program.dump()))
    seals._known_programs.clear()
    with pytest.raises(SnapshotRefused, match="does not fit"):
        await seals.check_program(definition(changed_code(program)))


async def test_stored_code_without_a_seal_is_accepted_until_the_date(stack: Stack) -> None:
    clock = Moment()
    seals = await ready(stack, clock, new_key())
    program = compile_workflow(greet)
    stored = Definition("greet", 1, program.hash, "python", program.dump())
    await seals.check_program(stored)
    clock.at += 91 * DAY
    with pytest.raises(SnapshotRefused, match="has no seal"):
        await seals.check_program(stored)


def changed_code(program: PythonProgram) -> bytes:
    """The same version with another word in one of its fragments."""
    import msgspec

    text = msgspec.json.encode(program.stored)
    edited = text.replace(b'"harmless"', b'"eval"')
    assert edited != text
    return PythonProgram(msgspec.json.decode(edited, type=type(program.stored)), program.surroundings).dump()


def test_the_running_program_prefers_its_own_code_to_that_of_the_store(url: str) -> None:
    [execution] = suspend(url, "ab")
    own = compile_workflow(greet)
    app = greeting_app(url)
    with app.running():
        handle = app.handle(execution)
        stored = Definition("greet", 1, own.hash, "python", changed_code(own))
        program = app.engine.definitions.add_script(stored)
        assert program.is_own
        assert program.code.stored.functions == own.stored.functions
        handle.signal("word", "hello")
        assert handle.result(30) == "harmless hello a"
        moved = Definition("greet", 1, "f" * 64, "python", own.dump())
        with pytest.raises(SnapshotRefused, match="another version"):
            app.engine.definitions.add_script(moved)


@pytest.mark.parametrize("with_key", [True, False])
def test_a_changed_blob_is_refused_with_a_seal_and_without(
    url: str, with_key: bool, request: pytest.FixtureRequest
) -> None:
    if with_key:
        request.getfixturevalue("key")
    [execution] = suspend(url, "ab")
    store = InStore(url)
    assert all(is_sealed(stored) is with_key for stored in store.snapshots().values())
    assert store.change_blobs(b"ab", b"cd")
    app = greeting_app(url)
    with app.running():
        handle = app.handle(execution)
        handle.signal("word", "hello")
        assert "was changed in the store" in refused(app, handle)
        store.change_blobs(b"cd", b"ab")
        assert handle.result(30) == "harmless hello a"
