"""The posterior of all histograms of a hierarchy under a prior learned from the noisy answers themselves.

``observations``: the answers as arrays. ``prior``, ``roughness``, ``chains``, ``sampler``: drawing all regions jointly.
``refuted``: what answers say against it. ``sparse``: the same for too many regions and sizes to store. ``consistent``:
from a measurement to the integer table of least expected error and its intervals.
"""
