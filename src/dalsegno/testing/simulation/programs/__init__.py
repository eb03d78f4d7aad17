"""Scripts and Python workflows in the simulator: random programs, their source texts, their reference interpreter."""
