"""Trains a small hybrid with a head for further tokens (MTP), for `node benches/hybrid.mjs mtp OUT`.

    python benches/mtp_model.py TEXT TOKENIZER OUT [--minutes 20]

TEXT is plain text, its documents separated by <|endoftext|>; TOKENIZER a folder with tokenizer.json and tokenizer_config.json,
the demo model's for one. Needs torch 2.15, transformers 5.23, tokenizers and safetensors. Model and head learn together, the
head from the state behind the output norm and the embedding of the token that follows, as Qwen3.5's checkpoints have it.
"""
import argparse
import json
import os
import shutil
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen
from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig

LAYERS, HIDDEN, WINDOW, BATCH = 4, 256, 256, 16
# How much of the loss is the head's.
SHARE = 0.3


def config(vocab, layers, **more):
    kinds = ["full_attention" if i % 4 == 3 or i >= LAYERS else "linear_attention" for i in range(layers)]
    return Qwen3_5TextConfig(
        vocab_size=vocab, hidden_size=HIDDEN, intermediate_size=768, num_hidden_layers=layers, layer_types=kinds,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, linear_conv_kernel_dim=4, linear_key_head_dim=64,
        linear_value_head_dim=64, linear_num_key_heads=2, linear_num_value_heads=4, tie_word_embeddings=True,
        max_position_embeddings=1024, rms_norm_eps=1e-6, bos_token_id=0, eos_token_id=0, pad_token_id=0,
        rope_parameters={"rope_theta": 1e6, "rope_type": "default", "partial_rotary_factor": 0.25,
                         "mrope_section": [3, 3, 2], "mrope_interleaved": True}, **more)


class Mtp(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        norm = lambda: qwen.Qwen3_5RMSNorm(HIDDEN, eps=1e-6)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = norm(), norm(), norm()
        self.fc = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.layers = nn.ModuleList([qwen.Qwen3_5DecoderLayer(config(vocab, LAYERS + 1, attn_implementation="sdpa"), LAYERS)])

    def forward(self, embedded, states, turns):
        joined = torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(states)], dim=-1)
        out = self.layers[0](self.fc(joined), position_embeddings=turns)
        return self.norm(out[0] if isinstance(out, tuple) else out)


class Both(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.model = Qwen3_5ForCausalLM(config(vocab, LAYERS, attn_implementation="sdpa"))
        self.mtp = Mtp(vocab)

    def forward(self, ids):
        """The losses of the next token and of the one behind it."""
        trunk = self.model.model
        states = trunk(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        head = lambda rows: F.linear(rows, self.model.lm_head.weight)
        loss = lambda rows, wanted: F.cross_entropy(head(rows).float().flatten(0, 1), wanted.flatten())
        # A row joins a token with the state of the position before it.
        embedded = trunk.embed_tokens(ids[:, 1:-1])
        positions = torch.arange(1, ids.shape[1] - 1)[None].expand(ids.shape[0], -1)
        turns = trunk.rotary_emb(embedded, positions)
        guessed = self.mtp(embedded, states[:, :-1], turns)
        return loss(states, ids[:, 1:]), loss(guessed, ids[:, 2:])


def encoded(text, tokenizer):
    documents = [part for part in open(text, encoding="utf-8").read().split("<|endoftext|>") if part.strip()]
    parts = [piece for part in documents for piece in pieces(part)]
    ids = Tokenizer.from_file(os.path.join(tokenizer, "tokenizer.json")).encode_batch(parts, add_special_tokens=False)
    return np.concatenate([np.array([0, *one.ids], dtype=np.int32) for one in ids])


def pieces(document, size=20_000):
    """Parts that end with a line: a text without marks is one document."""
    start = 0
    while start < len(document):
        end = document.find("\n", start + size)
        end = len(document) if end < 0 else end + 1
        yield document[start:end]
        start = end


def optimizers(both):
    named = list(both.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name and "lm_head" not in name]
    chosen = {id(p) for p in matrices}
    rest = [p for _, p in named if id(p) not in chosen]
    return [(torch.optim.Muon(matrices, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"), 0.01),
            (torch.optim.AdamW(rest, lr=0.003, betas=(0.9, 0.95), weight_decay=0), 0.003)]


def train(both, ids, minutes):
    generator = np.random.default_rng(1)
    all_of = optimizers(both)
    begun, step = time.time(), 0
    while (part := (time.time() - begun) / (60 * minutes)) < 1:
        rate = min(1, (step + 1) / 60) * min(1, (1 - part) / 0.4)
        for optimizer, most in all_of:
            for group in optimizer.param_groups:
                group["lr"] = rate * most
        starts = generator.integers(0, len(ids) - WINDOW - 2, BATCH)
        batch = torch.from_numpy(np.stack([ids[at:at + WINDOW + 2] for at in starts])).long()
        with torch.autocast("cpu", torch.bfloat16):
            own, guess = both(batch)
        (own + SHARE * guess).backward()
        nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        for optimizer, _ in all_of:
            optimizer.step()
            optimizer.zero_grad()
        if step % 50 == 0:
            print(f"{step} {100 * part:.0f} % {own.item():.3f} {guess.item():.3f}", flush=True)
        step += 1
    return step


def export(both, vocab, tokenizer, out):
    os.makedirs(out, exist_ok=True)
    weights = {name: value for name, value in both.model.state_dict().items() if not name.startswith("lm_head")}
    weights |= {f"mtp.{name}": value for name, value in both.mtp.state_dict().items()}
    save_file({name: value.to(torch.bfloat16).contiguous() for name, value in weights.items()},
              os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    described = config(vocab, LAYERS).to_dict()
    described |= {"architectures": ["Qwen3_5ForCausalLM"], "dtype": "bfloat16", "mtp_num_hidden_layers": 1}
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(described, file, indent=1)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(tokenizer, name), out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("text", "tokenizer", "out"):
        parser.add_argument(name)
    parser.add_argument("--minutes", type=float, default=20)
    asked = parser.parse_args()
    torch.manual_seed(1)
    ids = encoded(asked.text, asked.tokenizer)
    vocab = Tokenizer.from_file(os.path.join(asked.tokenizer, "tokenizer.json")).get_vocab_size()
    both = Both(vocab)
    print(f"{len(ids)} ids, {sum(p.numel() for p in both.parameters()) / 1e6:.1f} M parameters", flush=True)
    print(train(both, ids, asked.minutes), "steps")
    export(both, vocab, asked.tokenizer, asked.out)


main()
