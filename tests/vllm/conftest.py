"""These run in vLLM's own environment (`make test-vllm`) and are not seen in any other."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_*.py"]
