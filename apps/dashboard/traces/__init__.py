"""View models of a trace: event rows in, frozen view models out. Nothing is dropped or truncated silently."""
