"""A question about a small database: the reply is the query that answers it."""
