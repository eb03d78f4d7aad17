"""Scripts and Python workflows in the simulator: random programs that orchestrate, their texts, their reference."""
