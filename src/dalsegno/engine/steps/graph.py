"""Steps of graphs: from a lease to its transition, by kind of token.

This is the shell around ``core``: it loads what the rules need (slots, outputs, values of expressions), runs the node
and passes everything to the pure functions that decide.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dalsegno.core.graph import fail, finish, join, split
from dalsegno.core.graph import join as skip
from dalsegno.core.graph.complete import Run, Step, complete, ends_alone
from dalsegno.core.graph.ending import cancel_abandoned
from dalsegno.core.graph.external_waits import sleep
from dalsegno.core.graph.step_input import (
    Awaiting,
    Body,
    Context,
    Fan,
    Result,
    StepInput,
    decode_body,
    encode_record,
    key_of,
    place,
    value,
)
from dalsegno.core.values import decode_value
from dalsegno.engine.batches import bytes_of
from dalsegno.engine.definitions import Definitions, Program
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.steps.budget import is_light
from dalsegno.engine.steps.contexts import NO_TRANSACTIONS
from dalsegno.engine.steps.external_waits import ExternalWaits
from dalsegno.engine.steps.joins import Evaluation, JoinReader, with_output
from dalsegno.engine.steps.run_node import Runner, failure_of
from dalsegno.engine.steps.values import SMALL, Loader, Results, Storage, bytes_in_rows
from dalsegno.errors import InternalError, LimitExceeded, NotFound, NotJson, OperatorError
from dalsegno.graph.plan import Edge
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.model.effect import StoreOutput
from dalsegno.model.failure import Failure
from dalsegno.model.ids import barrier_id
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.node import AwaitSignal, FanOut, NodeError, Route, SleepUntil, StartChild, Working
from dalsegno.ports.stack import ITEMS_PER_COMMIT
from dalsegno.ports.transactions import WorkFailed

NULL = Result(b"null")

logger = logging.getLogger("dalsegno.steps")
CONTROL_RESULTS = (Route, SleepUntil, Working, FanOut, AwaitSignal, StartChild)


class Steps:
    def __init__(
        self,
        ledger: Ledger,
        blobs: Storage,
        definitions: Definitions,
        loader: Loader,
        runner: Runner,
        items_per_commit: int = ITEMS_PER_COMMIT,
        limits: EngineLimits = DEFAULT_LIMITS,
    ) -> None:
        self.ledger = ledger
        self.items_per_commit = items_per_commit
        self.definitions = definitions
        self.loader = loader
        self.runner = runner
        self.limits = limits
        self.storage = blobs
        self.results = Results(blobs, limits)
        self.join_reader = JoinReader(ledger, loader, limits.value_bytes)
        self.evaluation = Evaluation(loader, self.results, limits)
        self.outside = ExternalWaits(ledger, blobs, runner.types, self.results, runner.log)
        self.transactions = NO_TRANSACTIONS

    async def step(self, lease: Lease, body: Body | None = None, began: float | None = None) -> Step:
        """Take a step. ``began``: start time of work that was begun earlier and elsewhere."""
        program = self.definitions.cached(lease.definition) or await self.definitions.by_hash(
            lease.definition
        )
        now = self.ledger.now()
        since = now if began is None else began
        step_input = StepInput(program.plan, lease, body or decode_body(lease.data), now, since)
        try:
            if lease.kind == "node":
                step = await self._node(program, step_input)
            elif lease.losses >= self.limits.losses and lease.kind != "join":
                return fail.halt(step_input, fail.worker_lost(lease.node, lease.losses))
            else:
                step = await self._internal_step(program, step_input)
            step.size = bytes_of(step.transition.effects)
            if step.size > SMALL or len(lease.data) > SMALL:
                await self._charge(lease, step.transition)
            return step
        except LimitExceeded as error:
            if self.transactions.has(lease):
                await self.transactions.abandon(lease)
            return fail.halt(step_input, _limit_exceeded(lease.node, error))
        except MemoryError:
            memory = LimitExceeded("the step needs more memory than its process may have")
            return fail.halt(step_input, _limit_exceeded(lease.node, memory))
        except OperatorError:
            raise
        except Exception as error:
            # Not a failure of the node (those are values) but an internal error. It would recur wherever it is
            # retried.
            logger.exception(
                "the step of node '%s' in execution %s had an internal error", lease.node, lease.execution
            )
            return fail.halt(step_input, _internal(lease.node, error))

    async def _charge(self, lease: Lease, transition: Transition) -> None:
        """Count what the step adds to the rows of its execution, and the token that it removes."""
        size = bytes_in_rows(transition)
        if len(lease.data) > SMALL and transition.park is None:
            size -= len(lease.data)
        if size:
            await self.storage.charge(lease.execution, size)

    async def skip(self, lease: Lease, body: Body) -> Step:
        """Skip the run of a node; see `skip.skip_run`. The contexts of its branches are merged first."""
        program = await self.definitions.by_hash(lease.definition)
        now = self.ledger.now()
        step_input = StepInput(program.plan, lease, body, now, now)
        if lease.kind == "join" and not body.joined:
            live_arrivals, _ = await self.join_reader.branches(step_input)
            step_input.body, step_input.stores = live_arrivals.body, live_arrivals.stores
        return skip.skip_run(step_input)

    async def work_failed(self, lease: Lease, body: Body | None, failed: WorkFailed) -> Step:
        """Fail a run whose writes to its step's transaction were refused."""
        program = await self.definitions.by_hash(lease.definition)
        now = self.ledger.now()
        step_input = StepInput(program.plan, lease, body or decode_body(lease.data), now, now)
        step_input.retry = self.transactions.ended(lease)
        return await self._failed(program, step_input, failure_of(failed.error, step_input.node))

    async def too_heavy(self, lease: Lease, body: Body | None, message: str) -> Step:
        """Fail a step that exceeded the limits of its subprocess."""
        program = await self.definitions.by_hash(lease.definition)
        now = self.ledger.now()
        step_input = StepInput(program.plan, lease, body or decode_body(lease.data), now, now)
        error = LimitExceeded(message)
        if lease.kind not in ("node", "join"):
            return fail.halt(step_input, _limit_exceeded(lease.node, error))
        return await self._failed(program, step_input, failure_of(error, step_input.node))

    async def _internal_step(self, program: Program, step_input: StepInput) -> Step:
        lease = step_input.lease
        match lease.kind:
            case "join":
                return await self._join(program, step_input)
            case "advance":
                return await self._advance(step_input)
            case "closed":
                gate = barrier_id(lease.epoch, lease.scope, lease.node, "gate")
                return skip.close_gate(step_input, await self.ledger.gate_used(lease.execution, gate))
            case "finish":
                return await self._finish(program, step_input)
            case "deadline":
                return finish.expire(step_input, program.plan.timeout or 0.0)
            case _:
                raise InternalError(f"a graph has no bookkeeping tokens of kind {lease.kind}")

    # -- running a node ---------------------------------------------------------------------------------------

    async def _node(self, program: Program, step_input: StepInput, payload: Any = None) -> Step:
        lease = step_input.lease
        if lease.losses >= self.limits.losses:
            return await self._failed(program, step_input, fail.worker_lost(lease.node, lease.losses))
        if step_input.body.sleeping is not None:
            output = Result(bytes(step_input.body.sleeping.raw))
            return await self._completed(program, step_input, Run(output, step_input.node.success_edges))
        try:
            if step_input.body.awaiting is not None:
                return await self._woken(program, step_input, step_input.body.awaiting)
            returned = await self.runner.run(program, step_input, payload)
            step_input.now = self.ledger.now()
            if isinstance(returned, Failure):
                return await self._failed(program, step_input, returned)
            return await self._returned(program, step_input, returned)
        except (NotJson, LimitExceeded, NotFound, NodeError) as error:
            return await self._failed(program, step_input, failure_of(error, step_input.node))

    async def _woken(self, program: Program, step_input: StepInput, awaiting: Awaiting) -> Step:
        """Continue a node whose awaited event has arrived, or whose wait has timed out."""
        return await self._continue_node(program, step_input, await self.outside.woken(step_input, awaiting))

    async def _continue_node(
        self, program: Program, step_input: StepInput, outcome: Result | Failure | Step
    ) -> Step:
        if isinstance(outcome, Step):
            return outcome
        if isinstance(outcome, Failure):
            return await self._failed(program, step_input, outcome)
        return await self._completed(program, step_input, Run(outcome, step_input.node.success_edges))

    async def _returned(self, program: Program, step_input: StepInput, returned: Any) -> Step:
        node, execution = step_input.node, step_input.lease.execution
        what = f"the output of node '{node.id}'"
        if not isinstance(returned, CONTROL_RESULTS):
            output = self.results.of_small(returned, what) or await self.results.of(execution, returned, what)
            return await self._completed(program, step_input, Run(output, node.success_edges))
        if isinstance(returned, FanOut):
            return await self._fan_out(program, step_input, returned)
        if isinstance(returned, AwaitSignal):
            return self.outside.await_signal(step_input, returned)
        if isinstance(returned, StartChild):
            return await self._continue_node(
                program, step_input, self.outside.start_child(step_input, returned)
            )
        output = await self.results.of(execution, returned.output, what)
        if isinstance(returned, SleepUntil):
            return sleep(step_input, returned.due, output)
        if isinstance(returned, Route):
            run = Run(output, _named_edges(node.success_edges, returned.edges), routed=True)
        else:
            json = await self.results.of(execution, returned.json, what)
            run = Run(output, node.success_edges, json=json)
        return await self._completed(program, step_input, run)

    async def _completed(self, program: Program, step_input: StepInput, run: Run) -> Step:
        """Add the parts that only the shell knows (the execution's output, the item's contribution) and complete the
        run.
        """
        contribution = None
        if step_input.lease.scope:
            contribution = await self._contribution(program, step_input, run)
        if isinstance(contribution, Failure):
            return fail.halt(step_input, contribution)
        if contribution is not None:
            run = msgspec.structs.replace(run, contribution=contribution)
        if not run.taken and ends_alone(step_input, run.taken):
            run = msgspec.structs.replace(run, ending=await self._ending_of(program, step_input, run))
        return complete(step_input, run)

    async def _ending_of(self, program: Program, step_input: StepInput, run: Run) -> Result | Failure | None:
        """Return the execution's output. None if the finishing step must determine it: the node has had effects and
        the output is heavy, so this step can no longer be given up.
        """
        if not self.runner.has_effects(step_input.node):
            return await self._ending(program, step_input, run)
        before = is_light.set(True)
        try:
            return await self._ending(program, step_input, run)
        except Heavy:
            return None
        finally:
            is_light.reset(before)

    async def _ending(self, program: Program, step_input: StepInput, run: Run) -> Result | Failure:
        """Return the execution's output, which is usually the output of the run that ends it."""
        plan = step_input.plan
        if plan.output is None and run.failure is None:
            sources = plan.output_nodes or plan.leaves
            if sources == (step_input.lease.node,):
                return run.output
        return await self.evaluation.ending(program, step_input, with_output(step_input, run))

    async def _contribution(
        self, program: Program, step_input: StepInput, run: Run
    ) -> Result | Failure | None:
        """Return what the item contributes to its aggregator if that has an ``output`` expression. If several
        branches of an item lead there, the expression is evaluated where they are merged.
        """
        if not step_input.node.solitary:
            return None
        for edge in run.taken:
            if self.evaluation.expects(step_input, edge.dst):
                body = msgspec.structs.replace(step_input.body, context=with_output(step_input, run))
                return await self.evaluation.contribution(program, step_input, body, edge.dst)
        return None

    # -- failures ---------------------------------------------------------------------------------------------

    async def _failed(
        self,
        program: Program,
        step_input: StepInput,
        failure: Failure,
        entries: Mapping[str, Result] | None = None,
    ) -> Step:
        node = step_input.node
        if self.transactions.has(step_input.lease):
            await self.transactions.abandon(step_input.lease)
        if fail.retries(step_input, failure):
            return fail.retry(step_input, failure)
        if fail.halts(node):
            return fail.halt(step_input, failure)
        output = fail.error_output(failure)
        edges = fail.edges_despite(node)
        run = Run(output, edges, routed=True, failure=failure, entries=entries)
        if node.control == "split" and node.strategy == "ignore":
            return split.empty(step_input, run)
        return await self._completed(program, step_input, run)

    # -- splits -----------------------------------------------------------------------------------------------

    async def _fan_out(self, program: Program, step_input: StepInput, fan: FanOut) -> Step:
        node = step_input.node
        if len(fan.items) > self.limits.split_items:
            return await self._failed(program, step_input, _too_many(len(fan.items), self.limits, node.id))
        if not fan.items:
            return split.empty(step_input, Run(NULL, ()))
        halts = fan.on_item_error == "halt" or (fan.on_item_error is None and node.aggregator is None)
        count = split.chunk(len(fan.items), fan.window, 0, self.items_per_commit)
        what = f"the items of split '{node.id}'"
        array = await self.results.of(step_input.lease.execution, fan.items, what)
        items = await self.results.of_each(step_input.lease.execution, fan.items[:count], what)
        return split.fan_out(step_input, items, array, len(fan.items), fan.window, halts)

    async def _advance(self, step_input: StepInput) -> Step:
        fan = step_input.body.fan
        if fan is None:
            raise InternalError(f"advance token {step_input.lease.token} carries no split")
        count = split.chunk(fan.total, fan.window, fan.cursor, self.items_per_commit)
        array = await self.loader.array(step_input.lease.execution, step_input.body, fan.items)
        chosen = array[fan.cursor : fan.cursor + count]
        items = await self.results.of_each(step_input.lease.execution, chosen, f"the items of '{fan.split}'")
        return split.advance(step_input, fan, items)

    # -- joins ------------------------------------------------------------------------------------------------

    async def _join(self, program: Program, step_input: StepInput) -> Step:
        lease, body = step_input.lease, step_input.body
        if body.fan is not None:
            return await self._gather(program, step_input, body.fan)
        if body.joined:
            return await self._node(program, step_input, await self._payload(step_input))
        if lease.reason == "dead":
            return join.dead(step_input)
        live_arrivals, payloads = await self.join_reader.branches(step_input)
        step_input.body, step_input.stores = live_arrivals.body, live_arrivals.stores
        self._remember(lease.execution, live_arrivals.stores)
        if lease.reason == "timeout":
            failure = join.merge_timeout(
                step_input, len(live_arrivals.arrivals), len(step_input.node.in_edges)
            )
            return await self._failed(program, step_input, _at(step_input, failure))
        result = await self.results.of(lease.execution, payloads, "the payloads of a join")
        entry, stores = place(result.raw, f"{lease.token}/payload", result.blob)
        step_input.body = msgspec.structs.replace(live_arrivals.body, payload=entry)
        step_input.stores = (*live_arrivals.stores, *stores)
        return await self._node(program, step_input, payloads)

    def _remember(self, execution: str, stores: Sequence[StoreOutput]) -> None:
        """Cache the pages of a merged context: this step stores them, and its evaluations may read them before."""
        for store in stores:
            self.loader.remember(execution, store.id, store.data)

    async def _payload(self, step_input: StepInput) -> Any:
        entry = step_input.body.payload
        if entry is None:
            return None
        return decode_value(await self.loader.raw(step_input.lease.execution, step_input.body, entry))

    async def _gather(self, program: Program, step_input: StepInput, fan: Fan) -> Step:
        """Gather the items of a split: all have ended, or the barrier timed out."""
        gathered = await self.join_reader.items(step_input, fan)
        if step_input.lease.reason == "tripped":
            return await self._tripped(program, step_input, fan, gathered.first_failure)
        summary = Result(_summary(fan, gathered.failed))
        if step_input.lease.reason == "timeout":
            step_input.orders += cancel_abandoned(step_input, "")
            failure = join.merge_timeout(step_input, gathered.arrived, fan.total)
            return await self._failed(
                program, step_input, _at(step_input, failure), {key_of(fan.split): summary}
            )
        if step_input.node.control == "split":
            return join.end_split(step_input, summary)
        output = await self.results.of_raw(
            step_input.lease.execution, bytes(gathered.raw), f"the output of '{step_input.node.id}'"
        )
        run = Run(output, step_input.node.success_edges, entries={key_of(fan.split): summary})
        return await self._completed(program, step_input, run)

    async def _tripped(
        self, program: Program, step_input: StepInput, fan: Fan, failure: Failure | None
    ) -> Step:
        """Fail the split because of a failed item: the split's strategy applies, not the aggregator's."""
        if failure is None:
            # The execution has ended and its rows are swept: any decision here will be refused.
            failure = Failure("an item failed", code="ITEM_FAILED", type="ItemFailed", retryable=False)
        lease = msgspec.structs.replace(step_input.lease, node=fan.split)
        named = StepInput(step_input.plan, lease, step_input.body, step_input.now, step_input.started_at)
        return await self._failed(program, named, _at(named, failure))

    # -- endings ----------------------------------------------------------------------------------------------

    async def _finish(self, program: Program, step_input: StepInput) -> Step:
        lease = step_input.lease
        left = await self.ledger.left(lease.execution, lease.scope)
        context, stores, bodies = finish.merge_left(step_input, left)
        self._remember(lease.execution, stores)
        if not lease.scope:
            ending = await self.evaluation.ending(program, step_input, context)
            return finish.finish_root(step_input, context, stores, ending)
        own = await self._merged_item(program, step_input, context) if bodies else None
        if isinstance(own, Failure):
            return fail.halt(step_input, own)
        return finish.finish_item(step_input, bodies, value(own.raw) if own is not None else None)

    async def _merged_item(
        self, program: Program, step_input: StepInput, context: Context
    ) -> Result | Failure | None:
        aggregator = step_input.plan.nodes[step_input.body.loops[-1].split].aggregator
        if aggregator is None:
            return None
        body = msgspec.structs.replace(step_input.body, context=context)
        return await self.evaluation.contribution(program, step_input, body, aggregator)


def _named_edges(edges: Sequence[Edge], names: Sequence[str]) -> tuple[Edge, ...]:
    """Return the edges with these ids, else those that lead to nodes of these names, as documents with dependencies
    name them.
    """
    by_name = {edge.dst: edge for edge in edges} | {edge.id: edge for edge in edges}
    return tuple(by_name[name] for name in names if name in by_name)


def _at(step_input: StepInput, failure: Failure) -> Failure:
    return msgspec.structs.replace(failure, node=step_input.lease.node)


def _too_many(items: int, limits: EngineLimits, node: str) -> Failure:
    return Failure(
        f"split '{node}' has {items:,} items, more than the limit split_items of {limits.split_items:,}",
        code="LIMIT_EXCEEDED",
        type="LimitExceeded",
        node=node,
        retryable=False,
    )


def _limit_exceeded(node: str, error: LimitExceeded) -> Failure:
    return Failure(
        str(error), code="LIMIT_EXCEEDED", type="LimitExceeded", node=node or None, retryable=False
    )


def _internal(node: str, error: Exception) -> Failure:
    return Failure(
        f"internal error in Dal Segno, please report it: {type(error).__name__}: {error}",
        code="INTERNAL_ERROR",
        type="InternalError",
        node=node or None,
        retryable=False,
    )


def _summary(fan: Fan, failed: int) -> bytes:
    """Return the value of ``$<split>`` after the aggregator."""
    summary: dict[str, Any] = {"total": fan.total, "failed": failed}
    if fan.error is not None:
        summary["error"] = fan.error.raw
    return encode_record(summary)
