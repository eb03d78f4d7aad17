"""Commits: batches of transitions, settled by the rules in this process on rows that are locked in the database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from dalsegno.adapters.postgres.beginnings import begin
from dalsegno.adapters.postgres.changes import StartedElsewhere, TokenChanged
from dalsegno.adapters.postgres.errors import sqlstate_of
from dalsegno.adapters.postgres.flight import Flight
from dalsegno.adapters.postgres.known import Known
from dalsegno.adapters.postgres.loaded import Loaded, NotLoaded
from dalsegno.adapters.postgres.loading import load, load_executions, lock
from dalsegno.adapters.postgres.open_starts import OpenStarts, creates
from dalsegno.adapters.postgres.store import PostgresStore, Transaction
from dalsegno.adapters.postgres.suspects import Suspects
from dalsegno.adapters.postgres.wanted import Wanted, wanted_by
from dalsegno.adapters.postgres.workspace import PostgresWorkspace
from dalsegno.core.settlement import settle
from dalsegno.errors import DalSegnoError, InternalError, OperatorError, Unavailable
from dalsegno.model.transition import Deferred, Outcome, Refused, Transition, Unconfirmed

logger = logging.getLogger("dalsegno.postgres")

T = TypeVar("T")

COMMITS_AT_ONCE = 2
"""While the server works on one batch of a process, the process works on the next. A third gains nothing."""
PATIENCE = 2
"""Times a transition is put off because somebody else holds its execution; after that its commit waits for it."""
MOST_PASSES = 50
MOST_TRIES = 20
"""How often a commit is tried again because claims changed its tokens."""


class Commits:
    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.reloads = 0
        """How often the rules had to begin again because a row was not read ahead."""
        self.known = Known()
        self.suspects = Suspects()
        self.open_starts = OpenStarts(store)
        self.short_way_failures = 0
        """How often the short way failed as a whole. Now and then that is nothing: a batch that comes again, say."""
        self._deferrals: dict[str, int] = {}

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        if not batch:
            return []
        done = await self._commit_shortly(batch)
        if len(done) == len(batch):
            return [done[place] for place in range(len(batch))]
        left = [step for place, step in enumerate(batch) if place not in done]
        answers = iter(await self._commit_others(left) if done else await self._commit(left))
        outcomes = [done[place] if place in done else next(answers) for place in range(len(batch))]
        if all(type(outcome) is Deferred for outcome in outcomes):
            await self.open_starts.wait(batch)
        return outcomes

    async def _commit_others(self, left: Sequence[Transition]) -> list[Outcome]:
        """Of a batch of which some are stored already: what keeps these from it is no news of those."""
        try:
            return await self._commit(left)
        except OperatorError as error:
            return [Unconfirmed(error)] * len(left)

    async def _commit_shortly(self, batch: Sequence[Transition]) -> dict[int, Outcome]:
        """Those that can be written without reading anything before; outcomes by their places."""
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
            # Starts may be stored nevertheless, so they are not sent again as if they were new.
            missing = (place for place in range(len(batch)) if place not in done)
            return done | dict.fromkeys(missing, Unconfirmed(error))
        except Exception as error:  # noqa: BLE001 - whatever it was, it shows again where the rest is committed
            self._note_failure(error)
        return done

    def _note_failure(self, error: Exception) -> None:
        """The long way hides it, so a lasting fault would show as nothing but slowness: told the first time, and
        whenever there are ten times as many."""
        self.short_way_failures += 1
        count = self.short_way_failures
        if count == 10 ** (len(str(count)) - 1):
            logger.warning(
                "a batch could not go the short way and went the long one (%d so far)", count, exc_info=error
            )

    async def _commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        try:
            return await self._apply(batch, careful=False)
        except OperatorError:
            raise
        except Exception:  # noqa: BLE001 - one transition is at fault; which one is found out below
            return await self._apply_carefully(batch)

    async def _apply_carefully(self, batch: Sequence[Transition]) -> list[Outcome]:
        """Halves a batch that cannot be stored until the offender stands alone; all others are applied."""
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
            except StartedElsewhere:
                found = await self.open_starts.among(batch) - elsewhere
                if not found and not careful:
                    raise  # it is there, perhaps only its record: who is careful reads that, too
                elsewhere |= found
            except Unavailable:
                if not waiting:
                    raise
                # They are held for very long: the others of the batch do not wait with them.
                for execution in waiting:
                    self._deferrals.pop(execution, None)
                waiting = []
        raise Unavailable(
            "other processes change the same tokens again and again; the commit can be sent again"
        )

    async def _try(
        self, batch: Sequence[Transition], waiting: Sequence[str], elsewhere: set[str], *, careful: bool
    ) -> list[Outcome]:
        going = [step for step in batch if step.execution not in elsewhere]
        if not going:
            return [Deferred()] * len(batch)
        wanted, loaded = wanted_by(going, careful=careful), Loaded()
        loaded.busy |= elsewhere
        async with self.store.transaction() as tx:
            if waiting:
                await tx.fetch("load.wait", list(set(waiting)))
            now = self.store.saw(await lock(self.store, tx, wanted, loaded))
            held = [step for step in batch if step.execution not in loaded.busy]
            outcomes, written = await self.settle(tx, loaded, lambda rows: _settle_all(held, rows, now))
        for flight in written:
            self.known.note(flight)
        return self._with_deferred(batch, loaded, outcomes)

    def _with_deferred(
        self, batch: Sequence[Transition], loaded: Loaded, outcomes: Sequence[Outcome]
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
        self, tx: Transaction, loaded: Loaded, job: Callable[[PostgresWorkspace], T]
    ) -> tuple[T, list[Flight]]:
        """Runs a job of the rules on rows that were read, as often as it takes until all it asks for is there, and
        writes what it changed. Returns also the executions as they are then, if the transaction is committed."""
        for _ in range(MOST_PASSES):
            rows = PostgresWorkspace(loaded, self._number)
            try:
                result = job(rows)
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

    async def _load(self, tx: Transaction, missing: Sequence[NotLoaded], loaded: Loaded) -> None:
        wanted = Wanted()
        numbers = 0
        for one in missing:
            if one.kind == "numbers":
                numbers += 1
            elif one.kind == "executions":
                wanted.executions[one.key] = None
            else:
                getattr(wanted, one.kind).add(one.key)
        if numbers:
            # What was taken for this try is lost with it: the next one has more.
            await self.store.reserve_numbers(self.store.block_after(numbers), tx)
        if wanted.executions:
            await load_executions(tx, list(wanted.executions), loaded)
        await load(tx, wanted, loaded)


class Missing(Exception):
    """Several rows that were not read."""

    def __init__(self, keys: Sequence[NotLoaded]) -> None:
        self.keys = keys
        super().__init__(f"{len(keys)} rows were not read")


def _settle_all(batch: Sequence[Transition], rows: PostgresWorkspace, now: float) -> list[Outcome]:
    """Once a row is missing the others are settled only to see what else is: all of it is read together."""
    outcomes: list[Outcome] = []
    missing: list[NotLoaded] = []
    for transition in batch:
        try:
            outcomes.append(settle(transition, rows, now))
        except NotLoaded as one:
            missing.append(one)
        except Exception:
            if not missing:  # else it may come from rows that were half changed
                raise
    if missing:
        raise Missing(missing)
    return outcomes


def _refused(step: Transition, error: Exception) -> Refused:
    """What is wrong with the step itself. Nobody else sees the error, so it is told here."""
    if isinstance(error, DalSegnoError):
        state = sqlstate_of(error)
        code = f" (SQLSTATE {state})" if state else ""
        logger.warning("a step of execution %s is refused: %s%s", step.execution, error, code)
        return Refused(str(error))
    logger.error("a step of execution %s breaks the rules", step.execution, exc_info=error)
    return Refused(f"internal error while applying the step: {type(error).__name__}: {error}")
