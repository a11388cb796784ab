"""Trains a transformer for some seconds; prints the time of a step and the last loss.

    torch_live.py SECONDS [STEPS]
    torch_live.py turns
With STEPS it ends after so many steps, so that two runs compute the same. With `turns` it does as many
steps as each line of its input says, and prints a line of milliseconds and the last loss for each. With
SIZE=ordinary in the environment the model is large enough to keep the GPU busy.
"""

import json
import os
import statistics
import sys
import time

import torch
from torch import nn

SIZES = {"calls": (4096, 128, 256, 16, 6), "ordinary": (8192, 512, 1024, 8, 12)}
WORDS, LENGTH, WIDTH, BATCH, LAYERS = SIZES[os.environ.get("SIZE", "calls")]

torch.manual_seed(7)
torch.use_deterministic_algorithms(True, warn_only=True)
layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
model = nn.Sequential(
    nn.Embedding(WORDS, WIDTH), nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False), nn.Linear(WIDTH, WORDS)
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
words = torch.randint(0, WORDS, (64, BATCH, LENGTH + 1))


def train(step):
    """One step; its seconds and loss."""
    started = time.perf_counter()
    batch = words[step % 64].cuda(non_blocking=True)
    outputs = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(outputs.reshape(-1, WORDS), batch[:, 1:].reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    last = loss.item()
    return time.perf_counter() - started, last


def take_turns():
    step = 0
    for line in sys.stdin:
        count = int(line)
        done = [train(step + at) for at in range(count)]
        step += count
        print(json.dumps({"ms": [1000 * seconds for seconds, _ in done], "loss": done[-1][1].hex()}), flush=True)


def run_for(seconds, most):
    begin, times, step, last = time.monotonic(), [], 0, None
    while (step < most) if most else (time.monotonic() - begin < seconds):
        took, last = train(step)
        step += 1
        if step > 20:
            times.append(took)
        if step % 50 == 0:
            print(f"step {step} loss {last:.6f}", flush=True)
    print(json.dumps({"steps": step, "loss": last, "ms": 1000 * statistics.median(times)}), flush=True)


if sys.argv[1] == "turns":
    take_turns()
else:
    run_for(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
