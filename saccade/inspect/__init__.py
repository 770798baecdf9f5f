"""A model and an example → a Trace of its inside."""
