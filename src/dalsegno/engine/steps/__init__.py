"""Steps of graphs and tasks: from a claimed token to a transition."""
