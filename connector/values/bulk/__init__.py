"""Columns from and to encoded values: what is the same for every format. A format is its rules alone."""
