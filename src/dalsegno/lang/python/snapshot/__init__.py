"""Machines as bytes: an object table with identity, so that aliases and cycles survive."""

from dalsegno.lang.python.snapshot.freezing import Frozen, freeze
from dalsegno.lang.python.snapshot.thawing import blobs_in, thaw

__all__ = ["Frozen", "blobs_in", "freeze", "thaw"]
