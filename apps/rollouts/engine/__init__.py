"""Run queued rollouts: claims, leases, seats, results, and limits shared by all workers."""
