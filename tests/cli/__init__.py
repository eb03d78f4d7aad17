"""The command line, in this process where that is enough, in real processes where signals and deaths matter."""
