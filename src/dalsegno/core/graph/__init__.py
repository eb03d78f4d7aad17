"""Step functions of graphs: from a token and an outcome to a transition."""
