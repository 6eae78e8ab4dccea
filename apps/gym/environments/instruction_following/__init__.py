"""Write about a topic under several constraints, each of which is checked."""
