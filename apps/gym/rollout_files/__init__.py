"""Read stored rollouts from files of NeMo Gym, `verifiers` and chat logs."""
