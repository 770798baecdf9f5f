"""Claims about sequence models, each as an experiment that runs in minutes and ends in a verdict and a picture."""
