"""Content of the overview and of the progress of collections."""
