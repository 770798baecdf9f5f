"""Measurements: speed and memory, each a program that prints its numbers."""
