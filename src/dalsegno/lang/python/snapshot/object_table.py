"""The object table of a snapshot: rows, each of which becomes one object, and the order in which they are built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType
from typing import Any, TypeAlias, get_args

from dalsegno.lang.errors import NameMissing, SnapshotError
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.snapshot.format import MOST_PROMISES, Row, Tag, Written
from dalsegno.lang.python.values.payload_types import type_of
from dalsegno.lang.runtime.effects import LeafKind
from dalsegno.lang.runtime.promises import Promise

Build: TypeAlias = "Callable[[Reader, Row], Any]"
Fill: TypeAlias = "Callable[[Reader, Any, Row], None]"

_ABSENT = object()
_SCALARS = frozenset((bool, bytes, float, int, str, type(None)))
_LEAF_KINDS = frozenset(get_args(LeafKind))


class NotYet(Exception):
    """A part can only be built later."""


class Reader:
    """Reads an object table.

    Rows are built in order. Objects that can be created empty may be requested before their turn; an object that
    cannot be filled yet, because a part is still to come, is filled at the end.

    ``outside`` returns the cell of a name in the surroundings; ``made`` is the maximum number of promises.
    ``builders`` and ``shells`` say for each kind of row how its object is made.
    """

    def __init__(
        self,
        program: PythonProgram,
        outside: Callable[[str], CellType],
        rows: list[Row],
        made: int,
        builders: Mapping[str, Build],
        shells: Mapping[str, tuple[Build, Fill]],
    ) -> None:
        self.program = program
        self.outside: Callable[[str], CellType] = outside
        self._rows = rows
        self._made = made
        self._builders = builders
        self._shells = shells
        self._built: list[Any] = [_ABSENT] * len(rows)
        self._last: list[Callable[[], None]] = []
        self._unfilled: set[int] = set()
        """Rows whose objects exist and are still empty."""
        self._is_last_round = False
        self._promises_left = MOST_PROMISES

    def read(self) -> None:
        """Build all rows. Objects that wait for each other in a cycle are completed at the end, in order."""
        left = list(range(len(self._rows)))
        while left:
            waiting = [index for index in left if not self._done(index)]
            if len(waiting) == len(left):
                if self._is_last_round:
                    raise SnapshotError(
                        "the snapshot is damaged: objects in it cannot be built one after the other"
                    )
                self._is_last_round = True
            left = waiting
        for finish in self._last:
            finish()

    def _done(self, index: int) -> bool:
        """Build or fill an object; return False if that must wait."""
        row = self._rows[index]
        builder = self._builders.get(row[0])
        if builder is not None:
            try:
                self._built[index] = builder(self, row)
            except NotYet:
                return False
            return True
        if row[0] == Tag.DICT and self._built[index] is _ABSENT and list not in map(type, row):
            self._built[index] = dict(zip(row[1::2], row[2::2], strict=True))
            return True
        return self._filled(index)

    # -- objects that must be complete before use ---------------------------------------------------------------

    def wait_for(self, written: Written) -> None:
        """Complete this object first."""
        is_row = type(written) is list and len(written) == 1
        if is_row and written[0] in self._unfilled and not self._is_last_round:
            raise NotYet

    def wait_for_all(self) -> None:
        """Complete all objects, except those in a cycle with the object that is being filled."""
        if len(self._unfilled) > 1 and not self._is_last_round:
            raise NotYet

    def wait_for_keys(self, keys: Iterable[Any]) -> None:
        """Complete keys before they are hashed: an object's hash may depend on all of its attributes."""
        if len(self._unfilled) > 1 and any(type(key) not in _SCALARS for key in keys):
            self.wait_for_all()

    def instance_class(self, name: str) -> type:
        """Return the class of a stored instance, if the workflow's code reaches it."""
        found = self.program.naming.find_instance_class(name)
        if found is None:
            raise unknown(name)
        return found

    def value(self, written: Written) -> Any:
        if type(written) is not list:
            return written
        if len(written) == 1:
            return self._object(written[0])
        [promise] = self._promises(written)
        return promise

    def values(self, written: Iterable[Written]) -> list[Any]:
        """Return the values. A run of promises becomes as many items."""
        found: list[Any] = []
        for one in written:
            if type(one) is not list:
                found.append(one)
            elif len(one) == 3:
                found.extend(self._promises(one))
            else:
                found.append(self.value(one))
        return found

    def entries(self, written: list[Written]) -> Iterator[tuple[Any, Any]]:
        parts = [one if type(one) is not list else self.value(one) for one in written]
        return zip(parts[::2], parts[1::2], strict=True)

    def at_the_end(self, finish: Callable[[], None]) -> None:
        self._last.append(finish)

    def _object(self, index: int) -> Any:
        found = self._built[index]
        if found is _ABSENT:
            found = self._shell(index)
        return found

    def _shell(self, index: int) -> Any:
        """Create an empty object before its turn."""
        row = self._rows[index]
        kind = self._shells.get(row[0])
        if kind is None:
            raise NotYet
        made = self._built[index] = kind[0](self, row)
        self._unfilled.add(index)
        return made

    def _filled(self, index: int) -> bool:
        row = self._rows[index]
        kind = self._shells.get(row[0])
        if kind is None:
            raise SnapshotError(f"the snapshot holds a kind of object this version does not know: '{row[0]}'")
        try:
            kind[1](self, self._object(index), row)
        except NotYet:
            return False
        self._unfilled.discard(index)
        return True

    def _promises(self, written: list[Any]) -> list[Promise]:
        start, stop, description = written
        self._promises_left -= stop - start
        if not 0 <= start < stop <= self._made or self._promises_left < 0:
            raise SnapshotError("the snapshot mentions promises that were never made")
        tag, kind, name, due, *typed = self._rows[description]
        known = tag == Tag.PROMISE and kind in _LEAF_KINDS
        if not known or not isinstance(name, str | None) or not isinstance(due, int | float | None):
            raise SnapshotError("the snapshot is damaged: a promise has no description")
        payload = self._payload_type(typed) if typed else None
        return [Promise(number, kind, name, due, payload) for number in range(start, stop)]

    def _payload_type(self, typed: list[Any]) -> str:
        """Return the type of a signal's payload, whose classes this process must have."""
        [text] = typed
        if not isinstance(text, str):
            raise SnapshotError("the snapshot is damaged: a promise has no description")
        try:
            type_of(text, self.program.naming)
        except KeyError as error:
            raise unknown(error.args[0]) from None
        return text


def unknown(name: str) -> SnapshotError:
    return NameMissing(
        f"the stored workflow uses '{name}', which its module does not know in this process, or its code does not "
        "reach: import it there under its old name, or run the execution with the code it was started with"
    )
