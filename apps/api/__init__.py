"""The REST API: JSON in, one call to an app, JSON out."""
