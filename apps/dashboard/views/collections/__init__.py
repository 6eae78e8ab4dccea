"""Views of collections: plan, follow, control, compare, import and archive."""
