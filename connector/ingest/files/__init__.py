"""Writes rows as Parquet files in Spark tasks, without the JVM."""
