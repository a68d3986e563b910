"""A two-layer random Qwen3 with a byte-level vocabulary: whole, fast and the same each time."""

from __future__ import annotations

from pathlib import Path

END_OF_TURN = "<|im_end|>"
PAD = "<|endoftext|>"

# Qwen3's turns and its thinking switch, without tools.
CHAT_TEMPLATE = r"""{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.role == 'assistant' and loop.last and '</think>' not in message.content -%}
{{- '<think>\n\n</think>\n\n' }}
{%- endif -%}
{{- message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false -%}
{{- '<think>\n\n</think>\n\n' }}
{%- endif -%}
{%- endif -%}
"""

# Enough text of the kind that prompts and replies hold for some merges to be learnt.
_TEXT = [
    '{"characterisation": "One fact.", "distribution": "Local.", "window_feasibility": "Fits.",',
    '"retrieval_feasibility": "The chunks hold it.", "model_capability": "A small model.",',
    '"efficiency": "RAG is cheap.", "reflection": "Nothing speaks against it.",',
    '"decision": "RAG"} "decision": "LC"} Route the case: retrieved chunks or whole document.',
    "question: title: type: tokens: head: model: window: chunks: of overlap fits does not fit",
]


def make_tiny_model(folder: Path) -> Path:
    """Write the model, its tokenizer and its generation config into `folder`."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    special = [PAD, "<|im_start|>", END_OF_TURN]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    tokenizer.add_tokens(["<think>", "</think>"])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END_OF_TURN, pad_token=PAD, model_max_length=2048
    )
    fast.chat_template = CHAT_TEMPLATE

    end, pad = fast.convert_tokens_to_ids([END_OF_TURN, PAD])
    config = Qwen3Config(
        vocab_size=len(fast),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=end,
        pad_token_id=pad,
        bos_token_id=None,
        # Wider than usual, so that even an untrained model prefers some tokens.
        initializer_range=0.1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = end
    model.generation_config.pad_token_id = pad
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
