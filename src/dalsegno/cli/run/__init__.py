"""``dalsegno run``: one execution from start to end."""
