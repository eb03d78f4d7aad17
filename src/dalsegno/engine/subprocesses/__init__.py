"""Work on callers' data in subprocesses, with limits of time and memory."""
