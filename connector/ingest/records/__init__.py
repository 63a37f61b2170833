"""A topic's records as rows of its table."""
