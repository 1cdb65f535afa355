"""Benchmarks of training on several nodes, each a namespace of this machine."""
