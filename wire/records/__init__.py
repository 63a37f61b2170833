"""Record batches: bytes to Arrow columns and back. Knows no brokers."""
