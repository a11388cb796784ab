"""A training step that the host bounds: 20 small layers. Prints lines of "name value"."""

import os
import statistics
import sys
import time

import torch

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
torch.manual_seed(1)
layers = [torch.nn.Linear(64, 64) for _ in range(20)]
model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU()))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(32, 64, device="cuda")


def step():
    optimizer.zero_grad()
    loss = (model(data) - data).square().mean()
    loss.backward()
    optimizer.step()
    return loss


step()
torch.cuda.synchronize()
# The system's clock, because the measuring process passes the time at which it started this one.
print(f"first_step_s {time.time() - float(os.environ['BENCH_STARTED']):.3f}")
for _ in range(30):
    step()
torch.cuda.synchronize()
times = []
for _ in range(STEPS):
    begin = time.perf_counter()
    step()
    times.append(time.perf_counter() - begin)
torch.cuda.synchronize()
print(f"step_ms {statistics.median(times) * 1000:.4f}")
print(f"step_mean_ms {statistics.mean(times) * 1000:.4f}")
