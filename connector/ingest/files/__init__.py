"""Rows to Parquet files in Spark's tasks, without the JVM."""
