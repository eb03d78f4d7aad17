"""What is built at first use, built before a process takes requests or work: the first one must not hold up others."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from dalsegno.graph.build import load_graph
from dalsegno.graph.catalog import Catalog
from dalsegno.graph.input_schema import found_within
from dalsegno.lang import compile as compile_script

HTTP_NODE = "dalsegno.nodes.http_run"
"""With the client that it sends requests with: most of the time that warming up takes."""
GRAPH = {
    "name": "warm-up",
    "nodes": [{"id": "a", "type": "log", "parameters": {"message": "{{ $trigger.a }}"}}],
    "input_schema": {"type": "object"},
}


def warm_up(catalog: Catalog, modules: Iterable[str] = ()) -> None:
    """Grammars, catalogs, and imports that wait until they are needed: half a second."""
    for name in modules:
        importlib.import_module(name)
    compile_script("return `${1}`", "warm-up")
    load_graph(GRAPH, catalog)
    found_within({"type": "object"}, {}, 100)
