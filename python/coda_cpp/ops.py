# SPDX-License-Identifier: Apache-2.0
"""Operators for parts of Transformer blocks: products, each with its epilogue, and attention.

Tensors are float32, bfloat16 or float16, with any leading dimensions, on a CPU or on an H100 or
H200; both operands of a product have the same type. The operators are differentiable with respect
to every floating-point argument except tables of angles. They work with torch.compile and
torch.autocast, which casts all arguments except statistics and norms' weights, and does not round
the gradients of fp32 weights. Arithmetic is fp32; stored values are rounded once. Shapes, types and
devices that do not fit raise coda_cpp.Error (a ValueError), which names the argument. A plan is
compiled once for each set of types, widths and attributes, and runs for any number of tokens.
"""

from __future__ import annotations

import torch

from coda_cpp import builders as b
from coda_cpp._attention import ATTENTION, spans_of
from coda_cpp._core import Error, Value
from coda_cpp._operators import Argument, Given, Operator, declare, require_numbers, require_tensors
from coda_cpp.function import Output

_X = Argument("x", "rows", sizes="K")
_WEIGHT = Argument("weight", "matrix", sizes="N K")
_NORM = (Argument("rstd", "per_row", True, False),
         Argument("norm_weight", "columns", True, False, "K"))


def _normed(given: Given) -> Value:
    """The normed x, rstd ⊙ x ⊙ (offset + norm_weight); a factor that was not given is omitted."""
    x = given.x
    if given.norm_weight is not None:
        weight = given.norm_weight
        x = x * (weight + given.offset if given.offset else weight)
    return x if given.rstd is None else x * given.rstd


def _linear_residual_rms(given: Given) -> list[Output]:
    y = b.linear(given.x, given.weight) + given.residual
    return [Output("y", y, given.storage), Output("rstd_of_y", b.rms_reciprocal(y, given.eps))]


_LINEAR_RESIDUAL_RMS = declare(Operator(
    "linear_residual_rms", (_X, _WEIGHT, Argument("residual", "rows", sizes="N")),
    _linear_residual_rms))


def linear_residual_rms(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor,
                        eps: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor]:
    """y = x·weightᵀ + residual, and rstd = rsqrt(mean(y²) + eps) of each row, for the next norm.

    x [..., K], weight [N, K], residual [..., N] -> y [..., N], rstd float32 [...]. The operator
    that reads y applies the norm: rms_linear, swiglu_linear and others take rstd. (RMSNorm: Zhang
    and Sennrich, arXiv 1910.07467; its deferral: Guo et al., arXiv 2605.19269.)
    """
    made = _LINEAR_RESIDUAL_RMS({"x": x, "weight": weight, "residual": residual}, {"eps": eps})
    return made[0], made[1]


def _rms_linear(given: Given) -> list[Output]:
    z = b.linear(_normed(given), given.weight)
    return [Output("z", z if given.bias is None else z + given.bias, given.storage)]


_RMS_LINEAR = declare(Operator(
    "rms_linear", (_X, _WEIGHT, *_NORM, Argument("bias", "columns", True, False, "N")),
    _rms_linear))


def rms_linear(x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor,
               norm_weight: torch.Tensor | None = None, bias: torch.Tensor | None = None,
               offset: float = 0.0) -> torch.Tensor:
    """(rstd ⊙ x ⊙ (offset + norm_weight))·weightᵀ + bias: a linear layer after an RMS norm.

    x [..., K], weight [N, K], rstd float32 [...], norm_weight [K], bias [N] -> [..., N]. offset 1
    is Gemma's norm. The row scale is applied to the product's tile, not to x.
    """
    return _RMS_LINEAR({"x": x, "weight": weight, "rstd": rstd, "norm_weight": norm_weight,
                        "bias": bias}, {"offset": offset})[0]


def _gated_linear(given: Given) -> list[Output]:
    h = _normed(given)
    gate, up = b.linear(h, given.gate), b.linear(h, given.up)
    return [Output("y", b.elementwise(given.activation, [gate]) * up, given.storage)]


_GATED = (_X, Argument("gate", "matrix", sizes="N K"), Argument("up", "matrix", sizes="N K"),
          *_NORM)
_SWIGLU_LINEAR = declare(Operator("swiglu_linear", _GATED, _gated_linear))
_GEGLU_LINEAR = declare(Operator("geglu_linear", _GATED, _gated_linear))


def swiglu_linear(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor,
                  rstd: torch.Tensor | None = None, norm_weight: torch.Tensor | None = None,
                  offset: float = 0.0) -> torch.Tensor:
    """silu(h·gateᵀ) ⊙ (h·upᵀ), where h is x ⊙ rstd ⊙ (offset + norm_weight). Without rstd or
    norm_weight the factor is omitted.

    x [..., K], gate and up [N, K], rstd float32 [...], norm_weight [K] -> [..., N]. (SwiGLU:
    Shazeer, arXiv 2002.05202.) The weights have the layout of Hugging Face's gate_proj and up_proj.
    """
    return _SWIGLU_LINEAR(
        {"x": x, "gate": gate, "up": up, "rstd": rstd, "norm_weight": norm_weight},
        {"offset": offset}, {"activation": "silu"})[0]


def geglu_linear(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor,
                 rstd: torch.Tensor | None = None, norm_weight: torch.Tensor | None = None,
                 offset: float = 0.0, approximate: str = "none") -> torch.Tensor:
    """gelu(h·gateᵀ) ⊙ (h·upᵀ), with the arguments of swiglu_linear.

    approximate: "none" (with erf) or "tanh", as in torch.nn.functional.gelu.
    """
    names = {"none": "gelu", "tanh": "gelu_tanh"}
    if approximate not in names:
        raise Error(f"geglu_linear: approximate '{approximate}' is neither 'none' nor 'tanh'")
    return _GEGLU_LINEAR(
        {"x": x, "gate": gate, "up": up, "rstd": rstd, "norm_weight": norm_weight},
        {"offset": offset}, {"activation": names[approximate]})[0]


def _check_range(op: str, name: str, index: torch.Tensor, size: int, ignored: int | None) -> None:
    wrong = (index < 0) | (index >= size)
    if ignored is not None:
        wrong &= index != ignored
    if bool(wrong.any()):
        value = int(index[wrong][0])
        besides = "" if ignored is None else f" or be ignore_index = {ignored}"
        raise Error(f"{op}: argument '{name}' has the value {value}; each must lie in "
                    f"[0, {size}){besides}")


def _as_index(op: str, name: str, index: torch.Tensor) -> torch.Tensor:
    if index.dtype == torch.int32:
        return index
    if index.dtype != torch.int64:
        raise Error(f"{op}: argument '{name}' must be int64 or int32, but it is {index.dtype}")
    # A value outside int32 stays outside every valid range.
    return index.clamp(-2**31, 2**31 - 1).to(torch.int32)


def _linear_rope(given: Given) -> list[Output]:
    z = b.linear(_normed(given), given.weight)
    heads, head_dim = int(given.heads), int(given.head_dim)
    if given.head_norm_weight is not None:
        weight = given.head_norm_weight
        weight = b.repeat_columns(weight + given.offset if given.offset else weight, heads)
        squares = b.group_sum(z * z, head_dim) / float(head_dim)
        z = z * b.group_repeat(b.rsqrt(squares + given.eps), head_dim) * weight
    y = b.rope(z, given.cos, given.sin, given.positions, heads, head_dim, bool(given.half))
    return [Output("y", y, given.storage)]


def _check_rope(tensors: dict[str, torch.Tensor], attributes: dict) -> None:
    _check_range("linear_rope", "positions", tensors["positions"], tensors["cos"].shape[0], None)


_LINEAR_ROPE = declare(Operator("linear_rope", (
    _X, _WEIGHT, Argument("cos", "table", False, False), Argument("sin", "table", False, False),
    Argument("positions", "index", False, False), *_NORM,
    Argument("head_norm_weight", "columns", True, False)), _linear_rope, _check_rope))


def linear_rope(x: torch.Tensor, weight: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
                positions: torch.Tensor, head_dim: int, *, rstd: torch.Tensor | None = None,
                norm_weight: torch.Tensor | None = None,
                head_norm_weight: torch.Tensor | None = None, eps: float = 1e-6,
                offset: float = 0.0, half: bool = True) -> torch.Tensor:
    """h·weightᵀ with the pairs of each head rotated (RoPE: Su et al., arXiv 2104.09864): q or k.

    x [..., K], weight [heads * head_dim, K], cos and sin [P, head_dim / 2], positions int [...],
    each in [0, P), -> [..., heads * head_dim]. h is x after the norm of rstd and norm_weight, as in
    swiglu_linear. With head_norm_weight [head_dim] each head is normed (RMS, eps) before it is
    rotated, as by Qwen3's q_norm and k_norm. half: the pairs of a head are (j, j + head_dim / 2),
    as in Hugging Face's models; otherwise (2j, 2j + 1). offset is added to both norms' weights.
    """
    require_tensors("linear_rope", ("weight", "cos", "sin", "positions"),
                    (weight, cos, sin, positions))
    if head_norm_weight is not None:
        require_tensors("linear_rope", ("head_norm_weight",), (head_norm_weight,))
    require_numbers("linear_rope", {"head_dim": head_dim})
    if head_dim <= 0 or head_dim % 2:
        raise Error(f"linear_rope: head_dim must be even and positive, but it is {head_dim}")
    if weight.dim() != 2 or weight.shape[0] % head_dim:
        raise Error(f"linear_rope: argument 'weight' has the shape {list(weight.shape)}; its rows "
                    f"must be a multiple of head_dim = {head_dim}")
    if head_norm_weight is not None and head_norm_weight.shape != (head_dim,):
        raise Error(f"linear_rope: argument 'head_norm_weight' must be [{head_dim}], but its shape "
                    f"is {list(head_norm_weight.shape)}")
    for name, table in (("cos", cos), ("sin", sin)):
        if table.dim() != 2 or 2 * table.shape[1] != head_dim:
            raise Error(f"linear_rope: argument '{name}' must be [positions, {head_dim // 2}], but "
                        f"its shape is {list(table.shape)}; of Hugging Face's give the first half "
                        "of the columns")
    positions = _as_index("linear_rope", "positions", positions)
    return _LINEAR_ROPE(
        {"x": x, "weight": weight, "cos": cos, "sin": sin, "positions": positions, "rstd": rstd,
         "norm_weight": norm_weight, "head_norm_weight": head_norm_weight},
        {"heads": int(weight.shape[0]) // head_dim, "head_dim": head_dim, "eps": eps,
         "offset": offset, "half": half})[0]


def _linear_cross_entropy(given: Given) -> list[Output]:
    logits = b.linear(_normed(given), given.weight)
    if given.soft_cap:
        logits = b.soft_cap(logits, given.soft_cap)
    rows, mean = b.cross_entropy(
        logits, given.targets, int(given.ignore_index), given.label_smoothing, given.z_loss)
    counted = b.select(b.equal(given.targets, float(given.ignore_index)), 0.0, 1.0)
    loss = {"none": rows, "sum": b.col_sum(rows), "mean": mean}[given.reduction]
    empty = float("nan") if given.reduction == "mean" else 0.0
    return [Output("loss", loss, "f32", True, empty),
            Output("count", b.col_sum(counted), "f32", False)]


def _check_targets(tensors: dict[str, torch.Tensor], attributes: dict) -> None:
    _check_range("linear_cross_entropy", "targets", tensors["targets"],
                 tensors["weight"].shape[0], int(attributes["ignore_index"]))


_LINEAR_CROSS_ENTROPY = declare(Operator(
    "linear_cross_entropy", (_X, _WEIGHT, Argument("targets", "index", False, False), *_NORM),
    _linear_cross_entropy, _check_targets, "loss_rows"))


def linear_cross_entropy(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, *,
                         ignore_index: int = -100, reduction: str = "mean",
                         label_smoothing: float = 0.0, z_loss: float = 0.0, soft_cap: float = 0.0,
                         rstd: torch.Tensor | None = None,
                         norm_weight: torch.Tensor | None = None, offset: float = 0.0,
                         loss_rows: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    """The cross-entropy of logits x·weightᵀ, and the number of rows that count; no logits are
    returned.

    x [..., K], weight [V, K], targets int [...], each in [0, V) or ignore_index -> loss float32 []
    (or [...] for reduction "none"), count float32 []. reduction is "mean", "sum" or "none", as in
    torch.nn.functional.cross_entropy. z_loss adds z_loss * logsumexp² to each row that counts
    (PaLM, arXiv 2204.02311). soft_cap replaces each logit by cap * tanh(logit / cap) (Gemma 2; 0:
    no cap). A mean over no rows is NaN. rstd and norm_weight: the norm before the head, as in
    swiglu_linear. loss_rows: logits and both gradients are computed for this number of rows at
    once; -1 chooses the number (if all logits would take more than 256 MiB), 0 stores all logits.
    With "none" the backward recomputes the logits of each block, because their gradients need an
    upstream gradient for each row. To divide a sum by another count (gradient accumulation), use
    "sum" and the counts. Targets outside these values raise an Error on a CPU, and on a GPU after
    coda_cpp.checking(True); otherwise the target of such a row counts as logit 0.
    """
    if reduction not in ("mean", "sum", "none"):
        raise Error(f"linear_cross_entropy: reduction '{reduction}' is none of 'mean', 'sum', "
                    "'none'")
    require_numbers("linear_cross_entropy", {
        "label_smoothing": label_smoothing, "z_loss": z_loss, "soft_cap": soft_cap,
        "loss_rows": loss_rows})
    if not 0 <= label_smoothing < 1 or z_loss < 0 or soft_cap < 0:
        raise Error("linear_cross_entropy: label_smoothing must lie in [0, 1), z_loss and soft_cap "
                    f"must be at least 0, but they are {label_smoothing}, {z_loss} and {soft_cap}")
    if int(loss_rows) != loss_rows or not -1 <= loss_rows < 2**31:
        raise Error("linear_cross_entropy: loss_rows must be a whole number of rows, 0 or -1, but "
                    f"it is {loss_rows}")
    require_tensors("linear_cross_entropy", ("targets",), (targets,))
    targets = _as_index("linear_cross_entropy", "targets", targets)
    made = _LINEAR_CROSS_ENTROPY(
        {"x": x, "weight": weight, "targets": targets, "rstd": rstd, "norm_weight": norm_weight},
        {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "z_loss": z_loss,
         "soft_cap": soft_cap, "offset": offset, "loss_rows": loss_rows},
        {"reduction": reduction})
    return made[0], made[1]


def _linear_log_prob(given: Given) -> list[Output]:
    logits = b.linear(_normed(given), given.weight)
    if given.soft_cap:
        logits = b.soft_cap(logits, given.soft_cap)
    if given.temperature != 1:
        logits = logits / given.temperature
    log_sum = b.row_logsumexp(logits)
    log = b.select_column(logits, given.ids) - log_sum
    outputs = [Output("log_prob", log, "f32")]
    if given.entropy:
        each = logits - log_sum
        outputs.append(Output("entropy", b.row_sum(b.exp(each) * each) * -1.0, "f32"))
    return outputs


def _check_ids(tensors: dict[str, torch.Tensor], attributes: dict) -> None:
    _check_range("linear_log_prob", "ids", tensors["ids"], tensors["weight"].shape[0], None)


_LINEAR_LOG_PROB = declare(Operator("linear_log_prob", (
    _X, _WEIGHT, Argument("ids", "index", False, False), *_NORM), _linear_log_prob, _check_ids,
    "loss_rows"))


def linear_log_prob(x: torch.Tensor, weight: torch.Tensor, ids: torch.Tensor, *,
                    rstd: torch.Tensor | None = None, norm_weight: torch.Tensor | None = None,
                    offset: float = 0.0, temperature: float = 1.0, soft_cap: float = 0.0,
                    entropy: bool = True, loss_rows: int = -1
                    ) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The log-probability of one column per row under softmax(x·weightᵀ / temperature), and the
    rows' entropy in nats, for policy gradients (GRPO, PPO) and DPO. No logits are returned.

    x [..., K], weight [V, K], ids int [...], each in [0, V) -> log_prob float32 [...], entropy
    float32 [...]; both are differentiable. If `entropy` is false, the second result is None. rstd
    and norm_weight: the norm before the head, as in swiglu_linear. soft_cap and loss_rows: as in
    linear_cross_entropy. If all logits take more than 256 MiB (or loss_rows is positive), the
    backward recomputes them in blocks of rows: this costs one more product, and the logits of all
    rows are never stored. Ids outside [0, V) raise an Error on a CPU, and on a GPU after
    coda_cpp.checking(True).
    """
    require_numbers("linear_log_prob", {"temperature": temperature, "soft_cap": soft_cap,
                                        "loss_rows": loss_rows})
    if temperature <= 0 or soft_cap < 0:
        raise Error("linear_log_prob: temperature must be above 0 and soft_cap at least 0, but "
                    f"they are {temperature} and {soft_cap}")
    if int(loss_rows) != loss_rows or not -1 <= loss_rows < 2**31:
        raise Error("linear_log_prob: loss_rows must be a whole number of rows, 0 or -1, but it "
                    f"is {loss_rows}")
    require_tensors("linear_log_prob", ("ids",), (ids,))
    ids = _as_index("linear_log_prob", "ids", ids)
    made = _LINEAR_LOG_PROB(
        {"x": x, "weight": weight, "ids": ids, "rstd": rstd, "norm_weight": norm_weight},
        {"temperature": temperature, "soft_cap": soft_cap, "offset": offset, "entropy": entropy,
         "loss_rows": loss_rows})
    return made[0], made[1] if entropy else None


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False,
              window: int | None = None, softcap: float | None = None, scale: float | None = None,
              documents: torch.Tensor | None = None, sinks: torch.Tensor | None = None
              ) -> torch.Tensor:
    """softmax(scores)·v for each head, without stored scores. A score is q·k times `scale`
    (default: size ** -0.5), then softcap * tanh(score / softcap) if `softcap` is given (Gemma 2).

    q [batch, heads, tokens, size], k [batch, kv_heads, tokens, size], v [batch, kv_heads, tokens,
    value_size] -> [batch, heads, tokens, value_size], as torch's scaled_dot_product_attention with
    enable_gqa: query head h reads key-value head h // (heads // kv_heads). causal: token i sees
    tokens j <= i. window, only with causal: of these it sees j > i - window, as Hugging Face's
    sliding_window counts.

    documents, int32 or int64 [n + 1]: attention runs within n documents, whose tokens follow each
    other. Document i consists of the tokens from documents[i] to in front of documents[i + 1],
    counted over the whole batch (as the cu_seqlens of flash-attention). The numbers ascend from 0;
    a document may be empty. Tokens behind the last document see nothing: their results and
    gradients are 0, if all their elements are finite.

    sinks, of any floating-point type [heads]: a logit of each head whose exponential is added only
    to the denominator of softmax (gpt-oss), so the weights of the values sum to less than 1. It is
    neither scaled nor capped.

    All tensors have one type: float32, bfloat16 or float16; autocast converts them. On a GPU heads
    have at most 256 elements, and float32 does not use tensor cores and is slow. Transposed
    [batch, tokens, heads, size] is read in place, also as columns of a fused projection, and the
    result has this layout; other strides are copied. Results and gradients have the same bits each
    time. Not supported: dropout, other masks, queries and keys of different lengths.
    """
    name, tensors = "attention", {"q": q, "k": k, "v": v}
    require_tensors(name, list(tensors), list(tensors.values()))
    for argument, x in tensors.items():
        if x.dim() != 4:
            raise Error(f"{name}: argument '{argument}' must be [batch, heads, tokens, size], but "
                        f"its shape is {list(x.shape)}")
        if x.device != q.device:
            raise Error(f"{name}: argument '{argument}' lies on {x.device}, but 'q' on {q.device}")
    device = q.device.type
    if device not in ("cpu", "cuda"):
        raise Error(f"{name}: tensors lie on {q.device}, but must lie on a CPU or a CUDA device")
    if torch.is_autocast_enabled(device):
        low = torch.get_autocast_dtype(device)
        q, k, v = q.to(low), k.to(low), v.to(low)
    if q.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise Error(f"{name}: argument 'q' must be float32 or bfloat16 or float16, but it is "
                    f"{q.dtype}; convert it by .to()")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise Error(f"{name}: 'q', 'k' and 'v' must have one type, but they are {q.dtype}, "
                    f"{k.dtype} and {v.dtype}; convert them by .to(), or use torch.autocast")
    batch, heads, tokens, size = q.shape
    kv_heads, value_size = k.shape[1], v.shape[3]
    if k.shape != (batch, kv_heads, tokens, size) or (
            v.shape != (batch, kv_heads, tokens, value_size)):
        raise Error(f"{name}: k and v must have the batch and the tokens of q {list(q.shape)}, and "
                    f"k its size, but they are {list(k.shape)} and {list(v.shape)}; for other "
                    "lengths use torch.nn.functional.scaled_dot_product_attention")
    if not size or not value_size or not kv_heads or not heads or heads % kv_heads:
        raise Error(f"{name}: sizes must be positive and the {heads} heads of q a multiple of the "
                    f"{kv_heads} of k and v, but q is {list(q.shape)} and v {list(v.shape)}")
    if device == "cuda" and max(size, value_size) > 256:
        raise Error(f"{name}: on a GPU heads have at most 256 elements, but q is {list(q.shape)} "
                    f"and v {list(v.shape)}")
    require_numbers(name, {"window": window or 0, "softcap": softcap or 0, "scale": scale or 0})
    if window is not None and (not causal or window < 1 or int(window) != window):
        raise Error(f"{name}: window must be None or, with causal=True, a positive whole number, "
                    f"but it is {window} with causal={causal}")
    if softcap is not None and softcap <= 0:
        raise Error(f"{name}: softcap must be None or positive, but it is {softcap}")
    if documents is not None:
        require_tensors(name, ["documents"], [documents])
        if documents.dim() != 1 or len(documents) < 2 or documents.device != q.device or (
                documents.dtype not in (torch.int32, torch.int64)):
            raise Error(f"{name}: argument 'documents' must be int32 or int64 [documents + 1] on "
                        f"{q.device}, but it is {documents.dtype} {list(documents.shape)} on "
                        f"{documents.device}")
        documents = spans_of(documents, batch * tokens)
    if sinks is not None:
        require_tensors(name, ["sinks"], [sinks])
        if sinks.shape != (heads,) or sinks.device != q.device or not sinks.is_floating_point():
            raise Error(f"{name}: argument 'sinks' must be of a floating-point type and [{heads}], "
                        f"one for each head of q, on {q.device}, but it is {sinks.dtype} "
                        f"{list(sinks.shape)} on {sinks.device}")
        sinks = sinks.float()
    made, _ = ATTENTION(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), documents, bool(causal),
        int(window or 0), float(softcap or 0), float(size ** -0.5 if scale is None else scale),
        sinks)
    return made.transpose(1, 2)
