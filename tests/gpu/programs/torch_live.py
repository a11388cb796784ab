"""Trains a small transformer for some seconds; prints the time of a step and the last loss.

    torch_live.py SECONDS [STEPS]
With STEPS it ends after so many steps, so that two runs compute the same.
"""

import json
import statistics
import sys
import time

import torch
from torch import nn

SECONDS = float(sys.argv[1])
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else None
WORDS, LENGTH, WIDTH, BATCH = 4096, 128, 256, 16

torch.manual_seed(7)
torch.use_deterministic_algorithms(True, warn_only=True)
layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
model = nn.Sequential(
    nn.Embedding(WORDS, WIDTH), nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(WIDTH, WORDS)
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
words = torch.randint(0, WORDS, (64, BATCH, LENGTH + 1))
begin, times, step, loss = time.monotonic(), [], 0, None
while (step < STEPS) if STEPS else (time.monotonic() - begin < SECONDS):
    started = time.perf_counter()
    batch = words[step % 64].cuda(non_blocking=True)
    outputs = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(outputs.reshape(-1, WORDS), batch[:, 1:].reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    last = loss.item()
    step += 1
    if step > 20:
        times.append(time.perf_counter() - started)
    if step % 50 == 0:
        print(f"step {step} loss {last:.6f}", flush=True)
print(json.dumps({"steps": step, "loss": last, "ms": 1000 * statistics.median(times)}), flush=True)
