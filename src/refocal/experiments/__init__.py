"""The paper's experiments: data sets, networks, recipes, a fast and resumable training loop, the sweep of its table."""
