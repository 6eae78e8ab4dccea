"""The rooms of GymWeb: see docs/architecture.md."""
