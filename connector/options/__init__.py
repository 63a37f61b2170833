"""Options of the source and the sink: strings from Spark become frozen, checked dataclasses."""
