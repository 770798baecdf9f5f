"""Layers: tensors in, tensors out. No vocabulary, no task, no file."""
