"""Random operations on a store, compared with a model or with the memory store."""
