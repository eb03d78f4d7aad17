"""Graph documents: two spellings, one model, one compiled plan."""
