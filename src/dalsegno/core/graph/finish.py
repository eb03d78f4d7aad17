"""The finish step: nothing in the scope is live any more, so what its branches left is merged."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.core.graph.complete import Step, transition_of
from dalsegno.core.graph.ending import cancel_children, completed, failed, item_event, item_result
from dalsegno.core.graph.step_input import (
    Body,
    Context,
    Entry,
    ItemResult,
    Result,
    StepInput,
    decode_body,
    encode,
    merge_contexts,
)
from dalsegno.model.barrier import LeftView
from dalsegno.model.effect import Effect, EndScope, StoreOutput
from dalsegno.model.failure import Failure


def merge_left(
    step_input: StepInput, left: Sequence[LeftView]
) -> tuple[Context, list[StoreOutput], tuple[Body, ...]]:
    """Merge what all branches left, in key order: a later one overrides an earlier one."""
    bodies = tuple(decode_body(entry.data) for entry in left)
    context, stores = merge_contexts([body.context for body in bodies], step_input.lease.token)
    return context, stores, bodies


def finish_root(
    step_input: StepInput, context: Context, stores: Sequence[StoreOutput], ending: Result | Failure
) -> Step:
    if isinstance(ending, Failure):
        finish = failed(step_input, context, ending)
    else:
        finish = completed(step_input, context, ending.raw)
    effects: list[Effect] = [*stores, finish]
    return Step(transition_of(step_input, effects), {})


def finish_item(step_input: StepInput, bodies: Sequence[Body], own: Entry | None) -> Step:
    """End the item with ``own`` (the aggregator's expression) or the payload of the last in-edge."""
    last = bodies[-1] if bodies else None
    if own is not None:
        result = ItemResult(own)
    elif last is not None:
        result = item_result(last.payload, last.context, last)
    else:
        result = ItemResult(None)
    end = EndScope(step_input.lease.scope, encode(result), event=item_event(step_input))
    return Step(transition_of(step_input, (end,)), {})


def expire(step_input: StepInput, timeout: float) -> Step:
    """End a graph whose execution timeout has passed."""
    failure = Failure(
        f"the execution did not end within its timeout of {timeout:g} s", code="TIMEOUT", type="TimeoutError"
    )
    finish = failed(step_input, step_input.body.context, failure)
    return Step(transition_of(step_input, (finish, *cancel_children(step_input, "its parent timed out"))), {})
