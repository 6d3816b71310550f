"""Where Django looks for commands. Holds nothing itself."""
