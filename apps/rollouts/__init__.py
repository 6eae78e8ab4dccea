"""Collections, rollouts, traces and the engine that makes them."""
