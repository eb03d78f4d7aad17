"""For tests, yours and ours: a clock that can be set, and the contract suite that every adapter passes."""
