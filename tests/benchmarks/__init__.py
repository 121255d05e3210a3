"""Benchmarks, run by hand: `python -m tests.benchmarks NAME`. Nothing in here is a test, and no test asserts a time."""
