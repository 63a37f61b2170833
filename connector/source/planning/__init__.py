"""Plans which offsets the next micro-batch or batch read covers, and how they are split into input partitions."""
