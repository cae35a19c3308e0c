"""The doubles beside the tests can be imported, in this process and in the one that has vLLM."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
