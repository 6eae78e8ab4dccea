"""Workers and Prometheus metrics."""
