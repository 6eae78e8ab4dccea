"""Credentials are taken out of what is stored: by the name beside them, by their form, or because they are ours."""
