"""Context references: how they grow, and what uniting them yields."""

from __future__ import annotations

from dalsegno.core.graph.step_input import (
    INLINE_LIMIT,
    VALUE,
    Context,
    decode_page,
    extend,
    merge_contexts,
    place,
    value,
)


def held(context: Context, pages: dict[str, bytes], key: str) -> bytes | None:
    """What the loader would find."""
    if key in context.entries:
        return bytes(context.entries[key].raw)
    for page in reversed(context.pages):
        found = held(decode_page(pages[page]), pages, key)
        if found is not None:
            return found
    return None


def grown(context: Context, key: str, raw: bytes, token: str, pages: dict[str, bytes]) -> Context:
    context, stores = extend(context, key, value(raw), token)
    pages.update({store.id: store.data for store in stores})
    return context


def test_a_context_that_outgrows_its_limit_becomes_a_page() -> None:
    pages: dict[str, bytes] = {}
    context = Context({})
    for number in range(50):
        context = grown(context, f"$n{number}", b'"%s"' % (b"x" * 200), f"t{number}", pages)
        assert context.size <= INLINE_LIMIT
    assert len(pages) > 1
    assert all(held(context, pages, f"$n{number}") is not None for number in range(50))


def test_a_large_output_is_stored_once_and_referred_to() -> None:
    entry, stores = place(b"x" * (INLINE_LIMIT + 1), "t/$a", None)
    assert entry.kind != VALUE
    assert [store.id for store in stores] == ["t/$a"]


def test_user_data_that_looks_like_a_reference_stays_data() -> None:
    entry, stores = place(b'[1,"t/$a"]', "t/$b", None)
    assert (entry.kind, bytes(entry.raw), stores) == (VALUE, b'[1,"t/$a"]', [])


def test_the_later_context_wins_whether_or_not_it_was_paged() -> None:
    for padding in (10, INLINE_LIMIT):
        pages: dict[str, bytes] = {}
        before = grown(Context({}), "$json", b"1", "a", pages)
        before = grown(before, "$big", b'"%s"' % (b"x" * padding), "b", pages)
        edited = grown(before, "$json", b"2", "c", pages)
        for contexts, wanted in (((edited, before), b"1"), ((before, edited), b"2")):
            united, stores = merge_contexts(contexts, "join")
            pages.update({store.id: store.data for store in stores})
            assert held(united, pages, "$json") == wanted, padding
            assert held(united, pages, "$big") is not None
