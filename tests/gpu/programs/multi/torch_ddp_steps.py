"""Steps of training with DistributedDataParallel over NCCL, some 25 MB of gradients. The variable
STEP_TIMES names a file for the seconds of each step, as rank 0 sees them."""
import json
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WARM_UP, STEPS = 5, int(os.environ.get("STEPS", "20"))

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
torch.manual_seed(rank)
width = int(os.environ.get("WIDTH", "1024"))
layers = [layer for _ in range(6) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device), device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
inputs = torch.randn(1024, width, device=device)
times = []
for step in range(WARM_UP + STEPS):
    torch.cuda.synchronize()
    started = time.perf_counter()
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - started)
dist.barrier()
dist.destroy_process_group()
if rank == 0:
    print(f"{STEPS} steps, loss {loss.item():.4f}")
    if "STEP_TIMES" in os.environ:
        with open(os.environ["STEP_TIMES"], "w") as file:
            json.dump(times[WARM_UP:], file)
