"""The input of a step: the token with its body, its plan and the time. A rule sees nothing else.

Token bodies of graphs are opaque bytes to every store, and this structure to the core. The context of a body refers
to the outputs before the token without carrying them.

A context maps keys (``$<node id>``, ``$trigger``, ``$json``) to entries. Small values are inline, up to
``INLINE_LIMIT`` bytes for the whole context; larger ones are stored once under an id. A context that exceeds
its limit becomes a *page*, itself stored once, and a new small context refers to it: a token does not grow with
the length of its workflow.

The entry's ``kind``, outside the value, says whether it is a value or a reference: no user data can be read as
a reference, and a reference resolves only within its execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.graph.plan import Node, Plan
from dalsegno.model.effect import StoreOutput, WriteOutbox
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.failure import NO_RETRY, RetryPolicy
from dalsegno.model.ids import derive
from dalsegno.model.token import SYSTEM_QUEUE, Lease, NewToken, TokenKind

INLINE_LIMIT = 4096
PAGE_BYTES = 262_144

VALUE = 0
OUTPUT = 1
BLOB = 2
KEY = 3
ITEM = 4


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """An entry of a context.

    ``raw`` depends on the kind. VALUE: the JSON itself · OUTPUT, BLOB: an id as a JSON string · KEY: a context
    key · ITEM: the innermost loop's item (``raw`` is unused).
    """

    kind: int
    raw: Raw


class Context(Struct, frozen=True, array_like=True, gc=False):
    entries: dict[str, Entry]
    pages: tuple[str, ...] = ()
    """Ids of earlier pages; a later one overrides an earlier one, ``entries`` overrides all of them."""
    size: int = 0
    """Bytes of the values that are inline in ``entries``."""


EMPTY = Context({})
ITEM_ENTRY = Entry(ITEM, Raw(b"null"))


class Loop(Struct, frozen=True, array_like=True, gc=False):
    """One split around a token, seen from inside an item."""

    split: str
    index: int
    total: int
    item: Entry
    halts: bool
    """A failed item fails the whole split."""


class Fan(Struct, frozen=True, array_like=True, gc=False):
    """A split in progress, carried by its join token and its advance tokens."""

    split: str
    token: str
    """The split's own token: part of its items' scope paths and of its barrier's id."""
    total: int
    window: int
    items: Entry
    halts: bool
    cursor: int = 0
    error: Entry | None = None
    """The error of a split without items that failed and continues in spite of it."""


class Awaiting(Struct, frozen=True, array_like=True, gc=False):
    """What a parked node waits for from outside: ``awaits`` is ``signal:<name>`` or ``child:<execution>``."""

    awaits: str
    since: float
    due: float | None = None
    """When the wait times out."""
    question: dict[str, Any] | None = None
    """What the node asks people while it waits, if it asks."""


class Body(Struct, frozen=True, array_like=True, gc=False):
    context: Context = EMPTY
    payload: Entry | None = None
    """The payload of the incoming edge."""
    path: str = ""
    """Edge positions at the forks behind this token: they order what branches leave, independent of time."""
    loops: tuple[Loop, ...] = ()
    sleeping: Entry | None = None
    """For a wait that was parked: its output when it wakes."""
    joined: bool = False
    """For a join token parked for a retry: its slots are merged already."""
    fan: Fan | None = None
    awaiting: Awaiting | None = None
    """For a node that was parked for something from outside."""


class ItemResult(Struct, frozen=True, array_like=True, gc=False):
    """The result of an item's scope. ``value`` is None if no branch reached the aggregator."""

    value: Entry | None
    failed: bool = False
    context: Context | None = None
    """Set only if ``value`` is a key that is in a page of this context."""


_encode = msgspec.json.Encoder().encode
_decode_body = msgspec.json.Decoder(Body).decode
_decode_result = msgspec.json.Decoder(ItemResult).decode
_decode_page = msgspec.json.Decoder(Context).decode


def encode(body: Body | ItemResult) -> bytes:
    return _encode(body)


def decode_body(data: bytes) -> Body:
    return _decode_body(data)


def decode_result(data: bytes) -> ItemResult:
    return _decode_result(data)


# -- contexts --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def own_output(node: str) -> Entry:
    """Return the payload of most edges: the output that their source just put into the context."""
    return reference(KEY, key_of(node))


def value(raw: bytes) -> Entry:
    return Entry(VALUE, Raw(raw))


def reference(kind: int, name: str) -> Entry:
    return Entry(kind, Raw(_encode(name)))


def reference_name(entry: Entry) -> str:
    return msgspec.json.decode(entry.raw, type=str)


def encode_page(context: Context) -> bytes:
    return _encode(context)


def decode_page(data: bytes) -> Context:
    return _decode_page(data)


def key_of(node: str) -> str:
    return "$" + node


def place(raw: bytes, owner: str, blob: str | None) -> tuple[Entry, list[StoreOutput]]:
    """Turn an output into an entry: inline if small, else stored under its owner's id (or as a blob)."""
    if blob is not None:
        return reference(BLOB, blob), []
    if len(raw) <= INLINE_LIMIT:
        return value(raw), []
    return reference(OUTPUT, owner), [StoreOutput(owner, raw)]


def extend(context: Context, key: str, entry: Entry, token: str) -> tuple[Context, list[StoreOutput]]:
    """Return the context plus one entry, and the page to store if the context became too large."""
    size = len(entry.raw)
    if context.size + size <= INLINE_LIMIT:
        entries = context.entries.copy()
        entries[key] = entry
        return Context(entries, context.pages, context.size + size), []
    page = derive(token, "page", key)
    return Context({key: entry}, (page,), size), [StoreOutput(page, encode_page(context))]


def context_of(entries: Sequence[tuple[str, Entry]], token: str) -> tuple[Context, list[StoreOutput]]:
    """Return a context with many entries at once, and the pages to store if they are too large for tokens."""
    kept: dict[str, Entry] = {}
    size, pages, stores = 0, list[str](), list[StoreOutput]()
    for key, entry in entries:
        if size > PAGE_BYTES:
            _add_page(kept, size, token, pages, stores)
            kept, size = {}, 0
        kept[key] = entry
        size += len(key) + len(entry.raw)
    if size > INLINE_LIMIT:
        _add_page(kept, size, token, pages, stores)
        kept, size = {}, 0
    return Context(kept, tuple(pages), size), stores


def _add_page(
    entries: dict[str, Entry], size: int, token: str, pages: list[str], stores: list[StoreOutput]
) -> None:
    pages.append(derive(token, "page", str(len(pages))))
    stores.append(StoreOutput(pages[-1], encode_page(Context(entries, (), size))))


def as_page(context: Context, page: str, limit: int) -> tuple[Context, list[StoreOutput]]:
    """Move the context's entries into a page, for a context that many tokens will carry."""
    if context.size <= limit:
        return context, []
    return Context({}, (page,), 0), [StoreOutput(page, encode_page(context))]


def merge_contexts(contexts: Sequence[Context], token: str) -> tuple[Context, list[StoreOutput]]:
    """Merge the entries of several contexts; a later one overrides an earlier one."""
    if not contexts:
        return EMPTY, []
    first = contexts[0]
    if len(contexts) == 1:
        return first, []
    if _agree(contexts):
        return _merge_entries(contexts, first.pages, token)
    pages, stores = [], []
    for position, context in enumerate(contexts):
        page = derive(token, "united", str(position))
        pages.append(page)
        stores.append(StoreOutput(page, encode_page(context)))
    return Context({}, tuple(pages), 0), stores


def _agree(contexts: Sequence[Context]) -> bool:
    """Return True if the contexts' own entries can simply be merged.

    ``$json`` is the one key that is set repeatedly: if one context holds it inline and a later one in a shared
    page, only whole pages keep the order.
    """
    pages = contexts[0].pages
    if any(context.pages != pages for context in contexts):
        return False
    return not pages or len({"$json" in context.entries for context in contexts}) == 1


def _merge_entries(
    contexts: Sequence[Context], pages: tuple[str, ...], token: str
) -> tuple[Context, list[StoreOutput]]:
    entries: dict[str, Entry] = {}
    for context in contexts:
        entries.update(context.entries)
    merged = Context(entries, pages, sum(len(entry.raw) for entry in entries.values()))
    return as_page(merged, derive(token, "united"), INLINE_LIMIT)


class StepInput(Struct, gc=False):
    plan: Plan
    lease: Lease
    body: Body
    now: float
    started_at: float
    stores: tuple[StoreOutput, ...] = ()
    """Pages of a context that was merged for this step: stored by the transition it leads to."""

    retry: RetryPolicy | None = None
    """The policy of the task that ran, used if the document gives none."""
    orders: tuple[WriteOutbox, ...] = ()
    """What the step sends to other executions, whichever transition it leads to."""
    events: tuple[NewEvent, ...] = ()
    """The history events of these orders."""
    node: Node = None  # type: ignore[assignment]
    """The lease's node. A bookkeeping token without a node has None: its steps do not use it."""

    def __post_init__(self) -> None:
        self.node = self.plan.nodes.get(self.lease.node)  # type: ignore[assignment]

    @property
    def tripped(self) -> bool:
        """Return True for a split that opened its items already and fails now because one of them did."""
        return self.body.fan is not None and self.node.control == "split"

    @property
    def policy(self) -> RetryPolicy:
        own = self.node.retry
        return own if self.retry is None or own != NO_RETRY else self.retry


class Result(Struct, frozen=True, gc=False):
    """A run's output as the core receives it: JSON, and its blob if it is large."""

    raw: bytes
    blob: str | None = None


class RunRecord(Struct, frozen=True, omit_defaults=True, gc=False):
    """The data of an event about a run of a node."""

    queued_at: float
    started_at: float
    attempt: int = 1
    output: Raw | None = None
    output_ref: str | None = None
    error: dict[str, Any] | None = None
    edges: tuple[str, ...] | None = None
    """The out-edges taken, if the node had a choice."""
    retry_at: float | None = None
    resume_at: float | None = None
    json: Raw | None = None
    json_ref: str | None = None
    """The working payload the run left: inline, by reference, or ``same`` as its output."""
    entries: dict[str, Raw] | None = None
    """Further context entries the run left (an aggregator's ``$<split>``)."""
    items: int | None = None
    """For a split: how many items it has opened, or will open."""
    tripped: bool = False
    """A split that had succeeded failed later because of an item: this is not another run."""
    signal: str | None = None
    child: str | None = None
    """What a waiting node waits for: a signal by name, or an execution by id."""
    due: float | None = None
    """When the wait times out."""
    question: dict[str, Any] | None = None
    """What the node asks people while it waits."""


encode_record = msgspec.json.Encoder().encode


def run_event(kind: EventKind, step_input: StepInput, record: RunRecord) -> NewEvent:
    lease = step_input.lease
    return NewEvent(kind, lease.node, lease.scope, step_input.now, encode_record(record), lease.token)


def system_token(
    step_input: StepInput, kind: TokenKind, cause: str, node: str, data: bytes, *, live: bool = True
) -> NewToken:
    """Return a bookkeeping token in the scope of the step, named by its cause."""
    lease = step_input.lease
    return NewToken(
        derive(lease.execution, str(lease.epoch), kind, lease.scope, cause),
        lease.scope,
        kind,
        node,
        data,
        SYSTEM_QUEUE,
        lease.priority,
        live=live,
    )
