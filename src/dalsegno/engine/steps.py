"""One step: from a lease to the transition it leads to, by kind of token.

This is the shell around ``core``: it fetches what the rules need (slots, outputs, expressions' values), lets the node
run and hands everything to the pure functions that decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dalsegno.core import fail, finish, join, skip, split
from dalsegno.core.body import Body, decode_body
from dalsegno.core.complete import Run, Step, complete, ends_alone
from dalsegno.core.context import VALUE, Context, Entry, key_of, place, value
from dalsegno.core.ending import output_failure, output_roots, output_value
from dalsegno.core.situation import Result, Situation
from dalsegno.core.sleep import sleep
from dalsegno.core.values import decode_value, encode_value
from dalsegno.engine.definitions import Definitions, Program
from dalsegno.engine.loader import Loader
from dalsegno.engine.runner import Runner, execution_meta, failure_of
from dalsegno.errors import InternalError, NotJson
from dalsegno.graph.plan import Edge
from dalsegno.lang import ExpressionFailed
from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.ports.blobs import Blobs
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.node import FanOut, Route, SleepUntil, Working

BLOB_SIZE = 256 * 1024
"""Values from this size on are kept as blobs, apart from the rows."""

NULL = Result(b"null")


class Steps:
    def __init__(
        self, ledger: Ledger, blobs: Blobs, definitions: Definitions, loader: Loader, runner: Runner
    ) -> None:
        self.ledger = ledger
        self.blobs = blobs
        self.definitions = definitions
        self.loader = loader
        self.runner = runner

    async def step(self, lease: Lease, body: Body | None = None) -> Step:
        program = self.definitions.cached(lease.definition) or await self.definitions.by_hash(
            lease.definition
        )
        now = self.ledger.now()
        situation = Situation(program.plan, lease, body or decode_body(lease.data), now, now)
        match lease.kind:
            case "node":
                return await self._node(program, situation)
            case "join":
                return await self._join(program, situation)
            case "advance":
                return await self._advance(situation)
            case "closed":
                gate = f"{lease.epoch}|{lease.scope}|{lease.node}|gate"
                return skip.close_gate(situation, await self.ledger.gate_used(lease.execution, gate))
            case "finish":
                return await self._finish(program, situation)
            case "deadline":
                return finish.expire(situation, program.plan.timeout or 0.0)

    # -- running a node ---------------------------------------------------------------------------------------

    async def _node(self, program: Program, situation: Situation, payload: Any = None) -> Step:
        if situation.lease.losses >= fail.MAX_LOSSES:
            return await self._failed(program, situation, _at(situation, fail.WORKER_LOST))
        if situation.body.sleeping is not None:
            output = Result(bytes(situation.body.sleeping.raw))
            return await self._completed(program, situation, Run(output, situation.node.success_edges), None)
        returned = await self.runner.run(program, situation, payload)
        situation.now = self.ledger.now()
        if isinstance(returned, Failure):
            return await self._failed(program, situation, returned)
        try:
            return await self._returned(program, situation, returned)
        except NotJson as error:
            return await self._failed(program, situation, failure_of(error, situation.node))

    async def _returned(self, program: Program, situation: Situation, returned: Any) -> Step:
        node = situation.node
        what = f"the output of node '{node.id}'"
        if isinstance(returned, Route):
            edges = _named_edges(node.success_edges, returned.edges)
            run = Run(await self._result(situation, returned.output, what), edges, routed=True)
            return await self._completed(program, situation, run, returned.output)
        if isinstance(returned, FanOut):
            return await self._fan_out(situation, returned)
        if isinstance(returned, SleepUntil):
            return sleep(situation, returned.due, await self._result(situation, returned.output, what))
        if isinstance(returned, Working):
            output = await self._result(situation, returned.output, what)
            json = await self._result(situation, returned.json, what)
            run = Run(output, node.success_edges, json=json)
            return await self._completed(program, situation, run, returned.output)
        run = Run(await self._result(situation, returned, what), node.success_edges)
        return await self._completed(program, situation, run, returned)

    async def _result(self, situation: Situation, output: Any, what: str) -> Result:
        raw = encode_value(output, what)
        if len(raw) < BLOB_SIZE:
            return Result(raw)
        return Result(raw, await self.blobs.put(situation.lease.execution, raw))

    async def _completed(self, program: Program, situation: Situation, run: Run, output: Any) -> Step:
        """Adds what only the shell can know (the execution's output, the item's contribution) and completes."""
        contribution = await self._contribution(program, situation, run)
        if isinstance(contribution, Failure):
            return fail.halt(situation, contribution)
        if contribution is not None:
            run = msgspec.structs.replace(run, contribution=contribution)
        if ends_alone(situation, run.taken):
            context = _with_output(situation, run)
            ending = await self._ending(program, situation, context, run)
            run = msgspec.structs.replace(run, ending=ending)
        return complete(situation, run)

    async def _contribution(
        self, program: Program, situation: Situation, run: Run
    ) -> Result | Failure | None:
        """What the item brings to its aggregator, where that has an ``output`` expression. Several branches of an
        item may get there: then the expression is evaluated where they are united."""
        if not situation.node.solitary:
            return None
        plan = situation.plan
        for edge in run.taken:
            target = plan.nodes[edge.dst]
            if target.control == "aggregator" and "output" in target.parameters.expressions:
                body = msgspec.structs.replace(situation.body, context=_with_output(situation, run))
                return await self._evaluate_item(program, situation, body, target.id)
        return None

    async def _evaluate_item(
        self, program: Program, situation: Situation, body: Body, aggregator: str
    ) -> Result | Failure:
        node = situation.plan.nodes[aggregator]
        expression = node.parameters.expressions["output"]
        meta = execution_meta(program, situation.lease.execution)
        lookup = await self.loader.lookup(situation.lease.execution, body, expression.roots, meta)
        try:
            brought = expression.evaluate(lookup, now=situation.now)
            return await self._result(situation, brought, f"what the item brings to '{aggregator}'")
        except (ExpressionFailed, NotJson) as error:
            return failure_of(error, node)

    # -- failures ---------------------------------------------------------------------------------------------

    async def _failed(self, program: Program, situation: Situation, failure: Failure) -> Step:
        node = situation.node
        if fail.retries(situation, failure):
            return fail.retry(situation, failure)
        if fail.halts(node):
            return fail.halt(situation, failure)
        output = fail.error_output(failure)
        edges = fail.edges_despite(node)
        run = Run(output, edges, routed=True, failure=failure)
        if node.control == "split" and node.strategy == "ignore":
            return split.empty(situation, run)
        return await self._completed(program, situation, run, None)

    # -- splits -----------------------------------------------------------------------------------------------

    async def _fan_out(self, situation: Situation, fan: FanOut) -> Step:
        node = situation.node
        if not fan.items:
            return split.empty(situation, Run(NULL, ()))
        halts = fan.on_item_error == "halt" or (fan.on_item_error is None and node.aggregator is None)
        count = split.chunk(len(fan.items), fan.window)
        array = await self._result(situation, fan.items, f"the items of split '{node.id}'")
        items = await self._items(situation, fan.items[:count])
        return split.fan_out(situation, items, array, len(fan.items), fan.window, halts)

    async def _items(self, situation: Situation, items: Sequence[Any]) -> list[Result]:
        what = f"an item of split '{situation.lease.node}'"
        return [await self._result(situation, item, what) for item in items]

    async def _advance(self, situation: Situation) -> Step:
        fan = situation.body.fan
        if fan is None:
            raise InternalError(f"advance token {situation.lease.token} carries no split")
        count = split.chunk(fan.total, fan.window, fan.cursor)
        array = await self.loader.array(situation.lease.execution, situation.body, fan.items)
        items = await self._items(situation, array[fan.cursor : fan.cursor + count])
        return split.advance(situation, fan, items)

    # -- joins ------------------------------------------------------------------------------------------------

    async def _join(self, program: Program, situation: Situation) -> Step:
        lease, body = situation.lease, situation.body
        if body.fan is not None:
            return await self._gather(program, situation)
        if body.joined:
            return await self._node(program, situation, await self._payload(situation))
        if lease.reason == "dead":
            return join.dead(situation)
        barrier = f"{lease.epoch}|{lease.scope}|{lease.node}|"
        slots = await self.ledger.slots(lease.execution, barrier)
        meeting = join.meet(situation, slots)
        payloads = [
            decode_value(await self.loader.raw(lease.execution, arrival, arrival.payload))
            for arrival in meeting.arrivals
            if arrival.payload is not None
        ]
        situation.body = meeting.body
        situation.stores = meeting.stores
        if lease.reason == "timeout":
            failure = join.merge_timeout(situation, len(meeting.arrivals), len(situation.node.in_edges))
            return await self._failed(program, situation, _at(situation, failure))
        result = await self._result(situation, payloads, "the payloads of a join")
        entry, stores = place(result.raw, f"{lease.token}/payload", result.blob)
        situation.body = msgspec.structs.replace(meeting.body, payload=entry)
        situation.stores = (*meeting.stores, *stores)
        return await self._node(program, situation, payloads)

    async def _payload(self, situation: Situation) -> Any:
        entry = situation.body.payload
        if entry is None:
            return None
        return decode_value(await self.loader.raw(situation.lease.execution, situation.body, entry))

    async def _gather(self, program: Program, situation: Situation) -> Step:
        """The items of a split meet: all have ended, or the barrier gave up."""
        lease, fan = situation.lease, situation.body.fan
        if fan is None:
            raise InternalError(f"join token {lease.token} carries no split")
        barrier = f"{lease.epoch}|{lease.scope}|{fan.split}|{fan.token}"
        slots = await self.ledger.slots(lease.execution, barrier) if fan.total else []
        results = join.item_results(slots, fan.total)
        if lease.reason == "tripped":
            return await self._tripped(program, situation, join.item_failure(results))
        if lease.reason == "timeout":
            failure = join.merge_timeout(situation, len(slots), fan.total)
            return await self._failed(program, situation, _at(situation, failure))
        failed = sum(result.failed for result in results)
        summary = Result(encode_value({"total": fan.total, "failed": failed}))
        if situation.node.control == "split":
            return join.end_split(situation, summary)
        raw = await self._gathered(situation, results)
        blob = await self.blobs.put(lease.execution, raw) if len(raw) >= BLOB_SIZE else None
        run = Run(Result(raw, blob), situation.node.success_edges, entries={key_of(fan.split): summary})
        return await self._completed(program, situation, run, None)

    async def _gathered(self, situation: Situation, results: Sequence[Any]) -> bytes:
        """The list of what the items brought, spliced from their bytes: nothing is decoded."""
        execution = situation.lease.execution
        raws = []
        for result in results:
            if result.value is None:
                raws.append(b"null")
            elif result.value.kind == VALUE:
                raws.append(result.value.raw)
            else:
                body = Body(context=result.context or Context({}))
                raws.append(await self.loader.raw(execution, body, result.value))
        return b"[" + b",".join(bytes(raw) for raw in raws) + b"]"

    async def _tripped(self, program: Program, situation: Situation, failure: Failure) -> Step:
        """A failed item fails the split itself: its strategy decides, not the aggregator's."""
        fan = situation.body.fan
        if fan is None:
            raise InternalError("a tripped join carries no split")
        lease = msgspec.structs.replace(situation.lease, node=fan.split)
        named = Situation(situation.plan, lease, situation.body, situation.now, situation.started_at)
        return await self._failed(program, named, _at(named, failure))

    # -- endings ----------------------------------------------------------------------------------------------

    async def _finish(self, program: Program, situation: Situation) -> Step:
        lease = situation.lease
        left = await self.ledger.left(lease.execution, lease.scope)
        context, stores, bodies = finish.united(situation, left)
        if not lease.scope:
            pages = {store.id: store.data for store in stores}
            for name, data in pages.items():
                self.loader.remember(lease.execution, name, data)
            ending = await self._ending(program, situation, context, None)
            return finish.finish_root(situation, context, stores, ending)
        own = await self._united_item(program, situation, context, stores) if bodies else None
        if isinstance(own, Failure):
            return fail.halt(situation, own)
        return finish.finish_item(situation, bodies, own)

    async def _united_item(
        self, program: Program, situation: Situation, context: Context, stores: Sequence[Any]
    ) -> Entry | Failure | None:
        split_node = situation.plan.nodes[situation.body.loops[-1].split]
        aggregator = split_node.aggregator
        if aggregator is None or "output" not in situation.plan.nodes[aggregator].parameters.expressions:
            return None
        for store in stores:
            self.loader.remember(situation.lease.execution, store.id, store.data)
        body = msgspec.structs.replace(situation.body, context=context)
        brought = await self._evaluate_item(program, situation, body, aggregator)
        return brought if isinstance(brought, Failure) else value(brought.raw)

    async def _ending(
        self, program: Program, situation: Situation, context: Context, run: Run | None
    ) -> Result | Failure:
        """The execution's output, from what is in its final context."""
        plan, execution = situation.plan, situation.lease.execution
        own = run is not None and plan.output is None
        sources = plan.output_nodes or plan.leaves
        if own and run is not None and sources == (situation.lease.node,) and run.failure is None:
            return run.output
        body = Body(context=context)
        meta = execution_meta(program, execution)
        lookup = await self.loader.lookup(execution, body, output_roots(plan), meta)
        try:
            output = output_value(plan, lookup, situation.now)
            return Result(encode_value(output, "the workflow's output"))
        except ExpressionFailed as error:
            return output_failure(error)


def _named_edges(edges: Sequence[Edge], names: Sequence[str]) -> tuple[Edge, ...]:
    """Own edges by id, else by the node they lead to (as documents with dependencies name them)."""
    by_name = {edge.dst: edge for edge in edges} | {edge.id: edge for edge in edges}
    return tuple(by_name[name] for name in names if name in by_name)


def _at(situation: Situation, failure: Failure) -> Failure:
    return msgspec.structs.replace(failure, node=situation.lease.node)


def _with_output(situation: Situation, run: Run) -> Context:
    """The context as it will be once this run is recorded; large outputs count as values here."""
    context = situation.body.context
    entries = dict(context.entries)
    for key, result in (run.entries or {}).items():
        entries[key] = value(result.raw)
    entries[key_of(situation.lease.node)] = value(run.output.raw)
    if run.json is not None:
        entries["$json"] = value(run.json.raw)
    return Context(entries, context.pages, context.size)
