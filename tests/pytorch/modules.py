"""Modules as torch users write them, each with an example of its inputs."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Case = tuple[Callable[[], nn.Module], Callable[[], Any]]


class BasicBlock(nn.Module):
    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(ins, outs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outs)
        self.conv2 = nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or ins != outs:
            self.downsample = nn.Sequential(
                nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """As torchvision writes it; `stem` 7 for ImageNet, 3 for small images."""

    def __init__(
        self,
        widths: tuple[int, ...] = (8, 16),
        blocks: int = 1,
        classes: int = 10,
        channels: int = 1,
        stem: int = 3,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(
            channels, widths[0], stem, 2 if stem == 7 else 1, stem // 2, bias=False
        )
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if stem == 7 else nn.Identity()
        ins = widths[0]
        for number, width in enumerate(widths, 1):
            layer = []
            for block in range(blocks):
                layer.append(BasicBlock(ins, width, 2 if number > 1 and not block else 1))
                ins = width
            setattr(self, f"layer{number}", nn.Sequential(*layer))
        self.stages = len(widths)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(ins, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(1, self.stages + 1):
            x = getattr(self, f"layer{number}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class ViT(nn.Module):
    def __init__(
        self,
        size: int = 8,
        patch: int = 4,
        width: int = 16,
        depth: int = 2,
        heads: int = 4,
        classes: int = 10,
        channels: int = 3,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.encoder(x))[:, 0])


class CausalSelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.heads = heads
        self.register_buffer("bias", torch.tril(torch.ones(length, length))[None, None])

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        y = functional.softmax(scores, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class GPT(nn.Module):
    """nanoGPT, small: tied embeddings, learned positions, tanh GELU."""

    def __init__(self, words: int = 11, length: int = 8, width: int = 16) -> None:
        super().__init__()
        self.wte = nn.Embedding(words, width)
        self.wpe = nn.Embedding(length, width)
        self.h = nn.ModuleList(
            nn.ModuleDict(
                {
                    "ln_1": nn.LayerNorm(width),
                    "attn": CausalSelfAttention(width, 4, length),
                    "ln_2": nn.LayerNorm(width),
                    "c_fc": nn.Linear(width, 4 * width),
                    "c_proj": nn.Linear(4 * width, width),
                }
            )
            for _ in range(2)
        )
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx: Tensor) -> Tensor:
        positions = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.wte(idx) + self.wpe(positions)
        for block in self.h:
            x = x + block["attn"](block["ln_1"](x))
            x = x + block["c_proj"](
                functional.gelu(block["c_fc"](block["ln_2"](x)), approximate="tanh")
            )
        return self.lm_head(self.ln_f(x))


class UNet(nn.Module):
    def __init__(self, up: str = "transposed") -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.pool = nn.MaxPool2d(2)
        self.mid = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.up: nn.Module
        if up == "transposed":
            self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        else:
            self.up = nn.Sequential(
                nn.Upsample(scale_factor=2, mode=up), nn.Conv2d(16, 8, 1, bias=False)
            )
        self.out = nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x)
        x = self.up(self.mid(self.pool(skip)))
        return torch.sigmoid(self.out(torch.cat([skip, x], dim=1)))


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.rnn = layer
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.rnn(x)
        return self.head(outputs[:, -1])


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.lstm = nn.GRUCell(3, 5), nn.LSTMCell(5, 4)
        self.rnn = nn.RNNCell(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], 5)
        state = (x.new_zeros(x.shape[0], 4), x.new_zeros(x.shape[0], 4))
        r = x.new_zeros(x.shape[0], 2)
        for t in range(x.shape[1]):
            h = self.gru(x[:, t], h)
            state = self.lstm(h, state)
            r = self.rnn(state[0], r)
        return r


class TextClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.dropout = nn.Dropout(0.3)
        self.fc = nn.Linear(12, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        output, (hidden, _) = self.lstm(self.embedding(tokens))
        mask = (tokens != 0).unsqueeze(-1)
        pooled = (output * mask).sum(1) / mask.sum(1).clamp(min=1)
        last = torch.cat([hidden[-2], hidden[-1]], dim=-1)
        return self.fc(self.dropout(pooled + last))


class SqueezeExcite(nn.Module):
    """A MobileNetV3 block: expansion, depthwise, squeeze and excitation, hard swish."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(
            nn.Conv2d(4, 16, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(inplace=True)
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU6()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(16, 4, 1),
            nn.ReLU(),
            nn.Conv2d(4, 16, 1),
            nn.Hardsigmoid(),
        )
        self.project = nn.Sequential(nn.Conv2d(16, 4, 1, bias=False), nn.BatchNorm2d(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.squeeze(y))


class Activations(nn.Module):
    """One linear layer through every activation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.prelu = nn.PReLU(6)
        self.functions = [
            nn.ELU(), nn.SELU(), nn.CELU(0.7), nn.GELU(), nn.SiLU(), nn.Mish(), nn.Softplus(2.0),
            nn.Softsign(), nn.Hardtanh(), nn.Hardswish(), nn.Hardsigmoid(), nn.LeakyReLU(0.2),
            nn.ReLU6(), nn.Tanhshrink(), nn.Softshrink(0.2), nn.Hardshrink(0.2), nn.LogSigmoid(),
            nn.Threshold(0.1, 0.3), nn.Tanh(), nn.Sigmoid(), nn.GLU(), nn.RReLU().eval(),
            nn.Softmax(-1), nn.LogSoftmax(-1), nn.Softmin(-1),
        ]  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return torch.cat([f(x) for f in self.functions] + [self.prelu(x)], dim=-1)


class Convolutions(nn.Module):
    """Groups, dilation, strides, padding by name, mirrored borders, transposition."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 8, 3, stride=2, padding=2, dilation=2, groups=2),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding="same", padding_mode="reflect"),
            nn.Tanh(),
            nn.Conv2d(8, 6, (1, 3), padding=(0, 1), padding_mode="circular"),
            nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
            nn.ConvTranspose2d(4, 3, 3, dilation=2, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Conv2d(2, 8, 1)
        self.norms = nn.ModuleList(
            [
                nn.BatchNorm2d(8),
                nn.GroupNorm(4, 8),
                nn.InstanceNorm2d(8, affine=True),
                nn.LocalResponseNorm(3),
                nn.LayerNorm([8, 5, 5]),
                nn.BatchNorm2d(8, affine=False),
            ]
        )
        self.rms = nn.RMSNorm(5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        x = self.rms(sum((norm(x) for norm in self.norms), x))
        return functional.normalize(x, dim=1).mean((2, 3))


class Pools(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.pools = nn.ModuleList(
            [
                nn.MaxPool2d(3, 2, 1),
                nn.MaxPool2d(2, ceil_mode=True),
                nn.AvgPool2d(3, 2, 1),
                nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
                nn.AdaptiveAvgPool2d((3, 2)),
                nn.AdaptiveMaxPool2d(2),
                nn.LPPool2d(2, 2),
                nn.AdaptiveAvgPool2d((None, 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return torch.cat([pool(x).flatten(1) for pool in self.pools], dim=1)


class Interpolations(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        parts = [
            functional.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True),
            functional.interpolate(x, size=(7, 9), mode="bilinear", align_corners=False),
            functional.interpolate(x, size=(7, 9), mode="bicubic"),
            functional.interpolate(x, size=(7, 9), mode="nearest"),
            functional.interpolate(x, size=(7, 9), mode="nearest-exact"),
            functional.interpolate(x, scale_factor=1.7, mode="bilinear")[..., :7, :9],
            functional.interpolate(x, scale_factor=2, mode="nearest")[..., :7, :9],
        ]
        return sum(
            functional.pad(part, (1, 12 - part.shape[-1], 2, 12 - part.shape[-2])) for part in parts
        )


class Indexing(nn.Module):
    """Slices, gathers, orders, masks and writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(6, 4))
        self.register_buffer("order", torch.tensor([2, 0, 3, 1]))

    def forward(self, x: Tensor, idx: Tensor) -> dict[str, Tensor]:
        y = x @ self.table[:4]
        picked = self.table[idx]
        z = y.clone()
        z[:, 1:3] = 2 * z[:, 1:3]
        z[:, -1] += y[:, 0]
        z[z < -1] = 0.5
        top, where = y.topk(2, dim=-1)
        ordered, _ = torch.sort(y, dim=-1, descending=True)
        return {
            "picked": picked.sum(1),
            "written": z[:, self.order],
            "top": top + y.gather(1, where),
            "ordered": ordered.flip(-1).roll(1, -1),
            "masked": torch.where(y > 0, y, -y).masked_fill(x > 1, 0.0),
            "maximum": torch.maximum(y, x[:, :4]).amax(-1),
            "max": y.max(dim=-1).values,
            "tri": torch.tril(y[:, :, None] * y[:, None, :]).sum((1, 2)),
            "norm": y.norm(dim=-1) + torch.linalg.vector_norm(y, 1, dim=-1),
            "moments": torch.stack([y.var(-1), y.std(-1, unbiased=False), y.mean(-1)], -1),
            "running": y.cumsum(-1).logsumexp(-1),
            "scattered": torch.zeros_like(y).scatter_add(1, where, top),
            "chunks": torch.cat(y.chunk(3, dim=-1)[::-1], dim=-1),
            "einsum": torch.einsum("bi,bj->bij", y, y).diagonal(dim1=1, dim2=2),
            "distance": (y - y.mean(0, keepdim=True)).pow(2).sum().sqrt(),
        }


class Masked(nn.Module):
    """A transformer encoder with a causal mask and padding."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.encoder(x, mask, padding, is_causal=True)


class Geometry(nn.Module):
    """Distances, kernels with their solutions, and running extremes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = x @ self.weight
        kernel = torch.exp(-torch.cdist(y, y)) + 0.1 * torch.eye(x.shape[0], dtype=x.dtype)
        largest, places = torch.cummax(y, dim=1)
        edges = torch.linspace(-1, 1, 5)
        return {
            "absolute": torch.cdist(y, x + 3, p=1.0),
            "largest gap": torch.cdist(y, x + 3, p=float("inf")),
            "solved": torch.linalg.solve(kernel, y),
            "root": torch.linalg.cholesky(kernel),
            "running": largest - torch.cummin(y, dim=1).values,
            "places": places * y,
            "bins": torch.searchsorted(edges, x) * y + torch.bucketize(x, edges) * y,
        }


class Attention(nn.Module):
    """Multi-head attention between two sequences of different widths."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=5, batch_first=True, bias=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.attention(q, k, v)


class GroupedQueries(nn.Module):
    """As Llama writes it: RMSNorm, rotary positions, grouped queries, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.RMSNorm(16, eps=1e-5), nn.RMSNorm(16, eps=1e-5)
        self.q = nn.Linear(16, 16, bias=False)
        self.k, self.v = nn.Linear(16, 8, bias=False), nn.Linear(16, 8, bias=False)
        self.o = nn.Linear(16, 16, bias=False)
        self.gate, self.up = nn.Linear(16, 24, bias=False), nn.Linear(16, 24, bias=False)
        self.down = nn.Linear(24, 16, bias=False)
        inverse = 1.0 / 10000 ** (torch.arange(0, 4, 2).float() / 4)
        self.register_buffer("inv_freq", inverse, persistent=False)

    def rotate(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[2], dtype=x.dtype), self.inv_freq.to(x.dtype))
        cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], -1) * sin

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        y = self.norm(x)
        q = self.rotate(self.q(y).view(b, t, 4, 4).transpose(1, 2))
        k = self.rotate(self.k(y).view(b, t, 2, 4).transpose(1, 2))
        v = self.v(y).view(b, t, 2, 4).transpose(1, 2)
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, 16))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Tied(nn.Module):
    """An autoencoder whose decoder is its encoder, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4))
        self.bias_in, self.bias_out = nn.Parameter(torch.zeros(6)), nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(functional.linear(x, self.weight, self.bias_in))
        return functional.linear(h, self.weight.t(), self.bias_out)


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(6), nn.LayerNorm(6)
        self.tokens = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 5))
        self.channels = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Shuffles(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.channel_shuffle(self.conv(x), 2)
        x = functional.pixel_unshuffle(functional.pixel_shuffle(x, 2), 2)
        columns = functional.unfold(x, 3, padding=1)
        return functional.fold(columns, x.shape[-2:], 3, padding=1)


class Frozen(nn.Module):
    """A feature extractor without gradients under a trained head."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            h = torch.tanh(self.features(x))
        return self.head(h.detach())


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 4, mode="mean")
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.bag(x))


def normal(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape)


def words(count: int, *shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, count, shape)


def padded() -> Any:
    mask = torch.zeros(3, 7, dtype=torch.bool)
    mask[0, 5:] = True
    return torch.randn(3, 7, 16), mask


MODULES: dict[str, Case] = {
    "linear": (lambda: nn.Linear(4, 3), normal(3, 4)),
    "mlp": (
        lambda: nn.Sequential(
            nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
        ),
        normal(5, 4),
    ),
    "mlp with dropout and batch norm": (
        lambda: nn.Sequential(
            nn.Linear(4, 8),
            nn.BatchNorm1d(8),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(8, 3),
        ),
        normal(5, 4),
    ),
    "lenet": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 3),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(6, 3),
        ),
        normal(3, 1, 8, 8),
    ),
    "resnet": (ResNet, normal(3, 1, 8, 8)),
    "resnet with a wide stem": (lambda: ResNet(stem=7, blocks=2), normal(3, 1, 17, 17)),
    "vit": (ViT, normal(3, 3, 8, 8)),
    "gpt": (GPT, words(11, 3, 8)),
    "u-net, transposed": (UNet, normal(3, 3, 8, 8)),
    "u-net, bilinear": (lambda: UNet("bilinear"), normal(3, 3, 8, 8)),
    "u-net, nearest": (lambda: UNet("nearest"), normal(3, 3, 8, 8)),
    "rnn": (lambda: Recurrent(nn.RNN(3, 5, batch_first=True), 5), normal(3, 6, 3)),
    "rnn with relu": (
        lambda: Recurrent(nn.RNN(3, 5, nonlinearity="relu", bias=False, batch_first=True), 5),
        normal(3, 6, 3),
    ),
    "gru": (lambda: Recurrent(nn.GRU(3, 5, batch_first=True), 5), normal(3, 6, 3)),
    "gru, two layers, both ways": (
        lambda: Recurrent(nn.GRU(3, 5, 2, bidirectional=True, batch_first=True), 10),
        normal(3, 6, 3),
    ),
    "lstm": (lambda: Recurrent(nn.LSTM(3, 5, batch_first=True), 5), normal(3, 6, 3)),
    "lstm, two layers, both ways": (
        lambda: Recurrent(nn.LSTM(3, 5, 2, bidirectional=True, batch_first=True), 10),
        normal(3, 6, 3),
    ),
    "lstm with time first": (lambda: nn.LSTM(3, 5, 2), normal(6, 3, 3)),
    "cells": (Cells, normal(3, 4, 3)),
    "text classifier": (TextClassifier, words(20, 3, 6)),
    "transformer encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2),
        normal(3, 7, 16),
    ),
    "transformer encoder with masks": (Masked, padded),
    "transformer decoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32, batch_first=True), 1),
        lambda: (torch.randn(3, 5, 16), torch.randn(3, 7, 16)),
    ),
    "attention between sequences": (
        Attention,
        lambda: (torch.randn(3, 4, 8), torch.randn(3, 5, 6), torch.randn(3, 5, 5)),
    ),
    "distances and solutions": (Geometry, normal(5, 4)),
    "grouped queries": (GroupedQueries, normal(3, 5, 16)),
    "squeeze and excitation": (SqueezeExcite, normal(3, 4, 6, 6)),
    "activations": (Activations, normal(5, 4)),
    "convolutions": (Convolutions, normal(3, 4, 9, 9)),
    "convolutions of sequences": (
        lambda: nn.Sequential(
            nn.Conv1d(3, 6, 3, padding=1),
            nn.BatchNorm1d(6),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(6, 4, 3, groups=2),
            nn.AdaptiveAvgPool1d(2),
            nn.Flatten(),
            nn.Linear(8, 2),
        ),
        normal(3, 3, 12),
    ),
    "convolutions of volumes": (
        lambda: nn.Sequential(
            nn.Conv3d(1, 4, 3, padding=1),
            nn.BatchNorm3d(4),
            nn.ReLU(),
            nn.MaxPool3d(2),
            nn.ConvTranspose3d(4, 2, 2, 2),
            nn.AvgPool3d(2),
        ),
        normal(2, 1, 4, 4, 4),
    ),
    "norms": (Norms, normal(3, 2, 5, 5)),
    "pools": (Pools, normal(3, 2, 9, 9)),
    "interpolations": (Interpolations, normal(2, 2, 5, 6)),
    "indexing": (Indexing, lambda: (torch.randn(3, 4), torch.randint(0, 6, (3, 2)))),
    "tied autoencoder": (Tied, normal(3, 4)),
    "mixer": (Mixer, normal(3, 5, 6)),
    "shuffles": (Shuffles, normal(2, 2, 4, 4)),
    "frozen features": (Frozen, normal(3, 4)),
    "bags of words": (Bags, words(10, 3, 5)),
    "bilinear": (lambda: nn.Bilinear(3, 4, 5), lambda: (torch.randn(3, 3), torch.randn(3, 4))),
    "weight norm": (
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 6)), nn.ReLU(), nn.Linear(6, 2)
        ),
        normal(3, 4),
    ),
}


def build(name: str, seed: int = 0) -> tuple[nn.Module, Any]:
    """A module in inference mode whose statistics and biases are not those of the start."""
    torch.manual_seed(seed)
    make, inputs = MODULES[name]
    module = make().eval()
    for key, x in module.state_dict().items():
        if key.endswith("running_mean") or (key.endswith("bias") and "attn.bias" not in key):
            x.normal_(std=0.3)
        if key.endswith("running_var"):
            x.uniform_(0.5, 2)
    return module, inputs()
