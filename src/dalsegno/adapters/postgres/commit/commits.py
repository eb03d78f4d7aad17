"""Commits: batches of transitions, settled by the rules in this process on rows that are locked in the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from dalsegno.adapters.postgres.claim.waiting_workers import SuspectTokens
from dalsegno.adapters.postgres.commit.cached import CachedExecutions
from dalsegno.adapters.postgres.commit.changes import StartedByOthers, TokenChanged
from dalsegno.adapters.postgres.commit.flight import Flight
from dalsegno.adapters.postgres.commit.load import LoadedRows, NotLoaded, load, load_executions, lock
from dalsegno.adapters.postgres.commit.read_set import ReadSet, wanted_by
from dalsegno.adapters.postgres.commit.starts import OpenStarts, begin, creates
from dalsegno.adapters.postgres.commit.workspace import PostgresWorkspace
from dalsegno.adapters.postgres.errors import sqlstate_of
from dalsegno.adapters.postgres.store import PostgresStore, Transaction
from dalsegno.core.settlement import LARGE, settle, settle_in_parts
from dalsegno.errors import DalSegnoError, InternalError, OperatorError, Unavailable
from dalsegno.model.transition import Deferred, Outcome, Refused, Transition, Unconfirmed

logger = logging.getLogger("dalsegno.postgres")

T = TypeVar("T")

COMMITS_AT_ONCE = 2
"""Concurrent batches: while the server works on one, the process works on the next. A third gains nothing."""
PATIENCE = 2
"""How often a transition is deferred because its execution is locked; after that its commit waits for it."""
MOST_PASSES = 50
MOST_TRIES = 20
"""How often a commit is retried because claims changed its tokens."""


class Commits:
    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.reloads = 0
        """How often the rules had to restart because a row was not read ahead."""
        self.known = CachedExecutions()
        self.suspects = SuspectTokens()
        self.open_starts = OpenStarts(store)
        self.fast_path_failures = 0
        """How often the fast path failed as a whole. A rare failure is normal, such as a batch that is sent again. """
        self._deferrals: dict[str, int] = {}

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        if not batch:
            return []
        done = await self._commit_fast(batch)
        if len(done) == len(batch):
            return [done[place] for place in range(len(batch))]
        left = [step for place, step in enumerate(batch) if place not in done]
        answers = iter(await self._commit_others(left) if done else await self._commit(left))
        outcomes = [done[place] if place in done else next(answers) for place in range(len(batch))]
        if all(type(outcome) is Deferred for outcome in outcomes):
            await self.open_starts.wait(batch)
        return outcomes

    async def _commit_others(self, left: Sequence[Transition]) -> list[Outcome]:
        """Commit the rest of a batch that is partly stored; an error of the rest does not concern the stored ones."""
        try:
            return await self._commit(left)
        except OperatorError as error:
            return [Unconfirmed(error)] * len(left)

    async def _commit_fast(self, batch: Sequence[Transition]) -> dict[int, Outcome]:
        """Commit those that can be written without reading first; return outcomes by index."""
        done: dict[int, Outcome] = {}
        try:
            done = await self.known.commit(self.store, batch)
            left = [
                place
                for place, step in enumerate(batch)
                if place not in done and not self.open_starts.waits(step)
            ]
            begun, flights = await begin(self.store, [batch[place] for place in left])
            for flight in flights:
                self.known.note(flight)
            done |= {left[place]: outcome for place, outcome in begun.items()}
        except OperatorError as error:
            if not done:
                raise
            # Starts may be stored nevertheless, so they are not sent again as new ones.
            missing = (place for place in range(len(batch)) if place not in done)
            return done | dict.fromkeys(missing, Unconfirmed(error))
        except Exception as error:  # noqa: BLE001 - whatever it was, it shows again where the rest is committed
            self._note_failure(error)
        return done

    def _note_failure(self, error: Exception) -> None:
        """Log a failure of the fast path: the first one, and whenever there are ten times as many.

        The slow path hides it, so a lasting fault would otherwise only show as slowness.
        """
        self.fast_path_failures += 1
        count = self.fast_path_failures
        if count == 10 ** (len(str(count)) - 1):
            logger.warning(
                "the fast path failed for a batch, which took the slow path (%d so far)",
                count,
                exc_info=error,
            )

    async def _commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        try:
            return await self._apply(batch, careful=False)
        except OperatorError:
            raise
        except Exception:  # noqa: BLE001 - one transition is at fault; which one is found out below
            return await self._apply_carefully(batch)

    async def _apply_carefully(self, batch: Sequence[Transition]) -> list[Outcome]:
        """Halve a batch that cannot be stored until the offender is alone; apply all others."""
        try:
            return await self._apply(batch, careful=True)
        except OperatorError:
            raise
        except Exception as error:  # noqa: BLE001 - a transition that breaks the rules must not stop the others
            if len(batch) == 1:
                return [_refused(batch[0], error)]
        middle = len(batch) // 2
        first, second = batch[:middle], batch[middle:]
        outcomes = await self._apply_carefully(first)
        try:
            return outcomes + await self._apply_carefully(second)
        except OperatorError as error:
            return outcomes + [Unconfirmed(error)] * len(second)

    async def _apply(self, batch: Sequence[Transition], *, careful: bool) -> list[Outcome]:
        await self.store.reserve_numbers(sum(creates(step) for step in batch))
        waiting = [step.execution for step in batch if self._deferrals.get(step.execution, 0) >= PATIENCE]
        elsewhere = await self.open_starts.still_among(batch)
        for _ in range(MOST_TRIES):
            try:
                return await self._try(batch, waiting, elsewhere, careful=careful)
            except TokenChanged:
                continue
            except StartedByOthers:
                found = await self.open_starts.among(batch) - elsewhere
                if not found and not careful:
                    raise  # it exists, perhaps only its record, which careful mode reads, too
                elsewhere |= found
            except Unavailable:
                if not waiting:
                    raise
                # They have been locked for very long: the others of the batch do not wait with them.
                for execution in waiting:
                    self._deferrals.pop(execution, None)
                waiting = []
        raise Unavailable("other processes keep changing the same tokens; the commit can be sent again")

    async def _try(
        self, batch: Sequence[Transition], waiting: Sequence[str], elsewhere: set[str], *, careful: bool
    ) -> list[Outcome]:
        going = [step for step in batch if step.execution not in elsewhere]
        if not going:
            return [Deferred()] * len(batch)
        wanted, loaded = wanted_by(going, careful=careful), LoadedRows()
        loaded.busy |= elsewhere
        async with self.store.transaction() as tx:
            if waiting:
                await tx.fetch("load.wait", list(set(waiting)))
            now = self.store.saw(await lock(self.store, tx, wanted, loaded))
            held = [step for step in batch if step.execution not in loaded.busy]
            outcomes, written = await self._settle(tx, loaded, lambda rows: _settle_all(held, rows, now))
        for flight in written:
            self.known.note(flight)
        return self._with_deferred(batch, loaded, outcomes)

    def _with_deferred(
        self, batch: Sequence[Transition], loaded: LoadedRows, outcomes: Sequence[Outcome]
    ) -> list[Outcome]:
        for execution in loaded.busy:
            self._deferrals[execution] = self._deferrals.get(execution, 0) + 1
        if self._deferrals:
            for step in batch:
                if step.execution not in loaded.busy:
                    self._deferrals.pop(step.execution, None)
        answers = iter(outcomes)
        return [Deferred() if step.execution in loaded.busy else next(answers) for step in batch]

    async def settle(
        self, tx: Transaction, loaded: LoadedRows, job: Callable[[PostgresWorkspace], T]
    ) -> tuple[T, list[Flight]]:
        """Run a job of the rules on loaded rows, repeat it until all rows it needs are loaded, and write its changes.

        Also returns the executions as they are once the transaction is committed.
        """

        async def run(rows: PostgresWorkspace) -> T:
            return job(rows)

        return await self._settle(tx, loaded, run)

    async def _settle(
        self, tx: Transaction, loaded: LoadedRows, job: Callable[[PostgresWorkspace], Awaitable[T]]
    ) -> tuple[T, list[Flight]]:
        for _ in range(MOST_PASSES):
            rows = PostgresWorkspace(loaded, self._number)
            try:
                result = await job(rows)
            except Missing as missing:
                self.reloads += 1
                await self._load(tx, missing.keys, loaded)
            except NotLoaded as missing:
                self.reloads += 1
                await self._load(tx, [missing], loaded)
            else:
                await rows.changes.write(tx)
                return result, rows.stored_flights()
        raise InternalError("the rules ask for ever more rows: this is a bug in Dal Segno")

    def _number(self) -> int:
        if not self.store.numbers_left():
            raise NotLoaded("numbers", 1)
        return self.store.take_number()

    async def _load(self, tx: Transaction, missing: Sequence[NotLoaded], loaded: LoadedRows) -> None:
        wanted = ReadSet()
        numbers = 0
        for one in missing:
            if one.kind == "numbers":
                numbers += 1
            elif one.kind == "executions":
                wanted.executions[one.key] = None
            else:
                getattr(wanted, one.kind).add(one.key)
        if numbers:
            # The numbers taken for this try are lost with it: the next one reserves more.
            await self.store.reserve_numbers(self.store.block_after(numbers), tx)
        if wanted.executions:
            await load_executions(tx, list(wanted.executions), loaded)
        await load(tx, wanted, loaded)


class Missing(Exception):
    """Several rows that were not read."""

    def __init__(self, keys: Sequence[NotLoaded]) -> None:
        self.keys = keys
        super().__init__(f"{len(keys)} rows were not read")


async def _settle_all(batch: Sequence[Transition], rows: PostgresWorkspace, now: float) -> list[Outcome]:
    """Settle all. Between the parts of a large transition the event loop does other work; its execution is locked.

    Once a row is missing the rest is settled only to find what else is missing, so that all is read together.
    """
    outcomes: list[Outcome] = []
    missing: list[NotLoaded] = []
    for transition in batch:
        try:
            if len(transition.effects) <= LARGE:
                outcomes.append(settle(transition, rows, now))
            else:
                outcomes.append(await _settle_large(transition, rows, now))
        except NotLoaded as one:
            missing.append(one)
        except Exception:
            if not missing:  # otherwise it may come from rows that were half changed
                raise
    if missing:
        raise Missing(missing)
    return outcomes


async def _settle_large(transition: Transition, rows: PostgresWorkspace, now: float) -> Outcome:
    parts = settle_in_parts(transition, rows, now)
    while True:
        try:
            next(parts)
        except StopIteration as ended:
            outcome: Outcome = ended.value
            return outcome
        await asyncio.sleep(0)


def _refused(step: Transition, error: Exception) -> Refused:
    """Return the refusal of a faulty step. The error is logged here, since nothing else shows it."""
    if isinstance(error, DalSegnoError):
        state = sqlstate_of(error)
        code = f" (SQLSTATE {state})" if state else ""
        logger.warning("a step of execution %s is refused: %s%s", step.execution, error, code)
        return Refused(str(error))
    logger.error("internal error while a step of execution %s was applied", step.execution, exc_info=error)
    return Refused(f"internal error while applying the step: {type(error).__name__}: {error}")
