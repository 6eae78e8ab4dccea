"""Multiple choice among sixteen computed options."""
