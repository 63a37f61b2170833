"""The documentation's site: pages that are generated from the code, and links that work outside of a clone."""
