"""The library of the language, one file per topic."""

from dalsegno.lang.stdlib.arrays import MUTATORS
from dalsegno.lang.stdlib.callbacks import SortFrame, start_callback
from dalsegno.lang.stdlib.registry import (
    CONSTANTS,
    FUNCTIONS,
    NAMESPACES,
    call_method,
    change_list,
    library_name,
)

__all__ = [
    "CONSTANTS",
    "FUNCTIONS",
    "MUTATORS",
    "NAMESPACES",
    "SortFrame",
    "call_method",
    "change_list",
    "library_name",
    "start_callback",
]
