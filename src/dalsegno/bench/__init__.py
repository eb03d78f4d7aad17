"""``dalsegno bench``: what this machine and this store can do, measured in one run."""
