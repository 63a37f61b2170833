"""Differences between classic Spark sessions and Spark Connect: settings and progress."""
