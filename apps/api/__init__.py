"""The REST interface: JSON in, one call down, JSON out."""
