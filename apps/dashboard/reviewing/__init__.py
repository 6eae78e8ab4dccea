"""What the pages of reviews show."""
