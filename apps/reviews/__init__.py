"""What people say of rollouts."""
