"""The grammar by which rollouts are filtered, on pages, in the API and wherever a selection is kept."""
