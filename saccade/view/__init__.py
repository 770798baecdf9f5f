"""Pictures: traces and numbers in, image, page or table out. The only place that imports plotting."""
