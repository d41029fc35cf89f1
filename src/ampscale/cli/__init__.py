"""The commands: here, and only here, something is printed, drawn or parsed."""
