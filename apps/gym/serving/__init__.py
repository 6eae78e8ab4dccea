"""Environments, agents and models of ours as servers of NeMo Gym's protocol; the socket is somebody else's."""
