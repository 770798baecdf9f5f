"""Encoders, decoders, and one assembly per task."""
