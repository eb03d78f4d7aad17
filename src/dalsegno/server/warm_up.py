"""What is built at first use, built before the server is ready: the first caller's request must not hold up others."""

from __future__ import annotations

import importlib

from dalsegno.graph.build import load_graph
from dalsegno.graph.catalog import Catalog
from dalsegno.graph.input_schema import found_within
from dalsegno.lang import compile as compile_script

MODULES = ("anyio._backends._asyncio", "encodings.utf_8_sig", "encodings.idna", "gzip")
"""Imported by the framework and the standard library when they are first needed."""
GRAPH = {
    "name": "warm-up",
    "nodes": [{"id": "a", "type": "log", "parameters": {"message": "{{ $trigger.a }}"}}],
    "input_schema": {"type": "object"},
}


def warm_up(catalog: Catalog) -> None:
    """Grammars, catalogs and imports: a fifth of a second."""
    for name in MODULES:
        importlib.import_module(name)
    compile_script("return 1", "warm-up")
    load_graph(GRAPH, catalog)
    found_within({"type": "object"}, {}, 100)
