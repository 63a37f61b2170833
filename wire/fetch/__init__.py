"""Ranges of offsets to columns, from their leaders or the followers in the client's rack."""
