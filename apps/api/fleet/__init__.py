"""Workers and metrics of the fleet."""
