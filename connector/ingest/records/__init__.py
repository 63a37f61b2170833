"""A topic's records as the rows of its table."""
