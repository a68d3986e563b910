"""From a recipe's engine section to a running engine."""

from __future__ import annotations

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
