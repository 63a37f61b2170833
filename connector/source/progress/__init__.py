"""Reports a query's progress: commits to its consumer group, membership in it, data loss, hanging transactions."""
