"""Programs of the script language: compiling, storing, running, suspending and resuming them."""
