"""One command of ``coco-opt`` in a process of its own, its noise as the meter says; run as a module.

Arguments: the pickled noise, which is written back with what went through it; then those of the command.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from coco_opt.cli import main
from tests.loss_meter.meter import Noise, frozen

if __name__ == "__main__":
    state = Path(sys.argv[1])
    noise: Noise = pickle.loads(state.read_bytes())
    with frozen(noise):
        code = main(sys.argv[2:])
    state.write_bytes(pickle.dumps(noise))
    sys.exit(code)
