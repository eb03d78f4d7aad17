"""One SQLite file: the embedded store, safe for several processes on one machine."""

from dalsegno.adapters.sqlite.archive.archive import SqliteArchive
from dalsegno.adapters.sqlite.broker import SqliteBroker
from dalsegno.adapters.sqlite.ledger import SqliteLedger
from dalsegno.adapters.sqlite.limits import SqliteLimits
from dalsegno.adapters.sqlite.publications import SqlitePublications
from dalsegno.adapters.sqlite.records import SqliteBlobs, SqliteRecords
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.adapters.sqlite.transactions import SqliteTransactions
from dalsegno.adapters.sqlite.watch import SqliteWatch

__all__ = [
    "SqliteArchive",
    "SqliteBlobs",
    "SqliteBroker",
    "SqliteLedger",
    "SqliteLimits",
    "SqlitePublications",
    "SqliteRecords",
    "SqliteStore",
    "SqliteTransactions",
    "SqliteWatch",
]
