"""What the overview and the progress of collections show."""
