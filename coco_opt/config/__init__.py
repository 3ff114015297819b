"""The configuration of a release: TOML in, checked and immutable values out.

Every mistake is reported at once, one line each, with its dotted key and, for a misspelt key or name, the
nearest valid one. Paths are relative to the config file.
"""

from __future__ import annotations

from coco_opt.config.load import load_any, load_config, parse_any, parse_config
from coco_opt.config.model import Config, TablesConfig
from coco_opt.config.sections import (
    PROBLEM_KINDS,
    DataConfig,
    Estimator,
    GroupsConfig,
    Loss,
    OutputConfig,
    PrivacyConfig,
    SolversConfig,
)
from coco_opt.config.topdown import GroupingConfig, InvariantConfig, PassConfig, TopdownConfig
from coco_opt.config.values import SolverChoice

__all__ = [
    "PROBLEM_KINDS",
    "Config",
    "DataConfig",
    "Estimator",
    "GroupingConfig",
    "GroupsConfig",
    "InvariantConfig",
    "Loss",
    "OutputConfig",
    "PassConfig",
    "PrivacyConfig",
    "SolverChoice",
    "SolversConfig",
    "TablesConfig",
    "TopdownConfig",
    "load_any",
    "load_config",
    "parse_any",
    "parse_config",
]
