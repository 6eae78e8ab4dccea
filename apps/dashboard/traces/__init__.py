"""View models of a trace, built from its events. No event is dropped or truncated silently."""
