"""Stores and brokers: thin translations of the ports. The same file names in each."""
