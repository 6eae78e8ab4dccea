"""Run commands of agents in isolated working folders."""
