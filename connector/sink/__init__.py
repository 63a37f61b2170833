"""Writing: rows become record batches on the executors and go to each partition's leader."""
