"""Stored rollouts, read from files of NeMo Gym, `verifiers` and chat logs."""
