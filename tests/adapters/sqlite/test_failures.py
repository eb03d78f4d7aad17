"""When the store cannot do what it is asked: nothing is half done, the others go on, and it recovers."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dalsegno.adapters.sqlite import SqliteStore, connections
from dalsegno.errors import LimitExceeded, StoreFull, Unavailable
from dalsegno.model.transition import Applied, Refused
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import event, start, step, token


async def limit_pages(store: SqliteStore, pages: int) -> None:
    await store.write(lambda rows: rows.connection.execute(f"PRAGMA max_page_count = {pages}").fetchone())


async def test_full_disk_loses_nothing_and_applies_nothing(store: SqliteStore, stack: ContractStack) -> None:
    lease = (await stack.begin(token("a")))["a"]
    before = await stack.picture()
    await limit_pages(store, 1)  # SQLite takes the present size instead
    big = step(lease, token("b", data=b"x" * 5_000_000), events=[event()])

    with pytest.raises(StoreFull, match="no space left"):
        await stack.ledger.commit([big])

    assert await stack.picture() == before
    await limit_pages(store, 1_000_000)
    await stack.apply(big)


async def test_locked_file_is_unavailable_until_it_is_free(
    path: Path, stack: ContractStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(Unavailable, match=r"locked by another process.*then try again"):
        await stack.commit(start("run", token("a")))

    other.execute("ROLLBACK")
    other.close()
    await stack.apply(start("run", token("a")))


OFFENDERS: dict[str, dict[str, Any]] = {
    "an integer beyond 64 bits": {"priority": 2**63},
    "a lone surrogate": {"queue": "\ud800"},
}


@pytest.mark.parametrize("fields", OFFENDERS.values(), ids=OFFENDERS.keys())
async def test_offender_is_refused_alone(stack: ContractStack, fields: dict[str, Any]) -> None:
    batch = [start(f"run-{number}", token("a")) for number in range(20)]
    batch[13] = start("run-13", token("a", **fields))

    outcomes = await stack.ledger.commit(batch)

    assert [type(outcome) for outcome in outcomes] == [Applied] * 13 + [Refused] + [Applied] * 6
    assert await stack.ledger.inspect("run-13") is None
    assert len(await stack.claim(100)) == 19


async def test_value_larger_than_the_store_can_hold_is_refused(
    store: SqliteStore, stack: ContractStack
) -> None:
    await store.write(lambda rows: rows.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000))

    outcomes = await stack.ledger.commit(
        [start("big", token("a", data=b"x" * 200_000)), start("small", token("a"))]
    )

    assert isinstance(outcomes[0], Refused)
    assert "larger than the store can hold" in outcomes[0].message
    assert isinstance(outcomes[1], Applied)


async def test_broken_rule_refuses_only_its_own_transition(
    stack: ContractStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dalsegno.adapters.sqlite import ledger

    settle = ledger.settle

    def broken(transition: Any, rows: Any, now: float) -> Any:
        if transition.execution == "cursed":
            raise ZeroDivisionError
        return settle(transition, rows, now)

    monkeypatch.setattr(ledger, "settle", broken)

    outcomes = await stack.ledger.commit([start(name, token("a")) for name in ("one", "cursed", "two")])

    assert [type(outcome) for outcome in outcomes] == [Applied, Refused, Applied]
    assert "internal error" in outcomes[1].message  # type: ignore[union-attr]


async def test_blob_beyond_the_limit_is_refused_with_both_sizes(stack: ContractStack) -> None:
    stack.blobs.max_bytes = 10  # type: ignore[attr-defined]

    with pytest.raises(LimitExceeded, match=r"11 bytes.*10 bytes"):
        await stack.blobs.put("run", b"x" * 11)


async def test_closed_store_says_so(store: SqliteStore, stack: ContractStack) -> None:
    store.close()

    with pytest.raises(Unavailable, match="closed"):
        await stack.commit(start("run", token("a")))
