"""The positions of iterators that Python describes only in part, such as those of `itertools`.

Each is converted to an iterator of `itertools_classes` at the same position, which is then stored. No item is consumed.
Up to 3.13, Python gives the position by ``__reduce__``; the garbage collector gives the objects that an iterator refers
to.
"""

from __future__ import annotations

import collections
import gc
import itertools
import operator
import sys
import warnings
from collections.abc import Callable
from typing import Any

from dalsegno.lang.python.runtime import itertools_classes as own
from dalsegno.lang.python.snapshot import iterators

_WARNING = "Pickle, copy, and deepcopy support will be removed from itertools"
_grouper = type(next(itertools.groupby("a"))[1])
_tee: type = type(itertools.tee(())[0])
_tee_data = getattr(itertools, "_tee_dataobject")  # noqa: B009 - not in the stubs


class _Indexed:
    """An object with items and nothing else: Python iterates over it by index."""

    def __getitem__(self, index: int) -> Any:
        raise IndexError(index)


_CLASSES: tuple[type, ...] = (
    own.Accumulate,
    own.Batched,
    own.Chain,
    own.Combinations,
    own.CombinationsWithReplacement,
    own.Compress,
    own.Count,
    own.Cycle,
    own.DropWhile,
    own.Filter,
    own.FilterFalse,
    own.GroupBy,
    own.Grouper,
    own.Islice,
    own.Pairwise,
    own.Permutations,
    own.Product,
    own.Repeat,
    own.StarMap,
    own.TakeWhile,
    own.Tee,
    own.TeeData,
    own.ZipLongest,
    iterators.CallIterator,
    iterators.DequeIterator,
    iterators.Enumerate,
    iterators.Map,
    iterators.SequenceIterator,
    iterators.Zip,
)
CLASSES: dict[str, type] = {kind.__name__: kind for kind in _CLASSES}
"""The classes by the name under which they are stored."""


def slots_of(kind: type) -> tuple[str, ...]:
    return tuple(name for each in reversed(kind.__mro__) for name in each.__dict__.get("__slots__", ()))


def made(kind: Any, **state: Any) -> Any:
    """Create an iterator in the given state."""
    found = kind.__new__(kind)
    for name in slots_of(kind):
        setattr(found, name, state[name])
    return found


def _reduced(value: Any) -> tuple[Any, ...]:
    """Return the result of ``__reduce__`` without the deprecation warning of Python 3.12.

    The method is called only on versions that have it. Segments run in threads, where warnings cannot be caught, so
    this warning is ignored permanently.
    """
    if sys.version_info >= (3, 12):
        warnings.filterwarnings("ignore", _WARNING, DeprecationWarning)
    found: tuple[Any, ...] = value.__reduce__()
    return found


def _referred(value: Any) -> list[Any]:
    found = gc.get_referents(value)
    return found[1:] if found and found[0] is type(value) else found


def _count(value: Any) -> Any:
    arguments = _reduced(value)[1]
    return own.Count(*arguments)


def _cycle(value: Any) -> Any:
    _, (source,), (saved, is_over) = _reduced(value)
    if not is_over:
        return made(own.Cycle, source=source, saved=saved, place=0)
    place = len(saved) - operator.length_hint(source)
    return made(own.Cycle, source=None, saved=saved, place=place % max(len(saved), 1))


def _repeat(value: Any) -> Any:
    [item, *left] = _reduced(value)[1]
    return made(own.Repeat, value=item, left=left[0] if left else None)


def _chain(value: Any) -> Any:
    _, _, *state = _reduced(value)
    outer, inner = (*state[0], None)[:2] if state else (None, None)
    return made(own.Chain, outer=outer, inner=inner)


def _islice(value: Any) -> Any:
    _, (source, *bounds), taken = _reduced(value)
    if len(bounds) == 1:
        return made(own.Islice, source=None, following=0, stop=0, step=1, taken=0)
    following, stop, step = bounds
    return made(own.Islice, source=source, following=following, stop=stop, step=step, taken=taken)


def _accumulate(value: Any) -> Any:
    """Convert an ``accumulate`` from its referents.

    They are function, source, total and initial value, each only if it exists.
    """
    found = _referred(value)
    function = None if _is_iterator(found[0]) else found.pop(0)
    source, *total, initial = found
    return made(
        own.Accumulate,
        source=source,
        function=function,
        initial=initial,
        total=total[0] if total else None,
        begun=bool(total),
    )


def _is_iterator(value: Any) -> bool:
    return hasattr(type(value), "__next__") and not callable(value)


def _zip_longest(value: Any) -> Any:
    _, sources, fill = _reduced(value)
    return made(own.ZipLongest, sources=[None if each == () else each for each in sources], fill=fill)


def _choices(kind: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        _, arguments, *state = _reduced(value)
        pools, length = (arguments, len(arguments)) if kind is own.Product else (arguments[:1], arguments[1])
        if kind is own.Permutations and state:
            indices, cycles = state[0]
        else:
            indices, cycles = (state[0] if state else None), ()
        fresh = kind(*arguments)
        return made(
            kind,
            pools=tuple(pools),
            length=length,
            done=fresh.done or (not state and len(_referred(value)) > 1),
            indices=None if indices is None else list(indices),
            cycles=list(cycles),
        )

    return convert


_RESULTS_OF_PAIRWISE = len(_referred(itertools.pairwise(()))) - 1
"""Newer releases keep a tuple for their results, after all other referents."""


def _pairwise(value: Any) -> Any:
    referred = _referred(value)
    found = referred[: len(referred) - _RESULTS_OF_PAIRWISE]
    source, old = (*found, None, None)[:2]
    return made(own.Pairwise, source=source, old=old, begun=len(found) > 1)


def _take_while(value: Any) -> Any:
    _, (predicate, source), done = _reduced(value)
    return made(own.TakeWhile, predicate=predicate, source=source, done=bool(done))


def _drop_while(value: Any) -> Any:
    _, (predicate, source), begun = _reduced(value)
    return made(own.DropWhile, predicate=predicate, source=source, begun=bool(begun))


def _filter_false(value: Any) -> Any:
    predicate, source = _reduced(value)[1]
    return made(own.FilterFalse, predicate=predicate, source=source, wanted=False)


def _star_map(value: Any) -> Any:
    function, source = _reduced(value)[1]
    return made(own.StarMap, function=function, source=source)


def _compress(value: Any) -> Any:
    data, selectors = _reduced(value)[1]
    return made(own.Compress, data=data, selectors=selectors)


def _group_by(value: Any) -> Any:
    """Convert a ``groupby``. ``__reduce__`` loses the key of a group that is being read."""
    source, key, *keys = _referred(value)
    target, current, item = (*keys, None, None, None)[:3]
    return made(
        own.GroupBy,
        source=source,
        key=key,
        has_target=bool(keys),
        target=target,
        has_current=len(keys) == 3,
        current=current,
        item=item,
        number=1,
    )


def _group(value: Any) -> Any:
    """Convert a group. Python abandons a group when the next one is requested; that has another key."""
    parent, target = _referred(value)
    keys = _referred(parent)[2:]
    is_read = bool(keys) and keys[0] is target
    return made(own.Grouper, parent=parent, target=target, number=1 if is_read else 0)


def _tee_iterator(value: Any) -> Any:
    data, place = _reduced(value)[2]
    return made(own.Tee, data=data, place=place)


def _tee_items(value: Any) -> Any:
    source, values, following = _reduced(value)[1]
    return made(own.TeeData, source=source, values=values, following=following)


def _sequence(value: Any) -> Any:
    _, (sequence, *_), *place = value.__reduce__()
    if not place:
        return made(iterators.SequenceIterator, sequence=None, place=0)
    return made(iterators.SequenceIterator, sequence=sequence, place=place[0])


def _calls(value: Any) -> Any:
    found = value.__reduce__()[1]
    if len(found) < 2:
        return made(iterators.CallIterator, function=None, sentinel=None)
    return made(iterators.CallIterator, function=found[0], sentinel=found[1])


def _deque(value: Any) -> Any:
    owner, place = value.__reduce__()[1]
    is_reversed = type(value) is type(reversed(collections.deque()))
    left = operator.length_hint(value)
    size = place + left if left or place == len(owner) else iterators.CHANGED
    return made(iterators.DequeIterator, owner=owner, place=place, size=size, reverse=is_reversed)


CONVERTERS: dict[type, Callable[[Any], Any]] = {
    itertools.accumulate: _accumulate,
    itertools.chain: _chain,
    itertools.combinations: _choices(own.Combinations),
    itertools.combinations_with_replacement: _choices(own.CombinationsWithReplacement),
    itertools.compress: _compress,
    itertools.count: _count,
    itertools.cycle: _cycle,
    itertools.dropwhile: _drop_while,
    itertools.filterfalse: _filter_false,
    itertools.groupby: _group_by,
    itertools.islice: _islice,
    itertools.pairwise: _pairwise,
    itertools.permutations: _choices(own.Permutations),
    itertools.product: _choices(own.Product),
    itertools.repeat: _repeat,
    itertools.starmap: _star_map,
    itertools.takewhile: _take_while,
    itertools.zip_longest: _zip_longest,
    _grouper: _group,
    _tee: _tee_iterator,
    _tee_data: _tee_items,
    type(iter(_Indexed())): _sequence,
    type(iter(int, 1)): _calls,
    type(iter(collections.deque())): _deque,
    type(reversed(collections.deque())): _deque,
}
"""Converters from Python's iterators to storable ones."""
if "__reduce__" not in vars(itertools.cycle):  # Python 3.14: the positions of most are hidden
    for _kind in [*CONVERTERS]:
        if _kind.__module__ == "itertools" and CONVERTERS[_kind] not in (
            _accumulate,
            _group,
            _group_by,
            _pairwise,
        ):
            del CONVERTERS[_kind]
