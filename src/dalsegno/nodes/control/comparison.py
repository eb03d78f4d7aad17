"""Comparison operators of rules, checked when the document is read."""

from __future__ import annotations

import difflib
from typing import Annotated

from pydantic import AfterValidator

from dalsegno.lang import COMPARISON_OPERATORS


def _known_operator(name: str) -> str:
    if name in COMPARISON_OPERATORS:
        return name
    close = difflib.get_close_matches(name, sorted(COMPARISON_OPERATORS), n=1)
    hint = f"did you mean '{close[0]}'?" if close else "use a sign such as '==' or a name such as 'contains'"
    raise ValueError(f"is not a comparison: {name!r}; {hint}")


Operator = Annotated[str, AfterValidator(_known_operator)]
