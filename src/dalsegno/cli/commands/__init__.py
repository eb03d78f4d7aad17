"""The commands: signatures and help texts, one file per command or small family."""
