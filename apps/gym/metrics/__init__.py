"""Statistics of rewards and reviews, computed from plain numbers."""
