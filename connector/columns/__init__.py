"""The columns of a read: names, types in Spark and Arrow, and which of them are read."""
