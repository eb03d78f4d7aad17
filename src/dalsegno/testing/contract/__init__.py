"""The suite that every adapter passes: one class per topic, tests named after the guarantees in the port docstrings.

A binding is a test module with a fixture ``stack`` that yields a fresh :class:`ContractStack`, and one line that
picks the topics its backend supports::

    CAPABILITIES = Capabilities(WHOLE_STACK | {"durable"})
    globals().update(bind(CAPABILITIES))
"""

from dalsegno.testing.contract.stack import (
    ALL_GUARANTEES,
    WHOLE_STACK,
    Capabilities,
    ContractStack,
    Feature,
    Topic,
)
from dalsegno.testing.contract.topics import TOPICS, bind

__all__ = [
    "ALL_GUARANTEES",
    "TOPICS",
    "WHOLE_STACK",
    "Capabilities",
    "ContractStack",
    "Feature",
    "Topic",
    "bind",
]
