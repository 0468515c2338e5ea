"""Whole comparisons from one file: what to train and evaluate, in processes, until it is there."""
