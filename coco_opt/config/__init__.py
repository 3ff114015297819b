"""The configuration of a release: TOML in, checked and immutable values out.

All mistakes are reported together, one line each, with the dotted key and, for a misspelt key or name, the nearest
valid one. Paths are relative to the config file. A kind of release brings the models of its own sections.
"""

from __future__ import annotations

from coco_opt.config.load import configure, engine_with, load_config, parse_config
from coco_opt.config.model import Config
from coco_opt.config.sections import EngineConfig, OutputConfig, PrivacyConfig, Section, SolversConfig
from coco_opt.config.values import SolverChoice

__all__ = [
    "Config",
    "EngineConfig",
    "OutputConfig",
    "PrivacyConfig",
    "Section",
    "SolverChoice",
    "SolversConfig",
    "configure",
    "engine_with",
    "load_config",
    "parse_config",
]
