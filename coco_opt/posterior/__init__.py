"""What the posteriors of all kinds share: seeds, effort and convergence of chains, and the comparison with the answers.

A kind brings its state and its moves.
"""
