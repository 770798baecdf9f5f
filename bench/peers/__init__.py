"""Training speed beside other toolkits: every one in an environment of its own, all in one interleaved run."""
