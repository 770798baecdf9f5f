"""Batches and a model → a trained model: the loop, its optimiser and schedule, and the run that keeps what it makes."""
