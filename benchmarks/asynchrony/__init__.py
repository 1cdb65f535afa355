"""Benchmarks of the asynchronous schedule: speed with unequal workers, and learning beside `sync`."""
