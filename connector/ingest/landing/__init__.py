"""Landing: micro-batches into tables, each table on its own."""
