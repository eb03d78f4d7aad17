"""Token bodies of graphs: opaque bytes to every store, this structure to the core.

The context of a body refers to the outputs before the token without carrying them.

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

from dalsegno.model.effect import StoreOutput
from dalsegno.model.ids import derive

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


# -- contexts -----------------------------------------------------------------------------------------------------


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
