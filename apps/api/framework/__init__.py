"""What every resource of the API shares: authentication, permissions, bodies, pages, problems, schema."""
