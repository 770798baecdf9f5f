"""Numbers: strings, ids and arrays in, scores with their uncertainty out. Pure: nothing here knows a model."""
