"""From a recipe's engine section to a running engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prerouter.core.protocols import Engine
from prerouter.recipe.engine import EngineSection, RayEngine, TransformersEngine, VllmEngine


def start_engine(section: EngineSection) -> Engine:
    """Load the model, or get ready to call the server. The only place that knows all kinds."""
    if isinstance(section, TransformersEngine):
        from prerouter.engines.transformers import TransformersModel

        return TransformersModel(
            section.model,
            revision=section.revision,
            dtype=section.dtype,
            batch_size=section.batch_size,
            max_model_len=section.max_model_len,
        )
    if isinstance(section, VllmEngine):
        from prerouter.engines.vllm import VllmModel

        return VllmModel(section)
    if isinstance(section, RayEngine):
        from prerouter.engines.ray import RayModel

        return RayModel(section)
    from prerouter.engines.openai import OpenAIServer

    return OpenAIServer(section)


class RunningEngine:
    """One engine at a time, for all that ask for an equal section. It runs until another is asked
    for: beside it, a second one may find no memory."""

    def __init__(self, start: Callable[[EngineSection], Engine]) -> None:
        self._start = start
        self._running: tuple[EngineSection, Engine] | None = None

    def make_way(self, section: EngineSection) -> None:
        """Let go of what runs, unless it is this section's."""
        if self._running and self._running[0] != section:
            self._running = None

    def of(self, section: EngineSection) -> Engine:
        self.make_way(section)
        if not self._running:
            self._running = section, self._start(section)
        return self._running[1]

    def side_by_side(self, sections: Mapping[str, EngineSection]) -> list[str]:
        """The names of `sections` in an order that starts no engine twice, nor the running one."""
        known = [self._running[0]] if self._running else []
        known += [section for section in sections.values() if section not in known]
        return sorted(sections, key=lambda name: known.index(sections[name]))
