"""Read and validate task rows, and compute the statistics of a dataset."""
