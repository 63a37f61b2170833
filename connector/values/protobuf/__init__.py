"""Protobuf: schemas from the text that registries keep, and messages to the wanted columns, within a limit of memory."""
