"""The list of built-in node types."""

from __future__ import annotations

from dataclasses import replace

from dalsegno.nodes.control.branches import aggregator, conditional, merge, split, switch
from dalsegno.nodes.control.input_output import (
    input_node,
    log,
    manual,
    output_node,
    publish,
    schedule,
    webhook,
)
from dalsegno.nodes.control.programs import script, task, workflow
from dalsegno.nodes.control.waits import approval, wait
from dalsegno.nodes.data.edit import edit
from dalsegno.nodes.data.lists import dedupe, filter_items, group, limit, map_items, sort
from dalsegno.nodes.data.times import datetime_node
from dalsegno.nodes.http.node import http
from dalsegno.ports.node import NodeType

PURE_TYPES: tuple[NodeType, ...] = (
    aggregator,
    approval,
    conditional,
    datetime_node,
    dedupe,
    edit,
    filter_items,
    group,
    input_node,
    limit,
    log,
    manual,
    map_items,
    merge,
    output_node,
    schedule,
    script,
    sort,
    split,
    switch,
    wait,
    webhook,
    workflow,
)
"""Nodes that compute, choose edges or return a wait. The engine does the rest."""

BUILTIN_TYPES: tuple[NodeType, ...] = (
    *(replace(each, pure=True) for each in PURE_TYPES),
    http,
    publish,
    task,
)
