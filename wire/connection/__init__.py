"""One connection to one broker: its state machine without I/O, and the socket under it."""
