"""The posterior of all histograms of a hierarchy under a prior learned from the noisy answers themselves.

``survey``: the answers as arrays. ``prior``, ``chains``, ``diagnostics``, ``sampler``: sampling every region jointly.
``region``: one region alone, exactly. ``consistent``: from a measurement to the whole table of least expected error and
its intervals.
"""
