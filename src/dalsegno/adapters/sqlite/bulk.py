"""Many rows in few statements.

``executemany`` gives the interpreter away and takes it back for every row; with a busy event loop each return may wait
a whole switch interval. A statement whose ``VALUES`` group is repeated does a hundred rows in one go, and is faster
by itself. Only the group of placeholders is repeated; the text comes from the statement's file.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any

SIZES = (125, 25, 5, 1)
"""Rows per statement. Few sizes, so that each stays prepared; a batch of n rows takes about n / 125 + 12 statements."""

GROUP = re.compile(r"VALUES (\([^()]*\))")


class BulkStatement:
    """A statement with one ``VALUES (…)`` group, for parameters in one flat list.

    Bytes should come as ``bytearray``, and ``None`` be avoided: the driver passes ints, floats, strings and
    bytearrays directly, but looks up an adapter for anything else, which costs as much as writing half a row.
    """

    def __init__(self, text: str) -> None:
        found = GROUP.search(text)
        if found is None:
            raise ValueError(f"no VALUES group in {text!r}")
        group = found.group(1)
        self.width = group.count("?")
        self._texts = [
            (size, text[: found.start(1)] + ", ".join([group] * size) + text[found.end(1) :])
            for size in SIZES
        ]

    def run(self, connection: sqlite3.Connection, flat: list[Any]) -> None:
        start, end = 0, len(flat)
        for size, text in self._texts:
            step = size * self.width
            while end - start >= step:
                connection.execute(text, flat[start : start + step])
                start += step
