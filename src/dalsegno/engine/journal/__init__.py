"""The journal of machines: its writing, its reading, and the room that it gives up."""
