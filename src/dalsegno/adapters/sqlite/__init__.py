"""One SQLite file: the embedded store, safe for several processes on one machine."""

from dalsegno.adapters.sqlite.archive.archive import SqliteArchive
from dalsegno.adapters.sqlite.broker import SqliteBroker, SqliteWatch
from dalsegno.adapters.sqlite.ledger import SqliteLedger
from dalsegno.adapters.sqlite.limits import SqliteLimits
from dalsegno.adapters.sqlite.published import SqlitePublished
from dalsegno.adapters.sqlite.records import SqliteBlobs, SqlitePublications, SqliteRecords
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.adapters.sqlite.transactions import SqliteTransactions

__all__ = [
    "SqliteArchive",
    "SqliteBlobs",
    "SqliteBroker",
    "SqliteLedger",
    "SqliteLimits",
    "SqlitePublications",
    "SqlitePublished",
    "SqliteRecords",
    "SqliteStore",
    "SqliteTransactions",
    "SqliteWatch",
]
