"""One PostgreSQL database: the store for several machines."""

from dalsegno.adapters.postgres.archive.archive import PostgresArchive
from dalsegno.adapters.postgres.archive.partitions import keep_ahead, make_in_time
from dalsegno.adapters.postgres.claim.timers import TIMER_INTERVAL
from dalsegno.adapters.postgres.commit.commits import COMMITS_AT_ONCE
from dalsegno.adapters.postgres.ledger import PostgresLedger
from dalsegno.adapters.postgres.limits import PostgresLimits
from dalsegno.adapters.postgres.messaging.broker import PostgresBroker
from dalsegno.adapters.postgres.messaging.listener import Listener
from dalsegno.adapters.postgres.messaging.neighbours import PostgresNeighbours, PostgresWatch
from dalsegno.adapters.postgres.published import PostgresPublished
from dalsegno.adapters.postgres.records import PostgresBlobs, PostgresPublications, PostgresRecords
from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.adapters.postgres.transactions import PostgresTransactions

__all__ = [
    "COMMITS_AT_ONCE",
    "TIMER_INTERVAL",
    "Listener",
    "PostgresArchive",
    "PostgresBlobs",
    "PostgresBroker",
    "PostgresLedger",
    "PostgresLimits",
    "PostgresNeighbours",
    "PostgresPublications",
    "PostgresPublished",
    "PostgresRecords",
    "PostgresStore",
    "PostgresTransactions",
    "PostgresWatch",
    "keep_ahead",
    "make_in_time",
]
