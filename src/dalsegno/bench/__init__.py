"""``dalsegno bench``: measures this machine and a store in one run."""
