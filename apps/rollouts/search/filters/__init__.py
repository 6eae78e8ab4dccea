"""The filter grammar of rollouts, used by pages, the API and stored selections."""
