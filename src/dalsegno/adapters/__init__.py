"""Stores and brokers: thin implementations of the ports. The same file names in each."""
