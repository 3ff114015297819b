"""What the posteriors of all kinds share: seeds, diagnostics, convergence, effort and the comparison with the answers.

A kind brings its state and its moves.
"""
