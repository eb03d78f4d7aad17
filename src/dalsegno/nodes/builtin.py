"""The list of built-in node types."""

from __future__ import annotations

from dataclasses import replace

from dalsegno.nodes.control.aggregator import aggregator
from dalsegno.nodes.control.approval import approval
from dalsegno.nodes.control.conditional import conditional
from dalsegno.nodes.control.input_output import input_node, output_node
from dalsegno.nodes.control.log import log
from dalsegno.nodes.control.merge import merge
from dalsegno.nodes.control.script import script
from dalsegno.nodes.control.split import split
from dalsegno.nodes.control.switch import switch
from dalsegno.nodes.control.task import task
from dalsegno.nodes.control.triggers import manual, schedule, webhook
from dalsegno.nodes.control.wait import wait
from dalsegno.nodes.control.workflow import workflow
from dalsegno.nodes.data.datetime import datetime_node
from dalsegno.nodes.data.edit import edit
from dalsegno.nodes.data.filter import filter_items
from dalsegno.nodes.data.grouping import dedupe, group
from dalsegno.nodes.data.limit import limit
from dalsegno.nodes.data.map import map_items
from dalsegno.nodes.data.sort import sort
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

BUILTIN_TYPES: tuple[NodeType, ...] = (*(replace(each, pure=True) for each in PURE_TYPES), http, task)
