"""Context references: what a token knows of the outputs before it, without carrying them.

A context maps keys (``$<node id>``, ``$trigger``, ``$json``) to entries. Small values stand in the entry itself, up
to ``INLINE_LIMIT`` bytes for the whole context; larger ones are stored once under an id. A context that outgrows its
limit becomes a *page*, itself stored once, and a new small context goes on from it: a token never grows with the
length of its workflow.

Whether an entry is a value or a reference is said by its ``kind``, outside the value: no user data can be read as a
reference, and a reference resolves only within its execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec import Raw, Struct

from dalsegno.model.effect import StoreOutput
from dalsegno.model.ids import derive

INLINE_LIMIT = 4096

VALUE = 0
OUTPUT = 1
BLOB = 2
KEY = 3
ITEM = 4


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """kind VALUE: ``raw`` is the JSON itself · OUTPUT, BLOB: the JSON string of an id · KEY: of a context key ·
    ITEM: the innermost loop's item (``raw`` is unused)."""

    kind: int
    raw: Raw


class Context(Struct, frozen=True, array_like=True, gc=False):
    entries: dict[str, Entry]
    pages: tuple[str, ...] = ()
    """Ids of earlier pages; a later one wins over an earlier one, the entries over all of them."""
    size: int = 0
    """Bytes of the values that stand in ``entries`` themselves."""


EMPTY = Context({})
THE_ITEM = Entry(ITEM, Raw(b"null"))

_encode = msgspec.json.Encoder().encode
_decode_page = msgspec.json.Decoder(Context).decode


@lru_cache(maxsize=65536)
def own_output(node: str) -> Entry:
    """The payload of most edges: the output their source just put into the context."""
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
    """An output as an entry: inside it if small, stored under its owner's id (or as a blob) if not."""
    if blob is not None:
        return reference(BLOB, blob), []
    if len(raw) <= INLINE_LIMIT:
        return value(raw), []
    return reference(OUTPUT, owner), [StoreOutput(owner, raw)]


def extend(context: Context, key: str, entry: Entry, token: str) -> tuple[Context, list[StoreOutput]]:
    """The context plus one entry, and the page to store where that made it too large."""
    size = len(entry.raw)
    if context.size + size <= INLINE_LIMIT:
        entries = context.entries.copy()
        entries[key] = entry
        return Context(entries, context.pages, context.size + size), []
    page = derive(token, "page", key)
    return Context({key: entry}, (page,), size), [StoreOutput(page, encode_page(context))]


def as_page(context: Context, page: str, limit: int) -> tuple[Context, list[StoreOutput]]:
    """The same context with little of its own: for when many tokens will carry it."""
    if context.size <= limit:
        return context, []
    return Context({}, (page,), 0), [StoreOutput(page, encode_page(context))]


def unite(contexts: Sequence[Context], token: str) -> tuple[Context, list[StoreOutput]]:
    """All entries of several contexts; where they disagree the later one wins."""
    if not contexts:
        return EMPTY, []
    first = contexts[0]
    if len(contexts) == 1:
        return first, []
    if _agree(contexts):
        return _unite_entries(contexts, first.pages, token)
    pages, stores = [], []
    for position, context in enumerate(contexts):
        page = derive(token, "united", str(position))
        pages.append(page)
        stores.append(StoreOutput(page, encode_page(context)))
    return Context({}, tuple(pages), 0), stores


def _agree(contexts: Sequence[Context]) -> bool:
    """Whether their own entries can simply be laid over each other. ``$json`` is the one key that is set again and
    again: where one context holds it itself and a later one in a shared page, only whole pages keep the order."""
    pages = contexts[0].pages
    if any(context.pages != pages for context in contexts):
        return False
    return not pages or len({"$json" in context.entries for context in contexts}) == 1


def _unite_entries(
    contexts: Sequence[Context], pages: tuple[str, ...], token: str
) -> tuple[Context, list[StoreOutput]]:
    entries: dict[str, Entry] = {}
    for context in contexts:
        entries.update(context.entries)
    united = Context(entries, pages, sum(len(entry.raw) for entry in entries.values()))
    return as_page(united, derive(token, "united"), INLINE_LIMIT)
