"""A step function → hypotheses. Nothing here knows which architecture it has."""
