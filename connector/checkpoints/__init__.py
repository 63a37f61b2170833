"""Checkpoints of streaming queries as Spark writes them, this package's and the JVM connector's: read only."""
