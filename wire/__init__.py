"""A Kafka client in Python: the wire protocol, record batches in columns, routing, fetching and producing.

It knows nothing of Spark and can be used alone.
"""
