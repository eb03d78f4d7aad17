"""Pages of the reference that are written by programs: one module per page, each with a function ``page``."""
