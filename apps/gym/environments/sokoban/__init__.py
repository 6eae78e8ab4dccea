"""Push every box onto a goal."""
