"""What sessions of Spark and of Spark Connect have to be told, and tell."""
