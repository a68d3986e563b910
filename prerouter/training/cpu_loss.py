"""TRL's loss, computed on a CPU without the work that TRL leaves to GPU kernels.

TRL 1.16 projects every position, prompts included, onto the vocabulary where it has no kernel, and
multiplies in float32 on the way back. On a CPU that is a third of a small model's time. Here only
the positions from the first completion token on are projected, in the precision of the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from trl import SFTTrainer

IGNORED = -100


def cpu_trainer() -> type[SFTTrainer]:
    """SFTTrainer with the same mean negative log-likelihood a completion token, for a CPU."""
    import torch
    from trl import SFTTrainer

    class CpuTrainer(SFTTrainer):  # type: ignore[misc]
        def compute_loss(
            self,
            model: Any,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Tensor | int | None = None,
        ) -> Any:
            plain = self.args.loss_type == "nll" and not self.args.label_smoothing_factor
            if return_outputs or not plain or self.aux_loss_enabled:
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
            labels = inputs["labels"]
            first = int((labels != IGNORED).any(dim=0).int().argmax())
            # The token before the first label predicts it.
            kept = labels.shape[1] - max(first - 1, 0)
            rest = {name: value for name, value in inputs.items() if name != "labels"}
            logits = model(**rest, use_cache=False, logits_to_keep=kept).logits[:, :-1]
            wanted = labels[:, 1 - kept :]
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(),
                wanted.flatten(),
                ignore_index=IGNORED,
                reduction="sum",
            )
            count = (wanted != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
            loss = loss / torch.as_tensor(count).clamp(min=1)
            if self.args.average_tokens_across_devices and num_items_in_batch is not None:
                loss = loss * self.accelerator.num_processes
            return loss

    return CpuTrainer
