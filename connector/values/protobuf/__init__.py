"""Protobuf: schemas from the text that registries keep, and messages by way of Protobuf's JSON mapping."""
