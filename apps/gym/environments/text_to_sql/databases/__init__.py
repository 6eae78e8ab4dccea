"""Small databases, filled by seed, each with questions and the queries that answer them."""
