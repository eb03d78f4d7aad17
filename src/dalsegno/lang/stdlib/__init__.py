"""The library of the language, one file per topic."""

from dalsegno.lang.stdlib.registry import CONSTANTS, FUNCTIONS, NAMESPACES, call_method, library_name

__all__ = ["CONSTANTS", "FUNCTIONS", "NAMESPACES", "call_method", "library_name"]
