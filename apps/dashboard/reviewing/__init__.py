"""Content of the review pages."""
