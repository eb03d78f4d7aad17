"""Live progress of an execution in the terminal."""
