"""Credentials of clouds, found by the clouds' own libraries: one module for each cloud, imported by who needs it."""
