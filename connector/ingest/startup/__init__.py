"""The checks before Spark starts."""
