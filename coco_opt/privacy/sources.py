"""The noise sources by the names that a configuration uses."""

from __future__ import annotations

from coco_opt.errors import ConfigError
from coco_opt.privacy.noise import NOISE_NAMES, NoiseSource
from coco_opt.privacy.opendp import OpenDPNoise
from coco_opt.privacy.secure import SecureNoise
from coco_opt.privacy.seeded import SeededNoise


def resolve_noise(name: str, seed: int | None = None) -> NoiseSource:
    """Return the source a config names: "secure", "opendp" or "seeded".

    Raises ConfigError for an unknown name, a seed where noise must not be repeatable, or "seeded"
    without one; MissingPackageError when the source's package is absent.
    """
    if name == "seeded":
        if seed is None:
            raise ConfigError("privacy.seed", 'noise = "seeded" needs a seed, an integer of at least 0')
        return SeededNoise(seed)
    if name not in NOISE_NAMES:
        raise ConfigError("privacy.noise", f"unknown noise {name!r}: use one of {', '.join(NOISE_NAMES)}")
    if seed is not None:
        raise ConfigError("privacy.seed", f'noise = "{name}" takes no seed: repeatable noise is not private')
    if name == "opendp":
        return OpenDPNoise()
    return SecureNoise()
