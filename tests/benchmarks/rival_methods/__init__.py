"""Other ways to train two-layer ReLU networks, written from their papers, against which covopt is raced.

Each module has `run(X, Y, lam, beta, log, seed, **options)`, which shows `log` its networks until the time is up.
"""
