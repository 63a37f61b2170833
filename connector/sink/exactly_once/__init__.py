"""Streaming writes in transactions."""
