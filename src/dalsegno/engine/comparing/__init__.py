"""What changed between two versions of a workflow."""

from dalsegno.engine.comparing.graphs import FieldChange, GraphChanges, PartChange
from dalsegno.engine.comparing.texts import TextChanges
from dalsegno.engine.comparing.versions import Changes, compare, source_text

__all__ = ["Changes", "FieldChange", "GraphChanges", "PartChange", "TextChanges", "compare", "source_text"]
