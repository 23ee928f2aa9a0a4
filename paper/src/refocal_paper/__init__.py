"""The experiments of the paper on focal temperature scaling: networks trained, its table, its claims, its figures."""
