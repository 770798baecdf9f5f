"""The tasks: for each its recipe, its data in the run folder, its batches and how it is validated."""
