"""Names in paths that may hold slashes: ``{name:whole}``.

Starlette's own ``path`` ends at a line break, and passes over one at the end: ``DELETE /v1/definitions/a%0A`` would
remove ``a``. Here a name is everything that was sent, and what is wrong with it is said by whoever reads it.
"""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor

from dalsegno.server.slashes import joined


class Whole(Convertor[str]):
    regex = r"(?s:.*)"

    def convert(self, value: str) -> str:
        return joined(value)

    def to_string(self, value: str) -> str:
        return value


class Part(Whole):
    """``{alias:part}``: what stands between two slashes."""

    regex = "[^/]+"


register_url_convertor("whole", Whole())
register_url_convertor("part", Part())
