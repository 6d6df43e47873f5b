# SPDX-License-Identifier: Apache-2.0
"""Plain language models for train_step_torch.py, in the style of torchtitan: a LLaMA, optionally
with Qwen3's norms of heads, and GPT-2; and Hugging Face's own LLaMA without changes. The sizes are
those of the published models (8b: four of its blocks). forward(ids, targets) is the mean loss.
`liger` selects Liger's kernels for norms, SwiGLU and the loss of the head."""

import torch
import torch.nn.functional as F
from torch import nn

LLAMA = {
    "tiny": {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "mlp": 128, "tied": True,
             "vocabulary": 512},
    "tiny-qwen3": {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head": 32, "mlp": 128,
                   "tied": True, "vocabulary": 512, "norms_heads": True},
    "1b": {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "mlp": 8192, "tied": True},
    "8b": {"layers": 4, "hidden": 4096, "heads": 32, "kv_heads": 8, "mlp": 14336, "tied": False},
    "qwen3-1.7b": {"layers": 28, "hidden": 2048, "heads": 16, "kv_heads": 8, "head": 128,
                   "mlp": 6144, "tied": True, "vocabulary": 151936, "norms_heads": True},
}
GPT2 = {
    "tiny-gpt2": {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 512},
    "gpt2-xl": {"layers": 48, "hidden": 1600, "heads": 25, "vocabulary": 50257},
}
HUGGING_FACE = {"hf-1b": "1b", "tiny-hf": "tiny"}  # of LLAMA's sizes
MODELS = sorted([*LLAMA, *GPT2, *HUGGING_FACE])
ROPE_BASE = 500000


class Plain:
    """PyTorch's versions of the operations for which Liger has kernels."""

    @staticmethod
    def norm(module, x):
        return module(x)

    @staticmethod
    def swiglu(gate, up):
        return F.silu(gate) * up

    @staticmethod
    def loss(x, head, targets):
        return F.cross_entropy(head(x).flatten(0, 1).float(), targets.flatten())


class Liger:
    @staticmethod
    def norm(module, x):
        from liger_kernel.transformers.functional import liger_rms_norm

        return liger_rms_norm(x, module.weight, module.eps, in_place=False)

    @staticmethod
    def swiglu(gate, up):
        from liger_kernel.transformers.functional import liger_swiglu

        return liger_swiglu(gate, up)

    @staticmethod
    @torch.compiler.disable  # Dynamo does not support addmm with both `out` and `out_dtype`
    def loss(x, head, targets):
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        return liger_fused_linear_cross_entropy(x.flatten(0, 1), head.weight, targets.flatten())


def rotate(x, cos, sin):
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).type_as(x)


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv_heads, head, norms_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, head
        self.q = nn.Linear(hidden, heads * head, bias=False)
        self.k = nn.Linear(hidden, kv_heads * head, bias=False)
        self.v = nn.Linear(hidden, kv_heads * head, bias=False)
        self.o = nn.Linear(heads * head, hidden, bias=False)
        self.q_norm = nn.RMSNorm(head, eps=1e-6) if norms_heads else None
        self.k_norm = nn.RMSNorm(head, eps=1e-6) if norms_heads else None

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.heads, self.head)
        k = self.k(x).view(batch, length, self.kv_heads, self.head)
        v = self.v(x).view(batch, length, self.kv_heads, self.head).transpose(1, 2)
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q.transpose(1, 2), cos, sin), rotate(k.transpose(1, 2), cos, sin)
        y = F.scaled_dot_product_attention(
            q.type_as(v), k.type_as(v), v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, hidden, heads, kv_heads, head, mlp, norms_heads, kernels):
        super().__init__()
        self.attention_norm = nn.RMSNorm(hidden, eps=1e-5)
        self.attention = Attention(hidden, heads, kv_heads, head, norms_heads)
        self.mlp_norm = nn.RMSNorm(hidden, eps=1e-5)
        self.gate = nn.Linear(hidden, mlp, bias=False)
        self.up = nn.Linear(hidden, mlp, bias=False)
        self.down = nn.Linear(mlp, hidden, bias=False)
        self.kernels = kernels

    def forward(self, x, cos, sin):
        x = x + self.attention(self.kernels.norm(self.attention_norm, x), cos, sin)
        h = self.kernels.norm(self.mlp_norm, x)
        return x + self.down(self.kernels.swiglu(self.gate(h), self.up(h)))


class Llama(nn.Module):
    def __init__(self, sequence, layers, hidden, heads, kv_heads, mlp, tied, vocabulary=128256,
                 head=None, norms_heads=False):
        super().__init__()
        head = head or hidden // heads
        self.kernels = Plain
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(
            Block(hidden, heads, kv_heads, head, mlp, norms_heads, Plain) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        half = head // 2
        angles = torch.outer(torch.arange(sequence).float(),
                             ROPE_BASE ** (-torch.arange(half).float() / half))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def use(self, kernels):
        """Selects PyTorch's or Liger's operations."""
        for module in [self, *self.blocks]:
            module.kernels = kernels

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.loss(x, targets)

    def loss(self, x, targets):
        return self.kernels.loss(self.kernels.norm(self.norm, x), self.head, targets)


class GptBlock(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.o = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2)
                   for t in self.qkv(self.attention_norm(x)).split(hidden, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, sequence, layers, hidden, heads, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(sequence, hidden)
        self.blocks = nn.ModuleList(GptBlock(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.embedding(ids) + self.positions.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return Plain.loss(self.norm(x), self.head, targets)


class HuggingFace(nn.Module):
    """transformers' LlamaForCausalLM. Its labels are the ids, which the model shifts itself."""

    def __init__(self, sequence, layers, hidden, heads, kv_heads, mlp, tied, vocabulary=128256):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        self.model = LlamaForCausalLM(LlamaConfig(
            vocab_size=vocabulary, hidden_size=hidden, intermediate_size=mlp,
            num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
            max_position_embeddings=sequence, rms_norm_eps=1e-5, tie_word_embeddings=tied,
            rope_parameters={"rope_type": "default", "rope_theta": float(ROPE_BASE)},
            use_cache=False, attn_implementation="sdpa"))

    def forward(self, ids, targets):
        return self.model(input_ids=ids, labels=ids).loss


def model_of(name, sequence, layers=None):
    """The model with this name in MODELS, with the given number of layers, and the size of its
    vocabulary."""
    sizes = LLAMA.get(HUGGING_FACE.get(name, name)) or GPT2[name]
    sizes = sizes | ({"layers": layers} if layers else {})
    kind = HuggingFace if name in HUGGING_FACE else Llama if name in LLAMA else Gpt2
    model = kind(sequence, **sizes)
    return model, next(m for m in model.modules() if isinstance(m, nn.Embedding)).num_embeddings
