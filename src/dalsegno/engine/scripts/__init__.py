"""Scripts and Python workflows in the engine: running machines, their tasks and their timers."""
