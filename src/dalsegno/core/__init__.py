"""The functional core: given a token, an outcome and ``now``, it returns transitions. No I/O, no clock, no chance."""
