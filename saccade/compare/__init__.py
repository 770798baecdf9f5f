"""A fair comparison of systems: one test set, the same metrics, paired tests, costs beside scores."""
