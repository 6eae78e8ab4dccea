"""The trace as its page shows it: rows of events in, frozen view models out. Nothing is dropped or cut in silence."""
