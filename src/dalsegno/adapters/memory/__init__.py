"""The in-memory store: the reference implementation, for tests and for work that may be lost."""

from dalsegno.adapters.memory.archive import MemoryArchive
from dalsegno.adapters.memory.broker import MemoryBroker
from dalsegno.adapters.memory.ledger import MemoryLedger
from dalsegno.adapters.memory.limits import MemoryLimits
from dalsegno.adapters.memory.published import MemoryPublished
from dalsegno.adapters.memory.records import MemoryBlobs, MemoryPublications, MemoryRecords
from dalsegno.adapters.memory.store import MemoryStore

__all__ = [
    "MemoryArchive",
    "MemoryBlobs",
    "MemoryBroker",
    "MemoryLedger",
    "MemoryLimits",
    "MemoryPublications",
    "MemoryPublished",
    "MemoryRecords",
    "MemoryStore",
]
