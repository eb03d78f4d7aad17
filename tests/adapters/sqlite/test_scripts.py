"""Scripts in the file: what their commits cost, and that rows read again are the rows that were written."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dalsegno.adapters.sqlite import SqliteStore
from dalsegno.adapters.sqlite.commit import workspace
from dalsegno.model.effect import FinishExecution
from dalsegno.model.machine import Completion, TakenSignal
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import RUN, command, event, finish, step
from dalsegno.testing.contract.random.interleavings import SCRIPT_OPERATIONS, run
from dalsegno.testing.contract.random.scripts import ScriptTwins
from dalsegno.testing.contract.script_builders import (
    done,
    machine_of,
    resume_id,
    resume_lease,
    save,
    signal,
    suspend,
    task,
    tasks,
)


@contextmanager
def statements(store: SqliteStore) -> Iterator[list[str]]:
    """What the writer executes meanwhile, without the transactions' own statements."""
    assert store._writer is not None
    connection, found = store._writer._connection, list[str]()
    connection.set_trace_callback(found.append)
    yield found
    connection.set_trace_callback(None)
    found[:] = [text for text in found if text.split()[0] not in ("BEGIN", "COMMIT", "PRAGMA")]


async def test_step_of_a_warm_chain_reads_nothing(store: SqliteStore, stack: ContractStack) -> None:
    await suspend(stack, task("t0"), reachable=((0, 1),))
    lease = (await tasks(stack))["t0"]
    fused = save(1, 0, settled=Completion(0, True, b"1"), reachable=((1, 2),), snapshot=b"x" * 500)

    with statements(store) as found:
        await stack.apply(step(lease, fused, task("t1"), keep=["t1"], worker="w1"))

    assert [text for text in found if text.startswith("SELECT")] == []
    assert len([text for text in found if "machine" in text]) == 1


async def test_thousand_completions_in_one_batch_write_the_machine_once(
    store: SqliteStore, stack: ContractStack
) -> None:
    await suspend(stack, *(task(f"t{number}") for number in range(1000)), need=1000)
    leases = await tasks(stack)

    with statements(store) as found:
        await stack.apply(*(step(leases[f"t{number}"], done(number)) for number in range(1000)))

    assert [text for text in found if text.startswith("SELECT")] == []
    assert len([text for text in found if "UPDATE machine" in text]) == 1
    assert len([text for text in found if "INTO inbox" in text]) == 7
    assert (await machine_of(stack)).inbox == 1000


async def test_machines_of_a_cold_batch_are_read_together(store: SqliteStore, stack: ContractStack) -> None:
    names = [f"run-{number}" for number in range(50)]
    for name in names:
        await suspend(stack, task("t"), execution=name)
    leases = await stack.claim(100, queues=("default",))
    assert store._writer is not None
    store._writer._workspace.reset()  # as after a write of another process

    with statements(store) as found:
        await stack.apply(*(step(lease, done(1)) for lease in leases))

    selects = [text for text in found if text.startswith("SELECT")]
    assert len([text for text in selects if "FROM json_each" in text and "machine" in text]) == 1
    assert len(selects) <= 8


async def test_inbox_that_was_read_goes_with_one_statement(store: SqliteStore, stack: ContractStack) -> None:
    await suspend(stack, *(task(f"t{number}") for number in range(300)), need=300)
    leases = await tasks(stack)
    await stack.apply(*(step(leases[f"t{number}"], done(number)) for number in range(300)))
    lease = await resume_lease(stack, 1)

    with statements(store) as found:
        await stack.apply(step(lease, save(1, 300, reachable=())))

    assert len([text for text in found if "DELETE FROM inbox" in text]) == 1
    assert (await machine_of(stack)).completions == ()


async def test_completion_beside_the_clearing_of_the_inbox_is_kept(stack: ContractStack) -> None:
    """One batch: a run that is done with everything so far, and something that comes after it."""
    await suspend(stack, task("t1"), task("t2"))
    leases = await tasks(stack)
    await stack.apply(step(leases["t1"], done(1)))
    running = await resume_lease(stack, 1)

    await stack.apply(step(running, save(1, 1, reachable=((2, 3),))), step(leases["t2"], done(2)))

    machine = await machine_of(stack)
    assert machine.completions == (Completion(2, True, b"1", 2),)
    assert (machine.inbox, machine.read) == (2, 1)


async def test_snapshot_survives_what_only_counts(stack: ContractStack) -> None:
    await suspend(stack, task("t1"), snapshot=b"\x00" * 100_000, need=9)
    await stack.apply(step((await tasks(stack))["t1"], done(1)))
    await stack.apply(signal())

    assert (await machine_of(stack)).snapshot == b"\x00" * 100_000


async def test_rows_read_again_are_as_good_as_cached_ones(
    stack: ContractStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison with the reference, with a workspace that forgets everything after each transaction."""
    monkeypatch.setattr(workspace, "CACHED_FLIGHTS", 0)
    for seed in range(25):
        chance = random.Random(seed)
        program = [
            (chance.choice(SCRIPT_OPERATIONS), chance.randrange(100), chance.randrange(100))
            for _ in range(80)
        ]
        await run(ScriptTwins(stack, f"pair-{stack.clock.advance(1000):.0f}"), program)


async def test_retention_removes_every_row_of_a_script(store: SqliteStore, stack: ContractStack) -> None:
    await suspend(stack, task("t1"), task("t2"), signals=("approved",))
    await stack.apply(step((await tasks(stack))["t1"], done(1)))
    await stack.apply(signal("s1"), signal("s2"))
    taken = save(1, 1, taken=[TakenSignal("s1", 2)])
    await stack.apply(step(await resume_lease(stack, 1), taken))
    await stack.apply(command(RUN, finish()))
    stack.clock.advance(10)

    assert await stack.archive.remove_ended(stack.clock.now()) == 1

    for table in ("execution", "flight", "token", "machine", "inbox", "mailbox", "event"):
        assert (
            await store.read(lambda rows, table=table: rows.execute(f"SELECT * FROM {table}").fetchall())
            == []
        )  # type: ignore[misc]


async def test_hand_over_writes_each_token_once(store: SqliteStore, stack: ContractStack) -> None:
    await suspend(stack, task("t1"), task("t2"))
    leases = await tasks(stack)
    end = FinishExecution("COMPLETED", event("ExecutionCompleted", ""), hand_over=True)

    await stack.apply(step(leases["t1"], save(1, 0, reachable=()), task("t3"), end))

    rows = await store.read(
        lambda connection: connection.execute(
            "SELECT token.id, parent, token.state FROM token JOIN execution ON execution.number = token.execution"
            " WHERE execution.kind = 'task' ORDER BY token.id"
        ).fetchall()
    )
    assert rows == [("t2", RUN, "leased"), ("t3", RUN, "ready")]


async def test_people_can_read_machines(path: Path, stack: ContractStack) -> None:
    await suspend(stack, snapshot=b"12345", reachable=((1, 3),), line=4, signals=("approved",))
    shell = sqlite3.connect(path)

    [row] = shell.execute("SELECT execution, version, line, reachable, snapshot_bytes FROM machine_view")
    shell.close()

    assert row == (RUN, 1, 4, "[[1,3]]", 5)
    assert resume_id(1) not in await stack.tokens()
