"""Proves that a table holds each record of its topic exactly once."""
