"""A split opened by hand: its aggregator's barrier, one scope and one token per item."""

from __future__ import annotations

from dalsegno.model.effect import Effect, OpenBarrier, OpenScope
from dalsegno.model.ids import ROOT_SCOPE
from dalsegno.model.token import Lease, NewToken
from dalsegno.testing.contract.build import aggregator, milestone, step, token
from dalsegno.testing.contract.stack import ContractStack


def item(index: int, parent: str = ROOT_SCOPE) -> str:
    """The scope of an item."""
    return f"{parent}/split:{index}"


def item_token(index: int, parent: str = ROOT_SCOPE) -> str:
    return f"item{parent}:{index}"


def open_items(count: int, parent: str = ROOT_SCOPE, first: int = 0) -> list[Effect | NewToken]:
    """Scopes and first tokens of ``count`` items."""
    collect = aggregator(scope=parent)
    effects: list[Effect | NewToken] = []
    for index in range(first, first + count):
        effects.append(OpenScope(item(index, parent), collect.id, index))
        effects.append(token(item_token(index, parent), item(index, parent), node="work"))
    return effects


async def open_split(
    stack: ContractStack,
    count: int,
    *,
    parent: Lease | None = None,
    within: float | None = None,
    expected: int | None = None,
    milestone_at: int | None = None,
    also: tuple[NewToken, ...] = (),
) -> list[Lease]:
    """Splits in the root, or inside an item whose lease is given. Returns the items' leases in order."""
    if parent is None:
        parent = (await stack.begin(token("split")))["split"]
    collect = aggregator(expected=expected or count, timeout=within, scope=parent.scope)
    mark = milestone(milestone_at) if milestone_at is not None else None
    effects = [OpenBarrier(collect, mark), *open_items(count, parent.scope), *also]
    await stack.apply(step(parent, *effects))
    leases = await stack.take()
    return [leases[item_token(index, parent.scope)] for index in range(count)] + [
        leases[extra.id] for extra in also
    ]
