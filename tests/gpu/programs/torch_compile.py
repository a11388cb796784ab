"""A compiled model computes some batches; prints what came out."""

import torch
from torch import nn

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 16)).cuda().eval()
compiled = torch.compile(model)
with torch.inference_mode():
    for batch in range(3):
        outputs = compiled(torch.randn(32, 64).cuda())
        print(batch, f"{outputs.sum().item():.6f}", f"{outputs.abs().max().item():.6f}")
