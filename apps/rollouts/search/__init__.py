"""Find rollouts: filters, sorting, pages and the full-text index."""
