"""The commands, one file per command or small family."""
