"""Machine snapshots as bytes: an object table with identity, so that aliases and cycles survive."""

from dalsegno.lang.python.snapshot.read import blobs_in, thaw
from dalsegno.lang.python.snapshot.write import Frozen, freeze

__all__ = ["Frozen", "blobs_in", "freeze", "thaw"]
