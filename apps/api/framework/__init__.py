"""Shared code of all API resources: authentication, permissions, bodies, pagination, problems, schema."""
