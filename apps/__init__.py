"""The Django apps of GymWeb, and `gym` without Django: see docs/develop/architecture.md."""
