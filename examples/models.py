"""Small configurations of known models, with random weights, as their users write them.

    verilocc torch examples/models.py:llama --target=gfx942 -o llama.vmfb

Each factory returns what ``verilocc torch`` takes: the module, example inputs and, with ``dynamic``, the shapes of a
batch of any size from 1 to 64. ``layers`` is the depth, where the model has one. ``MODELS`` has the factories by name.
Most are built from their configurations in ``transformers``; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import nn

WIDTH, HEADS, LENGTH, BATCH, VOCABULARY, IMAGE = 64, 2, 16, 2, 128, 32

Made = tuple[nn.Module, tuple[torch.Tensor, ...]] | tuple[nn.Module, tuple[torch.Tensor, ...], Any]
Factory = Callable[..., Made]
MODELS: dict[str, Factory] = {}


class Results(nn.Module):
    """A model of transformers that takes tensors by position and returns the results named, as tensors."""

    def __init__(self, model: nn.Module, arguments: tuple[str, ...], results: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.arguments, self.results = model, arguments, results

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        output = self.model(**dict(zip(self.arguments, given, strict=True)))
        return tuple(getattr(output, name) for name in self.results)


def model(build: Callable[[int], tuple[nn.Module, tuple[torch.Tensor, ...]]]) -> Factory:
    """Make a factory of what builds a model of some depth, and name it."""

    def factory(dtype: torch.dtype = torch.float16, dynamic: bool = False, layers: int = 1) -> Made:
        torch.manual_seed(0)
        module, inputs = build(layers)
        inputs = tuple(value.to(dtype) if value.is_floating_point() else value for value in inputs)
        module = module.to(dtype).eval()
        if not dynamic:
            return module, inputs
        batch = {0: torch.export.Dim("batch", min=1, max=64)}
        # Results.forward takes them as one tuple.
        return module, inputs, ((batch,) * len(inputs),) if isinstance(module, Results) else (batch,) * len(inputs)

    factory.__name__, factory.__doc__ = build.__name__, build.__doc__
    MODELS[build.__name__] = factory
    return factory


def tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, length))


def image(size: int = IMAGE) -> torch.Tensor:
    return torch.randn(BATCH, 3, size, size)


def decoder(kind: str, layers: int, **more: Any) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A language model of the Llama family, with grouped queries."""
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
        pad_token_id=0,
        use_cache=False,
        **more,
    )
    causal = getattr(transformers, f"{kind}ForCausalLM")(config)
    return Results(causal, ("input_ids", "attention_mask"), ("logits",)), (tokens(), torch.ones(BATCH, LENGTH).long())


@model
def gpt2(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """GPT-2 with its language-model head."""
    config = transformers.GPT2Config(
        n_embd=WIDTH, n_layer=layers, n_head=HEADS, vocab_size=VOCABULARY, n_positions=64, use_cache=False
    )
    return Results(transformers.GPT2LMHeadModel(config), ("input_ids",), ("logits",)), (tokens(),)


@model
def llama(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Llama, with an attention mask."""
    return decoder("Llama", layers)


@model
def qwen2(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Qwen2, with an attention mask."""
    return decoder("Qwen2", layers)


@model
def qwen3(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Qwen3, with an attention mask."""
    return decoder("Qwen3", layers, head_dim=WIDTH // HEADS)


@model
def gemma(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Gemma 2, whose layers slide and soft-cap."""
    return decoder("Gemma2", layers, head_dim=WIDTH // HEADS, sliding_window=8)


@model
def bert(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """BERT's encoder, with an attention mask that hides the end of one sequence."""
    config = transformers.BertConfig(
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
    )
    mask = torch.ones(BATCH, LENGTH).long()
    mask[1, LENGTH // 2 :] = 0
    whole = Results(transformers.BertModel(config), ("input_ids", "attention_mask"), ("last_hidden_state",))
    return whole, (tokens(), mask)


@model
def t5(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """T5, encoder and decoder."""
    config = transformers.T5Config(
        d_model=WIDTH,
        d_kv=WIDTH // HEADS,
        d_ff=2 * WIDTH,
        num_layers=layers,
        num_heads=HEADS,
        vocab_size=VOCABULARY,
        use_cache=False,
    )
    names = ("input_ids", "decoder_input_ids")
    return Results(transformers.T5Model(config), names, ("last_hidden_state",)), (tokens(), tokens(LENGTH // 2))


@model
def vit(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A vision transformer."""
    config = transformers.ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        image_size=IMAGE,
        patch_size=8,
    )
    return Results(transformers.ViTModel(config), ("pixel_values",), ("last_hidden_state",)), (image(),)


@model
def whisper(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Whisper's encoder."""
    config = transformers.WhisperConfig(
        d_model=WIDTH,
        encoder_layers=layers,
        encoder_attention_heads=HEADS,
        encoder_ffn_dim=2 * WIDTH,
        decoder_layers=1,
        decoder_attention_heads=HEADS,
        decoder_ffn_dim=WIDTH,
        num_mel_bins=16,
        max_source_positions=LENGTH,
        vocab_size=VOCABULARY,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    encoder = transformers.WhisperModel(config).get_encoder()
    return Results(encoder, ("input_features",), ("last_hidden_state",)), (torch.randn(BATCH, 16, 2 * LENGTH),)


@model
def clip(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """CLIP: text and images, and how alike they are."""
    half = {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
    }
    config = transformers.CLIPConfig(
        text_config={**half, "vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "eos_token_id": 2},
        vision_config={**half, "image_size": IMAGE, "patch_size": 8},
        projection_dim=WIDTH,
    )
    results = ("text_embeds", "image_embeds", "logits_per_image")
    return Results(transformers.CLIPModel(config), ("input_ids", "pixel_values"), results), (tokens(), image())


class DiTBlock(nn.Module):
    """A block of a diffusion transformer: attention and an MLP, modulated by an embedding of the time step."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        changes = self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = changes
        qkv = self.qkv(self.norm(x) * (1 + scale) + shift).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(batch, length, width)
        x = x + gate * self.project(attended)
        return x + gate_mlp * self.mlp(self.norm(x) * (1 + scale_mlp) + shift_mlp)


class Blocks(nn.Module):
    """One after the other, each with the same condition."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, condition)
        return x


@model
def dit(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Blocks of a diffusion transformer."""
    blocks = Blocks(*(DiTBlock(WIDTH, HEADS) for _ in range(layers)))
    return blocks, (torch.randn(BATCH, LENGTH, WIDTH), torch.randn(BATCH, WIDTH))


class UNetBlock(nn.Module):
    """Down, a residual block with the time step in it, attention over the pixels, and up again, with a skip."""

    def __init__(self, channels: int, time: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, channels) for _ in range(3))
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(time, channels)
        self.attention = nn.MultiheadAttention(channels, 2, batch_first=True)
        self.join = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        y = self.down(x)
        hidden = self.convolutions[0](F.silu(self.norms[0](y))) + self.time(F.silu(condition))[:, :, None, None]
        y = y + self.convolutions[1](F.silu(self.norms[1](hidden)))
        pixels = self.norms[2](y).flatten(2).transpose(1, 2)
        y = y + self.attention(pixels, pixels, pixels, need_weights=False)[0].transpose(1, 2).reshape(y.shape)
        return self.join(torch.cat([F.interpolate(y, scale_factor=2.0, mode="nearest"), x], dim=1))


@model
def unet(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Blocks of a diffusion UNet."""
    blocks = Blocks(*(UNetBlock(32, WIDTH) for _ in range(layers)))
    return blocks, (torch.randn(BATCH, 32, 16, 16), torch.randn(BATCH, WIDTH))


@model
def resnet18(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """ResNet-18, narrower, for images of 64 by 64; its depth is its own.

    Smaller images end in convolutions with one pixel, which IREE 3.13 cannot compile where they have a stride.
    """
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64, 128], depths=[2, 2, 2, 2], layer_type="basic", num_labels=10
    )
    return Results(transformers.ResNetForImageClassification(config), ("pixel_values",), ("logits",)), (image(64),)


class Recurrent(nn.Module):
    """An LSTM's outputs."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=layers, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


@model
def lstm(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """An LSTM."""
    return Recurrent(layers), (torch.randn(BATCH, LENGTH, WIDTH),)


@model
def mamba(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Mamba's language model, its scan written out."""
    config = transformers.MambaConfig(
        hidden_size=WIDTH, state_size=8, num_hidden_layers=layers, vocab_size=VOCABULARY, use_cache=False
    )
    return Results(transformers.MambaForCausalLM(config), ("input_ids",), ("logits",)), (tokens(),)
