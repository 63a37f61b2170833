"""Consumer groups: a consumer's place in one, its commits and committed offsets; a package for each group protocol."""
