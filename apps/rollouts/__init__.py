"""Collections, rollouts, traces, and the engine that runs them."""
