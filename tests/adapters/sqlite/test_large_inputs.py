"""A large input is a row of its own: written once, however often its execution changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dalsegno.adapters.sqlite import SqliteStore
from dalsegno.adapters.sqlite.archive import archive
from dalsegno.model.effect import CreateExecution
from dalsegno.model.transition import Transition
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import (
    RUN,
    cancel,
    command,
    event,
    finish,
    new_execution,
    pause,
    resume,
    start,
    step,
    token,
)
from dalsegno.testing.contract.ledger.pending import trigger

SIZE = 2_000_000
LARGE = b'"%b"' % (b"i" * SIZE)
SMALL = b'{"n":1}'


async def test_no_change_of_the_execution_writes_the_input_again(
    path: Path, store: SqliteStore, stack: ContractStack
) -> None:
    await stack.apply(start(new_execution(input=LARGE), token("a")))
    await store.write(lambda rows: rows.connection.execute("PRAGMA wal_autocheckpoint = 0"))
    before = written(path)
    await stack.apply(pause())
    await stack.apply(resume())
    lease = (await stack.take())["a"]
    await stack.apply(step(lease, finish()))
    while await stack.ledger.sweep():
        pass

    assert written(path) - before < SIZE / 4
    found = await stack.archive.execution(RUN)
    outline = await stack.archive.outline(RUN)
    assert found is not None
    assert outline is not None
    assert (found.state, found.input) == ("COMPLETED", LARGE)
    assert outline.value_bytes == len(LARGE) + len(found.output or b"")


@pytest.mark.parametrize(("submitted", "given"), [(SMALL, LARGE), (LARGE, SMALL), (LARGE, LARGE + b" ")])
async def test_a_trigger_replaces_an_input_of_any_size(
    stack: ContractStack, store: SqliteStore, submitted: bytes, given: bytes
) -> None:
    await stack.apply(submit(submitted))
    assert (await stack.execution()).input == submitted

    await stack.apply(trigger(input=given))

    assert (await stack.execution()).input == given
    assert await inputs(store) == (1 if given is not SMALL else 0)


async def test_submission_and_trigger_in_one_batch(stack: ContractStack) -> None:
    await stack.commit(submit(LARGE), trigger(input=LARGE + b" "))
    assert (await stack.execution()).input == LARGE + b" "


@pytest.mark.parametrize("most_rows", [archive.REMOVED_ROWS, 100])
async def test_retention_removes_it(
    store: SqliteStore, stack: ContractStack, monkeypatch: pytest.MonkeyPatch, most_rows: int
) -> None:
    monkeypatch.setattr(archive, "REMOVED_ROWS", most_rows)
    for number, size in enumerate((SIZE, 100_000, 70_000, 10)):
        run = new_execution(f"run-{number}", input=LARGE[:size])
        await stack.apply(start(run, token("a")))
        await stack.apply(cancel(f"run-{number}"))
    while await stack.ledger.sweep():
        pass
    assert await inputs(store) == 3
    stack.clock.advance(100)

    assert await stack.archive.remove_ended(stack.clock.now()) == 4
    assert await inputs(store) == 0


async def test_an_input_that_an_earlier_version_stored_is_read_where_it_is(
    store: SqliteStore, stack: ContractStack
) -> None:
    await stack.apply(start(new_execution(input=SMALL), token("a")))
    await store.write(lambda rows: rows.connection.execute("UPDATE execution SET input = ?", (LARGE,)))

    lease = (await stack.take())["a"]
    await stack.apply(step(lease, finish()))

    found = await stack.archive.execution(RUN)
    assert found is not None
    assert found.input == LARGE


def submit(data: bytes) -> Transition:
    new = CreateExecution(new_execution(input=data), pending=True)
    return command(RUN, new, events=[event("ExecutionSubmitted", "")])


def written(path: Path) -> int:
    """Return the bytes of the write-ahead log."""
    return path.with_name(path.name + "-wal").stat().st_size


async def inputs(store: SqliteStore) -> int:
    found = await store.read(
        lambda connection: connection.execute("SELECT count(*) FROM large_input").fetchone()
    )
    return int(found[0])
