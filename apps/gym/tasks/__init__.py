"""Task rows: what they are read from, what they may say, and what a dataset of them is made of."""
