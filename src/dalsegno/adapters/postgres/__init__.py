"""One PostgreSQL database: the store for several machines."""

from dalsegno.adapters.postgres.archive import PostgresArchive
from dalsegno.adapters.postgres.blobs import PostgresBlobs
from dalsegno.adapters.postgres.broker import PostgresBroker
from dalsegno.adapters.postgres.commits import COMMITS_AT_ONCE
from dalsegno.adapters.postgres.ledger import PostgresLedger
from dalsegno.adapters.postgres.limits import PostgresLimits
from dalsegno.adapters.postgres.listener import Listener
from dalsegno.adapters.postgres.neighbours import PostgresNeighbours
from dalsegno.adapters.postgres.partitions import keep_ahead, make_in_time
from dalsegno.adapters.postgres.records import PostgresRecords
from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.adapters.postgres.transactions import PostgresTransactions
from dalsegno.adapters.postgres.waking import BREATH_OF_TIMERS

__all__ = [
    "BREATH_OF_TIMERS",
    "COMMITS_AT_ONCE",
    "Listener",
    "PostgresArchive",
    "PostgresBlobs",
    "PostgresBroker",
    "PostgresLedger",
    "PostgresLimits",
    "PostgresNeighbours",
    "PostgresRecords",
    "PostgresStore",
    "PostgresTransactions",
    "keep_ahead",
    "make_in_time",
]
