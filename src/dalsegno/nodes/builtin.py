"""The list of built-in node types."""

from __future__ import annotations

from dataclasses import replace

from dalsegno.nodes.aggregator import aggregator
from dalsegno.nodes.approval import approval
from dalsegno.nodes.boundary import input_node, output_node
from dalsegno.nodes.conditional import conditional
from dalsegno.nodes.datetime import datetime_node
from dalsegno.nodes.edit import edit
from dalsegno.nodes.filter import filter_items
from dalsegno.nodes.grouping import dedupe, group
from dalsegno.nodes.http import http
from dalsegno.nodes.limit import limit
from dalsegno.nodes.log import log
from dalsegno.nodes.map import map_items
from dalsegno.nodes.merge import merge
from dalsegno.nodes.script import script
from dalsegno.nodes.sort import sort
from dalsegno.nodes.split import split
from dalsegno.nodes.switch import switch
from dalsegno.nodes.task import task
from dalsegno.nodes.triggers import manual, schedule, webhook
from dalsegno.nodes.wait import wait
from dalsegno.nodes.workflow import workflow
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
"""They compute, choose edges, or say what to wait for; the engine does the rest."""

BUILTIN_TYPES: tuple[NodeType, ...] = (*(replace(each, pure=True) for each in PURE_TYPES), http, task)
