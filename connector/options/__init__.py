"""Options as strings to frozen dataclasses."""
