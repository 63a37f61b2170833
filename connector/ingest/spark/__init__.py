"""What the ingest knows of Spark itself: SQL, errors, sessions and their progress, and how Spark Connect differs."""
