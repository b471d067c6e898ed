"""The GPT that the scripts of this directory train, and the byte-pair tokens of its text.

Used by train_gpt.py and resume_study.py.  Needs torch, numpy and tokenizers.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, pre_tokenizers, trainers


def tokens(texts, sample, vocabulary):
    """The texts as arrays of uint16, by a byte-pair encoding that is learned from the texts of sample."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(sample, trainer)
    return [np.asarray(e.ids, np.uint16) for e in tokenizer.encode_batch(texts)]


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.c_attn, self.c_proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.fc, self.proj = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(n, t, width))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x))))


class GPT(torch.nn.Module):
    """Pre-norm blocks, learned positions, separate embedding and head.  The loss is returned, in FP32."""

    def __init__(self, vocabulary, context, width, layers, heads):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(context, width)
        self.h = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)
        self.start()

    def start(self):
        """All parameters as at the start of training, drawn from torch's generator."""
        for name, p in self.named_parameters():
            if p.dim() == 2:
                torch.nn.init.normal_(p, 0, 0.02 / (math.sqrt(2 * len(self.h)) if "proj" in name else 1))
            else:
                p.data.fill_(1 if "ln_" in name and name.endswith("weight") else 0)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe.weight[:ids.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x)).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
