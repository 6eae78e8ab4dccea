"""Run queued rollouts: claims, leases, seats, records, and limits shared by all workers."""
