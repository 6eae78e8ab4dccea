"""The gym: pure Python that knows how to try and how to score. No Django, no database."""
